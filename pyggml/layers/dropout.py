"""Dropout."""

from pyggml import ops
from pyggml.layers.base import Layer, share


class Dropout(Layer):
    """Set a share of the elements to 0 in training and scale the others up to keep the mean.

    Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting"
    (2014), in the inverted form: elements that are kept are multiplied by ``1 / (1 - rate)``,
    and evaluation changes nothing.

    Parameters
    ----------
    rate : float
        In [0, 1): the share that is set to 0.

    Notes
    -----
    Masks are drawn anew at every step, from the trainer's seed and its step number.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.Dropout(0.5).rate
    0.5
    """

    def __init__(self, rate, **kwargs) -> None:
        super().__init__(**kwargs)
        self.rate = share(rate, "rate")

    def call(self, x, training=False):
        """Return x, with a share of it dropped in training.

        Parameters
        ----------
        x : Tensor
        training : bool

        Returns
        -------
        Tensor
        """
        if not training or self.rate == 0:
            return x
        return ops.dropout(x, self.rate)

    def get_config(self):
        return super().get_config() | {"rate": self.rate}
