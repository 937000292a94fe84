# cython: language_level=3
"""ggml-opt's context: forward, backward and step of one network at one batch size."""

cimport cython
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._lowering cimport begin_compute, end_compute, fill_mask, has_failed
from pyggml._memory cimport require
from pyggml._runtime cimport Context, Scheduler, planned_bytes
from pyggml._slot cimport Slot
from pyggml._variable cimport Variable

from pyggml._forward import build

cdef extern from "_step_rules.h" nogil:
    _ggml.ggml_custom_op_t pg_step_rule(const char * name)
    double pg_sum_of_squares(const float * x, int64_t n)
    void pg_multiply(float * x, int64_t n, double factor)
    void pg_limit(float * x, int64_t n, float limit)

# A quiet NaN that no computation produces: a loss that still holds it was never written.
cdef uint32_t _unwritten = 0x7fc0dead

# Gradients are accumulated by windows of any length, so ggml-opt's own period never ends.
cdef int64_t _endless = 1 << 30


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


cdef int _check_size(Graph graph, _ggml.ggml_tensor * total) except -1:
    """Refuse what ggml-opt's static graphs cannot hold: it would end the process."""
    cdef Context scratch = Context(8 * graph.capacity, 8 * graph.capacity, 3)
    cdef size_t size = 8 * graph.capacity
    cdef _ggml.ggml_cgraph * forward = _ggml.ggml_new_graph_custom(scratch.ptr, size, True)
    cdef _ggml.ggml_cgraph * backward
    cdef _ggml.ggml_tensor * loss = _ggml.ggml_sum(scratch.ptr, total)
    cdef Tensor t
    _ggml.ggml_set_loss(loss)
    for t in graph.milestones:
        _ggml.ggml_build_forward_expand(forward, t.ptr)
    _ggml.ggml_build_forward_expand(forward, loss)
    nodes = _ggml.ggml_graph_n_nodes(forward)
    if nodes > _ggml.GGML_DEFAULT_GRAPH_SIZE:
        raise NotImplementedError(
            f"this network takes {nodes} operations forward alone; ggml-opt's static graphs hold "
            f"{<int>_ggml.GGML_DEFAULT_GRAPH_SIZE} with the backward pass")
    backward = _ggml.ggml_graph_dup(scratch.ptr, forward, True)
    _ggml.ggml_build_backward_expand(scratch.ptr, backward, NULL)
    nodes = _ggml.ggml_graph_n_nodes(backward) + len(graph.variables)
    leaves = 5 * len(graph.aliases) + graph_inputs(graph) + 16
    if nodes + leaves > _ggml.GGML_DEFAULT_GRAPH_SIZE:
        raise NotImplementedError(
            f"training this network takes {nodes} operations and {leaves} tensors; ggml-opt's "
            f"static graphs hold {<int>_ggml.GGML_DEFAULT_GRAPH_SIZE} together")
    return nodes + leaves


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


def graph_inputs(Graph graph):
    """Count the input tensors of a graph."""
    cdef int n = 0
    cdef _ggml.ggml_tensor * t = _ggml.ggml_get_first_tensor(graph.inputs.ptr)
    while t is not NULL:
        n += 1
        t = _ggml.ggml_get_next_tensor(graph.inputs.ptr, t)
    return n


