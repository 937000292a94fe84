# cython: language_level=3
"""Graphs of ggml tensors: what a layer's ``call`` works on.

Shapes are the user's: row-major, batch first. ggml's are the reverse. Every shape, type and
range is checked here, since ggml ends the process where one is wrong.
"""

import math

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int64_t
from libc.string cimport memcpy

from pyggml cimport _ggml
from pyggml cimport _lowering
from pyggml._lowering cimport Carriers, never_run
from pyggml._runtime cimport Context, allocate_context
from pyggml._variable cimport Variable

from pyggml._lowering import ACTIVATIONS, enabled


# Elements of a tensor: beyond it sizes in bytes would overflow in ggml.
cdef int64_t _largest = <int64_t>1 << 46


cdef int check_size(tuple shape) except -1:
    """Raise MemoryError for a tensor that no memory holds."""
    cdef double size = 1
    for n in shape:
        size *= <double>n
    if size > _largest:
        raise MemoryError(f"a tensor of shape {shape} does not fit into memory: "
                          f"{4 * math.prod(shape)} bytes")
    return 0


class GraphFull(Exception):
    """The graph has more nodes than its context holds; make it anew with more capacity."""


@cython.no_gc_clear
cdef class Tensor:
    """A node of a graph: the result of an operation, an input or a weight.

    Attributes
    ----------
    shape : tuple of int
        Row-major, the batch first.
    dtype : {"float32", "int32"}
    graph : Graph
    requires_grad : bool
        Whether a trainable weight of a training graph stands behind it.
    limit : int
        Of an input of indices: they must be below it, because something is looked up with them.
    """

    def __repr__(self):
        return f"<Tensor shape={self.shape} dtype={self.dtype}>"

    def __add__(self, other):
        return add(self, other)

    def __radd__(self, other):
        return add(self, other)

    def __sub__(self, other):
        return subtract(self, other)

    def __rsub__(self, other):
        return subtract(other, self)

    def __mul__(self, other):
        return multiply(self, other)

    def __rmul__(self, other):
        return multiply(self, other)

    def __truediv__(self, other):
        return divide(self, other)

    def __rtruediv__(self, other):
        return divide(other, self)

    def __neg__(self):
        return negative(self)


