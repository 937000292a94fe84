"""Layers that move elements without changing them."""

import math

from pyggml import ops
from pyggml._scalars import integer
from pyggml.layers._spatial import Spatial, choice, sizes
from pyggml.layers.base import Layer, count


class Flatten(Layer):
    """Turn each row into a vector, in row-major order.

    Parameters
    ----------
    name : str, optional
    trainable : bool

    Examples
    --------
    >>> import pyggml
    >>> pyggml.Sequential([pyggml.Input((2, 3)), pyggml.layers.Flatten()]).output_shape
    (None, 6)
    """

    def call(self, x):
        return ops.reshape(x, (x.shape[0], -1))


class Reshape(Layer):
    """Give each row another shape, in row-major order.

    Parameters
    ----------
    target_shape : tuple of int
        Of one row; one size may be -1. At most three axes.

    Raises
    ------
    TypeError, ValueError
        A size that is no positive integer, or a row that does not have as many elements.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.Reshape((2, -1))(pyggml.Input((6,))).shape
    (None, 2, 3)
    """

    def __init__(self, target_shape, **kwargs) -> None:
        super().__init__(**kwargs)
        shape = _integers(target_shape, "target_shape")
        sizes([n for n in shape if n != -1], len(shape) - shape.count(-1), "target_shape")
        if shape.count(-1) > 1 or len(shape) > 3:
            raise ValueError("target_shape may have three axes and one size of -1 at most, got "
                             f"{shape}")
        self.target_shape = shape

    def call(self, x):
        size = math.prod(x.shape[1:])
        shape = self.target_shape
        known = math.prod(n for n in shape if n != -1)
        if size % known or (-1 not in shape and size != known):
            raise ValueError(f"layer {self.name!r} cannot give rows of shape {x.shape[1:]} the "
                             f"shape {shape}")
        return ops.reshape(x, (x.shape[0], *(size // known if n == -1 else n for n in shape)))

    def get_config(self):
        return super().get_config() | {"target_shape": self.target_shape}


class Permute(Layer):
    """Put the axes of each row in another order.

    Parameters
    ----------
    dims : tuple of int
        Counted from 1; the batch stays in front.

    Raises
    ------
    ValueError
        ``dims`` is not an order of the axes.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.Permute((2, 1))(pyggml.Input((5, 7))).shape
    (None, 7, 5)
    """

    def __init__(self, dims, **kwargs) -> None:
        super().__init__(**kwargs)
        self.dims = _integers(dims, "dims")
        if not self.dims or sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError("dims must be an order of the axes counted from 1, such as (2, 1), "
                             f"got {dims!r}")

    def call(self, x):
        if len(x.shape) != len(self.dims) + 1:
            raise ValueError(f"layer {self.name!r} takes {len(self.dims)} axes beside the batch, "
                             f"got shape {x.shape}")
        return ops.transpose(x, (0, *self.dims))

    def get_config(self):
        return super().get_config() | {"dims": self.dims}


class ZeroPadding2D(Spatial):
    """Put zeros around images.

    Parameters
    ----------
    padding : int, (int, int) or ((int, int), (int, int))
        On all sides; for height and width; or (top, bottom), (left, right).
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.ZeroPadding2D(((1, 0), (2, 2)))(pyggml.Input((3, 5, 7))).shape
    (None, 3, 6, 11)
    """

    def __init__(self, padding=(1, 1), data_format=None, **kwargs) -> None:
        super().__init__(data_format, **kwargs)
        outer = _pair(padding)
        self.padding = tuple(tuple(count(n, "padding") for n in _pair(p)) for p in outer)

    def transform(self, x):
        return ops.pad(x, ((0, 0), (0, 0), *self.padding))

    def get_config(self):
        return super().get_config() | {"padding": self.padding}


def _integers(value, name):
    if not hasattr(value, "__iter__") or isinstance(value, str):
        raise TypeError(f"{name} must be a tuple of integers, got {value!r}")
    return tuple(integer(n, name) for n in value)


def _pair(value):
    if not isinstance(value, (tuple, list)):
        return (value, value)
    if len(value) != 2:
        raise ValueError(f"padding must be given for two axes, got {value!r}")
    return tuple(value)


class UpSampling2D(Spatial):
    """Enlarge images by whole factors.

    Parameters
    ----------
    size : int or (int, int)
        Factors for height and width.
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).
    interpolation : {"nearest", "bilinear"}
        Bilinear takes the centres of pixels at half integers and repeats the border.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.UpSampling2D(2)(pyggml.Input((3, 5, 7))).shape
    (None, 3, 10, 14)
    """

    def __init__(self, size=(2, 2), data_format=None, interpolation="nearest", **kwargs) -> None:
        super().__init__(data_format, **kwargs)
        self.size = sizes(size, 2, "size")
        self.interpolation = choice(interpolation, ("nearest", "bilinear"), "interpolation")

    def transform(self, x):
        down, right = self.size
        if self.interpolation == "nearest":
            return ops.repeat(ops.repeat(x, right, 3), down, 2)
        wide = ops.matmul_transposed(x, ops.constant(x, _bilinear(x.shape[3], right)))
        tall = ops.matmul_transposed(ops.transpose(wide, (0, 1, 3, 2)),
                                     ops.constant(x, _bilinear(x.shape[2], down)))
        return ops.transpose(tall, (0, 1, 3, 2))

    def get_config(self):
        return super().get_config() | {"size": self.size, "interpolation": self.interpolation}


def _bilinear(size, factor):
    """Rows of weights that make size * factor pixels from size."""
    matrix = [[0.0] * size for _ in range(size * factor)]
    for i, row in enumerate(matrix):
        at = min(max((i + 0.5) / factor - 0.5, 0.0), size - 1.0)
        low = int(at)
        row[low] += 1.0 - (at - low)
        row[min(low + 1, size - 1)] += at - low
    return matrix
