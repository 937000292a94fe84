"""Operations on tensors of a graph: what layers, losses and activations are written with.

Shapes are row-major with the batch first, and operands are broadcast as in NumPy. Every
operation has a gradient unless its description says otherwise.
"""

import math

import numpy as np

from pyggml._fused import fused_activation
from pyggml._graph import Tensor, reshape, transpose
from pyggml._ops_math import (
    add,
    affine,
    broadcast_to,
    divide,
    linear,
    matmul,
    mean,
    multiply,
    subtract,
    sum,
)
from pyggml._ops_nn import (
    average_pool2d,
    conv2d,
    depthwise_conv2d,
    dropout,
    mask_future,
    matmul_transposed,
    max_pool2d,
    rms_normalize,
    spread,
)
from pyggml._ops_parts import (
    concatenate,
    constant,
    flip,
    pad,
    repeat,
    slice,
    split,
    stack,
    take,
)
from pyggml._ops_rnn import gru_sequence, lstm_sequence, simple_rnn_sequence
from pyggml._ops_unary import (
    absolute,
    cos,
    exp,
    log,
    log_softmax,
    max_last,
    negative,
    relu,
    sigmoid,
    sign,
    silu,
    sin,
    softmax,
    softplus,
    sqrt,
    square,
    step,
    tanh,
    to_float,
)

__all__ = [
    "Tensor",
    "absolute", "add", "affine", "average_pool2d", "broadcast_to", "clip", "concatenate",
    "constant", "conv2d", "cos", "depthwise_conv2d", "divide", "dropout", "evaluate", "exp",
    "expm1", "flip", "gru_sequence", "linear", "log", "log_softmax", "lstm_sequence",
    "mask_future", "matmul", "matmul_transposed", "max_last", "max_pool2d", "maximum", "mean",
    "minimum", "multiply", "negative", "pad", "relu", "repeat", "reshape", "rms_normalize",
    "sigmoid", "sign", "silu", "simple_rnn_sequence", "sin", "slice", "softmax", "softplus",
    "split", "spread", "sqrt", "square", "stack", "step", "subtract", "sum", "take", "tanh",
    "to_float", "transpose",
]


def maximum(x, y):
    """Return the larger of two, element by element.

    Where they are equal y gets the gradient; of a tensor and a number, the tensor.

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
    >>> ops.evaluate(ops.maximum, [[1.0, 2.0]], [[3.0, 1.0]]).tolist()
    [[3.0, 2.0]]
    """
    for tensor, number in ((x, y), (y, x)):
        if isinstance(number, (int, float)):
            return _bounded(tensor, "at_least", number)
    return _picked(*(_bounded(t, "at_least", -_LARGEST, False) for t in (x, y)), subtract(x, y))


def minimum(x, y):
    """Return the smaller of two, element by element.

    Where they are equal y gets the gradient; of a tensor and a number, the tensor.

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
    >>> ops.evaluate(ops.minimum, [[1.0, 2.0]], [[3.0, 1.0]]).tolist()
    [[1.0, 1.0]]
    """
    for tensor, number in ((x, y), (y, x)):
        if isinstance(number, (int, float)):
            return _bounded(tensor, "at_most", number)
    return _picked(*(_bounded(t, "at_most", _LARGEST, False) for t in (x, y)), subtract(y, x))


# Not y + relu(x - y), which rounds where x and y differ much in size.

_LARGEST = 3.4028234e38


def _picked(x, y, positive):
    """x where a tensor is positive, else y."""
    first = step(positive)
    return add(multiply(x, first), multiply(y, affine(first, -1.0, 1.0)))


def _bounded(x, bound, limit, composed=True):
    """x limited on one side; x itself if there is no kernel and it is not to be composed."""
    if isinstance(x, Tensor):
        fused = fused_activation(x, bound, limit)
        if fused is not None:
            return fused
    if not composed or math.isinf(limit):
        return x
    beyond = step(subtract(limit, x) if bound == "at_least" else subtract(x, limit))
    return add(multiply(x, affine(beyond, -1.0, 1.0)), affine(beyond, limit))


def clip(x, low, high):
    """Limit x to [low, high]; outside, its gradient is 0.

    Parameters
    ----------
    x : Tensor
    low, high : float

    Returns
    -------
    Tensor of the same shape

    Raises
    ------
    ValueError
        ``low`` is above ``high``.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x: ops.clip(x, 0.0, 1.0), [[0.5, 2.0]]).tolist()
    [[0.5, 1.0]]
    """
    if not low <= high:
        raise ValueError(f"low must not be above high, got {low} and {high}")
    return _bounded(_bounded(x, "at_least", low), "at_most", high)


def expm1(x):
    """Return ``exp(x) - 1``, without cancellation near 0.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(ops.expm1, [[0.0]]).tolist()
    [[0.0]]
    """
    # ggml's own subtracts 1 from the rounded exponential. Near 0 this is a Taylor series.
    near = step(affine(absolute(x), -1.0, 0.1))
    small = multiply(x, near)
    series = affine(small, 1 / 4, 1.0)
    for n in (3, 2):
        series = affine(multiply(series, small), 1 / n, 1.0)
    far = multiply(affine(exp(x), 1.0, -1.0), affine(near, -1.0, 1.0))
    return add(multiply(series, small), far)


def evaluate(function, *arrays):
    """Return what a function of tensors gives for arrays: to try out what layers are made of.

    Parameters
    ----------
    function : callable
        Called with one tensor for each array; returns a tensor, whose first axis is the batch.
    *arrays : array_like of shape (n, ...)
        Integers become indices (int32), everything else float32.

    Returns
    -------
    numpy.ndarray of float32

    Raises
    ------
    ValueError, TypeError
        Arrays of different first sizes, or what the function does not take.

    Examples
    --------
    >>> from pyggml import ops
    >>> ops.evaluate(lambda x, y: x * y + 1.0, [[2.0, 3.0]], [[4.0, 5.0]]).tolist()
    [[9.0, 16.0]]
    """
    from pyggml import layers, models

    arrays = [np.asarray(a) for a in arrays]
    if not arrays or any(a.ndim == 0 or len(a) != len(arrays[0]) for a in arrays):
        raise ValueError(f"arrays must have one first size, got shapes {[a.shape for a in arrays]}")
    inputs = [layers.Input(a.shape[1:], "int32" if a.dtype.kind in "iu" else "float32")
              for a in arrays]

    class Function(layers.Layer):
        def call(self, xs):
            return function(*xs)

        def compute_output_shape(self, input_shape):
            return self._traced_shape(input_shape, {}, len(arrays[0]))

    model = models.Model(inputs, Function(name="function")(inputs))
    return model.predict(arrays if len(arrays) > 1 else arrays[0], batch_size=len(arrays[0]))
