# cython: language_level=3
"""Products, norms, convolution and pooling.

As in ``_ops_math.pyx`` every shape and range is checked here, since ggml ends the process where
one is wrong, and everything that has to have a gradient is made of what ggml differentiates.
"""

import math

import numpy as np

from libc.float cimport FLT_MAX
from libc.stdint cimport INT32_MAX

from pyggml cimport _ggml
from pyggml._graph cimport Tensor, _contiguous, _real, _same

from pyggml import _fused
from pyggml._graph import reshape, transpose
from pyggml._scalars import integers
from pyggml._ops_math import add, affine, multiply
from pyggml._ops_parts import constant, pad


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

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.matmul_transposed, [[[1.0, 2.0]]], [[[3.0, 4.0]]]).tolist()
    [[[11.0]]]
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
    """Return ``x / sqrt(mean(x^2) + epsilon)`` along the last axis.

    Parameters
    ----------
    x : Tensor
    epsilon : float

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.rms_normalize(x, 1e-12), [[2.0, -2.0]]).tolist()
    [[1.0, -1.0]]
    """
    cdef Tensor a = _contiguous(_real(x))
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    a.graph.reserve(1)
    return a.graph.wrap(_ggml.ggml_rms_norm(a.graph.compute.ptr, a.ptr, <float>epsilon), a.shape,
                        a.requires_grad)


def mask_future(x):
    """Set what lies right of the diagonal of the last two axes to minus infinity.

    Parameters
    ----------
    x : Tensor of shape (..., queries, keys)
        Scores; row i keeps the columns up to i, the others become minus infinity.

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> scores = [[[1.0, 1.0], [1.0, 1.0]]]
    >>> ops.evaluate(lambda x: ops.softmax(ops.mask_future(x)), scores).tolist()
    [[[1.0, 0.0], [0.5, 0.5]]]
    """
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


cdef tuple _windows(strides, padding, dilation=(1, 1)):
    """Strides, padding and dilation of two axes, as integers."""
    pads = tuple(padding) if hasattr(padding, "__iter__") else ()
    if isinstance(padding, (str, bytes, dict)) or len(pads) != 2:
        raise ValueError(f"padding must be two pairs of integers, got {padding!r}")
    return (integers(strides, "strides", 2),
            tuple([integers(p, "padding", 2) for p in pads]),
            integers(dilation, "dilation", 2))


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

    Examples
    --------
    >>> from pyggml import ops
    >>> image, kernel = [[[[1.0, 2.0], [3.0, 4.0]]]], [[[[1.0, 0.0], [0.0, 1.0]]]]
    >>> ops.evaluate(ops.conv2d, image, kernel).tolist()
    [[[[5.0]]]]
    """
    cdef Tensor a = _images(x)
    cdef Tensor k = _images(_real(kernel, a, "kernel"), "kernel")
    cdef Tensor columns, flat, w, out
    strides, padding, dilation = _windows(strides, padding, dilation)
    cdef tuple sizes = _output_sizes(a.shape[2:], k.shape[2:], strides, dilation, padding)
    bias = _bias(bias, a, k.shape[0])
    if a.shape[1] != k.shape[1]:
        raise ValueError(f"the kernel takes {k.shape[1]} channels, got x of shape {a.shape}")
    found = _fused.conv2d(a, k, bias, strides, (padding[0][0], padding[1][0]), dilation, sizes)
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

    Examples
    --------
    >>> from pyggml import ops
    >>> image, kernel = [[[[1.0, 2.0], [3.0, 4.0]]]], [[[[1.0, 0.0], [0.0, 1.0]]]]
    >>> ops.evaluate(ops.depthwise_conv2d, image, kernel).tolist()
    [[[[5.0]]]]
    """
    cdef Tensor a = _images(x)
    cdef Tensor k = _images(_real(kernel, a, "kernel"), "kernel")
    cdef Tensor columns, single, w, out
    strides, padding, dilation = _windows(strides, padding, dilation)
    n, channels, height, width = a.shape
    multiplier = k.shape[1]
    if k.shape[0] != channels:
        raise ValueError(f"the kernel takes {k.shape[0]} channels, got x of shape {a.shape}")
    bias = _bias(bias, a, channels * multiplier)
    sizes = _output_sizes(a.shape[2:], k.shape[2:], strides, dilation, padding)
    single = reshape(k, (channels * multiplier, 1) + k.shape[2:])
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

    Parameters
    ----------
    x : Tensor of shape (n, channels, h, w)
    strides : tuple of two int

    Returns
    -------
    Tensor of shape (batch, channels, height * strides[0], width * strides[1])
        Zeros behind the last row and column too.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.spread(x, (1, 2)), [[[[1.0, 2.0]]]]).tolist()
    [[[[1.0, 0.0, 2.0, 0.0]]]]
    """
    cdef Tensor a = _images(x)
    n, channels, height, width = a.shape
    down, right = integers(strides, "strides", 2)
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

    Returns
    -------
    Tensor of shape (n, channels, oh, ow)

    Examples
    --------
    >>> from pyggml import ops
    >>> image = [[[[1.0, 2.0], [3.0, 4.0]]]]
    >>> ops.evaluate(lambda x: ops.max_pool2d(x, (2, 2), (2, 2)), image).tolist()
    [[[[4.0]]]]
    """
    cdef Tensor a = _images(x)
    strides, padding, _ = _windows(strides, padding)
    size = integers(size, "size", 2)
    largest = _pool(a, _ggml.GGML_OP_POOL_MAX, size, strides, padding)
    if a.graph.fused:
        return largest
    # ggml's own passes over a NaN, where nobody sees it.
    return add(largest, affine(_pool(a, _ggml.GGML_OP_POOL_AVG, size, strides, padding), 0.0))


