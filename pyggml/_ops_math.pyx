# cython: language_level=3
"""Arithmetic with broadcasting, functions of one tensor, reductions and matrix products."""

import math

from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Tensor, _contiguous, _real
from pyggml._variable cimport Variable

from pyggml._fused import fused_activation
from pyggml._graph import _axis, reshape, transpose


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