@cython.no_gc_clear
cdef class Graph:
    """Builds one computation for one batch size.

    Parameters
    ----------
    batch_size : int
    training : bool
        Whether gradients will be asked for: decides the form of operations that ggml cannot
        differentiate, and whether dropout is active.
    bindings : dict, optional
        Variables to use in place of others: a trainer's own copies in place of the model's.
    capacity : int
        How many tensors the graph has room for.
    fused : bool
        Whether functions may be left to kernels. Whoever says so has to lower the graph before
        it is computed: until then other operations stand in for them.
    trained : set of Variable, optional
        Those that get a gradient in a training graph; by default those that are trainable now.
    """

    def __cinit__(self, Py_ssize_t batch_size, bint training=False, dict bindings=None,
                  size_t capacity=4096, trained=None, bint fused=False):
        self.batch_size = batch_size
        self.training = training
        self.capacity = capacity
        self.bindings = {} if bindings is None else bindings
        self.trained = trained
        self.aliases = {}
        self.variables = []
        self.masks = []
        self.fused = fused and enabled()
        self.carriers = Carriers()
        self.penalties = []
        self.constants = []
        self.zero_tensors = {}
        self.updates = []
        self.milestones = []  # nodes on the way, so that ggml's recursion over a graph stays short
        self.awaited = None
        self.taps = None
        self.inputs = Context(capacity)
        self.weights = Context(capacity)
        # Room for the backward pass and for three graphs of ggml-opt's size beside ours.
        self.compute = Context(6 * capacity, capacity, 4)

    cdef Tensor wrap(self, _ggml.ggml_tensor * ptr, tuple shape, bint requires_grad):
        cdef Tensor t = Tensor.__new__(Tensor)
        check_size(shape)
        t.ptr = ptr
        t.graph = self
        t.shape = shape
        t.dtype = "int32" if ptr.type == _ggml.GGML_TYPE_I32 else "float32"
        t.requires_grad = requires_grad
        t.limit = INT32_MAX
        return t

    cdef int reserve(self, int n) except -1:
        """Make sure that n more tensors fit: ggml would end the process."""
        if self.compute.room() < 5 * <int>self.capacity + n:
            raise GraphFull
        return 0

    cdef int leaves(self) except -1:
        """At most so many inputs and weights there are."""
        return self.inputs.used() + self.weights.used()

    cpdef Tensor weight(self, Variable variable):
        """Return the tensor that stands for a variable, the same one at every call."""
        cdef Tensor t
        cdef Variable bound
        cdef _ggml.ggml_tensor * ptr
        if variable in self.aliases:
            return self.aliases[variable]
        bound = self.bindings.get(variable, variable)
        if self.weights.room() < 1:
            raise GraphFull
        ptr = _new(self.weights, bound.storage_shape(), _ggml.GGML_TYPE_F32)
        _ggml.ggml_backend_tensor_alloc(bound.buffer.ptr, ptr, bound.data)
        _ggml.ggml_set_name(ptr, bound.name.encode()[:50])
        moves = variable.trainable if self.trained is None else variable in self.trained
        t = self.wrap(ptr, bound.storage_shape(), self.training and moves)
        if t.requires_grad:
            _ggml.ggml_set_param(ptr)
            self.variables.append(bound)
            if variable.regularizer is not None:
                penalty = variable.regularizer(t)
                if not isinstance(penalty, Tensor) or math.prod((<Tensor>penalty).shape) != 1:
                    raise TypeError(f"the regularizer of {variable.name!r} must return a tensor "
                                    f"of one element, got {penalty!r}")
                self.penalties.append(penalty)
        self.aliases[variable] = t
        return t

    cpdef Tensor input(self, shape, str dtype="float32", str name="input"):
        """Make an input tensor with memory of its own, filled from outside before computing."""
        cdef _ggml.ggml_tensor * ptr
        if self.inputs.room() < 1:
            raise GraphFull
        ptr = _new(self.inputs, tuple(shape),
                   _ggml.GGML_TYPE_I32 if dtype == "int32" else _ggml.GGML_TYPE_F32)
        _ggml.ggml_set_input(ptr)
        _ggml.ggml_set_name(ptr, name.encode()[:50])
        return self.wrap(ptr, tuple(shape), False)

    def allocate(self):
        """Give the inputs their memory, set to zero, and write the constants into it."""
        cdef Tensor t
        cdef bytes data
        self.buffer = allocate_context(self.inputs, "inputs of the graph")
        for t, data in self.constants:
            memcpy(t.ptr.data, <const char *>data, len(data))
        self.constants.clear()

    cpdef Tensor keep(self, Tensor t):
        """Return a copy of t whose memory nothing else uses, to be read after computing."""
        cdef Tensor kept
        if self.inputs.room() < 1:
            raise GraphFull
        kept = self.wrap(_ggml.ggml_cont(self.inputs.ptr, t.ptr), t.shape, t.requires_grad)
        kept.made_by = t.made_by
        kept.made_from = t.made_from
        _ggml.ggml_set_output(kept.ptr)
        return kept

    def constant(self, array):
        """Return a tensor that always holds the values of a float32 or int32 NumPy array."""
        t = self.input(array.shape, array.dtype.name, "constant")
        self.constants.append((t, array.tobytes()))
        return t

    def zeros(self, shape):
        """Return a tensor of zeros, the same one for a shape at every call."""
        shape = tuple(shape)
        if shape not in self.zero_tensors:
            self.zero_tensors[shape] = self.input(shape, name="zeros")
        return self.zero_tensors[shape]

    def current(self, Variable variable):
        """Return the tensor of a variable's value at this point: updated, or its weight."""
        bound = self.bindings.get(variable, variable)
        for other, t in reversed(self.updates):
            if other is bound:
                return t
        return self.weight(variable)

    def update(self, Variable variable, Tensor value):
        """Let every training step set a variable, which has no gradient, to a computed value.

        Parameters
        ----------
        variable : Variable
        value : Tensor
            In the order of axes in which the variable is stored.
        """
        cdef Tensor kept = self.keep(value)
        cdef Tensor done
        self.reserve(1)
        # Nothing that the loss needs depends on the value. STEP passes no gradient on, so a chain
        # of them can hang on the loss as a source that its node does not read.
        done = self.wrap(_ggml.ggml_step(self.compute.ptr, kept.ptr), kept.shape, False)
        if self.awaited is not None:
            done.ptr.src[1] = self.awaited.ptr
        self.awaited = done
        self.updates.append((self.bindings.get(variable, variable), kept))

    cdef int lower(self) except -1:
        """Rewrite the nodes to kernels, once the graph is complete."""
        self.lowered = _lowering.lower(self.compute.ptr, self.inputs.ptr, self.carriers)
        return 0

    cdef int seal(self) except -1:
        """Nothing is added any more: let go of tensors, which refer to the graph.

        Graphs come and go with batch sizes; their memory must not wait for the cyclic collector.
        """
        self.owners = list(self.aliases) + [self.bindings.get(v, v) for v in self.aliases]
        self.owners += [v for v, _ in self.updates]
        for held in (self.aliases, self.masks, self.penalties, self.zero_tensors, self.updates,
                     self.milestones):
            held.clear()
        self.awaited = self.taps = None
        return 0

    def mask(self, shape, double rate):
        """Make an input that holds a fresh inverted-dropout mask at every step."""
        t = self.input(shape, name="dropout_mask")
        self.masks.append((t, rate))
        return t


