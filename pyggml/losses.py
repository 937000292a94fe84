"""Losses.

Every loss is a contribution of each element; what is minimised is ``sum(w * l) / N``. The
weights w are never renormalised, and N counts the elements of the batch, or its rows where the
loss is one of rows (cross-entropies).
"""

import math

from pyggml import ops
from pyggml._lookup import lookup

# Probabilities are kept this far from 0 and 1 before their logarithm is taken, as in Keras.
EPSILON = 1e-7


class Loss:
    """Base of the built-in losses.

    Attributes
    ----------
    name : str
    per_row : bool
        Whether the total is divided by the number of rows instead of elements.
    labels : {"dense", "classes"}
        Numbers of the output's shape, or one integer label a row.
    link : str or None
        The activation that the loss undoes: on an output made by it, it is computed from what
        went into the activation, without rounding in between.
    """

    name = "loss"
    per_row = False
    labels = "dense"
    link = None

    def values(self, y_true, y_pred):
        """Return each element's contribution.

        Parameters
        ----------
        y_true, y_pred : Tensor of shape (batch, ...)

        Returns
        -------
        Tensor of the same shape
        """
        raise NotImplementedError(f"{type(self).__name__}.values")

    def values_linked(self, y_true, x):
        """Return the same from the input x of the activation ``link``."""
        raise NotImplementedError(f"{type(self).__name__}.values_linked")

    def divisor(self, shape):
        """Return N for values of a shape.

        Parameters
        ----------
        shape : tuple of int
            Of the values, batch first.
        """
        return math.prod(shape[:-1] if self.per_row else shape)

    def get_config(self):
        """Return the arguments of the constructor."""
        return dict(vars(self))

    def __repr__(self):
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class MeanSquaredError(Loss):
    """``(p - y)**2``, averaged over all elements.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("mse")
    MeanSquaredError()
    """

    name = "mean_squared_error"

    def values(self, y_true, y_pred):
        return ops.square(ops.subtract(y_pred, y_true))


class BinaryCrossentropy(Loss):
    """``-y log(p) - (1 - y) log(1 - p)``, averaged over all elements.

    Parameters
    ----------
    from_logits : bool
        Whether predictions are logits. An output made by the sigmoid activation is computed
        from its logits in any case.
    label_smoothing : float
        In [0, 1]: labels are moved by this share towards 1/2.
    """

    name = "binary_crossentropy"
    link = "sigmoid"

    def __init__(self, from_logits=False, label_smoothing=0.0):
        self.from_logits = bool(from_logits)
        self.label_smoothing = _share(label_smoothing, "label_smoothing")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        y_true = self._smooth(y_true)
        p = ops.clip(y_pred, EPSILON, 1 - EPSILON)
        return ops.negative(ops.add(
            ops.multiply(y_true, ops.log(p)),
            ops.multiply(ops.subtract(1.0, y_true), ops.log(ops.subtract(1.0, p)))))

    def values_linked(self, y_true, x):
        return ops.subtract(ops.softplus(x), ops.multiply(x, self._smooth(y_true)))

    def _smooth(self, y_true):
        if not self.label_smoothing:
            return y_true
        return ops.affine(y_true, 1 - self.label_smoothing, self.label_smoothing / 2)


class CategoricalCrossentropy(Loss):
    """``-sum(y log(p))`` over the classes, averaged over rows, for one-hot or soft labels.

    Parameters
    ----------
    from_logits : bool
        Whether predictions are logits. An output made by the softmax activation is computed
        from its logits in any case.
    label_smoothing : float
        In [0, 1]: this share of the labels is spread evenly over the classes.

    Notes
    -----
    Probabilities are divided by their sum and kept within [1e-7, 1 - 1e-7], as in Keras. Label
    rows need not sum to 1.
    """

    name = "categorical_crossentropy"
    per_row = True
    link = "softmax"

    def __init__(self, from_logits=False, label_smoothing=0.0):
        self.from_logits = bool(from_logits)
        self.label_smoothing = _share(label_smoothing, "label_smoothing")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        p = ops.divide(y_pred, ops.sum(y_pred, axis=-1, keepdims=True))
        p = ops.clip(p, EPSILON, 1 - EPSILON)
        return ops.negative(ops.multiply(self._smooth(y_true), ops.log(p)))

    def values_linked(self, y_true, x):
        return ops.negative(ops.multiply(ops.log_softmax(x), self._smooth(y_true)))

    def _smooth(self, y_true):
        if not self.label_smoothing:
            return y_true
        return ops.affine(y_true, 1 - self.label_smoothing,
                          self.label_smoothing / y_true.shape[-1])


class SparseCategoricalCrossentropy(CategoricalCrossentropy):
    """``-log(p[label])``, averaged over rows, for integer labels from 0 to classes - 1.

    Parameters
    ----------
    from_logits : bool
    label_smoothing : float
        As for :class:`CategoricalCrossentropy`.
    """

    name = "sparse_categorical_crossentropy"
    labels = "classes"


class FunctionLoss(Loss):
    """A loss written by the user.

    Parameters
    ----------
    function : callable
        Called as ``function(y_true, y_pred)`` with tensors of the output's shape; returns a
        tensor whose first axis is the batch. The loss is the mean of its elements.
    """

    def __init__(self, function):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def values(self, y_true, y_pred):
        return self.function(y_true, y_pred)

    def get_config(self):
        return {"function": self.function}


def _share(value, name):
    value = float(value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")
    return value


_classes = {
    "mean_squared_error": MeanSquaredError,
    "binary_crossentropy": BinaryCrossentropy,
    "categorical_crossentropy": CategoricalCrossentropy,
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
}
_aliases = {
    "mse": "mean_squared_error",
    "binary_cross_entropy": "binary_crossentropy",
    "bce": "binary_crossentropy",
    "crossentropy": "categorical_crossentropy",
    "cross_entropy": "categorical_crossentropy",
}


def get(identifier):
    """Return a loss by name, by object, or around a function.

    Parameters
    ----------
    identifier : str, Loss or callable

    Raises
    ------
    ValueError
        An unknown name.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("cross_entropy").name
    'categorical_crossentropy'
    """
    if isinstance(identifier, Loss):
        return identifier
    table = _classes | {alias: _classes[name] for alias, name in _aliases.items()}
    found = lookup(identifier, table, "loss")
    if isinstance(found, type) and issubclass(found, Loss):
        return found()
    return FunctionLoss(found)