@cython.no_gc_clear
cdef class TrainGraph:
    """The training graph of a network for one batch size, held by ggml-opt.

    Parameters
    ----------
    program : Program
    criterion : Criterion
    batch_size : int
    bindings : dict
        The trainer's variables in place of the program's.
    rule : {"adamw", "sgd", "momentum", "rmsprop", "adagrad", "lion"}
        The first two are ggml's.
    slots : dict of Variable to tuple of Variable
        State of the step rule for each trainable variable.
    params : StepParams
    gradients : dict of Variable to Variable, optional
        Where gradients are added up. Given, the optimizer does not step.
    trained : set of Variable, optional
        Those of the program to train; by default those that are trainable now.
    """

    def __cinit__(self):
        self.opt = NULL
        self.seed = NULL
        self.masks = NULL
        self.updates = NULL

    def __init__(self, program, criterion, Py_ssize_t batch_size, dict bindings, str rule,
                 dict slots, StepParams params, dict gradients=None, trained=None):
        cdef _ggml.ggml_opt_params p
        cdef Tensor first, total
        cdef Graph graph

        def make(Graph graph):
            inputs = program.make_inputs(graph)
            outputs = program.run(graph, [slot.tensor for slot in inputs], True)
            return inputs, criterion.build(graph, outputs)

        self.graph, built = build(make, batch_size, True, bindings, trained)
        self.inputs, self.loss = built
        graph = self.graph
        self.carriers = graph.carriers
        total = self.loss.total
        if not graph.variables:
            raise ValueError("the model has no trainable weights that its loss depends on")
        if not total.requires_grad:
            raise ValueError("the loss does not depend on any trainable weight")
        if total.shape != (1,):
            raise ValueError(f"the loss must have shape (1,), got {total.shape}")
        graph.allocate()
        if graph.awaited is not None:
            total.ptr.src[1] = graph.awaited.ptr  # CONT does not read it; see Graph.update
        size = _check_size(graph, total.ptr)
        self._list_masks()
        self._list_updates()

        self.moves_statistics = True
        self.accumulating = gradients is not None
        self.targets = gradients
        self.scheduler = Scheduler(2 * size, graph.fused)
        first = (<Slot>self.inputs[0]).tensor
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
            self._redirect_gradients(gradients)
            # The first allocation sets the accumulators to zero; a window may be open.
            held = [g.numpy() for g in gradients.values()]
        else:
            self._redirect_steps(rule, slots, params)
        graph.lower()
        self.scheduler.stop_on_failure(graph.lowered)
        planned = planned_training(graph)
        what = f"a training step on {batch_size} rows"
        require(planned, what)
        with nogil:
            _ggml.ggml_opt_alloc(self.opt, True)
        if planned and not self.scheduler.nbytes:
            raise MemoryError(f"{planned} bytes for {what} could not be allocated")
        if self.accumulating:
            for g, value in zip(gradients.values(), held):
                g.assign(value)
        graph.seal()

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
            target = gradients[self.graph.bindings.get(variable, variable)]
            acc.data = target.data
            acc.buffer = target.buffer.ptr
        return 0

    cdef int _redirect_steps(self, str rule, dict slots, StepParams params) except -1:
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
        for address in steps:
            t = <_ggml.ggml_tensor *><size_t>address
            set_step(self.graph, t, by_pointer[<size_t>t.src[0]], rule, slots, params)
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
        denormals = begin_compute()
        _ggml.ggml_opt_eval(self.opt, NULL)
        _ggml.ggml_opt_alloc(self.opt, True)
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
        lock = self.scheduler.enter_compute()
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
        return self.graph.buffer.nbytes + self.scheduler.nbytes

    def __dealloc__(self):
        free(self.masks)
        free(self.updates)
        if self.opt is not NULL:
            _ggml.ggml_opt_free(self.opt)
            self.opt = NULL


cdef int set_step(Graph graph, _ggml.ggml_tensor * t, Variable variable, str rule, dict slots,
                  StepParams params) except -1:
    """Make t a step of ``rule`` on ``variable`` with the trainer's state and parameters."""
    cdef Tensor source
    cdef int i = 2
    cdef Variable chosen = params.of(variable)
    for state in slots[variable]:
        source = graph.weight(state)
        t.src[i] = source.ptr
        i += 1
    source = graph.weight(chosen)
    if rule == "sgd":
        t.op = _ggml.GGML_OP_OPT_STEP_SGD
        # SGD's kernel wants exactly two parameters: the rate and the decay.
        t.src[i] = _head(graph, source.ptr, 2)
    else:
        t.src[i] = source.ptr
        if rule == "adamw":
            t.op = _ggml.GGML_OP_OPT_STEP_ADAMW
        else:
            _make_custom(t, rule)
    for i in range(i + 1, _ggml.GGML_MAX_SRC):
        t.src[i] = NULL
    return 0