cdef _ggml.ggml_tensor * _new(Context context, tuple shape, _ggml.ggml_type type) except NULL:
    cdef int64_t ne[4]
    cdef int i
    cdef int n = len(shape)
    if n > 4:
        raise ValueError(f"tensors have at most 4 axes, got shape {shape}")
    for i in range(4):
        ne[i] = 1
    for i in range(n):
        if not 1 <= shape[n - 1 - i] < (1 << 40):
            raise ValueError(f"sizes of a tensor must be positive, got shape {shape}")
        ne[i] = shape[n - 1 - i]
    check_size(shape)
    return _ggml.ggml_new_tensor(context.ptr, type, 4, ne)


def dropout(x, double rate):
    """Multiply by a fresh inverted-dropout mask at every step.

    Parameters
    ----------
    x : Tensor
    rate : float
        In [0, 1): the share of elements that become 0; the others are scaled up.
    """
    cdef Tensor a = _real(x)
    if not a.graph.fused:
        return multiply(a, a.graph.mask(a.shape, rate))
    cdef Tensor key = _same(a)
    a.graph.reserve(1)
    a.graph.carriers.dropout(key.ptr, <float>rate)
    return a.graph.wrap(_ggml.ggml_silu(a.graph.compute.ptr, key.ptr), a.shape, a.requires_grad)


def fused_loss(pred, labels, weights, int kind, params, double scale, bint weight_rows):
    """Return ``scale * sum(weights * l(pred, labels))`` as one node, or None without kernels.

    Parameters
    ----------
    pred, labels : Tensor of the same shape
    weights : Tensor or None
    kind : int
        Of the kernels' losses.
    params : tuple of two float
    scale : float
    weight_rows : bool
        Whether weights are one a row.

    Returns
    -------
    Tensor of shape (1,) or None
    """
    cdef Tensor p = _contiguous(_real(pred))
    cdef Tensor y = _contiguous(_real(labels))
    cdef Tensor w = None if weights is None else _contiguous(_real(weights))
    cdef _ggml.ggml_tensor * key = y.ptr
    cdef _ggml.ggml_tensor * joint[2]
    cdef Graph graph = p.graph
    if not graph.fused or p.shape != y.shape:
        return None
    graph.reserve(2)
    # Each loss needs a key of its own, and weights must be part of the graph.
    joint[0] = y.ptr
    joint[1] = NULL if w is None else w.ptr
    key = _ggml.ggml_custom_4d(
        graph.compute.ptr, _ggml.GGML_TYPE_F32, p.ptr.ne[0], p.ptr.ne[1], p.ptr.ne[2],
        p.ptr.ne[3], joint, 1 if w is None else 2, never_run, 1, NULL)
    graph.carriers.loss(key, kind, params[0], params[1], scale, y.ptr, joint[1], weight_rows)
    return graph.wrap(_ggml.ggml_cross_entropy_loss(graph.compute.ptr, p.ptr, key), (1,),
                      p.requires_grad)