def average_pool2d(x, size, strides, padding=((0, 0), (0, 0))):
    """Return the mean of every window.

    Parameters
    ----------
    x : Tensor of shape (batch, channels, height, width)
    size, strides : (int, int)
    padding : ((int, int), (int, int))
        Padded places do not count.

    Returns
    -------
    Tensor of shape (n, channels, oh, ow)

    Examples
    --------
    >>> from pyggml import ops
    >>> image = [[[[1.0, 2.0], [3.0, 4.0]]]]
    >>> ops.evaluate(lambda x: ops.average_pool2d(x, (2, 2), (2, 2)), image).tolist()
    [[[[2.5]]]]
    """
    cdef Tensor a = _images(x)
    strides, padding, _ = _windows(strides, padding)
    size = integers(size, "size", 2)
    mean = _pool(a, _ggml.GGML_OP_POOL_AVG, size, strides, padding)
    if a.graph.carries("pool") or not any([any(p) for p in padding]):
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


def dropout(x, double rate):
    """Multiply by a fresh inverted-dropout mask at every step.

    Parameters
    ----------
    x : Tensor
    rate : float
        In [0, 1): the share of elements that become 0; the others are scaled up.

    Returns
    -------
    Tensor of the same shape

    Raises
    ------
    ValueError
        The graph is not one that a trainer steps, which would draw the masks.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import layers, ops
    >>> class Noisy(layers.Layer):
    ...     def call(self, x, training=False):
    ...         return ops.dropout(x, 0.5) if training else x
    >>> Noisy()(pyggml.Input((3,))).shape
    (None, 3)
    """
    cdef Tensor a = _real(x)
    if not 0 <= rate < 1:
        raise ValueError(f"rate must be in [0, 1), got {rate}")
    a.graph.check_draws()
    if not a.graph.carries("dropout"):
        return multiply(a, a.graph.mask(a.shape, rate))
    cdef Tensor key = _same(a)
    a.graph.reserve(1)
    a.graph.carriers.dropout(key.ptr, <float>rate)
    return a.graph.wrap(_ggml.ggml_silu(a.graph.compute.ptr, key.ptr), a.shape, a.requires_grad)
