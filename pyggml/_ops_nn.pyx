# cython: language_level=3
"""Operations that move, pick, pool and convolve: the second half of :mod:`pyggml.ops`.

As in ``_graph.pyx`` every shape and range is checked here, since ggml ends the process where
one is wrong, and everything that has to have a gradient is made of what ggml differentiates.
"""

import math

import numpy as np

from libc.float cimport FLT_MAX
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Tensor, _contiguous, _real, _repeat, _tensor

from pyggml import _fused
from pyggml._graph import _axis, add, multiply, reshape, transpose

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
    """
    cdef Tensor a = _contiguous(_tensor(x))
    cdef int64_t ne[4]
    cdef size_t offset = 0
    cdef int i
    cdef int n = len(a.shape)
    starts, shape = tuple(starts), tuple(shape)
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
    """
    cdef Tensor a = _tensor(x)
    axis = _axis(axis, len(a.shape))
    size = a.shape[axis]
    if isinstance(parts, int):
        if parts < 1 or size % parts:
            raise ValueError(f"{size} cannot be cut into {parts} equal parts")
        parts = [size // parts] * parts
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
    """Join tensors of one shape along a new axis."""
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
    """
    cdef Tensor a = _contiguous(_real(x))
    cdef Tensor base
    cdef size_t offset = 0
    cdef int i
    cdef int n = len(a.shape)
    pad_width = [tuple(p) for p in pad_width]
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
    if a.graph.fused:
        return _fused.gather(a, rows)
    rows = reshape(rows, (-1,))  # the backward pass wants a matrix and a vector
    a.graph.reserve(1)
    return reshape(
        a.graph.wrap(_ggml.ggml_get_rows(a.graph.compute.ptr, a.ptr, rows.ptr),
                     (rows.shape[0], a.shape[1]), a.requires_grad), shape)


def flip(x, axis):
    """Reverse the order along an axis."""
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
    """Repeat each element ``repeats`` times along an axis, as ``numpy.repeat`` does."""
    cdef Tensor a = _real(x)
    axis = _axis(axis, len(a.shape))
    if isinstance(repeats, bool) or not hasattr(repeats, "__index__"):
        raise TypeError(f"repeats must be an integer, got {repeats!r}")
    if repeats < 1:
        raise ValueError(f"repeats must be positive, got {repeats}")
    rows = math.prod(a.shape[:axis + 1])
    size = math.prod(a.shape[axis + 1:])
    wide = _repeat(reshape(a, (rows, 1, size)), (rows, repeats, size))
    return reshape(wide, a.shape[:axis] + (a.shape[axis] * repeats,) + a.shape[axis + 1:])


# ---- products and norms ---------------------------------------------------------------------

def matmul_transposed(x, y):
    """Return ``x @ y.T`` over the last two axes.

    Parameters
    ----------
    x : Tensor of shape (..., m, k)
    y : Tensor of shape (..., n, k)
        With the same leading axes as x, or none at all.

    Returns
    -------
    Tensor of shape (..., m, n)
    """
    cdef Tensor a = _contiguous(_real(x, None, "x"))
    cdef Tensor b = _contiguous(_real(y, a, "y"))
    n = len(a.shape)
    if len(b.shape) == 2 and n > 2:
        flat = matmul_transposed(reshape(a, (-1, a.shape[n - 1])), b)
        return reshape(flat, a.shape[:n - 1] + (b.shape[0],))
    if n < 2 or len(b.shape) != n or a.shape[:n - 2] != b.shape[:n - 2] \
            or a.shape[n - 1] != b.shape[n - 1]:
        raise ValueError(f"x of shape {a.shape} cannot be multiplied with y of shape {b.shape}, "
                         "transposed")
    a.graph.reserve(1)
    return a.graph.wrap(_ggml.ggml_mul_mat(a.graph.compute.ptr, b.ptr, a.ptr),
                        a.shape[:n - 1] + (b.shape[n - 2],), a.requires_grad or b.requires_grad)


def rms_normalize(x, double epsilon=1e-6):
    """Return ``x / sqrt(mean(x^2) + epsilon)`` along the last axis."""
    cdef Tensor a = _contiguous(_real(x))
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    a.graph.reserve(1)
    return a.graph.wrap(_ggml.ggml_rms_norm(a.graph.compute.ptr, a.ptr, <float>epsilon), a.shape,
                        a.requires_grad)


def mask_future(x):
    """Set what lies right of the diagonal of the last two axes to minus infinity."""
    cdef Tensor a = _contiguous(_real(x))
    if len(a.shape) < 2:
        raise ValueError(f"x must have at least two axes, got shape {a.shape}")
    a.graph.reserve(1)
    return a.graph.wrap(_ggml.ggml_diag_mask_inf(a.graph.compute.ptr, a.ptr, 0), a.shape,
                        a.requires_grad)


# ---- convolution and pooling ----------------------------------------------------------------

cdef tuple _output_sizes(tuple sizes, tuple kernel, strides, dilation, pads):
    """Sizes of the output of a sliding window, or ValueError where it does not fit."""
    found = []
    for n, k, s, d, (before, behind) in zip(sizes, kernel, strides, dilation, pads):
        if min(k, s, d) < 1 or max(k, s, d, k * d, before, behind) > INT32_MAX // 4:
            raise ValueError(f"kernel {kernel}, strides {strides} and dilation {dilation} must be "
                             "positive")
        if min(before, behind) < 0:
            raise ValueError(f"padding must not be negative, got {pads}")
        reach = (k - 1) * d + 1
        if n + before + behind < reach:
            raise ValueError(f"a window of {reach} does not fit into {n + before + behind} places "
                             f"(sizes {sizes}, kernel {kernel}, dilation {dilation})")
        found.append((n + before + behind - reach) // s + 1)
    return tuple(found)


cdef Tensor _images(x, str what="x"):
    cdef Tensor a = _contiguous(_real(x, None, what))
    if len(a.shape) != 4:
        raise ValueError(f"{what} must have shape (batch, channels, height, width), got {a.shape}")
    return a


cdef Tensor _columns(Tensor a, Tensor kernel, strides, dilation, pads):
    """The windows that a kernel (out, in, kh, kw) sees: (batch, height, width, in * kh * kw)."""
    cdef int s0, s1, d0, d1, p0, p1
    cdef tuple sizes = _output_sizes(a.shape[2:], kernel.shape[2:], strides, dilation, pads)
    s0, s1, d0, d1 = strides[1], strides[0], dilation[1], dilation[0]
    if a.shape[1] != kernel.shape[1]:
        raise ValueError(f"the kernel takes {kernel.shape[1]} channels, got x of shape {a.shape}")
    if pads[0][0] != pads[0][1] or pads[1][0] != pads[1][1]:
        a = pad(a, [(0, 0), (0, 0), *pads])
        pads = ((0, 0), (0, 0))
    p0, p1 = pads[1][0], pads[0][0]
    a.graph.reserve(1)
    return a.graph.wrap(
        _ggml.ggml_im2col(a.graph.compute.ptr, kernel.ptr, a.ptr, s0, s1, p0, p1, d0, d1, True,
                          _ggml.GGML_TYPE_F32),
        (a.shape[0], *sizes, math.prod(kernel.shape[1:])), a.requires_grad)


cdef Tensor _with_bias(Tensor out, bias):
    return out if bias is None else add(out, reshape(bias, (1, out.shape[1], 1, 1)))


cdef _bias(bias, Tensor x, int channels):
    """A bias checked, as a tensor of shape (channels,), or None."""
    if bias is None:
        return None
    t = _real(bias, x, "bias")
    if t.shape != (channels,):
        raise ValueError(f"bias must have shape ({channels},), got {t.shape}")
    return t


def conv2d(x, kernel, strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), bias=None):
    """Slide kernels over images: cross-correlation, as every framework calls convolution.

    Parameters
    ----------
    x : Tensor of shape (batch, in, height, width)
    kernel : Tensor of shape (out, in, kernel height, kernel width)
    strides, dilation : (int, int)
    padding : ((int, int), (int, int))
        Places of zeros above, below, left and right.
    bias : Tensor or Variable of shape (out,), optional

    Returns
    -------
    Tensor of shape (batch, out, height, width)
    """
    cdef Tensor a = _images(x)
    cdef Tensor k = _images(_real(kernel, a, "kernel"), "kernel")
    cdef Tensor columns, flat, w, out
    cdef tuple sizes = _output_sizes(a.shape[2:], k.shape[2:], strides, dilation, padding)
    bias = _bias(bias, a, k.shape[0])
    if a.shape[1] != k.shape[1]:
        raise ValueError(f"the kernel takes {k.shape[1]} channels, got x of shape {a.shape}")
    if a.graph.fused:
        found = _fused.conv2d(a, k, bias, strides, (padding[0][0], padding[1][0]), dilation,
                              sizes)
        if found is not None:
            return found
    columns = _columns(a, k, strides, dilation, padding)
    n, height, width, size = columns.shape
    flat = reshape(columns, (-1, size))
    w = reshape(k, (k.shape[0], size))
    a.graph.reserve(1)
    out = a.graph.wrap(_ggml.ggml_mul_mat(a.graph.compute.ptr, flat.ptr, w.ptr),
                       (w.shape[0], flat.shape[0]), flat.requires_grad or w.requires_grad)
    return _with_bias(transpose(reshape(out, (w.shape[0], n, height, width)), (1, 0, 2, 3)), bias)


def depthwise_conv2d(x, kernel, strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1),
                     bias=None):
    """Slide kernels over each channel of images by itself.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
    kernel : Tensor of shape (channels, multiplier, kernel height, kernel width)
    strides, dilation, padding
        As for :func:`conv2d`.
    bias : Tensor or Variable of shape (channels * multiplier,), optional

    Returns
    -------
    Tensor of shape (batch, channels * multiplier, height, width)
        Channel ``c * multiplier + m`` comes from channel c.
    """
    cdef Tensor a = _images(x)
    cdef Tensor k = _images(_real(kernel, a, "kernel"), "kernel")
    cdef Tensor columns, single, w, out
    n, channels, height, width = a.shape
    multiplier = k.shape[1]
    if k.shape[0] != channels:
        raise ValueError(f"the kernel takes {k.shape[0]} channels, got x of shape {a.shape}")
    bias = _bias(bias, a, channels * multiplier)
    sizes = _output_sizes(a.shape[2:], k.shape[2:], strides, dilation, padding)
    single = reshape(k, (channels * multiplier, 1) + k.shape[2:])
    if a.graph.fused:
        found = _fused.conv2d(a, single, bias, strides, (padding[0][0], padding[1][0]), dilation,
                              sizes, channels)
        if found is not None:
            return found
    a = reshape(transpose(a, (1, 0, 2, 3)), (channels * n, 1, height, width))
    columns = _columns(a, single, strides, dilation, padding)
    _, height, width, size = columns.shape
    columns = reshape(columns, (channels, n * height * width, size))
    w = reshape(single, (channels, multiplier, size))
    a.graph.reserve(1)
    out = a.graph.wrap(_ggml.ggml_mul_mat(a.graph.compute.ptr, columns.ptr, w.ptr),
                       (channels, multiplier, n * height * width),
                       columns.requires_grad or w.requires_grad)
    out = transpose(reshape(out, (channels * multiplier, n, height * width)), (1, 0, 2))
    return _with_bias(reshape(out, (n, channels * multiplier, height, width)), bias)


def spread(x, strides):
    """Put zeros between the pixels of images, so that they lie ``strides`` apart.

    Returns
    -------
    Tensor of shape (batch, channels, height * strides[0], width * strides[1])
        Zeros behind the last row and column too.
    """
    cdef Tensor a = _images(x)
    n, channels, height, width = a.shape
    down, right = strides
    if min(down, right) < 1:
        raise ValueError(f"strides must be positive, got {strides}")
    if right > 1:
        a = pad(reshape(a, (-1, 1)), [(0, 0), (0, right - 1)])
    if down > 1:
        a = pad(reshape(a, (n * channels * height, 1, width * right)),
                [(0, 0), (0, down - 1), (0, 0)])
    return reshape(a, (n, channels, height * down, width * right))


def max_pool2d(x, size, strides, padding=((0, 0), (0, 0))):
    """Return the largest element of every window; of equal ones the first gets the gradient.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
    size, strides : (int, int)
    padding : ((int, int), (int, int))
        Padded places never win.
    """
    return _pool(_images(x), _ggml.GGML_OP_POOL_MAX, size, strides, padding)


def average_pool2d(x, size, strides, padding=((0, 0), (0, 0))):
    """Return the mean of every window.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
    size, strides : (int, int)
    padding : ((int, int), (int, int))
        Padded places do not count.
    """
    cdef Tensor a = _images(x)
    mean = _pool(a, _ggml.GGML_OP_POOL_AVG, size, strides, padding)
    if a.graph.fused or not any([any(p) for p in padding]):
        return mean
    factors = []
    for n, k, s, (before, _), outputs in zip(a.shape[2:], size, strides, padding, mean.shape[2:]):
        first = np.arange(outputs) * s - before
        inside = np.minimum(first + k, n) - np.maximum(first, 0)
        factors.append(k / inside)
    return multiply(mean, constant(a, np.multiply.outer(*factors)[None, None]))


cdef Tensor _pool(Tensor a, _ggml.ggml_op_pool kind, size, strides, padding):
    cdef int k0, k1, s0, s1, p0, p1
    cdef tuple sizes = _output_sizes(a.shape[2:], tuple(size), strides, (1, 1), padding)
    k0, k1, s0, s1 = size[1], size[0], strides[1], strides[0]
    for k, (before, behind) in zip(size, padding):
        if max(before, behind) >= k:
            raise ValueError(f"padding must be smaller than the window {size}, got {padding}")
    if a.graph.fused:
        found = _fused.pool2d(a, "max" if kind == _ggml.GGML_OP_POOL_MAX else "avg", size,
                              strides, (padding[0][0], padding[1][0]), sizes)
        if found is not None:
            return found
    if padding[0][0] != padding[0][1] or padding[1][0] != padding[1][1]:
        lowest = -FLT_MAX if kind == _ggml.GGML_OP_POOL_MAX else 0.0
        a = pad(a, [(0, 0), (0, 0), *padding], lowest)
        padding = ((0, 0), (0, 0))
    p0, p1 = padding[1][0], padding[0][0]
    a.graph.reserve(1)
    return a.graph.wrap(
        _ggml.ggml_pool_2d(a.graph.compute.ptr, a.ptr, kind, k0, k1, s0, s1, p0, p1),
        a.shape[:2] + sizes, a.requires_grad)