# ---- checks -------------------------------------------------------------------------------

cdef Tensor _tensor(x, Tensor like=None, str name="x"):
    """Accept a tensor, or a variable where another tensor tells the graph."""
    if isinstance(x, Tensor):
        if like is not None and (<Tensor>x).graph is not like.graph:
            raise ValueError(f"{name} belongs to another graph")
        return x
    if isinstance(x, Variable) and like is not None:
        t = like.graph.weight(x)
        axes = (<Variable>x).axes
        order = [axes.index(a) for a in range(len(axes))]
        return t if order == sorted(order) else transpose(t, order)
    raise TypeError(f"{name} must be a tensor of a graph, got {type(x).__name__}")


cdef Tensor _real(x, Tensor like=None, str name="x"):
    cdef Tensor t = _tensor(x, like, name)
    if t.ptr.type != _ggml.GGML_TYPE_F32:
        raise TypeError(f"{name} must be float32, got {t.dtype}")
    return t


cdef Tensor _contiguous(Tensor t):
    cdef int i
    if _ggml.ggml_is_contiguous(t.ptr):
        for i in range(3):
            if t.ptr.nb[i + 1] != t.ptr.nb[i] * t.ptr.ne[i] or t.ptr.nb[0] != sizeof(float):
                # Contiguous for ggml, which looks past axes of size 1; kernels read their strides.
                return _reshaped(t, t.shape)
        return t
    t.graph.reserve(1)
    return t.graph.wrap(_ggml.ggml_cont(t.graph.compute.ptr, t.ptr), t.shape, t.requires_grad)


cdef Tensor _same(Tensor t):
    """A RESHAPE to the same shape: its backward pass makes the gradient contiguous.

    PERMUTE's gradient is not, and REPEAT_BACK, among others, ends the process on such a one.
    """
    t.graph.reserve(2)
    t = _contiguous(t)
    return t.graph.wrap(
        _ggml.ggml_reshape_4d(t.graph.compute.ptr, t.ptr, t.ptr.ne[0], t.ptr.ne[1], t.ptr.ne[2],
                              t.ptr.ne[3]),
        t.shape, t.requires_grad)


def contiguous(x):
    """Return x with its elements in row-major order."""
    return _contiguous(_tensor(x))


def _axis(axis, int ndim, str name="axis"):
    if not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise ValueError(f"{name} must be from {-ndim} to {ndim - 1}, got {axis!r}")
    return axis % ndim


# ---- arithmetic with broadcasting ---------------------------------------------------------

cdef tuple _broadcast_shape(tuple a, tuple b):
    n = max(len(a), len(b))
    pa = (1,) * (n - len(a)) + a
    pb = (1,) * (n - len(b)) + b
    for i, j in zip(pa, pb):
        if i != j and i != 1 and j != 1:
            raise ValueError(f"shapes {a} and {b} cannot be broadcast together")
    return tuple(max(i, j) for i, j in zip(pa, pb))


