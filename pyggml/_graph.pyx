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
from pyggml._lowering cimport Carriers
from pyggml._runtime cimport Context, allocate_context
from pyggml._variable cimport Variable

from pyggml._scalars import integer, integers
from pyggml._lowering import enabled

_ops_math = None


def _operations():
    """Return the module of arithmetic, which is built on this one."""
    global _ops_math
    if _ops_math is None:
        from pyggml import _ops_math
    return _ops_math


# Elements of a tensor: beyond it sizes in bytes would overflow in ggml.
cdef int64_t _largest = <int64_t>1 << 46


cdef int check_size(tuple shape) except -1:
    """Raise MemoryError for a tensor that no memory holds, or an axis that no C int counts."""
    cdef double size = 1
    for n in shape:
        size *= <double>n
    if size > _largest:
        raise MemoryError(f"a tensor of shape {shape} does not fit into memory: "
                          f"{4 * math.prod(shape)} bytes")
    for n in shape:
        if n > INT32_MAX:  # in many of ggml's operations
            raise MemoryError(f"a tensor of shape {shape} does not fit: an axis has at most "
                              f"{INT32_MAX} elements; it would take {4 * math.prod(shape)} bytes")
    return 0


class GraphFull(RuntimeError):
    """The graph has more nodes than its context holds; make it anew with more capacity."""

    def __init__(self):
        super().__init__("the graph has no room for more tensors; make it anew with a larger "
                         "capacity")


