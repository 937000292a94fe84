"""Activation functions on tensors of a graph."""

from pyggml import ops
from pyggml._lookup import lookup


def linear(x):
    """Return x as it is."""
    return x


relu = ops.relu
sigmoid = ops.sigmoid
tanh = ops.tanh
softmax = ops.softmax

_functions = {"linear": linear, "relu": relu, "sigmoid": sigmoid, "tanh": tanh,
              "softmax": softmax}


def get(identifier):
    """Return an activation by name; None is the linear one.

    Parameters
    ----------
    identifier : str, callable or None
        A callable takes a tensor and returns one of the same shape, made with
        :mod:`pyggml.ops`.

    Examples
    --------
    >>> from pyggml import activations
    >>> activations.get("relu") is activations.relu
    True
    """
    if identifier is None:
        return linear
    return lookup(identifier, _functions, "activation")


def serialize(function):
    """Return the name of a known activation, or the function itself."""
    for name, known in _functions.items():
        if known is function:
            return name
    return function
