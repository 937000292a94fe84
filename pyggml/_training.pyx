# cython: language_level=3
"""Forward, backward and step of one network at one batch size, by ggml-opt where it has room."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._large cimport LargeGraph, measure
from pyggml._locks cimport Lock
from pyggml._lowering cimport Stepper, begin_compute, end_compute, fill_mask, has_failed, pg_stepped
from pyggml._memory cimport require
from pyggml._plan cimport planned_bytes
from pyggml._runtime cimport Context, Scheduler
from pyggml._slot cimport Slot
from pyggml._variable cimport Variable

from pyggml._forward import build

# A quiet NaN that no computation produces: a loss that still holds it was never written.
cdef uint32_t _unwritten = 0x7fc0dead

# Gradients are accumulated by windows of any length, so ggml-opt's own period never ends.
cdef int64_t _endless = 1 << 30

cdef size_t _static_room = _ggml.GGML_DEFAULT_GRAPH_SIZE


def set_static_room(size_t n=_ggml.GGML_DEFAULT_GRAPH_SIZE):
    """Choose how large a graph may be that ggml-opt is to hold, 2048 at most. For tests."""
    global _static_room
    _static_room = min(n, <size_t>_ggml.GGML_DEFAULT_GRAPH_SIZE)


cdef class StepParams:
    """What the step rule of ggml reads: learning rate, betas, epsilon, decay, corrections.

    They stand in tensors of our own instead of ggml-opt's, which asserts that the learning rate
    is positive and keeps its step count private.

    Parameters
    ----------
    decay_biases : bool
        Whether biases and scales are decayed.
    """

    def __cinit__(self, bint decay_biases=True):
        self.decay_biases = decay_biases
        self.decayed = Variable((7,), "step_params", trainable=False)
        self.plain = Variable((7,), "step_params_plain", trainable=False)

    cdef Variable of(self, Variable variable):
        if not variable.decay:
            return self.plain
        if not self.decay_biases and (len(variable.shape) < 2 or variable.name.endswith("bias")):
            return self.plain
        return self.decayed


cdef _ggml.ggml_opt_optimizer_params _legal_params(void * userdata) noexcept nogil:
    # ggml-opt checks these and writes them where no node reads them.
    return _ggml.ggml_opt_get_default_optimizer_params(NULL)


def _prepare(Graph graph, Tensor total):
    """Refuse a loss that nothing can be trained with; return the size of the training graph."""
    if not graph.variables:
        raise ValueError("the model has no trainable weights that its loss depends on")
    if not total.requires_grad:
        raise ValueError("the loss does not depend on any trainable weight")
    if total.shape != (1,):
        raise ValueError(f"the loss must have shape (1,), got {total.shape}")
    if graph.awaited is not None:
        total.ptr.src[1] = graph.awaited.ptr  # CONT does not read it; see Graph.update
    return measure(graph, total.ptr)


cdef size_t planned_training(Graph graph) except? 0:
    """How much memory ggml-opt will take for the results of a training graph it has built.

    Its own graph is out of reach; this one is made of the results that nothing else uses.
    """
    cdef size_t size = 8 * graph.capacity
    cdef Context scratch = Context(0, size, 1)
    cdef _ggml.ggml_cgraph * all_nodes = _ggml.ggml_new_graph_custom(scratch.ptr, size, False)
    cdef _ggml.ggml_tensor * t = _ggml.ggml_get_first_tensor(graph.compute.ptr)
    cdef size_t unplanned = 0
    cdef int i
    cdef int results = 0
    used = set()
    while t is not NULL:
        if t.data is NULL and t.view_src is NULL:
            unplanned += _ggml.ggml_nbytes(t)
            results += 1
        for i in range(_ggml.GGML_MAX_SRC):
            if t.src[i] is not NULL:
                used.add(<size_t>t.src[i])
        t = _ggml.ggml_get_next_tensor(graph.compute.ptr, t)
    if unplanned < 1 << 24 and results < 200:  # little, even if nothing shares its memory
        return unplanned
    t = _ggml.ggml_get_first_tensor(graph.compute.ptr)
    while t is not NULL:
        if t.op != _ggml.GGML_OP_NONE and <size_t>t not in used:
            _ggml.ggml_build_forward_expand(all_nodes, t)
        t = _ggml.ggml_get_next_tensor(graph.compute.ptr, t)
    return planned_bytes(all_nodes)


@cython.no_gc_clear
cdef class TrainGraph:
    """The training graph of a network for one batch size.

    ggml-opt holds it, unless it is larger than ggml-opt's static graphs can be.

    Parameters
    ----------
    program : Program
    criterion : Criterion
    batch_size : int
    bindings : dict
        The trainer's variables in place of the program's.
    rule : {"adamw", "sgd", "momentum", "rmsprop", "adagrad", "lion"}
        The first two are ggml's.
    clip : tuple of str or None, float
        As ``clipping`` of an optimizer.
    slots : dict of Variable to tuple of Variable
        State of the step rule for each trainable variable.
    params : StepParams
    gradients : dict of Variable to Variable, optional
        Where gradients are added up. Given, the optimizer does not step.
    trained : TrainingMode, optional
        What of the program moves; by default what is not frozen now.
    """

    def __cinit__(self):
        self.opt = NULL
        self.seed = NULL
        self.masks = NULL
        self.updates = NULL

    def __init__(self, program, criterion, Py_ssize_t batch_size, dict bindings, str rule,
                 tuple clip, dict slots, StepParams params, dict gradients=None, trained=None):
        cdef Graph graph
        cdef size_t size

        def make(Graph graph):
            inputs = program.make_inputs(graph)
            outputs = program.run(graph, [slot.tensor for slot in inputs])
            loss = criterion.build(graph, outputs)
            return inputs, loss, _prepare(graph, loss.total)

        self.graph, built = build(make, batch_size, True, bindings, trained)
        self.inputs, self.loss, size = built
        graph = self.graph
        self.carriers = graph.carriers
        graph.allocate()
        self._list_masks()
        self._list_updates()

        self.moves_statistics = True
        self.accumulating = gradients is not None
        self.clip = clip
        self.targets = gradients
        self.reached = set()
        if size > _static_room:
            self._build_large(size, rule, clip, slots, params)
        else:
            self._build_static(size, rule, clip, slots, params)
        graph.seal()

    cdef int _build_static(self, size_t size, str rule, tuple clip, dict slots,
                           StepParams params) except -1:
        """Let ggml-opt build the graphs, and put our own state and parameters in place."""
        cdef _ggml.ggml_opt_params p
        cdef Graph graph = self.graph
        cdef Tensor first = (<Slot>self.inputs[0]).tensor
        cdef Tensor total = self.loss.total
        self.scheduler = Scheduler(2 * size + 64, graph.fused)
        p = _ggml.ggml_opt_default_params(self.scheduler.ptr, _ggml.GGML_OPT_LOSS_TYPE_SUM)
        p.ctx_compute = graph.compute.ptr
        p.inputs = first.ptr
        p.outputs = total.ptr
        p.build_type = _ggml.GGML_OPT_BUILD_TYPE_OPT
        p.opt_period = <int32_t>_endless if self.accumulating else 1
        p.get_opt_pars = _legal_params
        # SGD allocates no moments in ggml-opt: they are ours, and are put in place below.
        p.optimizer = _ggml.GGML_OPT_OPTIMIZER_TYPE_SGD
        # Its accumulators, and a copy of the graph's description; it does not look for failures.
        require((4 * sum([v.size for v in graph.variables]) if self.accumulating else 0)
                + 4096 * <size_t>_ggml.GGML_DEFAULT_GRAPH_SIZE, "ggml-opt")
        with nogil:
            self.opt = _ggml.ggml_opt_init(p)
        if self.opt is NULL:
            raise MemoryError("ggml-opt could not be set up")
        self.loss_value = <float *>_ggml.ggml_opt_loss(self.opt).data
        self.seed = <float *>_ggml.ggml_opt_grad_acc(
            self.opt, _ggml.ggml_opt_loss(self.opt)).data
        if self.accumulating:
            self._redirect_gradients(self.targets)
            # The first allocation sets the accumulators to zero; a window may be open.
            held = [g.numpy() for g in self.targets.values()]
        else:
            self._redirect_steps(rule, clip, slots, params)
        graph.lower()
        self.scheduler.stop_on_failure(graph.lowered)
        planned = planned_training(graph)
        what = f"a training step on {graph.batch_size} rows"
        require(planned, what)
        with nogil:
            _ggml.ggml_opt_alloc(self.opt, True)
        if planned and not self.scheduler.nbytes:
            raise MemoryError(f"{planned} bytes for {what} could not be allocated")
        if self.accumulating:
            for g, value in zip(self.targets.values(), held):
                g.assign(value)
        return 0

    cdef int _build_large(self, size_t size, str rule, tuple clip, dict slots,
                          StepParams params) except -1:
        """Build what ggml-opt would build, where its graphs are too small."""
        cdef Graph graph = self.graph
        cdef LargeGraph large = LargeGraph(graph, self.loss.total, size, self.targets)
        cdef Tensor alias
        cdef _ggml.ggml_tensor * gradient
        cdef _ggml.ggml_tensor * head
        self.large = large
        if self.accumulating:
            for variable, alias in graph.aliases.items():
                if _ggml.ggml_graph_get_grad(large.cgraph, alias.ptr) is not NULL:
                    self.reached.add(graph.bindings.get(variable, variable))
        else:
            alias = graph.weight(params.plain)
            head = _head(graph, alias.ptr, 2)
            steps = []
            for alias in list(graph.aliases.values()):
                if not alias.requires_grad:
                    continue
                gradient = _ggml.ggml_graph_get_grad(large.cgraph, alias.ptr)
                if gradient is not NULL:  # else the loss does not depend on it
                    steps.append(<size_t>_ggml.ggml_opt_step_sgd(
                        graph.compute.ptr, alias.ptr, gradient, head))
            self._redirect_steps(rule, clip, slots, params)
            for address in steps:
                _ggml.ggml_build_forward_expand(large.cgraph, <_ggml.ggml_tensor *><size_t>address)
        graph.lower()
        self.scheduler = Scheduler(size, graph.fused)
        self.scheduler.stop_on_failure(graph.lowered)
        large.plan(self.scheduler)
        self.loss_value = large.loss.data
        self.seed = large.seed.data
        return 0

    cdef int _redirect_gradients(self, dict gradients) except -1:
        """Let ggml-opt's accumulators lie in the trainer's memory, shared by batch sizes."""
        cdef Tensor alias
        cdef Variable target
        cdef _ggml.ggml_tensor * acc
        for variable in self.graph.aliases:
            alias = self.graph.aliases[variable]
            if not alias.requires_grad:
                continue
            acc = _ggml.ggml_opt_grad_acc(self.opt, alias.ptr)
            if acc is NULL:
                continue  # the loss does not depend on it
            variable = self.graph.bindings.get(variable, variable)
            self.reached.add(variable)
            target = gradients[variable]
            acc.data = target.data
            acc.buffer = target.buffer.ptr
        return 0

    cdef int _redirect_steps(self, str rule, tuple clip, dict slots,
                             StepParams params) except -1:
        cdef _ggml.ggml_tensor * t
        cdef Tensor alias
        by_pointer = {}
        for variable, alias in list(self.graph.aliases.items()):
            by_pointer[<size_t>alias.ptr] = self.graph.bindings.get(variable, variable)
        t = _ggml.ggml_get_first_tensor(self.graph.compute.ptr)
        steps = []
        while t is not NULL:
            if t.op == _ggml.GGML_OP_OPT_STEP_SGD:
                steps.append(<size_t>t)
            t = _ggml.ggml_get_next_tensor(self.graph.compute.ptr, t)
        if rule not in ("sgd", "adamw") or clip[0] is not None:
            # All gradients are computed before the first step, and stay until the last.
            self.stepper = Stepper(rule, clip, len(steps))
        for address in steps:
            t = <_ggml.ggml_tensor *><size_t>address
            self._set_step(t, by_pointer[<size_t>t.src[0]], rule, slots, params)
        return 0

    cdef int _set_step(self, _ggml.ggml_tensor * t, Variable variable, str rule, dict slots,
                       StepParams params) except -1:
        """Make t the optimizer's step on a variable, with the trainer's state and parameters."""
        cdef Tensor source
        cdef int i
        cdef list sources = [self.graph.weight(state) for state in slots[variable]]
        cdef Tensor numbers = self.graph.weight(params.of(variable))
        if not _ggml.ggml_is_contiguous(t.src[1]):
            raise NotImplementedError(
                f"the gradient of {variable.name!r} does not lie in the order of the weight; "
                f"multiply the weight by 1 before its axes are permuted")
        if self.stepper is not None:
            sources.insert(0, numbers)
            self.stepper.take(t)
        elif rule == "sgd":
            t.op = _ggml.GGML_OP_OPT_STEP_SGD
        else:
            sources.append(numbers)
            t.op = _ggml.GGML_OP_OPT_STEP_ADAMW
        for i in range(2, _ggml.GGML_MAX_SRC):
            t.src[i] = NULL
        for i in range(len(sources)):
            source = sources[i]
            t.src[2 + i] = source.ptr
        if self.stepper is None and rule == "sgd":
            # SGD's kernel wants exactly two parameters: the rate and the decay.
            t.src[2] = _head(self.graph, numbers.ptr, 2)
        return 0

    cdef bint compute(self, float weight) noexcept nogil:
        """Run forward and backward, and the step unless accumulating; threads are set up.

        ``weight`` multiplies the gradients that are accumulated. False where ggml did not finish.
        """
        cdef uint32_t bits
        cdef uint64_t denormals
        cdef int i
        self.evaluations += 1
        memcpy(self.loss_value, &_unwritten, sizeof(float))
        self.seed[0] = weight
        if self.stepper is not None:
            self.stepper.begin()
        denormals = begin_compute()
        if self.opt is not NULL:
            _ggml.ggml_opt_eval(self.opt, NULL)
            _ggml.ggml_opt_alloc(self.opt, True)
        else:
            _ggml.ggml_backend_sched_graph_compute(self.scheduler.ptr, self.large.cgraph)
        end_compute(denormals)
        memcpy(&bits, self.loss_value, sizeof(float))
        if bits == _unwritten or has_failed(self.graph.lowered.ptr):
            return False
        if self.moves_statistics:
            for i in range(self.n_updates):
                memcpy(self.updates[i].variable, self.updates[i].value, self.updates[i].n_bytes)
        return True

    cdef float evaluate(self, float weight) except? -1:
        """Compute once, as :meth:`compute` does, and return the loss."""
        cdef bint finished
        cdef Lock lock = self.scheduler.enter_compute()
        try:
            with nogil:
                finished = self.compute(weight)
        finally:
            self.scheduler.leave_compute(lock)
        if not finished:
            self.raise_unfinished()
        return self.loss_value[0]

    cdef int raise_unfinished(self) except -1:
        self.graph.lowered.check()
        raise RuntimeError("ggml did not finish the computation; the loss was not written")

    cdef bint exhausted(self) noexcept:
        """Whether it must be made anew: after a fork, or before ggml-opt's period ends."""
        return self.scheduler.stale() or (
            self.accumulating and self.evaluations + 1024 >= _endless)

    cdef int _list_masks(self) except -1:
        cdef Tensor mask
        cdef int i
        self.n_masks = len(self.graph.masks)
        if self.n_masks == 0:
            return 0
        self.masks = <_Mask *>malloc(self.n_masks * sizeof(_Mask))
        if self.masks is NULL:
            raise MemoryError
        for i in range(self.n_masks):
            mask, self.masks[i].rate = self.graph.masks[i]
            self.masks[i].data = <float *>mask.ptr.data
            self.masks[i].n = _ggml.ggml_nelements(mask.ptr)
        return 0

    cdef int _list_updates(self) except -1:
        cdef Variable variable
        cdef Tensor value
        cdef int i
        self.n_updates = len(self.graph.updates)
        if self.n_updates == 0:
            return 0
        self.updates = <_Update *>malloc(self.n_updates * sizeof(_Update))
        if self.updates is NULL:
            raise MemoryError
        for i in range(self.n_updates):
            variable, value = self.graph.updates[i]
            self.updates[i].variable = variable.data
            self.updates[i].value = <const float *>value.ptr.data
            self.updates[i].n_bytes = variable.size * sizeof(float)
        return 0

    cdef void draw_masks(self, uint64_t seed, uint64_t step) noexcept nogil:
        cdef int i
        self.carriers.set_rng(seed, step)
        for i in range(self.n_masks):
            fill_mask(self.masks[i].data, self.masks[i].n, self.masks[i].rate, seed, step, i)

    @property
    def nbytes(self):
        """Bytes that the graph holds beside weights and moments."""
        planned = 0 if self.large is None else self.large.memory.nbytes
        return self.graph.buffer.nbytes + self.scheduler.nbytes + planned

    def __dealloc__(self):
        free(self.masks)
        free(self.updates)
        if self.opt is not NULL:
            _ggml.ggml_opt_free(self.opt)
            self.opt = NULL