cdef Tensor _repeat(Tensor t, tuple shape):
    cdef int i
    cdef int64_t ne[4]
    if t.shape == shape:
        return t
    check_size(shape)
    for i in range(4):
        ne[i] = shape[len(shape) - 1 - i] if i < len(shape) else 1
    t = _contiguous(t)
    t.graph.reserve(1)
    return t.graph.wrap(
        _ggml.ggml_repeat_4d(t.graph.compute.ptr, t.ptr, ne[0], ne[1], ne[2], ne[3]),
        shape, t.requires_grad)


cdef enum _Binary:
    _ADD, _SUBTRACT, _MULTIPLY, _DIVIDE


cdef Tensor _binary(_Binary op, x, y):
    cdef Tensor a
    cdef Tensor b
    cdef tuple shape
    cdef _ggml.ggml_tensor * ptr
    cdef _ggml.ggml_context * ctx
    like = x if isinstance(x, Tensor) else y
    if not isinstance(like, Tensor):
        raise TypeError(f"one of x and y must be a tensor, got {type(x).__name__} "
                        f"and {type(y).__name__}")
    a = _real(x, like, "x")
    b = _real(y, like, "y")
    shape = _broadcast_shape(a.shape, b.shape)
    if op in (_ADD, _MULTIPLY) and a.shape != shape and b.shape == shape:
        a, b = b, a  # ggml repeats only the second
    a = _repeat(a, shape)
    # The gradients of SUB and DIV do not undo a repetition of the second.
    if op in (_SUBTRACT, _DIVIDE) and b.requires_grad:
        b = _repeat(b, shape)
    a.graph.reserve(2)
    ctx = a.graph.compute.ptr
    b = _contiguous(b)
    if op == _ADD:
        ptr = _ggml.ggml_add(ctx, a.ptr, b.ptr)
    elif op == _SUBTRACT:
        ptr = _ggml.ggml_sub(ctx, a.ptr, b.ptr)
    elif op == _MULTIPLY:
        ptr = _ggml.ggml_mul(ctx, a.ptr, b.ptr)
    else:
        ptr = _ggml.ggml_div(ctx, a.ptr, b.ptr)
    return a.graph.wrap(ptr, shape, a.requires_grad or b.requires_grad)


cdef bint _is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def affine(x, double scale=1.0, double offset=0.0):
    """Return ``scale * x + offset`` for numbers ``scale`` and ``offset``."""
    cdef Tensor a = _contiguous(_real(x))
    a.graph.reserve(1)
    if offset == 0.0:
        ptr = _ggml.ggml_scale(a.graph.compute.ptr, a.ptr, <float>scale)
    else:
        ptr = _ggml.ggml_scale_bias(a.graph.compute.ptr, a.ptr, <float>scale, <float>offset)
    return a.graph.wrap(ptr, a.shape, a.requires_grad)


def add(x, y):
    """Return ``x + y``, broadcast as NumPy does. Either may be a number."""
    if _is_number(y):
        return affine(x, 1.0, y)
    if _is_number(x):
        return affine(y, 1.0, x)
    return _binary(_ADD, x, y)


def subtract(x, y):
    """Return ``x - y``, broadcast as NumPy does. Either may be a number."""
    if _is_number(y):
        return affine(x, 1.0, -y)
    if _is_number(x):
        return affine(y, -1.0, x)
    return _binary(_SUBTRACT, x, y)


def multiply(x, y):
    """Return ``x * y``, broadcast as NumPy does. Either may be a number."""
    if _is_number(y):
        return affine(x, y)
    if _is_number(x):
        return affine(y, x)
    return _binary(_MULTIPLY, x, y)


def divide(x, y):
    """Return ``x / y``, broadcast as NumPy does. Either may be a number."""
    if _is_number(y):
        return affine(x, 1.0 / y)
    if _is_number(x):
        return divide(affine(y, 0.0, x), y)
    return _binary(_DIVIDE, x, y)


# ---- functions of one tensor --------------------------------------------------------------

ctypedef _ggml.ggml_tensor * (*_unary_t)(_ggml.ggml_context *, _ggml.ggml_tensor *) noexcept nogil


