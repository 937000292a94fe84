# cython: language_level=3
"""Functions of one tensor, element by element or along the last axis."""

from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Tensor, _contiguous, _real, _tensor

from pyggml._fused import fused_activation
from pyggml._graph import reshape
from pyggml._ops_math import affine, multiply, subtract, sum


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
    """Return ``-x``.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.negative, [[1.0, -2.0]]).tolist()
    [[-1.0, 2.0]]
    """
    return _unary(_ggml.ggml_neg, x)


def absolute(x):
    """Return ``|x|``; its gradient at 0 is 0.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.absolute, [[1.0, -2.0]]).tolist()
    [[1.0, 2.0]]
    """
    return _unary(_ggml.ggml_abs, x)


def sign(x):
    """Return -1, 0 or 1; without gradient.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.sign, [[3.0, -2.0, 0.0]]).tolist()
    [[1.0, -1.0, 0.0]]
    """
    cdef Tensor result = _unary(_ggml.ggml_sgn, x)
    result.requires_grad = False
    return result


def step(x):
    """Return 1 where x > 0, else 0; without gradient.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.step, [[3.0, -2.0, 0.0]]).tolist()
    [[1.0, 0.0, 0.0]]
    """
    cdef Tensor result = _unary(_ggml.ggml_step, x)
    result.requires_grad = False
    return result


def to_float(x):
    """Return a tensor of indices as numbers; without gradient.

    Parameters
    ----------
    x : Tensor of int32 or float32

    Returns
    -------
    Tensor of float32
        Exact up to 2**24.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.to_float, np.array([[3, 4]])).tolist()
    [[3.0, 4.0]]
    """
    cdef Tensor a = _tensor(x)
    if a.dtype == "float32":
        return a
    a.graph.reserve(1)
    return a.graph.wrap(_ggml.ggml_cast(a.graph.compute.ptr, a.ptr, _ggml.GGML_TYPE_F32), a.shape,
                        False)


def square(x):
    """Return ``x * x``.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.square, [[3.0, -2.0]]).tolist()
    [[9.0, 4.0]]
    """
    return _unary(_ggml.ggml_sqr, x)


def sqrt(x):
    """Return the square root.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.sqrt, [[9.0, 4.0]]).tolist()
    [[3.0, 2.0]]
    """
    return _unary(_ggml.ggml_sqrt, x)


def log(x):
    """Return the natural logarithm.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.log, [[1.0]]).tolist()
    [[0.0]]
    """
    return _unary(_ggml.ggml_log, x)


def exp(x):
    """Return the exponential.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.exp, [[0.0]]).tolist()
    [[1.0]]
    """
    return _unary(_ggml.ggml_exp, x)


def silu(x):
    """Return ``x * sigmoid(x)``.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.silu, [[0.0]]).tolist()
    [[0.0]]
    """
    fused = fused_activation(x, "silu")
    if fused is not None:
        return fused
    return _named(_unary(_ggml.ggml_silu, x), "silu", x)


def sin(x):
    """Return the sine of x in radians.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.sin, [[0.0]]).tolist()
    [[0.0]]
    """
    return _unary(_ggml.ggml_sin, x)


def cos(x):
    """Return the cosine of x in radians.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.cos, [[0.0]]).tolist()
    [[1.0]]
    """
    return _unary(_ggml.ggml_cos, x)


def relu(x):
    """Return ``max(x, 0)``; its gradient at 0 is 0.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Notes
    -----
    Of a NaN it is NaN. Without kernels, minus infinity gives NaN too, as other activations do at
    an infinity: it is multiplied by 0 there.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.relu, [[3.0, -2.0]]).tolist() == [[3.0, 0.0]]
    True
    """
    fused = fused_activation(x, "relu")
    if fused is not None:
        return fused
    # ggml's own turns a NaN into 0, where nobody sees it.
    return _named(multiply(x, step(x)), "relu", x)


def softplus(x):
    """Return ``log(1 + exp(x))``, without overflow.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.softplus, [[200.0]]).tolist()
    [[200.0]]
    """
    fused = fused_activation(x, "softplus")
    if fused is not None:
        return fused
    # ggml's own loses the tail below -16, where 1 + exp(x) rounds to 1; it is below 1e-7 there.
    return _unary(_ggml.ggml_softplus, x)


def sigmoid(x):
    """Return ``1 / (1 + exp(-x))``, without overflow.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.sigmoid, [[0.0]]).tolist()
    [[0.5]]
    """
    cdef Tensor a = _real(x)
    fused = fused_activation(a, "sigmoid")
    if fused is not None:
        return fused
    if a.requires_grad:  # SIGMOID has no backward pass in ggml: exp(-softplus(-x)) has
        return _named(exp(negative(softplus(negative(a)))), "sigmoid", a)
    return _named(_unary(_ggml.ggml_sigmoid, a), "sigmoid", a)


def tanh(x):
    """Return the hyperbolic tangent.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.tanh, [[0.0]]).tolist()
    [[0.0]]
    """
    cdef Tensor a = _real(x)
    fused = fused_activation(a, "tanh")
    if fused is not None:
        return fused
    if a.requires_grad:  # nor has TANH: 2 sigmoid(2 x) - 1
        return _named(affine(sigmoid(affine(a, 2.0)), 2.0, -1.0), "tanh", a)
    return _named(_unary(_ggml.ggml_tanh, a), "tanh", a)


def softmax(x):
    """Return ``exp(x) / sum(exp(x))`` along the last axis, without overflow.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.softmax, [[1.0, 1.0]]).tolist()
    [[0.5, 0.5]]
    """
    cdef Tensor a = _real(x)
    cdef Tensor result = _unary(_ggml.ggml_soft_max, a)
    if result.requires_grad:
        # ggml's backward pass may be planned in place of the result, which it reads after writing.
        _ggml.ggml_set_output(result.ptr)
    return _named(result, "softmax", a)


def max_last(x):
    """Return the largest element along the last axis, which is kept with size 1.

    Parameters
    ----------
    x : Tensor of shape (..., n)

    Returns
    -------
    Tensor of shape (..., 1)

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.max_last, [[1.0, 5.0, 2.0]]).tolist()
    [[5.0]]
    """
    cdef Tensor a = _contiguous(_real(x))
    cdef int64_t n = a.shape[-1]
    a = reshape(a, (a.ptr.ne[1] * a.ptr.ne[2] * a.ptr.ne[3], n))  # n fits an int
    a.graph.reserve(1)
    # POOL_2D is the one maximum that ggml can differentiate.
    a = a.graph.wrap(
        _ggml.ggml_pool_2d(a.graph.compute.ptr, a.ptr, _ggml.GGML_OP_POOL_MAX, <int>n, 1, <int>n,
                           1, 0.0, 0.0),
        (a.shape[0], 1), a.requires_grad)
    return reshape(a, (<Tensor>x).shape[:-1] + (1,))


def log_softmax(x):
    """Return ``x - log(sum(exp(x)))`` along the last axis, without overflow.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.log_softmax, [[3.0]]).tolist()
    [[0.0]]
    """
    cdef Tensor a = _real(x)
    shifted = subtract(a, max_last(a))
    total = sum(exp(shifted), axis=-1, keepdims=True)
    return _named(subtract(shifted, log(total)), "log_softmax", a)
