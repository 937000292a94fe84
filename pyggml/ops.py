"""Operations on tensors of a graph: what layers, losses and activations are written with.

Shapes are row-major with the batch first, and operands are broadcast as in NumPy. Every
operation has a gradient unless its description says otherwise.
"""

from pyggml._graph import reshape, transpose
from pyggml._ops_math import (
    absolute,
    add,
    affine,
    broadcast_to,
    cos,
    divide,
    exp,
    linear,
    log,
    log_softmax,
    matmul,
    max_last,
    mean,
    multiply,
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
    subtract,
    sum,
    tanh,
)
from pyggml._ops_nn import (
    average_pool2d,
    concatenate,
    constant,
    conv2d,
    depthwise_conv2d,
    dropout,
    flip,
    mask_future,
    matmul_transposed,
    max_pool2d,
    pad,
    repeat,
    rms_normalize,
    slice,
    split,
    spread,
    stack,
    take,
)
from pyggml._ops_rnn import gru_sequence, lstm_sequence, simple_rnn_sequence

__all__ = [
    "absolute", "add", "affine", "average_pool2d", "broadcast_to", "clip", "concatenate",
    "constant", "conv2d", "cos", "depthwise_conv2d", "divide", "dropout", "exp", "expm1",
    "flip", "gru_sequence", "linear", "log", "log_softmax", "lstm_sequence", "mask_future",
    "matmul", "matmul_transposed", "max_last", "max_pool2d", "maximum", "mean", "minimum",
    "multiply", "negative", "pad", "relu", "repeat", "reshape", "rms_normalize", "sigmoid",
    "sign", "silu", "simple_rnn_sequence", "sin", "slice", "softmax", "softplus", "split",
    "spread", "sqrt", "square", "stack", "step", "subtract", "sum", "take", "tanh", "transpose",
]


def maximum(x, y):
    """Return the larger of two, element by element; where they are equal y gets the gradient."""
    return add(relu(subtract(x, y)), y)


def minimum(x, y):
    """Return the smaller of two, element by element; where they are equal y gets the gradient."""
    return subtract(y, relu(subtract(y, x)))


def clip(x, low, high):
    """Limit x to [low, high]; outside, its gradient is 0.

    Parameters
    ----------
    x : Tensor
    low, high : float
    """
    if not low <= high:
        raise ValueError(f"low must not be above high, got {low} and {high}")
    return subtract(high, relu(subtract(high - low, relu(subtract(x, low)))))


def expm1(x):
    """Return ``exp(x) - 1``, without cancellation near 0.

    Parameters
    ----------
    x : Tensor
    """
    # ggml's own subtracts 1 from the rounded exponential. Near 0 this is a Taylor series.
    near = step(affine(absolute(x), -1.0, 0.1))
    small = multiply(x, near)
    series = affine(small, 1 / 4, 1.0)
    for n in (3, 2):
        series = affine(multiply(series, small), 1 / n, 1.0)
    far = multiply(affine(exp(x), 1.0, -1.0), affine(near, -1.0, 1.0))
    return add(multiply(series, small), far)
