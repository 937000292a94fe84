"""An activation as a layer of its own."""

from pyggml import activations
from pyggml.layers.base import Layer


class Activation(Layer):
    """Apply an activation function.

    Parameters
    ----------
    activation : str or callable

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.Activation("tanh").get_config()["activation"]
    'tanh'
    """

    def __init__(self, activation, **kwargs) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)

    def call(self, x):
        return self.activation(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {"activation": activations.serialize(self.activation)}