cdef object _key = object()  # whoever has it may make tensors: they need a pointer at once


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
    made_by : str or None
        Of the result of an activation: its name.
    made_from : Tensor or None
        Of the result of an activation: what it was applied to.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: 2 * x + 1, [[1.0, 2.0]]).tolist()
    [[3.0, 5.0]]
    """

    def __cinit__(self, key=None, *args, **kwargs):
        if key is not _key:
            raise TypeError("tensors are made by Graph.input() and by operations")

    def __repr__(self):
        return f"<Tensor shape={self.shape} dtype={self.dtype}>"

    def __add__(self, other):
        return _operations().add(self, other)

    def __radd__(self, other):
        return _operations().add(self, other)

    def __sub__(self, other):
        return _operations().subtract(self, other)

    def __rsub__(self, other):
        return _operations().subtract(other, self)

    def __mul__(self, other):
        return _operations().multiply(self, other)

    def __rmul__(self, other):
        return _operations().multiply(self, other)

    def __truediv__(self, other):
        return _operations().divide(self, other)

    def __rtruediv__(self, other):
        return _operations().divide(other, self)

    def __neg__(self):
        return _operations().affine(self, -1.0)


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

    Attributes
    ----------
    aliases : dict of Variable to Tensor
        What stands for each weight so far.
    variables : list of Variable
        Those that get a gradient.
    masks : list
        Tensors of dropout masks and their rates.
    penalties : list of Tensor
        What regularizers add to the loss.
    constants : list
        Tensors whose values are written when the inputs get their memory.
    zero_tensors : dict of tuple to Tensor
        Tensors of zeros by shape.
    updates : list
        Variables that a step sets, and to what.
    taps : dict or None
        Given, batch norms note in it the tensors that they normalise.

    Examples
    --------
    >>> from pyggml import ops
    >>> from pyggml.opt import Graph
    >>> graph = Graph(8)
    >>> ops.square(graph.input((8, 3))).shape
    (8, 3)
    """

    def __cinit__(self, batch_size, bint training=False, dict bindings=None, capacity=4096,
                  trained=None, bint fused=False):
        for name, value, most in (("batch_size", batch_size, 1 << 30),
                                  ("capacity", capacity, 1 << 24)):
            if not 1 <= integer(value, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {value}")
        self.batch_size = batch_size
        self.training = training
        self.capacity = capacity
        self.bindings = {} if bindings is None else bindings
        self.trained = trained
        self.aliases = {}
        self.variables = []
        self.masks = []
        self.fused = fused and enabled()
        self.draws = fused and training  # a trainer's: nobody else fills masks
        self.carriers = Carriers()
        self.penalties = []
        self.constants = []
        self.zero_tensors = {}
        self.updates = []
        self.awaited = None
        self.taps = None
        self.inputs = Context(capacity)
        # In training, every weight brings the state of its step and a leaf for the rate.
        self.weights = Context(6 * capacity if training else capacity)
        if self.fused and not training:
            self.compute = Context(capacity)
        else:
            # Room for the backward pass and for three graphs of ggml-opt's size beside ours.
            self.spare = 5 * <int>capacity
            self.compute = Context(6 * capacity, capacity, 4)

    cdef Tensor wrap(self, _ggml.ggml_tensor * ptr, tuple shape, bint requires_grad):
        cdef Tensor t = Tensor.__new__(Tensor, _key)
        check_size(shape)
        if _ggml.ggml_nelements(ptr) != math.prod(shape):  # its pooling counts in floats
            raise ValueError(f"ggml computes {_ggml.ggml_nelements(ptr)} elements where shape "
                             f"{shape} has {math.prod(shape)}: an axis is too long for it")
        t.ptr = ptr
        t.graph = self
        t.shape = shape
        t.dtype = "int32" if ptr.type == _ggml.GGML_TYPE_I32 else "float32"
        t.requires_grad = requires_grad
        t.limit = INT32_MAX
        return t

    cdef int own(self, Tensor t, str name) except -1:
        """Refuse what is no tensor of this graph."""
        if t is None or t.graph is not self:
            raise ValueError(f"{name} must be a tensor of this graph, got {t!r}")
        return 0

    cdef int reserve(self, int n) except -1:
        """Make sure that n more tensors fit: ggml would end the process."""
        if self.compute.room() < self.spare + n:
            raise GraphFull
        return 0

    cdef size_t count(self):
        """How many tensors there are, of all kinds."""
        return self.inputs.count() + self.weights.count() + self.compute.count()

    cpdef Tensor weight(self, Variable variable):
        """Return the tensor that stands for a variable, the same one at every call.

        Parameters
        ----------
        variable : Variable

        Returns
        -------
        Tensor
        """
        cdef Tensor t
        cdef Variable bound
        cdef _ggml.ggml_tensor * ptr
        if variable is None:
            raise TypeError("variable must be a Variable, got None")
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
        self.aliases[variable] = t
        if t.requires_grad and variable.regularizer is not None:
            penalty = variable.regularizer(
                t if getattr(variable.regularizer, "any_order", False)
                else _tensor(variable, t))
            if not isinstance(penalty, Tensor) or math.prod((<Tensor>penalty).shape) != 1:
                raise TypeError(f"the regularizer of {variable.name!r} must return a tensor "
                                f"of one element, got {penalty!r}")
            self.penalties.append(penalty)
        return t

    cpdef Tensor input(self, shape, str dtype="float32", str name="input"):
        """Make an input tensor with memory of its own, filled from outside before computing.

        Parameters
        ----------
        shape : tuple of int
        dtype : {"float32", "int32"}
        name : str

        Returns
        -------
        Tensor
        """
        cdef _ggml.ggml_tensor * ptr
        cdef tuple sizes = integers(shape, "shape")
        if dtype not in ("float32", "int32"):
            raise ValueError(f"dtype must be 'float32' or 'int32', got {dtype!r}")
        if self.inputs.room() < 1:
            raise GraphFull
        ptr = _new(self.inputs, sizes,
                   _ggml.GGML_TYPE_I32 if dtype == "int32" else _ggml.GGML_TYPE_F32)
        _ggml.ggml_set_input(ptr)
        _ggml.ggml_set_name(ptr, name.encode()[:50])
        return self.wrap(ptr, sizes, False)

    def allocate(self):
        """Give the inputs their memory, set to zero, and write the constants into it."""
        cdef Tensor t
        cdef bytes data
        self.buffer = allocate_context(self.inputs, "inputs of the graph")
        for t, data in self.constants:
            memcpy(t.ptr.data, <const char *>data, len(data))
        self.constants.clear()

    cpdef Tensor keep(self, Tensor t):
        """Return a copy of t whose memory nothing else uses, to be read after computing.

        Parameters
        ----------
        t : Tensor

        Returns
        -------
        Tensor
        """
        cdef Tensor kept
        self.own(t, "t")
        if self.inputs.room() < 1:
            raise GraphFull
        kept = self.wrap(_ggml.ggml_cont(self.inputs.ptr, t.ptr), t.shape, t.requires_grad)
        kept.made_by = t.made_by
        kept.made_from = t.made_from
        _ggml.ggml_set_output(kept.ptr)
        return kept

    def constant(self, array):
        """Return a tensor that always holds the values of a float32 or int32 NumPy array.

        Parameters
        ----------
        array : numpy.ndarray of float32 or int32

        Returns
        -------
        Tensor
        """
        t = self.input(array.shape, array.dtype.name, "constant")
        self.constants.append((t, array.tobytes()))
        return t

    def zeros(self, shape):
        """Return a tensor of zeros, the same one for a shape at every call.

        Parameters
        ----------
        shape : tuple of int

        Returns
        -------
        Tensor
        """
        shape = tuple(shape)
        if shape not in self.zero_tensors:
            self.zero_tensors[shape] = self.input(shape, name="zeros")
        return self.zero_tensors[shape]

    def current(self, Variable variable not None):
        """Return the tensor of a variable's value at this point: updated, or its weight.

        Parameters
        ----------
        variable : Variable

        Returns
        -------
        Tensor
        """
        bound = self.bindings.get(variable, variable)
        for other, t in reversed(self.updates):
            if other is bound:
                return t
        return self.weight(variable)

    def update(self, Variable variable not None, Tensor value not None):
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

    cpdef bint carries(self, str name) except -1:
        """Whether a function is left to kernels.

        Parameters
        ----------
        name : str
            One of the carriers' rules of lowering.
        """
        return self.fused and _lowering.on(name)

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
        for held in (self.aliases, self.masks, self.penalties, self.zero_tensors, self.updates):
            held.clear()
        self.awaited = self.taps = None
        return 0

    cdef int check_draws(self) except -1:
        """Raise ValueError where masks would never be drawn."""
        if not self.draws:
            raise ValueError("dropout is for the steps of a Trainer or of fit, which draw its "
                             "masks anew: a layer's call has to leave it out unless its argument "
                             "'training' is True")
        return 0

    def mask(self, shape, double rate):
        """Make an input that holds a fresh inverted-dropout mask at every step.

        Parameters
        ----------
        shape : tuple of int
        rate : float
            In [0, 1): the share of elements that are 0.

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            Nobody would fill it: the graph is not one that a trainer steps.
        """
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1), got {rate}")
        self.check_draws()
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
    if not -ndim <= integer(axis, name) < ndim:
        raise ValueError(f"{name} must be from {-ndim} to {ndim - 1}, got {axis!r}")
    return axis % ndim


