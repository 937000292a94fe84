"""What losses share."""

import math

from pyggml._scalars import number
from pyggml._settings import Settled

# Probabilities are kept this far from 0 and 1 before their logarithm is taken, as in Keras.
EPSILON = 1e-7


class Loss(Settled):
    """Base of the built-in losses.

    Attributes
    ----------
    name : str
    per_row : bool
        Whether the total is divided by the number of rows instead of elements.
    labels : {"dense", "classes", "none"}
        Numbers of the output's shape, one integer label a row, or nothing.
    link : str or None
        The activation that the loss undoes: on an output made by it, it is computed from what
        went into the activation, without rounding in between.
    joint : bool
        Whether a label acts on other elements' contributions. Where it does not, labels of
        weight 0 are set to 0 before anything is computed; where it does, only those that are not
        finite.

    Examples
    --------
    >>> from pyggml import losses, ops
    >>> class Quartic(losses.Loss):
    ...     name = "quartic"
    ...
    ...     def values(self, y_true, y_pred):
    ...         return ops.square(ops.square(ops.subtract(y_pred, y_true)))
    >>> Quartic()
    Quartic()
    """

    name = "loss"
    per_row = False
    labels = "dense"
    link: str | None = None
    joint = False

    def values(self, y_true, y_pred):
        """Return each element's contribution.

        Parameters
        ----------
        y_true, y_pred : Tensor of shape (batch, ...)
            ``y_true`` is None where ``labels`` is "none".

        Returns
        -------
        Tensor of the same shape
        """
        raise NotImplementedError(f"{type(self).__name__}.values")

    def values_linked(self, y_true, x):
        """Return the same from the input x of the activation ``link``.

        Parameters
        ----------
        y_true : Tensor of shape (batch, ...)
        x : Tensor of shape (batch, ...)

        Returns
        -------
        Tensor of the same shape
        """
        raise NotImplementedError(f"{type(self).__name__}.values_linked")

    def divisor(self, shape):
        """Return N.

        Parameters
        ----------
        shape : tuple of int
            Of the values, batch first; of the predictions where the loss is one of rows.
        """
        return math.prod(shape[:-1] if self.per_row and len(shape) > 1 else shape)

    def get_config(self):
        """Return the arguments of the constructor."""
        return dict(vars(self))

    def __repr__(self):
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class ModelOutput(Loss):
    """The output itself, averaged over all its elements: an objective that the model computes.

    For losses of several inputs, such as the clipped surrogate of PPO: write them as layers on
    further inputs, let the model return the summands, and compile with ``loss="output"``. There
    are no labels: pass ``y=None``, or leave this output out of a list or dict of labels.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("sgd", loss="output")
    >>> model.set_weights([np.ones((2, 1)), np.zeros(1)])
    >>> model.evaluate(np.array([[1.0, 2.0], [3.0, 4.0]]))
    5.0
    """

    name = "output"
    labels = "none"

    def values(self, y_true, y_pred):
        return y_pred


class FunctionLoss(Loss):
    """A loss written by the user.

    Parameters
    ----------
    function : callable
        Called as ``function(y_true, y_pred)`` with tensors of the output's shape; returns a
        tensor whose first axis is the batch. The loss is the mean of its elements.

    Examples
    --------
    >>> from pyggml import losses, ops
    >>> def absolute(y_true, y_pred):
    ...     return ops.absolute(y_pred - y_true)
    >>> losses.get(absolute).name
    'absolute'
    """

    def __init__(self, function) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def values(self, y_true, y_pred):
        return self.function(y_true, y_pred)

    def get_config(self):
        return {"function": self.function}


def share(value, name):
    """Return value as a float in [0, 1], or raise TypeError or ValueError that names it."""
    value = number(value, name)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")
    return value