cdef _ggml.ggml_tensor * _head(Graph graph, _ggml.ggml_tensor * t, int64_t n) except NULL:
    """A leaf over the first n elements of a leaf."""
    cdef _ggml.ggml_tensor * head
    cdef int64_t ne[4]
    ne[0] = n
    ne[1] = ne[2] = ne[3] = 1
    if graph.weights.room() < 1:
        raise MemoryError("no room for the parameters of the step")
    head = _ggml.ggml_new_tensor(graph.weights.ptr, _ggml.GGML_TYPE_F32, 4, ne)
    _ggml.ggml_backend_tensor_alloc(t.buffer, head, t.data)
    return head


cdef class Application:
    """The optimizer's step on gradients that were added up or given.

    Parameters
    ----------
    variables : list of Variable
    gradients : dict of Variable to Variable
    rule, slots, params
        As for :class:`TrainGraph`.
    """

    def __cinit__(self, list variables, dict gradients, str rule, dict slots, StepParams params):
        cdef Variable v, held
        cdef int i, k
        self.n = len(variables)
        self.items = <pg_stepped *>calloc(max(self.n, 1), sizeof(pg_stepped))
        if self.items is NULL:
            raise MemoryError
        self.stepper = Stepper(rule, (None, 0.0), self.n)
        self.owners = [params]
        for i in range(self.n):
            v = variables[i]
            held = gradients[v]
            self.owners += [v, held]
            self.items[i].n = v.size
            self.items[i].w = v.data
            self.items[i].g = held.data
            self.items[i].params = params.of(v).data
            for k, held in enumerate(slots[v]):
                self.owners.append(held)
                self.items[i].state[k] = held.data

    def __dealloc__(self):
        free(self.items)

    cdef void apply(self, double factor) noexcept:
        """Step by the gradients times a factor, clipped after that as the stepper was told."""
        cdef uint64_t denormals
        cdef int i
        self.stepper.data.scale = factor
        with nogil:
            denormals = begin_compute()
            self.stepper.begin()
            for i in range(self.n):
                self.stepper.step(&self.items[i])
            end_compute(denormals)