cdef Tensor _unary(_unary_t function, x):
    cdef Tensor a = _contiguous(_real(x))
    a.graph.reserve(1)
    return a.graph.wrap(function(a.graph.compute.ptr, a.ptr), a.shape, a.requires_grad)


cdef Tensor _named(Tensor result, str name, Tensor source):
    result.made_by = name
    result.made_from = source
    return result


def negative(x):
    """Return ``-x``."""
    return _unary(_ggml.ggml_neg, x)


def absolute(x):
    """Return ``|x|``; its gradient at 0 is 0."""
    return _unary(_ggml.ggml_abs, x)


def sign(x):
    """Return -1, 0 or 1; without gradient."""
    cdef Tensor result = _unary(_ggml.ggml_sgn, x)
    result.requires_grad = False
    return result


def step(x):
    """Return 1 where x > 0, else 0; without gradient."""
    cdef Tensor result = _unary(_ggml.ggml_step, x)
    result.requires_grad = False
    return result


def square(x):
    """Return ``x * x``."""
    return _unary(_ggml.ggml_sqr, x)


def sqrt(x):
    """Return the square root."""
    return _unary(_ggml.ggml_sqrt, x)


def log(x):
    """Return the natural logarithm."""
    return _unary(_ggml.ggml_log, x)


def exp(x):
    """Return the exponential."""
    return _unary(_ggml.ggml_exp, x)


def silu(x):
    """Return ``x * sigmoid(x)``."""
    if _real(x).graph.fused:
        return fused_activation(x, "silu")
    return _named(_unary(_ggml.ggml_silu, x), "silu", x)


def sin(x):
    """Return the sine of x in radians."""
    return _unary(_ggml.ggml_sin, x)


def cos(x):
    """Return the cosine of x in radians."""
    return _unary(_ggml.ggml_cos, x)


def fused_activation(x, str name, double param=0.0):
    """Return an activation as one kernel, or None where the graph is not lowered.

    Parameters
    ----------
    x : Tensor
    name : str
        One of ``pyggml._lowering.ACTIVATIONS``.
    param : float
        Slope or scale, for those that have one.
    """
    cdef Tensor a = _real(x)
    cdef Tensor key
    if not a.graph.fused:
        return None
    key = _same(a)
    a.graph.reserve(1)
    a.graph.carriers.activation(key.ptr, ACTIVATIONS[name], <float>param)
    # SILU stands in for the kernel until the graph is lowered.
    return _named(
        a.graph.wrap(_ggml.ggml_silu(a.graph.compute.ptr, key.ptr), a.shape, a.requires_grad),
        name, a)


def relu(x):
    """Return ``max(x, 0)``; its gradient at 0 is 0."""
    if _real(x).graph.fused:
        return fused_activation(x, "relu")
    return _named(_unary(_ggml.ggml_relu, x), "relu", x)


def softplus(x):
    """Return ``log(1 + exp(x))``, without overflow."""
    if _real(x).graph.fused:
        return fused_activation(x, "softplus")
    # ggml's own loses the tail below -16, where 1 + exp(x) rounds to 1; it is below 1e-7 there.
    return _unary(_ggml.ggml_softplus, x)


def sigmoid(x):
    """Return ``1 / (1 + exp(-x))``, without overflow."""
    cdef Tensor a = _real(x)
    if a.graph.fused:
        return fused_activation(a, "sigmoid")
    if a.requires_grad:  # SIGMOID has no backward pass in ggml: exp(-softplus(-x)) has
        return _named(exp(negative(softplus(negative(a)))), "sigmoid", a)
    return _named(_unary(_ggml.ggml_sigmoid, a), "sigmoid", a)


def tanh(x):
    """Return the hyperbolic tangent."""
    cdef Tensor a = _real(x)
    if a.graph.fused:
        return fused_activation(a, "tanh")
    if a.requires_grad:  # nor has TANH: 2 sigmoid(2 x) - 1
        return _named(affine(sigmoid(affine(a, 2.0)), 2.0, -1.0), "tanh", a)
    return _named(_unary(_ggml.ggml_tanh, a), "tanh", a)


