# cython: language_level=3
"""Owner of ggml-opt's context, with every assertion of ggml forestalled."""

import math

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._locks cimport Lock
from pyggml._memory cimport require
from pyggml._plan cimport MANY_RESULTS, keep_apart, planned_bytes
from pyggml._runtime cimport Context, Scheduler
from pyggml._slot cimport Slot
from pyggml._training cimport planned_training
from pyggml._variable cimport Variable

from pyggml import ops
from pyggml._feed import read
from pyggml._opt_losses import LOSS_TYPES, Head
from pyggml._opt_result import check_result
from pyggml.layers.base import count, positive_int

OPTIMIZERS = ("adamw", "sgd")

# What a computation that did not finish leaves behind; see TrainGraph.
cdef uint32_t _unwritten = 0x7fc0dead


cdef _ggml.ggml_opt_optimizer_params _give_params(void * userdata) noexcept nogil:
    return (<_ggml.ggml_opt_optimizer_params *>userdata)[0]


def default_params():
    """Return ggml's arguments of the step rules.

    Returns
    -------
    dict
        ``learning_rate``, ``beta_1``, ``beta_2``, ``epsilon``, ``weight_decay``.

    Examples
    --------
    >>> from pyggml import opt
    >>> opt.default_params()["learning_rate"]
    0.001
    """
    cdef _ggml.ggml_opt_optimizer_params p = _ggml.ggml_opt_get_default_optimizer_params(NULL)
    return {name: round(float(value), 10) for name, value in (
        ("learning_rate", p.adamw.alpha), ("beta_1", p.adamw.beta1), ("beta_2", p.adamw.beta2),
        ("epsilon", p.adamw.eps), ("weight_decay", p.adamw.wd))}


