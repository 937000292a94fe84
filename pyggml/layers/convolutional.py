"""Convolutions over sequences and images."""

from pyggml import activations, initializers, ops, regularizers
from pyggml.layers._spatial import Spatial, choice, padding_of, sizes
from pyggml.layers.base import count, positive_int


class _Conv(Spatial):
    """What all convolutions share: arguments, bias, activation."""

    kernel_name = "kernel"
    paddings: tuple[str, ...] = ("valid", "same")

    def __init__(self, kernel_size, strides, padding, data_format, dilation_rate, activation,
                 use_bias, initializer, bias_initializer, regularizer, bias_regularizer,
                 **kwargs) -> None:
        super().__init__(data_format, **kwargs)
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.strides = sizes(strides, self.rank, "strides")
        self.dilation_rate = sizes(dilation_rate, self.rank, "dilation_rate")
        self.padding = choice(padding, self.paddings, "padding")
        self.activation = activations.get(activation)
        if self.data_format == "channels_first" and self.activation in (
                activations.softmax, activations.log_softmax):
            raise ValueError(
                f"activation {activation!r} goes along the last axis, which holds no channels with "
                "data_format='channels_first': use 'channels_last', or layers of their own, "
                "Permute and Activation")
        self.use_bias = bool(use_bias)
        self.initializer = initializers.get(initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.regularizer = regularizers.get(regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)

    def _add(self, shape, axes, outputs):
        self.kernel = self.add_weight(self.kernel_name, shape, self.initializer, axes=axes,
                                      regularizer=self.regularizer)
        if self.use_bias:
            self.bias = self.add_weight("bias", (outputs,), self.bias_initializer,
                                        regularizer=self.bias_regularizer)

    def _images(self, pair, fill):
        """Arguments of one axis as those of two."""
        return pair if self.rank == 2 else (fill, *pair)

    def _bias(self):
        return self.bias if self.use_bias else None

    def _slide(self, operation, x):
        kernel = x.graph.weight(self.kernel)
        if self.rank == 1:
            kernel = ops.reshape(kernel, (*kernel.shape[:2], 1, kernel.shape[2]))
        padding = padding_of(x.shape[4 - self.rank:], self.kernel_size, self.strides,
                             self.dilation_rate, self.padding)
        return operation(x, kernel, self._images(self.strides, 1),
                         self._images(padding, (0, 0)), self._images(self.dilation_rate, 1),
                         self._bias())

    def call(self, x):
        return self.activation(super().call(x))

    def get_config(self):
        return super().get_config() | {
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "dilation_rate": self.dilation_rate,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            f"{self.kernel_name}_initializer": self.initializer,
            "bias_initializer": self.bias_initializer,
            f"{self.kernel_name}_regularizer": self.regularizer,
            "bias_regularizer": self.bias_regularizer,
        }


class _FilterConv(_Conv):
    """A convolution with a number of filters."""

    def __init__(self, filters, kernel_size, strides=1, padding="valid", data_format=None,
                 dilation_rate=1, activation=None, use_bias=True,
                 kernel_initializer="glorot_uniform", bias_initializer="zeros",
                 kernel_regularizer=None, bias_regularizer=None, **kwargs) -> None:
        super().__init__(kernel_size, strides, padding, data_format, dilation_rate, activation,
                         use_bias, kernel_initializer, bias_initializer, kernel_regularizer,
                         bias_regularizer, **kwargs)
        self.filters = positive_int(filters, "filters")

    def get_config(self):
        return super().get_config() | {"filters": self.filters}


class Conv1D(_FilterConv):
    """Convolution over sequences: cross-correlation, as in every framework.

    Parameters
    ----------
    filters : int
        Channels of the output.
    kernel_size, strides, dilation_rate : int
        In time steps.
    padding : {"valid", "same", "causal"}
        "same" gives ceil(time / strides) steps; "causal" pads in front only, so that no output
        depends on later inputs.
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last).
    activation : str or callable, optional
    use_bias : bool
    kernel_initializer, bias_initializer : str or Initializer
    kernel_regularizer, bias_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Raises
    ------
    TypeError, ValueError
        A size that is not a positive integer, an unknown padding, a kernel that does not fit
        into the sequence.

    Notes
    -----
    Input (batch, channels, time), output (batch, filters, time). Weights: ``kernel``
    (kernel_size, channels, filters), ``bias`` (filters,). Formula: Keras' documentation.

    Examples
    --------
    >>> import pyggml
    >>> conv = pyggml.layers.Conv1D(4, 3, padding="causal", dilation_rate=2)
    >>> conv(pyggml.Input((2, 10))).shape
    (None, 4, 10)
    """

    rank = 1
    paddings = ("valid", "same", "causal")

    def build(self, input_shape):
        channels = self.channels_of(input_shape)
        self._add((*self.kernel_size, channels, self.filters), (2, 1, 0), self.filters)

    def transform(self, x):
        return self._slide(ops.conv2d, x)


class Conv2D(_FilterConv):
    """Convolution over images: cross-correlation, as in every framework.

    Parameters
    ----------
    filters : int
        Channels of the output.
    kernel_size, strides, dilation_rate : int or (int, int)
        In pixels, for height and width.
    padding : {"valid", "same"}
        "same" gives ceil(size / stride) rows and columns; the larger half of an odd number of
        padded places goes below and right, as in Keras.
    data_format : {"channels_first", "channels_last"}
        Default "channels_first" (in Keras: last). Images with channels last are turned in the
        graph.
    activation : str or callable, optional
    use_bias : bool
    kernel_initializer, bias_initializer : str or Initializer
    kernel_regularizer, bias_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Raises
    ------
    TypeError, ValueError
        A size that is not a positive integer, an unknown padding, a kernel that does not fit
        into the image.

    Notes
    -----
    Input (batch, channels, height, width), output (batch, filters, height, width). Weights:
    ``kernel`` (kernel height, kernel width, channels, filters), ``bias`` (filters,). Formula:
    Keras' documentation.

    Examples
    --------
    >>> import pyggml
    >>> conv = pyggml.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")
    >>> conv(pyggml.Input((1, 28, 28))).shape
    (None, 8, 14, 14)
    """

    def build(self, input_shape):
        channels = self.channels_of(input_shape)
        self._add((*self.kernel_size, channels, self.filters), (3, 2, 0, 1), self.filters)

    def transform(self, x):
        return self._slide(ops.conv2d, x)


class DepthwiseConv2D(_Conv):
    """Convolution over each channel of images by itself.

    Parameters
    ----------
    kernel_size, strides, dilation_rate : int or (int, int)
    padding : {"valid", "same"}
    depth_multiplier : int
        How many output channels each input channel gets.
    data_format : {"channels_first", "channels_last"}
    activation : str or callable, optional
    use_bias : bool
    depthwise_initializer, bias_initializer : str or Initializer
    depthwise_regularizer, bias_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Notes
    -----
    Input (batch, channels, height, width), output (batch, channels * depth_multiplier, height,
    width); channel ``c * depth_multiplier + m`` comes from channel c. Weights:
    ``depthwise_kernel`` (kernel height, kernel width, channels, depth_multiplier), ``bias``
    (channels * depth_multiplier,). Formula: Keras' documentation.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.DepthwiseConv2D(3, depth_multiplier=2)(pyggml.Input((4, 5, 7))).shape
    (None, 8, 3, 5)
    """

    kernel_name = "depthwise"

    def __init__(self, kernel_size, strides=1, padding="valid", depth_multiplier=1,
                 data_format=None, dilation_rate=1, activation=None, use_bias=True,
                 depthwise_initializer="glorot_uniform", bias_initializer="zeros",
                 depthwise_regularizer=None, bias_regularizer=None, **kwargs) -> None:
        super().__init__(kernel_size, strides, padding, data_format, dilation_rate, activation,
                         use_bias, depthwise_initializer, bias_initializer, depthwise_regularizer,
                         bias_regularizer, **kwargs)
        self.depth_multiplier = positive_int(depth_multiplier, "depth_multiplier")

    def build(self, input_shape):
        channels = self.channels_of(input_shape)
        self.kernel = self.add_weight(
            "depthwise_kernel", (*self.kernel_size, channels, self.depth_multiplier),
            self.initializer, axes=(2, 3, 0, 1), regularizer=self.regularizer)
        if self.use_bias:
            self.bias = self.add_weight("bias", (channels * self.depth_multiplier,),
                                        self.bias_initializer, regularizer=self.bias_regularizer)

    def transform(self, x):
        return self._slide(ops.depthwise_conv2d, x)

    def get_config(self):
        return super().get_config() | {"depth_multiplier": self.depth_multiplier}


class Conv2DTranspose(_FilterConv):
    """Transposed convolution: every pixel adds a scaled kernel to the output.

    Parameters
    ----------
    filters : int
    kernel_size, strides, dilation_rate : int or (int, int)
        ``strides`` is how far apart the kernels of neighbouring pixels lie.
    padding : {"valid", "same"}
        "same" gives size * stride rows and columns, "valid" at least as many.
    output_padding : int or (int, int), optional
        Rows and columns added at the end; by default chosen by ``padding``.
    data_format : {"channels_first", "channels_last"}
    activation : str or callable, optional
    use_bias : bool
    kernel_initializer, bias_initializer : str or Initializer
    kernel_regularizer, bias_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Raises
    ------
    TypeError, ValueError
        As for :class:`Conv2D`; and ``output_padding`` must be smaller than the stride.

    Notes
    -----
    Input (batch, channels, height, width), output (batch, filters, height, width). Weights:
    ``kernel`` (kernel height, kernel width, filters, channels), ``bias`` (filters,). Formula and
    sizes: Keras' documentation. Computed as a convolution over the input spread by the strides.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.Conv2DTranspose(3, 2, strides=2)(pyggml.Input((4, 5, 7))).shape
    (None, 3, 10, 14)
    """

    def __init__(self, filters, kernel_size, strides=1, padding="valid", output_padding=None,
                 data_format=None, dilation_rate=1, activation=None, use_bias=True,
                 kernel_initializer="glorot_uniform", bias_initializer="zeros",
                 kernel_regularizer=None, bias_regularizer=None, **kwargs) -> None:
        super().__init__(filters, kernel_size, strides, padding, data_format, dilation_rate,
                         activation, use_bias, kernel_initializer, bias_initializer,
                         kernel_regularizer, bias_regularizer, **kwargs)
        if output_padding is None:
            self.output_padding = None
            return
        pair = output_padding if isinstance(output_padding, (tuple, list)) else (
            output_padding, output_padding)
        pair = tuple(count(n, "output_padding") for n in pair)
        if len(pair) != 2 or any(n >= s for n, s in zip(pair, self.strides, strict=True)):
            raise ValueError(f"output_padding must be one or two integers below the strides "
                             f"{self.strides}, got {output_padding!r}")
        self.output_padding = pair

    def build(self, input_shape):
        channels = self.channels_of(input_shape)
        self._add((*self.kernel_size, self.filters, channels), (0, 1, 2, 3), self.filters)

    def _output(self, axis, size):
        """The number of outputs along an axis, and how many are cut off in front."""
        stride = self.strides[axis]
        reach = (self.kernel_size[axis] - 1) * self.dilation_rate[axis] + 1
        if self.output_padding is not None:
            cut = 2 * (reach // 2) if self.padding == "same" else 0
            outputs = (size - 1) * stride + reach - cut + self.output_padding[axis]
        elif self.padding == "same":
            outputs = size * stride
        else:
            outputs = size * stride + max(reach - stride, 0)
        surplus = max((size - 1) * stride + reach - outputs, 0)
        return outputs, surplus // 2 if self.padding == "same" else 0

    def transform(self, x):
        n, channels, *places = x.shape
        kh, kw = self.kernel_size
        taps = ops.reshape(x.graph.weight(self.kernel), (kh * kw, self.filters * channels))
        taps = ops.take(taps, list(range(kh * kw))[::-1])  # the kernel, turned by 180 degrees
        kernel = ops.reshape(
            ops.transpose(ops.reshape(taps, (kh * kw, self.filters, channels)), (1, 2, 0)),
            (self.filters, channels, kh, kw))
        wide = ops.spread(x, self.strides)
        starts, shape, padding = [0, 0], [n, channels], []
        for axis, size in enumerate(places):
            outputs, cut = self._output(axis, size)
            if outputs < 1:
                raise ValueError(f"layer {self.name!r} would give no outputs for shape {x.shape}")
            before = (self.kernel_size[axis] - 1) * self.dilation_rate[axis]
            behind = outputs + cut - wide.shape[2 + axis]
            # A negative number of places takes away zeros, or pixels that no output sees.
            front = before - cut
            starts.append(max(-front, 0))
            shape.append(wide.shape[2 + axis] - max(-front, 0) - max(-behind, 0))
            padding.append((max(front, 0), max(behind, 0)))
        wide = ops.slice(wide, starts, shape)
        return ops.conv2d(wide, kernel, (1, 1), tuple(padding), self.dilation_rate, self._bias())

    def get_config(self):
        return super().get_config() | {"output_padding": self.output_padding}