def softmax(x):
    """Return ``exp(x) / sum(exp(x))`` along the last axis, without overflow."""
    cdef Tensor a = _real(x)
    return _named(_unary(_ggml.ggml_soft_max, a), "softmax", a)


def max_last(x):
    """Return the largest element along the last axis, which is kept with size 1."""
    cdef Tensor a = _contiguous(_real(x))
    cdef int64_t n = a.shape[-1]
    a = reshape(a, (a.ptr.ne[1] * a.ptr.ne[2] * a.ptr.ne[3], n))
    a.graph.reserve(1)
    # POOL_2D is the one maximum that ggml can differentiate.
    a = a.graph.wrap(
        _ggml.ggml_pool_2d(a.graph.compute.ptr, a.ptr, _ggml.GGML_OP_POOL_MAX, <int>n, 1, <int>n,
                           1, 0.0, 0.0),
        (a.shape[0], 1), a.requires_grad)
    return reshape(a, (<Tensor>x).shape[:-1] + (1,))


def log_softmax(x):
    """Return ``x - log(sum(exp(x)))`` along the last axis, without overflow."""
    cdef Tensor a = _real(x)
    shifted = subtract(a, max_last(a))
    total = sum(exp(shifted), axis=-1, keepdims=True)
    return _named(subtract(shifted, log(total)), "log_softmax", a)


# ---- shape --------------------------------------------------------------------------------

def reshape(x, shape):
    """Give the elements, in row-major order, another shape; one size may be -1."""
    cdef Tensor a = _contiguous(_tensor(x))
    size = math.prod(a.shape)
    shape = list(shape)
    if shape.count(-1) == 1:
        known = -math.prod(shape)
        shape[shape.index(-1)] = size // known if known else -1
    shape = tuple(shape)
    if len(shape) > 4 or any(n < 1 for n in shape) or math.prod(shape) != size:
        raise ValueError(f"{a.shape} cannot be reshaped to {shape}")
    return a if shape == a.shape else _reshaped(a, shape)


cdef Tensor _reshaped(Tensor a, tuple shape):
    cdef int64_t ne[4]
    cdef int i
    for i in range(4):
        ne[i] = shape[len(shape) - 1 - i] if i < len(shape) else 1
    a.graph.reserve(1)
    return a.graph.wrap(
        _ggml.ggml_reshape_4d(a.graph.compute.ptr, a.ptr, ne[0], ne[1], ne[2], ne[3]),
        shape, a.requires_grad)


def transpose(x, axes):
    """Put the axes in another order, as ``numpy.transpose`` does."""
    cdef Tensor a = _tensor(x)
    cdef int n = len(a.shape)
    cdef int i
    cdef int to[4]
    axes = tuple(_axis(i, n, "axes") for i in axes)
    if sorted(axes) != list(range(n)):
        raise ValueError(f"axes must be an order of {n} axes, got {axes}")
    if a.requires_grad and a.ptr.op != _ggml.GGML_OP_RESHAPE:
        # PERMUTE's gradient is not contiguous, which hardly any operation before it can take;
        # RESHAPE's backward pass makes it so.
        a = _reshaped(_contiguous(a), a.shape)
    for i in range(4):
        to[i] = i
    for i in range(n):  # ggml wants to know where each of its axes goes
        to[n - 1 - axes[i]] = n - 1 - i
    if a.requires_grad:
        a = _same(a)
    a.graph.reserve(1)
    return _contiguous(a.graph.wrap(
        _ggml.ggml_permute(a.graph.compute.ptr, a.ptr, to[0], to[1], to[2], to[3]),
        tuple(a.shape[i] for i in axes), a.requires_grad))


def broadcast_to(x, shape):
    """Repeat along axes of size 1 until the tensor has ``shape``."""
    cdef Tensor a = _real(x)
    shape = tuple(shape)
    if _broadcast_shape(a.shape, shape) != shape:
        raise ValueError(f"{a.shape} cannot be broadcast to {shape}")
    return _repeat(a, shape)


