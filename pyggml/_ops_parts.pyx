# cython: language_level=3
"""Operations that pick parts of tensors and join them."""

import math

import numpy as np

from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Tensor, _contiguous, _real, _tensor
from pyggml._ops_math cimport _repeat

from pyggml import _fused
from pyggml._graph import _axis, reshape, transpose
from pyggml._scalars import integer, integers

# ACC, SET and the backward pass of VIEW keep offsets and strides in bytes in 32 bits; SET
# asserts that an offset is below 2^30.
cdef int64_t _most_bytes = 1 << 30


cdef int _check_bytes(tuple shape, str what) except -1:
    if 4 * math.prod(shape) >= _most_bytes:
        raise ValueError(f"{what} of shape {shape} takes more bytes than the {_most_bytes} that "
                         "ggml can address here; use a smaller batch")
    return 0


def constant(like, value):
    """Return a tensor that always holds ``value``; without gradient.

    Parameters
    ----------
    like : Tensor
        Any tensor of the graph.
    value : array_like
        Stored as int32 if it holds integers, else as float32.

    Returns
    -------
    Tensor

    Raises
    ------
    TypeError
        ``value`` does not hold real numbers.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.add(x, ops.constant(x, [1.0, 2.0])), [[1.0, 1.0]]).tolist()
    [[2.0, 3.0]]
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iufb":
        raise TypeError(f"value must hold real numbers, got dtype {array.dtype}")
    array = np.ascontiguousarray(
        array, dtype=np.int32 if array.dtype.kind in "iu" else np.float32)
    if array.ndim > 4:
        raise ValueError(f"tensors have at most 4 axes, got shape {array.shape}")
    return (<Tensor>_tensor(like, None, "like")).graph.constant(array)


# ---- parts and joins ------------------------------------------------------------------------

def slice(x, starts, shape):
    """Return a block of a tensor.

    Parameters
    ----------
    x : Tensor
    starts : sequence of int
        The block's first index along each axis.
    shape : sequence of int
        The block's shape.

    Returns
    -------
    Tensor of that shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.slice(x, (0, 1), (1, 2)), [[1.0, 2.0, 3.0]]).tolist()
    [[2.0, 3.0]]
    """
    cdef Tensor a = _contiguous(_tensor(x))
    cdef int64_t ne[4]
    cdef size_t offset = 0
    cdef int i
    cdef int n = len(a.shape)
    starts, shape = integers(starts, "starts"), integers(shape, "shape")
    if len(starts) != n or len(shape) != n:
        raise ValueError(f"starts and shape must have {n} entries, got {starts} and {shape}")
    for first, count, size in zip(starts, shape, a.shape):
        if not (0 <= first and 1 <= count and first + count <= size):
            raise ValueError(f"a block of shape {shape} at {starts} does not lie inside {a.shape}")
    if shape == a.shape:
        return a
    if a.requires_grad:
        _check_bytes(a.shape, "the sliced tensor")
    for i in range(4):
        ne[i] = shape[n - 1 - i] if i < n else 1
        if i < n:
            offset += <size_t>starts[n - 1 - i] * a.ptr.nb[i]
    a.graph.reserve(1)
    return _contiguous(a.graph.wrap(
        _ggml.ggml_view_4d(a.graph.compute.ptr, a.ptr, ne[0], ne[1], ne[2], ne[3], a.ptr.nb[1],
                           a.ptr.nb[2], a.ptr.nb[3], offset), shape, a.requires_grad))


def split(x, parts, axis=-1):
    """Cut a tensor into pieces along an axis.

    Parameters
    ----------
    x : Tensor
    parts : int or sequence of int
        How many pieces of equal size, or the sizes of the pieces.
    axis : int

    Returns
    -------
    list of Tensor

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.split(x, 2)[1], [[1.0, 2.0, 3.0, 4.0]]).tolist()
    [[3.0, 4.0]]
    """
    cdef Tensor a = _tensor(x)
    axis = _axis(axis, len(a.shape))
    size = a.shape[axis]
    if hasattr(parts, "__index__") and np.ndim(parts) == 0:
        parts = integer(parts, "parts")
        if parts < 1 or size % parts:
            raise ValueError(f"{size} cannot be cut into {parts} equal parts")
        parts = (size // parts,) * parts
    parts = integers(parts, "parts")
    if sum(parts) != size:
        raise ValueError(f"parts must add up to {size}, got {list(parts)}")
    found = []
    first = 0
    for count in parts:
        starts = [first if i == axis else 0 for i in range(len(a.shape))]
        found.append(slice(a, starts, a.shape[:axis] + (count,) + a.shape[axis + 1:]))
        first += count
    return found


cdef Tensor _add_into(Tensor base, Tensor part, starts):
    """``base`` with ``part`` added to the block that begins at ``starts``."""
    cdef size_t offset = 0
    cdef int i
    cdef int n = len(base.shape)
    for i in range(n):
        offset += <size_t>starts[n - 1 - i] * base.ptr.nb[i]
    base.graph.reserve(1)
    return base.graph.wrap(
        _ggml.ggml_acc(base.graph.compute.ptr, base.ptr, part.ptr, base.ptr.nb[1],
                       base.ptr.nb[2], base.ptr.nb[3], offset),
        base.shape, base.requires_grad or part.requires_grad)


def concatenate(xs, axis=-1):
    """Join tensors along an axis.

    Parameters
    ----------
    xs : sequence of Tensor
        Of the same shape but for that axis.
    axis : int

    Returns
    -------
    Tensor

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x, y: ops.concatenate([x, y]), [[1.0]], [[2.0]]).tolist()
    [[1.0, 2.0]]
    """
    cdef Tensor t, total
    cdef int n
    xs = list(xs)
    if not xs:
        raise ValueError("xs must not be empty")
    first = _real(xs[0], None, "xs[0]")
    xs = [_contiguous(_real(x, first, f"xs[{i}]")) for i, x in enumerate(xs)]
    n = len(first.shape)
    axis = _axis(axis, n)
    for t in xs:
        if len(t.shape) != n or any([t.shape[i] != first.shape[i] for i in range(n) if i != axis]):
            raise ValueError(f"shapes must agree but for axis {axis}, got "
                             f"{[x.shape for x in xs]}")
    if not any([x.requires_grad for x in xs]):
        return _joined(xs, axis)
    if len(xs) == 1:
        return xs[0]
    size = sum([x.shape[axis] for x in xs])
    shape = first.shape[:axis] + (size,) + first.shape[axis + 1:]
    _check_bytes(shape, "the joined tensor")
    # CONCAT has no backward pass in ggml: the parts are added into zeros.
    total = first.graph.zeros(shape)
    at = 0
    for t in xs:
        total = _add_into(total, t, [at if i == axis else 0 for i in range(n)])
        at += t.shape[axis]
    return total


cdef Tensor _joined(list xs, int axis):
    """Join by halves, so that many small parts are not copied once each."""
    cdef Tensor a, b
    if len(xs) == 1:
        return xs[0]
    half = len(xs) // 2
    a = _joined(xs[:half], axis)
    b = _joined(xs[half:], axis)
    a.graph.reserve(1)
    return a.graph.wrap(
        _ggml.ggml_concat(a.graph.compute.ptr, a.ptr, b.ptr, len(a.shape) - 1 - axis),
        a.shape[:axis] + (a.shape[axis] + b.shape[axis],) + a.shape[axis + 1:], False)


def stack(xs, axis=0):
    """Join tensors of one shape along a new axis.

    Parameters
    ----------
    xs : list of Tensor
        All of one shape.
    axis : int
        Where the new axis goes.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x, y: ops.stack([x, y], 1), [[1.0]], [[2.0]]).tolist()
    [[[1.0], [2.0]]]
    """
    xs = list(xs)
    if not xs:
        raise ValueError("xs must not be empty")
    axis = _axis(axis, len(_tensor(xs[0]).shape) + 1)
    return concatenate([reshape(x, x.shape[:axis] + (1,) + x.shape[axis:]) for x in xs], axis)


def pad(x, pad_width, value=0.0):
    """Put elements of one value around a tensor.

    Parameters
    ----------
    x : Tensor
    pad_width : sequence of (int, int)
        How many before and behind, for each axis.
    value : float

    Returns
    -------
    Tensor

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.pad(x, [(0, 0), (1, 0)]), [[1.0, 2.0]]).tolist()
    [[0.0, 1.0, 2.0]]
    """
    cdef Tensor a = _contiguous(_real(x))
    cdef Tensor base
    cdef size_t offset = 0
    cdef int i
    cdef int n = len(a.shape)
    pad_width = [integers(p, "pad_width") for p in pad_width]
    if len(pad_width) != n or any([len(p) != 2 or min(p) < 0 for p in pad_width]):
        raise ValueError(f"pad_width must be {n} pairs of numbers not below 0, got {pad_width}")
    shape = tuple([before + size + behind for (before, behind), size in zip(pad_width, a.shape)])
    if shape == a.shape:
        return a
    _check_bytes(shape, "the padded tensor")
    starts = [before for before, _ in pad_width]
    if value == 0:
        return _add_into(a.graph.zeros(shape), a, starts)
    base = a.graph.constant(np.full(shape, value, np.float32))
    for i in range(n):
        offset += <size_t>starts[n - 1 - i] * base.ptr.nb[i]
    a.graph.reserve(1)
    return a.graph.wrap(
        _ggml.ggml_set(a.graph.compute.ptr, base.ptr, a.ptr, base.ptr.nb[1], base.ptr.nb[2],
                       base.ptr.nb[3], offset), shape, a.requires_grad)


def take(x, indices):
    """Look up rows of a matrix.

    Parameters
    ----------
    x : Tensor or Variable of shape (n, size)
        A variable is stored as it is (``axes=(0, 1)``).
    indices : Tensor of int32, or array_like of int
        A tensor must be an input of the model: only there an index that is out of range can be
        refused before it ends the process.

    Returns
    -------
    Tensor of shape (..., size)
        The axes of the indices in front.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import layers, ops
    >>> class Bias(layers.Layer):
    ...     def build(self, input_shape):
    ...         self.table = self.add_weight("table", (10, 1), axes=(0, 1))
    ...
    ...     def call(self, indices):
    ...         return ops.take(self.table, indices)
    >>> Bias()(pyggml.Input((3,), dtype="int32")).shape
    (None, 3, 1)
    """
    cdef Tensor rows = indices if isinstance(indices, Tensor) else None
    cdef Tensor a = _contiguous(_real(x, rows))
    if len(a.shape) != 2:
        raise ValueError(f"x must have two axes, got shape {a.shape}")
    if rows is None:
        array = np.asarray(indices)
        if array.dtype.kind not in "iu":
            raise TypeError(f"indices must be integers, got dtype {array.dtype}")
        if array.size == 0 or array.min() < 0 or array.max() >= a.shape[0]:
            raise ValueError(f"indices must lie in the range [0, {a.shape[0]})")
        rows = constant(a, array)
    elif rows.dtype != "int32":
        raise TypeError(f"indices must be int32, got {rows.dtype}; give the Input dtype='int32'")
    elif rows.ptr.op != _ggml.GGML_OP_NONE or rows.graph is not a.graph:
        raise ValueError("indices must be an input of the model, not something computed")
    rows.limit = min(rows.limit, <int64_t>a.shape[0])
    shape = rows.shape + a.shape[1:]
    if len(shape) > 4:
        raise ValueError(f"indices may have at most 3 axes with the batch, got {rows.shape}")
    found = _fused.gather(a, rows)
    if found is not None:
        return found
    rows = reshape(rows, (-1,))  # the backward pass wants a matrix and a vector
    a.graph.reserve(1)
    return reshape(
        a.graph.wrap(_ggml.ggml_get_rows(a.graph.compute.ptr, a.ptr, rows.ptr),
                     (rows.shape[0], a.shape[1]), a.requires_grad), shape)


def flip(x, axis):
    """Reverse the order along an axis.

    Parameters
    ----------
    x : Tensor
    axis : int

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.flip(x, 1), [[1.0, 2.0, 3.0]]).tolist()
    [[3.0, 2.0, 1.0]]
    """
    cdef Tensor a = _real(x)
    axis = _axis(axis, len(a.shape))
    size = a.shape[axis]
    if size == 1:
        return a
    if axis == len(a.shape) - 1 and axis > 0:
        order = tuple(range(axis - 1)) + (axis, axis - 1)
        return transpose(flip(transpose(a, order), axis - 1), order)
    before = math.prod(a.shape[:axis])
    if before * size > INT32_MAX:
        raise ValueError(f"a tensor of shape {a.shape} is too large to be flipped")
    index = np.arange(before * size).reshape(before, size)[:, ::-1].ravel()
    return reshape(take(reshape(a, (before * size, -1)), index), a.shape)


def repeat(x, repeats, axis):
    """Repeat each element ``repeats`` times along an axis, as ``numpy.repeat`` does.

    Parameters
    ----------
    x : Tensor
    repeats : int
    axis : int

    Returns
    -------
    Tensor

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.repeat(x, 2, 1), [[1.0, 2.0]]).tolist()
    [[1.0, 1.0, 2.0, 2.0]]
    """
    cdef Tensor a = _real(x)
    axis = _axis(axis, len(a.shape))
    repeats = integer(repeats, "repeats")
    if repeats < 1:
        raise ValueError(f"repeats must be positive, got {repeats}")
    rows = math.prod(a.shape[:axis + 1])
    size = math.prod(a.shape[axis + 1:])
    wide = _repeat(reshape(a, (rows, 1, size)), (rows, repeats, size))
    return reshape(wide, a.shape[:axis] + (a.shape[axis] * repeats,) + a.shape[axis + 1:])