cdef int _make_custom(_ggml.ggml_tensor * t, str rule) except -1:
    """Let t call one of our own step rules."""
    cdef Context scratch = Context(2)
    cdef _ggml.ggml_tensor * node
    cdef bytes name = rule.encode()
    cdef _ggml.ggml_custom_op_t function = pg_step_rule(name)
    if function is NULL:
        raise ValueError(f"unknown step rule {rule!r}")
    node = _ggml.ggml_custom_4d(scratch.ptr, _ggml.GGML_TYPE_F32, 1, 1, 1, 1, &t, 1, function,
                                _ggml.GGML_N_TASKS_MAX, NULL)
    t.op = _ggml.GGML_OP_CUSTOM
    memcpy(t.op_params, node.op_params, sizeof(t.op_params))
    return 0


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


@cython.no_gc_clear
cdef class ApplyGraph:
    """The optimizer's step on gradients that were accumulated or given.

    Parameters
    ----------
    variables : list of Variable
    gradients : dict of Variable to Variable
    rule, slots, params
        As for :class:`TrainGraph`.
    """

    def __init__(self, list variables, dict gradients, str rule, dict slots, StepParams params):
        cdef Graph graph = Graph(1, False, None, 64 + 16 * len(variables), None, True)
        cdef size_t size = 64 + 16 * len(variables)
        cdef Tensor weight, gradient
        cdef _ggml.ggml_tensor * scaled
        cdef _ggml.ggml_tensor * t
        self.graph = graph
        self.factor = graph.input((1,), "float32", "factor")
        graph.allocate()
        self.results = Context(0, size, 1)
        self.cgraph = _ggml.ggml_new_graph_custom(self.results.ptr, size, False)
        for variable in variables:
            weight = graph.weight(variable)
            gradient = graph.weight(gradients[variable])
            scaled = _ggml.ggml_mul(graph.compute.ptr, gradient.ptr, self.factor.ptr)
            _ggml.ggml_set_param(weight.ptr)
            t = _ggml.ggml_opt_step_sgd(graph.compute.ptr, weight.ptr, scaled,
                                        _head(graph, (<Tensor>graph.weight(params.plain)).ptr, 2))
            set_step(graph, t, variable, rule, slots, params)
            _ggml.ggml_build_forward_expand(self.cgraph, t)
        graph.lower()
        size = _ggml.ggml_graph_n_nodes(self.cgraph) + graph.leaves()
        self.scheduler = Scheduler(2 * size, graph.fused)
        self.scheduler.stop_on_failure(graph.lowered)
        require(planned_bytes(self.cgraph), "gradients that are applied")
        if not _ggml.ggml_backend_sched_alloc_graph(self.scheduler.ptr, self.cgraph):
            raise MemoryError("no memory to apply gradients")
        graph.seal()

    cdef bint stale(self) noexcept:
        """Whether it has to be made anew after a fork."""
        return self.scheduler.stale()

    cdef int apply(self, float factor) except -1:
        (<float *>self.factor.ptr.data)[0] = factor
        return self.scheduler.compute(self.cgraph, self.graph.lowered)


cdef int clip_gradients(optimizer, list variables, dict gradients, double factor) except -1:
    """Multiply gradients by a factor and clip them as the optimizer asks; norms are in double."""
    cdef Variable g
    cdef double limit, norm
    cdef double total = 0
    if optimizer.clipvalue is not None:
        limit = optimizer.clipvalue
        for variable in variables:
            g = gradients[variable]
            pg_multiply(g.data, g.size, factor)
            pg_limit(g.data, g.size, <float>limit)
        return 0
    if optimizer.clipnorm is not None:
        limit = optimizer.clipnorm
        for variable in variables:
            g = gradients[variable]
            norm = factor * sqrt(pg_sum_of_squares(g.data, g.size))
            pg_multiply(g.data, g.size, factor if norm <= limit else factor * (limit / norm))
        return 0
    limit = optimizer.global_clipnorm
    for variable in variables:
        g = gradients[variable]
        total += pg_sum_of_squares(g.data, g.size)
    norm = factor * sqrt(total)
    for variable in variables:
        g = gradients[variable]
        pg_multiply(g.data, g.size, factor if norm <= limit else factor * (limit / norm))
    return 0
