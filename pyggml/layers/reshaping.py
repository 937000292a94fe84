"""Layers that move elements without changing them."""

from pyggml import ops
from pyggml.layers.base import Layer


class Flatten(Layer):
    """Turn each row into a vector, in row-major order.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.Sequential([pyggml.Input((2, 3)), pyggml.layers.Flatten()]).output_shape
    (None, 6)
    """

    def call(self, x):
        return ops.reshape(x, (x.shape[0], -1))
