"""Activations: value and vector-Jacobian product, finite at +-1e4 (exponential apart).

Where a function has a kink, the derivative there is the one of the flat or lower side.
"""

import math

import numpy as np

from .common import float64

# Klambauer et al. 2017, "Self-normalizing neural networks"
SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def softplus(x):
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax(x, axis=-1):
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def log_softmax_vjp(x, dy, axis=-1):
    return dy - softmax(x, axis) * np.sum(dy, axis=axis, keepdims=True)


def _softmax_vjp(x, dy, axis=-1):
    y = softmax(x, axis)
    return y * (dy - np.sum(dy * y, axis=axis, keepdims=True))


def _sigmoid_slope(x):
    return sigmoid(x) * sigmoid(-x)


def _exp(x):
    with np.errstate(over="ignore"):
        return np.exp(x)


def _inside(x, low, high):
    return ((x > low) & (x < high)).astype(np.float64)


def _elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def _elu_slope(x, alpha=1.0):
    return np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0.0)))


def _normal_cdf(x):
    return 0.5 * _erfc(-x / math.sqrt(2.0))


def _gelu_slope(x):
    return _normal_cdf(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


# Hendrycks and Gimpel 2016, the tanh form written with sigmoid(2u) = (1 + tanh(u)) / 2
_GELU_C = math.sqrt(2.0 / math.pi)


def _gelu_tanh_inner(x):
    return 2.0 * _GELU_C * (x + 0.044715 * x**3)


def _gelu_tanh_slope(x):
    u = _gelu_tanh_inner(x)
    du = 2.0 * _GELU_C * (1.0 + 3 * 0.044715 * x * x)
    return sigmoid(u) + x * _sigmoid_slope(u) * du


def _hard_sigmoid(x):
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0


def _mish_slope(x):  # Misra 2019
    t = np.tanh(softplus(x))
    return t + x * (1.0 - t * t) * sigmoid(x)


_ELEMENTWISE = {  # name: (value, derivative)
    "linear": (lambda x: x.copy(), np.ones_like),
    "relu": (lambda x: np.maximum(x, 0.0), lambda x: (x > 0).astype(np.float64)),
    "relu6": (lambda x: np.clip(x, 0.0, 6.0), lambda x: _inside(x, 0.0, 6.0)),
    "leaky_relu": (
        lambda x, negative_slope=0.2: np.where(x > 0, x, negative_slope * x),
        lambda x, negative_slope=0.2: np.where(x > 0, 1.0, negative_slope),
    ),
    "elu": (_elu, _elu_slope),
    "selu": (
        lambda x: SELU_SCALE * _elu(x, SELU_ALPHA),
        lambda x: SELU_SCALE * _elu_slope(x, SELU_ALPHA),
    ),
    "gelu": (lambda x: x * _normal_cdf(x), _gelu_slope),
    "gelu_tanh": (lambda x: x * sigmoid(_gelu_tanh_inner(x)), _gelu_tanh_slope),
    "silu": (
        lambda x: x * sigmoid(x),
        lambda x: sigmoid(x) + x * _sigmoid_slope(x),
    ),
    "sigmoid": (sigmoid, _sigmoid_slope),
    "hard_sigmoid": (_hard_sigmoid, lambda x: _inside(x, -3.0, 3.0) / 6.0),
    "hard_swish": (
        lambda x: x * _hard_sigmoid(x),
        lambda x: _hard_sigmoid(x) + x * _inside(x, -3.0, 3.0) / 6.0,
    ),
    "tanh": (np.tanh, lambda x: 4.0 * _sigmoid_slope(2.0 * x)),
    "softplus": (softplus, sigmoid),
    "softsign": (lambda x: x / (1.0 + np.abs(x)), lambda x: 1.0 / (1.0 + np.abs(x)) ** 2),
    "mish": (lambda x: x * np.tanh(softplus(x)), _mish_slope),
    "exponential": (_exp, _exp),
}
_ELEMENTWISE["swish"] = _ELEMENTWISE["silu"]

_ALONG_AXIS = {  # name: (value, vector-Jacobian product)
    "softmax": (softmax, _softmax_vjp),
    "log_softmax": (log_softmax, log_softmax_vjp),
}

NAMES = (*_ELEMENTWISE, *_ALONG_AXIS)


def activation(name, x, **parameters):
    """Value of the activation ``name``; None means linear.

    Parameters: ``negative_slope`` (leaky_relu), ``alpha`` (elu), ``axis`` (softmax, log_softmax).
    """
    name = name or "linear"
    value = (_ELEMENTWISE | _ALONG_AXIS)[name][0]
    return value(float64(x), **parameters)


def activation_vjp(name, x, dy, **parameters):
    """Gradient with respect to x, given the gradient dy with respect to the value."""
    name = name or "linear"
    x, dy = float64(x), float64(dy)
    if name in _ALONG_AXIS:
        return _ALONG_AXIS[name][1](x, dy, **parameters)
    return dy * _ELEMENTWISE[name][1](x, **parameters)


def activation_layer(x, name, **parameters):
    """The same as a layer: ``out, backward``."""
    out = activation(name, x, **parameters)
    return out, lambda dy: {"x": activation_vjp(name, x, dy, **parameters)}