@cython.no_gc_clear
cdef class OptCore:
    """What of ggml-opt's context needs C: see :class:`pyggml.opt.OptContext`."""

    def __cinit__(self):
        self.opt = NULL
        self.lock = Lock()

    def __init__(self, inputs, outputs, loss_type="mse", optimizer="adamw", opt_period=1,
                 params=None, loss_weights=None, label_offsets=None, forward_only=False,
                 huber_delta=1.0):
        self._configure(loss_type, optimizer, opt_period, params, loss_weights, label_offsets,
                        forward_only, huber_delta)
        self._take_graph(inputs, outputs)
        self._init(True)

    def _configure(self, loss_type, optimizer, opt_period, params, loss_weights, label_offsets,
                   forward_only, huber_delta):
        self.loss_types = [loss_type] if isinstance(loss_type, str) else list(loss_type)
        for item in self.loss_types:
            if item not in LOSS_TYPES:
                raise ValueError(f"loss_type must be one of {', '.join(LOSS_TYPES)}, got {item!r}")
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got "
                             f"{optimizer!r}")
        self.optimizer_name = optimizer
        self.opt_period = positive_int(opt_period, "opt_period")
        if self.opt_period > 1 << 30:
            raise ValueError(f"opt_period must be at most {1 << 30}, got {opt_period}")
        self.loss_weights = None if loss_weights is None else [float(w) for w in loss_weights]
        for w in self.loss_weights or ():
            if not (math.isfinite(w) and w >= 0):
                raise ValueError(f"loss_weights must be finite and not negative, got {w}")
        self.offsets = None if label_offsets is None else [
            count(n, "label_offsets") for n in label_offsets]
        self.forward_only = bool(forward_only)
        self.huber_delta = float(huber_delta)
        if not (math.isfinite(self.huber_delta) and self.huber_delta > 0):
            raise ValueError(f"huber_delta must be finite and positive, got {huber_delta}")
        self.values = _ggml.ggml_opt_get_default_optimizer_params(NULL)
        known = default_params()
        given = {} if params is None else dict(params)
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"params has no {unknown}; there are {sorted(known)}")
        self._set_params(known | given)

    def _set_params(self, p):
        for name in ("beta_1", "beta_2"):
            if not 0 <= p[name] < 1:
                raise ValueError(f"{name} must be in [0, 1), got {p[name]}")
        if not 0 <= p["weight_decay"] <= 1:
            raise ValueError(f"weight_decay must be in [0, 1], got {p['weight_decay']}")
        if not (math.isfinite(p["epsilon"]) and p["epsilon"] >= 0):
            raise ValueError(f"epsilon must be finite and not negative, got {p['epsilon']}")
        rate = _positive_rate(p["learning_rate"])
        self.values.adamw.alpha = <float>rate
        self.values.sgd.alpha = <float>rate
        self.values.adamw.beta1 = <float>p["beta_1"]
        self.values.adamw.beta2 = <float>p["beta_2"]
        self.values.adamw.eps = <float>p["epsilon"]
        self.values.adamw.wd = <float>p["weight_decay"]
        self.values.sgd.wd = <float>p["weight_decay"]

    def _take_graph(self, inputs, outputs):
        """Check a graph and add labels, weights and losses to it; sets nothing that fails."""
        cdef Graph graph
        cdef Tensor t
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        for what, tensors in (("inputs", inputs), ("outputs", outputs)):
            if not tensors:
                raise ValueError(f"{what} must not be empty")
            for item in tensors:
                if not isinstance(item, Tensor):
                    raise TypeError(f"{what} must be tensors of a graph, got "
                                    f"{type(item).__name__}")
        graph = (<Tensor>inputs[0]).graph
        for item in inputs + outputs:
            if item.graph is not graph:
                raise ValueError("inputs and outputs must be of one graph")
        if graph.consumed:
            raise ValueError("this graph was given to a context before; build it anew")
        if not graph.training and not self.forward_only:
            raise ValueError("the graph must be made with training=True")
        n = graph.batch_size
        for t in inputs:
            if t.dtype != "float32":
                raise NotImplementedError("inputs must be float32: ggml does not check indices")
            if t.ptr.op != _ggml.GGML_OP_NONE or not t.ptr.flags & _ggml.GGML_TENSOR_FLAG_INPUT:
                raise ValueError("inputs must come from Graph.input")
        for item in inputs + outputs:
            if item.shape[0] != n:
                raise ValueError(f"the first axis must be the batch of {n}, got shape "
                                 f"{item.shape}")
        for t in outputs:
            if t.dtype != "float32":
                raise TypeError(f"outputs must be float32, got {t.dtype}")
            if len(t.shape) != 2:
                raise ValueError(f"outputs must have shape ({n}, n_outputs), got {t.shape}")
        types = self.loss_types * len(outputs) if len(self.loss_types) == 1 else self.loss_types
        factors = [1.0] * len(outputs) if self.loss_weights is None else self.loss_weights
        for name, items in (("loss_type", types), ("loss_weights", factors),
                            ("label_offsets", self.offsets)):
            if items is not None and len(items) != len(outputs):
                raise ValueError(f"{name} has {len(items)} entries for {len(outputs)} outputs")
        if "sum" in types and len(outputs) > 1:
            raise ValueError("loss_type 'sum' cannot be combined with other outputs")
        if graph.buffer is not None:
            raise ValueError("the graph was allocated before; leave that to the context")
        graph.consumed = True
        heads, total = [], None
        for i, (kind, factor, output) in enumerate(zip(types, factors, outputs)):
            head = Head(graph, kind, output, i if len(outputs) > 1 else None, self.huber_delta)
            heads.append(head)
            if kind != "sum":
                factor = factor / self.opt_period
            term = ops.affine(head.part, factor)
            total = term if total is None else ops.add(total, term)
        t = graph.keep(total)
        if not self.forward_only:
            if not graph.variables:
                raise ValueError("the graph has no trainable weight")
            if not t.requires_grad:
                raise ValueError("the loss does not depend on any trainable weight")
        graph.allocate()
        slots = [Slot(item, "inputs" if len(inputs) == 1 else f"inputs[{i}]")
                 for i, item in enumerate(inputs)]
        self.graph, self.heads, self.total, self.input_slots = graph, heads, t, slots

    def _start(self):
        """Begin without a graph."""
        self._init(False)

    cdef int _init(self, bint static_graphs) except -1:
        cdef _ggml.ggml_opt_params p
        cdef size_t size = 2 * _ggml.GGML_DEFAULT_GRAPH_SIZE
        self.static_graphs = self.prepared = static_graphs
        if static_graphs:
            self._count(_ggml.GGML_DEFAULT_GRAPH_SIZE)
        self.scheduler = Scheduler(size if static_graphs else 1 << 16)
        p = _ggml.ggml_opt_default_params(self.scheduler.ptr, _ggml.GGML_OPT_LOSS_TYPE_SUM)
        if static_graphs:
            p.ctx_compute = self.graph.compute.ptr
            p.inputs = (<Slot>self.input_slots[0]).tensor.ptr
            p.outputs = self.total.ptr
        p.build_type = (_ggml.GGML_OPT_BUILD_TYPE_FORWARD if self.forward_only
                        else _ggml.GGML_OPT_BUILD_TYPE_OPT)
        p.opt_period = <int32_t>self.opt_period
        p.get_opt_pars = _give_params
        p.get_opt_pars_ud = &self.values
        p.optimizer = (_ggml.GGML_OPT_OPTIMIZER_TYPE_ADAMW if self.optimizer_name == "adamw"
                       else _ggml.GGML_OPT_OPTIMIZER_TYPE_SGD)
        require((self._state_bytes() if static_graphs else 0)
                + 4096 * <size_t>_ggml.GGML_DEFAULT_GRAPH_SIZE, "ggml-opt's gradients and moments")
        with nogil:
            self.opt = _ggml.ggml_opt_init(p)
        if self.opt is NULL:
            raise MemoryError("ggml-opt could not be set up")
        if static_graphs:
            self.planned = max(self.planned, planned_training(self.graph))
        return 0

    cdef size_t _state_bytes(self) except? 0:
        """What ggml-opt allocates for accumulators and moments."""
        cdef size_t copies = 2 if self.optimizer_name == "adamw" else 0
        if self.forward_only:
            return 0
        if self.opt_period > 1 or not self.static_graphs:
            copies += 1
        return copies * 4 * sum([v.size for v in self.graph.variables])

    cdef int _count(self, int64_t room) except -1:
        """Refuse graphs that do not fit: ggml would end the process."""
        cdef size_t size = 8 * self.graph.capacity
        cdef Context scratch = Context(size, size, 3)
        cdef _ggml.ggml_cgraph * graph = _ggml.ggml_new_graph_custom(scratch.ptr, size, True)
        cdef _ggml.ggml_tensor * loss = _ggml.ggml_sum(scratch.ptr, self.total.ptr)
        cdef int64_t nodes
        _ggml.ggml_set_loss(loss)
        _ggml.ggml_build_forward_expand(graph, loss)
        if not self.forward_only:
            graph = _ggml.ggml_graph_dup(scratch.ptr, graph, True)
            _ggml.ggml_build_backward_expand(scratch.ptr, graph, NULL)
        nodes = _ggml.ggml_graph_n_nodes(graph) + 6 * len(self.graph.aliases) + 64
        if nodes > room:
            raise NotImplementedError(f"this graph takes about {nodes} operations and tensors; "
                                      f"there is room for {room}")
        # ggml-opt builds and plans a dynamic graph in one go: there is no moment to keep apart.
        if not self.static_graphs and keep_apart(graph) > MANY_RESULTS:
            raise NotImplementedError(f"this graph has {nodes} operations, of which more than "
                                      f"{<int>MANY_RESULTS} results are needed at once; a dynamic "
                                      "context cannot plan their memory")
        self.planned = planned_bytes(graph)
        return 0

    cdef int alive(self) except -1:
        if self.freed or self.opt is NULL:
            raise RuntimeError("this context was freed")
        return 0

    # -- evaluation ------------------------------------------------------------------------

    def prepare_alloc(self, inputs, outputs):
        """Give a dynamic context the graph of its next evaluation.

        Parameters
        ----------
        inputs, outputs
            As for the constructor. The graph must be built of the same operations on the same
            variables every time.

        Raises
        ------
        RuntimeError
            The context has static graphs, or was allocated and not evaluated.
        ValueError
            The graph differs from the first one.
        """
        with self.lock:
            self.alive()
            if self.static_graphs:
                raise RuntimeError("prepare_alloc is for dynamic contexts; this one has its graph")
            if self.ready:
                raise RuntimeError("alloc was called; call eval first")
            before = (self.graph, self.heads, self.total, self.input_slots)
            try:
                self._take_graph(inputs, outputs)
                self._prepare()
            except BaseException:
                self.graph, self.heads, self.total, self.input_slots = before
                raise

    cdef int _prepare(self) except -1:
        cdef _ggml.ggml_cgraph * forward
        cdef _ggml.ggml_tensor * t
        cdef int i
        cdef size_t size = self.graph.capacity
        self._count(<int64_t>size)
        context = Context(0, size, 1)
        forward = _ggml.ggml_new_graph_custom(context.ptr, size, True)
        _ggml.ggml_build_forward_expand(forward, self.total.ptr)
        # Gradients and moments belong to nodes by their number in the graph.
        signature = []
        for i in range(_ggml.ggml_graph_n_nodes(forward)):
            t = _ggml.ggml_graph_node(forward, i)
            signature.append((<int>t.op, t.ne[0], t.ne[1], t.ne[2], t.ne[3],
                              bool(t.flags & _ggml.GGML_TENSOR_FLAG_PARAM),
                              <size_t>t.data if t.flags & _ggml.GGML_TENSOR_FLAG_PARAM else 0))
        if self.signature is not None and self.signature != signature:
            raise ValueError("the graph differs from the first one of this context: moments could "
                             "not be told apart")
        self.signature = signature
        self.forward_context = context
        self.prepared = True
        _ggml.ggml_opt_prepare_alloc(self.opt, self.graph.compute.ptr, forward,
                                     (<Slot>self.input_slots[0]).tensor.ptr, self.total.ptr)
        return 0

    def alloc(self, backward=True):
        """Choose what the next :meth:`eval` does; to be called exactly once before each.

        Parameters
        ----------
        backward : bool
            Whether gradients are computed and, at the end of a period, weights are updated.
        """
        with self.lock:
            self._alloc(backward)

    def _alloc(self, bint backward):
        self.alive()
        if self.ready:
            raise RuntimeError("alloc was called already; call eval first")
        if backward and self.forward_only:
            raise RuntimeError("this context was made with forward_only=True")
        if not self.prepared:
            raise RuntimeError("a dynamic context needs prepare_alloc before every alloc")
        if not backward and self.opt_period > 1 and self.position and not self.stale:
            raise RuntimeError(f"{self.position} of {self.opt_period} gradients were accumulated; "
                               "evaluate without backward only between periods")
        if not backward and self.opt_period > 1 and not self.static_graphs:
            raise RuntimeError("a dynamic context with opt_period > 1 cannot be evaluated without "
                               "backward: ggml would count it as one of the period")
        if backward and self.stale:
            self._realign()
        self._do_alloc(backward)
        if backward:
            self._begin_window()
        return 0

    cdef int _do_alloc(self, bint backward) except -1:
        cdef bint anew = not self.static_graphs or not self.allocated
        if anew or backward != self.backward:
            require(self.planned + (self._state_bytes() if anew else 0)
                    + 4096 * <size_t>self.graph.capacity,
                    f"an evaluation of {self.graph.batch_size} rows")
        with nogil:
            _ggml.ggml_opt_alloc(self.opt, backward)
        if self.planned and not self.scheduler.nbytes:
            self.free()  # ggml cannot go back
            raise MemoryError(f"{self.planned} bytes for an evaluation could not be allocated; "
                              "the context was freed")
        self.allocated = True
        self.ready = True
        self.backward = backward
        return 0

    cdef int _begin_window(self) except -1:
        """Set accumulators to zero where ggml does not: after a forward pass, if dynamic."""
        if self.position == 0 and (self.opt_period > 1 or not self.static_graphs):
            _ggml.ggml_opt_reset(self.opt, False)
        if self.reset_wanted:
            _ggml.ggml_opt_reset(self.opt, True)
            self.reset_wanted = False
        self.stale = False
        return 0

    cdef int _realign(self) except -1:
        """Finish the period that forward passes, which ggml counts too, have begun."""
        while self.position:
            self._do_alloc(False)
            self._compute()
        return 0

    cdef int _compute(self) except -1:
        lock = self.scheduler.enter_compute()
        try:
            with nogil:
                _ggml.ggml_opt_eval(self.opt, NULL)
        finally:
            self.scheduler.leave_compute(lock)
        self.ready = False
        self.position = (self.position + 1) % self.opt_period
        return 0

    def eval(self, result=None):
        """Compute on what lies in inputs and labels.

        Parameters
        ----------
        result : Result, optional
            Takes in loss and predictions.

        Returns
        -------
        float
            The loss: the mean over the batch, or the sum for "sum".

        Raises
        ------
        RuntimeError
            :meth:`alloc` was not called, or ggml could not compute.
        """
        cdef uint32_t bits
        check_result(result)
        with self.lock:
            self.alive()
            if not self.ready:
                raise RuntimeError("call alloc before eval")
            if result is not None:
                result.check(self)
            memcpy(self.total.ptr.data, &_unwritten, sizeof(float))
            self._compute()
            if not self.backward:
                self.stale = True
            memcpy(&bits, self.total.ptr.data, sizeof(float))
            if bits == _unwritten:
                raise RuntimeError("ggml did not finish the computation; the loss was not written")
            loss = self.loss
            if result is not None:
                result.add(self)
            self.prepared = self.static_graphs
            return loss

    def reset(self, optimizer=False):
        """Set accumulated gradients to zero, and with ``optimizer`` moments and step count too.

        Parameters
        ----------
        optimizer : bool

        Raises
        ------
        RuntimeError
            Between :meth:`alloc` and :meth:`eval`, or within a period.
        """
        with self.lock:
            self.alive()
            if self.ready:
                raise RuntimeError("alloc was called; call eval before reset")
            if self.position and not self.stale:
                raise RuntimeError(f"{self.position} of {self.opt_period} gradients were "
                                   "accumulated; reset only between periods")
            if self.forward_only:
                return
            if self.static_graphs:
                _ggml.ggml_opt_reset(self.opt, bool(optimizer))
            elif optimizer:
                if self.opt_period > 1:
                    raise NotImplementedError("a dynamic context with opt_period > 1 cannot reset "
                                              "its optimizer; make a new one")
                self.reset_wanted = True

    def grad_acc(self, Variable variable not None):
        """Return a copy of the gradient accumulated for a weight, in the weight's shape.

        Parameters
        ----------
        variable : Variable

        Returns
        -------
        numpy.ndarray or None
            None with ``opt_period=1``, where ggml keeps no accumulators, and for a weight that
            is not trained.
        """
        cdef Tensor weight
        cdef _ggml.ggml_tensor * acc
        with self.lock:
            self.has_graph()
            if not self.static_graphs:
                raise RuntimeError("a dynamic context has no graph to ask after an evaluation")
            if self.forward_only or variable not in self.graph.aliases:
                return None
            weight = self.graph.aliases[variable]
            acc = _ggml.ggml_opt_grad_acc(self.opt, weight.ptr)
            if acc is NULL or acc.data is NULL:
                return None
            view = read(self.graph.wrap(acc, weight.shape, False))
            axes = variable.axes
            return np.array(view.transpose([axes.index(a) for a in range(len(axes))]), order="C")

    @property
    def variables(self):
        """The trainable weights of the graph."""
        self.has_graph()
        return list(self.graph.variables)

    @property
    def optimizer_type(self):
        """ggml's number of the optimizer."""
        self.alive()
        return <int>_ggml.ggml_opt_context_optimizer_type(self.opt)

    def get_lr(self):
        """Return the learning rate of the next update."""
        self.alive()
        return float(self.values.adamw.alpha)

    def set_lr(self, lr):
        """Set the learning rate from the next update on.

        Parameters
        ----------
        lr : float
            Finite and positive: ggml-opt does not take 0.
        """
        rate = _positive_rate(lr)
        with self.lock:
            self.alive()
            self.values.adamw.alpha = <float>rate
            self.values.sgd.alpha = <float>rate

    def load(self, str what, list slots, values):
        """Check arrays for slots, then copy all of them.

        Parameters
        ----------
        what : str
            For messages.
        slots : list of Slot
        values : list of array_like

        Raises
        ------
        ValueError
            Another number of arrays, or shapes that do not fit.
        """
        cdef Slot slot
        if len(values) != len(slots):
            raise ValueError(f"{what} must be {len(slots)} arrays, got {len(values)}")
        shaped = []
        for slot, value in zip(slots, values):
            value = np.asarray(value)
            shape = (slot.n_rows,) + tuple(slot.row_shape)
            if value.shape != shape and value.shape == (slot.n_rows, slot.row_size):
                value = value.reshape(shape)
            rows = slot.accept(value)
            if rows.n_rows != slot.n_rows:
                raise ValueError(f"{slot.name} has {rows.n_rows} rows, but the batch size is "
                                 f"{slot.n_rows}")
            slot.check(rows)
            shaped.append(value)
        for slot, value in zip(slots, shaped):
            slot.load(value)

    def ones(self, Slot slot not None):
        """Set all weights of a slot to 1.

        Parameters
        ----------
        slot : Slot
        """
        slot.ones()

    def has_graph(self):
        """Raise RuntimeError where the context was freed or has no graph yet."""
        self.alive()
        if self.heads is None:
            raise RuntimeError("this context has no graph yet; call prepare_alloc")

    def free(self):
        """Release everything; calling it again is harmless."""
        with self.lock:
            self.freed = True
            if self.opt is not NULL:
                _ggml.ggml_opt_free(self.opt)
                self.opt = NULL
            self.graph = None
            self.heads = None
            self.input_slots = None
            self.total = None
            self.scheduler = None

    def __enter__(self):
        self.alive()
        return self

    def __exit__(self, *exception):
        self.free()

    def __reduce__(self):
        raise TypeError("a context cannot be pickled; keep its variables")

    def __dealloc__(self):
        if self.opt is not NULL:
            _ggml.ggml_opt_free(self.opt)


def optimizer_name(kind):
    """Return ggml's name of an optimizer number.

    Parameters
    ----------
    kind : int
        0 for AdamW, 1 for SGD.

    Returns
    -------
    str

    Examples
    --------
    >>> from pyggml import opt
    >>> opt.optimizer_name(0)
    'adamw'
    """
    return (<bytes>_ggml.ggml_opt_optimizer_name(
        <_ggml.ggml_opt_optimizer_type><int>kind)).decode()


def _positive_rate(lr):
    lr = float(lr)
    if not (math.isfinite(lr) and <float>lr > 0):
        raise ValueError(f"learning_rate must be finite and positive, got {lr}: ggml-opt does not "
                         "take 0")
    return lr