# ---- reductions and products --------------------------------------------------------------

def sum(x, axis=None, keepdims=False):
    """Add up along an axis, along several, or (``axis=None``) everything.

    Returns
    -------
    Tensor
        Of shape ``(1,)`` where nothing is left.
    """
    cdef Tensor a = _contiguous(_real(x))
    cdef int n = len(a.shape)
    if axis is None:
        a.graph.reserve(1)
        return reshape(a.graph.wrap(_ggml.ggml_sum(a.graph.compute.ptr, a.ptr), (1,),
                                    a.requires_grad), (1,) * n if keepdims else (1,))
    gone = {_axis(i, n) for i in ((axis,) if isinstance(axis, int) else axis)}
    if not gone:
        return a
    shape = a.shape
    kept = [i for i in range(n) if i not in gone]
    order = kept + sorted(gone)
    if order != list(range(n)):
        a = transpose(a, order)
    a = reshape(a, (math.prod(shape[i] for i in kept), math.prod(shape[i] for i in gone)))
    a.graph.reserve(1)
    a = a.graph.wrap(_ggml.ggml_sum_rows(a.graph.compute.ptr, a.ptr), (a.shape[0], 1),
                     a.requires_grad)
    if keepdims:
        return reshape(a, tuple(1 if i in gone else shape[i] for i in range(n)))
    return reshape(a, tuple(shape[i] for i in kept) or (1,))


def mean(x, axis=None, keepdims=False):
    """Average along an axis, along several, or (``axis=None``) over everything."""
    cdef Tensor a = _real(x)
    total = sum(a, axis, keepdims)
    return affine(total, math.prod((<Tensor>total).shape) / math.prod(a.shape))


def linear(x, kernel):
    """Return ``x @ kernel`` for a kernel of shape (inputs, outputs) that is a weight.

    Parameters
    ----------
    x : Tensor of shape (..., inputs)
    kernel : Variable of shape (inputs, outputs)
        Stored with the inputs innermost, as :meth:`Layer.add_weight` stores matrices.

    Returns
    -------
    Tensor of shape (..., outputs)
    """
    cdef Tensor a = _contiguous(_real(x))
    cdef Tensor w
    if isinstance(kernel, Variable) and (<Variable>kernel).axes == (1, 0):
        w = a.graph.weight(kernel)
    else:
        w = transpose(_real(kernel, a, "kernel"), (1, 0))
    if len(w.shape) != 2 or a.shape[-1] != w.shape[1]:
        raise ValueError(f"x of shape {a.shape} does not fit a kernel of shape {w.shape[::-1]}")
    shape = a.shape[:-1] + (w.shape[0],)
    a = reshape(a, (-1, w.shape[1]))
    a.graph.reserve(1)
    out = a.graph.wrap(_ggml.ggml_mul_mat(a.graph.compute.ptr, w.ptr, a.ptr),
                       (a.shape[0], w.shape[0]), a.requires_grad or w.requires_grad)
    return reshape(out, shape)


def matmul(x, y):
    """Return the matrix product over the last two axes, ``x @ y``.

    Parameters
    ----------
    x : Tensor of shape (..., m, k)
    y : Tensor of shape (..., k, n)
        With the same leading axes as x.

    Returns
    -------
    Tensor of shape (..., m, n)
    """
    cdef Tensor a = _contiguous(_real(x, None, "x"))
    cdef Tensor b = _real(y, a, "y")
    cdef int n = len(a.shape)
    if n < 2 or len(b.shape) != n or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matrices of shapes {a.shape} and {b.shape} cannot be multiplied")
    shape = a.shape[:-1] + (b.shape[-1],)
    b = transpose(b, list(range(n - 2)) + [n - 1, n - 2])
    a.graph.reserve(1)
    return a.graph.wrap(_ggml.ggml_mul_mat(a.graph.compute.ptr, b.ptr, a.ptr), shape,
                        a.requires_grad or b.requires_grad)
