"""Densely connected layer."""

from pyggml import activations, initializers, ops, regularizers
from pyggml.layers.base import Layer, positive_int


class Dense(Layer):
    """``activation(x @ kernel + bias)`` over the last axis.

    Parameters
    ----------
    units : int
        Size of the output's last axis.
    activation : str or callable, optional
    use_bias : bool
    kernel_initializer, bias_initializer : str or Initializer
    kernel_regularizer, bias_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Notes
    -----
    Input (batch, ..., inputs), output (batch, ..., units). Weights: ``kernel`` (inputs, units),
    ``bias`` (units,).

    Examples
    --------
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2, "softmax")])
    >>> model.output_shape
    (None, 2)
    """

    def __init__(self, units, activation=None, use_bias=True,
                 kernel_initializer="glorot_uniform", bias_initializer="zeros",
                 kernel_regularizer=None, bias_regularizer=None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.units = positive_int(units, "units")
        self.activation = activations.get(activation)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)

    def build(self, input_shape):
        if len(input_shape) < 2:
            raise ValueError(f"Dense takes inputs of at least two axes, got shape {input_shape}")
        self.kernel = self.add_weight("kernel", (input_shape[-1], self.units),
                                      self.kernel_initializer, regularizer=self.kernel_regularizer)
        if self.use_bias:
            self.bias = self.add_weight("bias", (self.units,), self.bias_initializer,
                                        regularizer=self.bias_regularizer)

    def call(self, x):
        x = ops.linear(x, self.kernel)
        if self.use_bias:
            x = ops.add(x, self.bias)
        return self.activation(x)

    def compute_output_shape(self, input_shape):
        if input_shape[-1] != self.kernel.shape[0]:
            raise ValueError(f"layer {self.name!r} was built for {self.kernel.shape[0]} inputs, "
                             f"got shape {input_shape}")
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return super().get_config() | {
            "units": self.units,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": self.kernel_initializer,
            "bias_initializer": self.bias_initializer,
            "kernel_regularizer": self.kernel_regularizer,
            "bias_regularizer": self.bias_regularizer,
        }
