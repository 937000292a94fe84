"""What layers over one or two spatial axes share: arguments, padding, order of axes."""

import math

from pyggml import ops
from pyggml.layers.base import Layer, positive_int

_data_formats = ("channels_first", "channels_last")


def sizes(value, rank, name):
    """Return an integer, or one an axis, as a tuple of positive integers."""
    values = (value,) * rank if not isinstance(value, (tuple, list)) else tuple(value)
    if len(values) != rank:
        raise ValueError(f"{name} must be an integer or {rank} integers, got {value!r}")
    return tuple(positive_int(n, name) for n in values)


def choice(value, allowed, name):
    """Return value if it is one of those allowed, else raise ValueError that lists them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def padding_of(shape, windows, strides, dilations, padding):
    """Return the places padded before and behind each axis.

    "same" is Keras' rule: ceil(size / stride) outputs, and the larger half of an odd number of
    places goes behind. "causal" pads in front only.
    """
    found = []
    for n, k, s, d in zip(shape, windows, strides, dilations, strict=True):
        reach = (k - 1) * d
        if padding == "valid":
            found.append((0, 0))
        elif padding == "causal":
            found.append((reach, 0))
        else:
            total = max((math.ceil(n / s) - 1) * s + reach + 1 - n, 0)
            found.append((total // 2, total - total // 2))
    return tuple(found)


class Spatial(Layer):
    """Base of layers on [batch, channels, ...] or, with channels_last, [batch, ..., channels].

    Subclasses set ``rank``, the number of spatial axes, and write :meth:`transform` on images
    [batch, channels, height, width], where sequences have height 1.
    """

    rank = 2

    def __init__(self, data_format=None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.data_format = choice(data_format or "channels_first", _data_formats, "data_format")

    def channels_of(self, input_shape):
        """Return the number of channels of an input shape, or raise ValueError.

        Parameters
        ----------
        input_shape : tuple
            With None for the batch.

        Returns
        -------
        int
        """
        if len(input_shape) != self.rank + 2:
            raise ValueError(f"layer {self.name!r} takes inputs of {self.rank + 2} axes with the "
                             f"batch, got shape {input_shape}")
        return input_shape[1 if self.data_format == "channels_first" else -1]

    def transform(self, x):
        """Return the output for images [batch, channels, height, width].

        Parameters
        ----------
        x : Tensor

        Returns
        -------
        Tensor
        """
        raise NotImplementedError(f"{type(self).__name__}.transform")

    def call(self, x):
        self.channels_of(x.shape)
        last = self.data_format == "channels_last"
        if last:
            x = ops.transpose(x, (0, self.rank + 1, *range(1, self.rank + 1)))
        if self.rank == 1:
            x = ops.reshape(x, (x.shape[0], x.shape[1], 1, x.shape[2]))
        x = self.transform(x)
        if self.rank == 1 and len(x.shape) == 4:
            x = ops.reshape(x, (x.shape[0], x.shape[1], x.shape[3]))
        if last and len(x.shape) > 2:
            x = ops.transpose(x, (0, *range(2, self.rank + 2), 1))
        return x

    def get_config(self):
        return super().get_config() | {"data_format": self.data_format}