# ---- shape --------------------------------------------------------------------------------

def reshape(x, shape):
    """Give the elements, in row-major order, another shape; one size may be -1.

    Parameters
    ----------
    x : Tensor
    shape : tuple of int

    Returns
    -------
    Tensor of that shape

    Raises
    ------
    ValueError
        It has another number of elements, or more than four axes.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.reshape(x, (1, 2, 2)), [[1.0, 2.0, 3.0, 4.0]]).tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]
    """
    cdef Tensor a = _contiguous(_tensor(x))
    size = math.prod(a.shape)
    shape = list(integers(shape, "shape"))
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
    """Put the axes in another order, as ``numpy.transpose`` does.

    Parameters
    ----------
    x : Tensor
    axes : tuple of int
        Which axis of x comes where.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        ``axes`` is not an order of all axes.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.transpose(x, (0, 2, 1)), [[[1.0, 2.0]]]).tolist()
    [[[1.0], [2.0]]]
    """
    cdef Tensor a = _tensor(x)
    cdef int n = len(a.shape)
    cdef int i
    cdef int to[4]
    axes = tuple([_axis(i, n, "axes") for i in integers(axes, "axes")])
    if sorted(axes) != list(range(n)):
        raise ValueError(f"axes must be an order of {n} axes, got {axes}")
    for sizes in (a.shape, [a.shape[i] for i in axes]):
        # PERMUTE keeps sizes and strides in bytes in 32 bits; its gradient is permuted back.
        if n > 1 and axes != tuple(range(n)) and (
                4 * math.prod(sizes[1:]) > INT32_MAX or max(sizes) > INT32_MAX):
            raise ValueError(f"axes of a tensor of shape {a.shape} cannot be put in the order "
                             f"{axes}: ggml keeps their distances in 32 bits; use a smaller batch")
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
