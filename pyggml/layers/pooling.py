"""Pooling over sequences and images.

The layers of windows take the same arguments and differ in the number of spatial axes and in what
becomes of a window; so do the global ones, whose window is everything.
"""

from pyggml import ops
from pyggml.layers._spatial import Spatial, choice, padding_of, sizes


class _Pooling(Spatial):
    """What pooling over windows shares."""

    def __init__(self, pool_size=2, strides=None, padding="valid", data_format=None,
                 **kwargs) -> None:
        super().__init__(data_format, **kwargs)
        self.pool_size = sizes(pool_size, self.rank, "pool_size")
        self.strides = self.pool_size if strides is None else sizes(strides, self.rank, "strides")
        self.padding = choice(padding, ("valid", "same"), "padding")

    def _pool(self, operation, x):
        ones = (1,) * self.rank
        padding = padding_of(x.shape[4 - self.rank:], self.pool_size, self.strides, ones,
                             self.padding)
        front = (1,) * (2 - self.rank)
        return operation(x, front + self.pool_size, front + self.strides,
                         ((0, 0),) * (2 - self.rank) + padding)

    def get_config(self):
        return super().get_config() | {
            "pool_size": self.pool_size, "strides": self.strides, "padding": self.padding}


class _MaxPooling(_Pooling):
    def transform(self, x):
        return self._pool(ops.max_pool2d, x)


class _AveragePooling(_Pooling):
    def transform(self, x):
        return self._pool(ops.average_pool2d, x)


class _GlobalPooling(Spatial):
    """What pooling over whole sequences and images shares."""

    def __init__(self, data_format=None, keepdims=False, **kwargs) -> None:
        super().__init__(data_format, **kwargs)
        self.keepdims = bool(keepdims)

    def _reduced(self, x):
        return x if self.keepdims else ops.reshape(x, x.shape[:2])

    def get_config(self):
        return super().get_config() | {"keepdims": self.keepdims}


class _GlobalMaxPooling(_GlobalPooling):
    def transform(self, x):
        size = x.shape[2:]
        return self._reduced(ops.max_pool2d(x, size, size))


class _GlobalAveragePooling(_GlobalPooling):
    def transform(self, x):
        return self._reduced(ops.mean(x, (2, 3), keepdims=True))


class MaxPooling1D(_MaxPooling):
    """Largest element of windows of sequences.

    Parameters
    ----------
    pool_size, strides, padding, data_format
        As for :class:`MaxPooling2D`, with one integer for a size.
    name : str, optional

    Notes
    -----
    Input (batch, channels, time).

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.MaxPooling1D(2)(pyggml.Input((3, 9))).shape
    (None, 3, 4)
    """

    rank = 1


class MaxPooling2D(_MaxPooling):
    """Largest element of windows of images.

    Parameters
    ----------
    pool_size : int or (int, int)
        Size of the window.
    strides : int or (int, int), optional
        By default the pool size.
    padding : {"valid", "same"}
        "same" gives ceil(size / stride) outputs. Padded places never win.
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).
    name : str, optional

    Raises
    ------
    TypeError, ValueError
        A size that is not a positive integer, a window that does not fit into the input.

    Notes
    -----
    Input (batch, channels, height, width). Of equal elements the first gets the
    gradient. Formula: Keras' documentation.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.MaxPooling2D(2)(pyggml.Input((3, 6, 9))).shape
    (None, 3, 3, 4)
    """


class AveragePooling1D(_AveragePooling):
    """Mean of windows of sequences.

    Parameters
    ----------
    pool_size, strides, padding, data_format
        As for :class:`AveragePooling2D`, with one integer for a size.
    name : str, optional

    Notes
    -----
    Input (batch, channels, time).

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.AveragePooling1D(2)(pyggml.Input((3, 9))).shape
    (None, 3, 4)
    """

    rank = 1


class AveragePooling2D(_AveragePooling):
    """Mean of windows of images.

    Parameters
    ----------
    pool_size : int or (int, int)
        Size of the window.
    strides : int or (int, int), optional
        By default the pool size.
    padding : {"valid", "same"}
        "same" gives ceil(size / stride) outputs. Padded places do not count.
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).
    name : str, optional

    Raises
    ------
    TypeError, ValueError
        A size that is not a positive integer, a window that does not fit into the input.

    Notes
    -----
    Input (batch, channels, height, width). Formula: Keras' documentation.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.AveragePooling2D(2)(pyggml.Input((3, 6, 9))).shape
    (None, 3, 3, 4)
    """


class GlobalMaxPooling1D(_GlobalMaxPooling):
    """Largest element of each channel over the sequence.

    Parameters
    ----------
    data_format, keepdims
        As for :class:`GlobalMaxPooling2D`.
    name : str, optional

    Notes
    -----
    Input (batch, channels, time), output (batch, channels).

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.GlobalMaxPooling1D()(pyggml.Input((3, 9))).shape
    (None, 3)
    """

    rank = 1


class GlobalMaxPooling2D(_GlobalMaxPooling):
    """Largest element of each channel over the image.

    Parameters
    ----------
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).
    keepdims : bool
        Whether the reduced axes stay, with size 1.
    name : str, optional

    Notes
    -----
    Input (batch, channels, height, width), output (batch, channels). Of equal elements the first
    gets the gradient.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.GlobalMaxPooling2D()(pyggml.Input((3, 6, 9))).shape
    (None, 3)
    """


class GlobalAveragePooling1D(_GlobalAveragePooling):
    """Mean of each channel over the sequence.

    Parameters
    ----------
    data_format, keepdims
        As for :class:`GlobalAveragePooling2D`.
    name : str, optional

    Notes
    -----
    Input (batch, channels, time), output (batch, channels).

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.GlobalAveragePooling1D()(pyggml.Input((3, 9))).shape
    (None, 3)
    """

    rank = 1


class GlobalAveragePooling2D(_GlobalAveragePooling):
    """Mean of each channel over the image.

    Parameters
    ----------
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).
    keepdims : bool
        Whether the reduced axes stay, with size 1.
    name : str, optional

    Notes
    -----
    Input (batch, channels, height, width), output (batch, channels).

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.GlobalAveragePooling2D()(pyggml.Input((3, 6, 9))).shape
    (None, 3)
    """
