# cython: language_level=3
"""Arithmetic with broadcasting, reductions and matrix products."""

import math

import numpy as np

from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Tensor, _contiguous, _real, check_size
from pyggml._variable cimport Variable

from pyggml._graph import _axis, reshape, transpose
from pyggml._scalars import integers


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
    """Return ``scale * x + offset`` for numbers ``scale`` and ``offset``.

    Parameters
    ----------
    x : Tensor
    scale, offset : float

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.affine(x, 2.0, 1.0), [[1.0, 2.0]]).tolist()
    [[3.0, 5.0]]
    """
    cdef Tensor a = _contiguous(_real(x))
    a.graph.reserve(1)
    if offset == 0.0:
        ptr = _ggml.ggml_scale(a.graph.compute.ptr, a.ptr, <float>scale)
    else:
        ptr = _ggml.ggml_scale_bias(a.graph.compute.ptr, a.ptr, <float>scale, <float>offset)
    return a.graph.wrap(ptr, a.shape, a.requires_grad)


def add(x, y):
    """Return ``x + y``, broadcast as NumPy does. Either may be a number.

    Parameters
    ----------
    x, y : Tensor, or one of them a number or a weight

    Returns
    -------
    Tensor of the shape that both are broadcast to

    Raises
    ------
    ValueError
        The shapes cannot be broadcast together.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.add, [[1.0, 2.0]], [[3.0, 4.0]]).tolist()
    [[4.0, 6.0]]
    """
    if _is_number(y):
        return affine(x, 1.0, y)
    if _is_number(x):
        return affine(y, 1.0, x)
    return _binary(_ADD, x, y)


def subtract(x, y):
    """Return ``x - y``, broadcast as NumPy does. Either may be a number.

    Parameters
    ----------
    x, y : Tensor, or one of them a number or a weight

    Returns
    -------
    Tensor of the shape that both are broadcast to

    Raises
    ------
    ValueError
        The shapes cannot be broadcast together.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.subtract, [[1.0, 2.0]], [[3.0, 4.0]]).tolist()
    [[-2.0, -2.0]]
    """
    if _is_number(y):
        return affine(x, 1.0, -y)
    if _is_number(x):
        return affine(y, -1.0, x)
    return _binary(_SUBTRACT, x, y)


def multiply(x, y):
    """Return ``x * y``, broadcast as NumPy does. Either may be a number.

    Parameters
    ----------
    x, y : Tensor, or one of them a number or a weight

    Returns
    -------
    Tensor of the shape that both are broadcast to

    Raises
    ------
    ValueError
        The shapes cannot be broadcast together.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.multiply, [[1.0, 2.0]], [[3.0, 4.0]]).tolist()
    [[3.0, 8.0]]
    """
    if _is_number(y):
        return affine(x, y)
    if _is_number(x):
        return affine(y, x)
    return _binary(_MULTIPLY, x, y)


def divide(x, y):
    """Return ``x / y``, broadcast as NumPy does. Either may be a number.

    Parameters
    ----------
    x, y : Tensor, or one of them a number or a weight

    Returns
    -------
    Tensor of the shape that both are broadcast to

    Raises
    ------
    ValueError
        The shapes cannot be broadcast together.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.divide, [[1.0, 2.0]], [[2.0, 4.0]]).tolist()
    [[0.5, 0.5]]
    """
    if _is_number(y):
        # Division by 0 as in IEEE 754: infinite, and NaN where x is 0.
        return affine(x, math.copysign(math.inf, y) if y == 0 else 1.0 / y)
    if _is_number(x):
        y = _real(y)
        number = (<Tensor>y).graph.constant(np.full((1,), x, np.float32))
        return _binary(_DIVIDE, _repeat(number, (<Tensor>y).shape), y)
    return _binary(_DIVIDE, x, y)


def broadcast_to(x, shape):
    """Repeat along axes of size 1 until the tensor has ``shape``.

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
        An axis that is not 1 has another size.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.broadcast_to(x, (1, 3)), [[2.0]]).tolist()
    [[2.0, 2.0, 2.0]]
    """
    cdef Tensor a = _real(x)
    shape = integers(shape, "shape")
    if len(shape) > 4 or _broadcast_shape(a.shape, shape) != shape:
        raise ValueError(f"{a.shape} cannot be broadcast to {shape}")
    return _repeat(a, shape)


# ---- reductions and products --------------------------------------------------------------

def sum(x, axis=None, keepdims=False):
    """Add up along an axis, along several, or (``axis=None``) everything.

    Parameters
    ----------
    x : Tensor
    axis : int or tuple of int, optional
        By default all axes.
    keepdims : bool
        Whether the axes stay, with size 1.

    Returns
    -------
    Tensor
        Of shape ``(1,)`` where nothing is left.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.sum(x, 1), [[1.0, 2.0]]).tolist()
    [3.0]
    """
    cdef Tensor a = _contiguous(_real(x))
    cdef int n = len(a.shape)
    if axis is None:
        a.graph.reserve(1)
        return reshape(a.graph.wrap(_ggml.ggml_sum(a.graph.compute.ptr, a.ptr), (1,),
                                    a.requires_grad), (1,) * n if keepdims else (1,))
    gone = {_axis(i, n) for i in ((axis,) if hasattr(axis, "__index__") else axis)}
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
    """Average along an axis, along several, or (``axis=None``) over everything.

    Parameters
    ----------
    x : Tensor
    axis : int or tuple of int, optional
        By default all axes.
    keepdims : bool
        Whether the axes stay, with size 1.

    Returns
    -------
    Tensor
        Of shape ``(1,)`` where nothing is left.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.mean(x, 1), [[1.0, 2.0]]).tolist()
    [1.5]
    """
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

    Raises
    ------
    ValueError
        The sizes do not fit.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import layers, ops
    >>> class Project(layers.Layer):
    ...     def build(self, input_shape):
    ...         self.kernel = self.add_weight("kernel", (input_shape[-1], 2))
    ...
    ...     def call(self, x):
    ...         return ops.linear(x, self.kernel)
    >>> Project()(pyggml.Input((3,))).shape
    (None, 2)
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

    Raises
    ------
    ValueError
        The shapes do not fit.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.matmul, [[[1.0, 2.0]]], [[[3.0], [4.0]]]).tolist()
    [[[11.0]]]
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
