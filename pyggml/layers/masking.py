"""Masks of padding."""

from pyggml import ops
from pyggml._scalars import number
from pyggml.layers.base import Layer


class PaddingMask(Layer):
    """1 at the time steps that hold something, 0 at those that are padding.

    Keras lets ``Embedding(mask_zero=True)`` and ``Masking`` send a mask along with the data. Here
    a mask is a value like any other, given to the layers that take one: recurrent layers
    (``mask``) and :class:`MultiHeadAttention` (``query_mask``, ``value_mask``, ``key_mask``).

    Parameters
    ----------
    value : float
        What padding holds. A step with several features is padding if all of them hold it.
    name : str, optional

    Notes
    -----
    Input (batch, time) of indices or numbers, or (batch, time, features); output (batch, time).
    No gradient passes.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> words = pyggml.Input((4,), dtype="int32")
    >>> vectors = pyggml.layers.Embedding(100, 8)(words)
    >>> mask = pyggml.layers.PaddingMask()(words)
    >>> state = pyggml.layers.GRU(3)(vectors, mask=mask)
    >>> pyggml.Model(words, [state, mask]).predict(np.array([[7, 9, 0, 0]]))[1].tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """

    def __init__(self, value=0, **kwargs):
        super().__init__(**kwargs)
        self.value = number(value, "value")

    def call(self, x):
        if len(x.shape) not in (2, 3):
            raise ValueError(f"layer {self.name!r} takes shape (batch, time) or (batch, time, "
                             f"features), got {x.shape}")
        differs = ops.absolute(ops.affine(ops.to_float(x), 1.0, -self.value))
        if len(x.shape) == 3:
            differs = ops.sum(differs, -1)
        return ops.step(differs)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[:2])

    def get_config(self):
        return super().get_config() | {"value": self.value}
