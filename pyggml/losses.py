"""Losses.

Every loss is a contribution of each element; what is minimised is ``sum(w * l) / N``. The
weights w are never renormalised, and N counts the elements of the batch, or its rows where the
loss is one of rows (cross-entropies).
"""

from __future__ import annotations

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
    labels : {"dense", "classes", "none"}
        Numbers of the output's shape, one integer label a row, or nothing.
    link : str or None
        The activation that the loss undoes: on an output made by it, it is computed from what
        went into the activation, without rounding in between.
    """

    name = "loss"
    per_row = False
    labels = "dense"
    link: str | None = None

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


class MeanAbsoluteError(Loss):
    """``|p - y|``, averaged over all elements; its gradient at 0 is 0.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("mae")
    MeanAbsoluteError()
    """

    name = "mean_absolute_error"

    def values(self, y_true, y_pred):
        return ops.absolute(ops.subtract(y_pred, y_true))


class Huber(Loss):
    """``(p - y)**2 / 2`` up to a distance of ``delta``, linear beyond it.

    Huber, "Robust estimation of a location parameter" (1964).

    Parameters
    ----------
    delta : float
        Positive and finite.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.Huber(0.5)
    Huber(delta=0.5)
    """

    name = "huber"

    def __init__(self, delta=1.0) -> None:
        self.delta = float(delta)
        if not 0 < self.delta < math.inf:
            raise ValueError(f"delta must be positive and finite, got {delta}")

    def values(self, y_true, y_pred):
        size = ops.absolute(ops.subtract(y_pred, y_true))
        beyond = ops.relu(ops.subtract(size, self.delta))
        within = ops.subtract(size, beyond)
        return ops.add(ops.affine(ops.square(within), 0.5), ops.affine(beyond, self.delta))


class LogCosh(Loss):
    """``log(cosh(p - y))``, averaged over all elements, without overflow.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("log_cosh")
    LogCosh()
    """

    name = "log_cosh"

    def values(self, y_true, y_pred):
        size = ops.absolute(ops.subtract(y_pred, y_true))
        # Near 0, where |e| + log(1 + exp(-2 |e|)) - log(2) cancels, a Taylor series.
        near = ops.step(ops.affine(size, -1.0, 0.1))
        square = ops.square(ops.multiply(size, near))
        series = ops.affine(ops.multiply(ops.affine(square, 1 / 45, -1 / 12), square), 1.0, 0.5)
        far = ops.add(size, ops.affine(ops.softplus(ops.affine(size, -2.0)), 1.0, -math.log(2)))
        return ops.add(ops.multiply(series, square),
                       ops.multiply(far, ops.affine(near, -1.0, 1.0)))


class Hinge(Loss):
    """``max(1 - y p, 0)``, averaged over all elements.

    Labels are -1 and 1. A batch that holds only 0 and 1 is taken for -1 and 1, as in Keras.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("hinge")
    Hinge()
    """

    name = "hinge"

    def values(self, y_true, y_pred):
        # 1 where any label is neither 0 nor 1: then labels stay as they are
        signed = ops.step(ops.sum(ops.absolute(ops.subtract(ops.square(y_true), y_true)),
                                  keepdims=True))
        shift = ops.multiply(ops.affine(y_true, 1.0, -1.0), ops.affine(signed, -1.0, 1.0))
        y_true = ops.add(y_true, shift)
        return ops.relu(ops.affine(ops.multiply(y_true, y_pred), -1.0, 1.0))


class Poisson(Loss):
    """``p - y log(p + 1e-7)``, averaged over all elements.

    Predictions are rates: below 0 they count as 0 in the logarithm.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("poisson")
    Poisson()
    """

    name = "poisson"

    def values(self, y_true, y_pred):
        log = ops.log(ops.affine(ops.relu(y_pred), 1.0, EPSILON))
        return ops.subtract(y_pred, ops.multiply(y_true, log))


class BinaryCrossentropy(Loss):
    """``-y log(p) - (1 - y) log(1 - p)``, averaged over all elements.

    Parameters
    ----------
    from_logits : bool
        Whether predictions are logits. An output made by the sigmoid activation is computed
        from its logits in any case.
    label_smoothing : float
        In [0, 1]: labels are moved by this share towards 1/2.

    Notes
    -----
    Probabilities are kept within [1e-7, 1 - 1e-7], as in Keras.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.BinaryCrossentropy(label_smoothing=0.1)
    BinaryCrossentropy(from_logits=False, label_smoothing=0.1)
    """

    name = "binary_crossentropy"
    link = "sigmoid"

    def __init__(self, from_logits=False, label_smoothing=0.0) -> None:
        self.from_logits = bool(from_logits)
        self.label_smoothing = _share(label_smoothing, "label_smoothing")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        return self._crossentropy(self._smooth(y_true), y_pred)

    def values_linked(self, y_true, x):
        return ops.subtract(ops.softplus(x), ops.multiply(x, self._smooth(y_true)))

    @staticmethod
    def _crossentropy(y, p):
        one = ops.log(_at_least(_at_most(p, 1 - EPSILON), EPSILON))
        zero = ops.log(_at_least(ops.subtract(1.0, p), EPSILON))
        return ops.negative(ops.add(ops.multiply(y, one),
                                    ops.multiply(ops.subtract(1.0, y), zero)))

    def _smooth(self, y_true):
        if not self.label_smoothing:
            return y_true
        return ops.affine(y_true, 1 - self.label_smoothing, self.label_smoothing / 2)


class BinaryFocalCrossentropy(BinaryCrossentropy):
    """Binary cross-entropy times ``(1 - p_t)**gamma``, p_t being the probability of the label.

    Lin et al., "Focal loss for dense object detection" (2017).

    Parameters
    ----------
    apply_class_balancing : bool
        Whether to multiply by ``alpha`` where the label is 1 and by ``1 - alpha`` where it is 0.
    alpha : float
        In [0, 1].
    gamma : float
        Not negative; 0 makes it :class:`BinaryCrossentropy`.
    from_logits, label_smoothing
        As for :class:`BinaryCrossentropy`.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("binary_focal_crossentropy").gamma
    2.0
    """

    name = "binary_focal_crossentropy"

    def __init__(self, apply_class_balancing=False, alpha=0.25, gamma=2.0, from_logits=False,
                 label_smoothing=0.0) -> None:
        super().__init__(from_logits, label_smoothing)
        self.apply_class_balancing = bool(apply_class_balancing)
        self.alpha = _share(alpha, "alpha")
        self.gamma = _exponent(gamma, "gamma")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        y = self._smooth(y_true)
        return self._weigh(y, self._crossentropy(y, y_pred), y_pred, ops.subtract(1.0, y_pred))

    def values_linked(self, y_true, x):
        y = self._smooth(y_true)
        return self._weigh(y, super().values_linked(y_true, x), ops.sigmoid(x),
                           ops.sigmoid(ops.negative(x)))

    def _weigh(self, y, crossentropy, one, zero):
        other = ops.subtract(1.0, y)
        wrong = ops.add(ops.multiply(y, zero), ops.multiply(other, one))
        factor = _power(wrong, self.gamma)
        values = crossentropy if factor is None else ops.multiply(crossentropy, factor)
        if self.apply_class_balancing:
            values = ops.multiply(values, ops.affine(y, 2 * self.alpha - 1, 1 - self.alpha))
        return values


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

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.CategoricalCrossentropy(from_logits=True)
    CategoricalCrossentropy(from_logits=True, label_smoothing=0.0)
    """

    name = "categorical_crossentropy"
    per_row = True
    link = "softmax"

    def __init__(self, from_logits=False, label_smoothing=0.0) -> None:
        self.from_logits = bool(from_logits)
        self.label_smoothing = _share(label_smoothing, "label_smoothing")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        return ops.negative(ops.multiply(ops.log(self._probabilities(y_pred)),
                                         self._smooth(y_true)))

    def values_linked(self, y_true, x):
        return ops.negative(ops.multiply(ops.log_softmax(x), self._smooth(y_true)))

    @staticmethod
    def _probabilities(p):
        p = ops.divide(p, ops.sum(p, axis=-1, keepdims=True))
        return _at_least(_at_most(p, 1 - EPSILON), EPSILON)

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

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("sparse_categorical_crossentropy").labels
    'classes'
    """

    name = "sparse_categorical_crossentropy"
    labels = "classes"


class CategoricalFocalCrossentropy(CategoricalCrossentropy):
    """``-sum(alpha (1 - p)**gamma y log(p))`` over the classes, averaged over rows.

    Lin et al., "Focal loss for dense object detection" (2017).

    Parameters
    ----------
    alpha : float
        In [0, 1].
    gamma : float
        Not negative.
    from_logits, label_smoothing
        As for :class:`CategoricalCrossentropy`.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("categorical_focal_crossentropy").alpha
    0.25
    """

    name = "categorical_focal_crossentropy"

    def __init__(self, alpha=0.25, gamma=2.0, from_logits=False, label_smoothing=0.0) -> None:
        super().__init__(from_logits, label_smoothing)
        self.alpha = _share(alpha, "alpha")
        self.gamma = _exponent(gamma, "gamma")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        p = self._probabilities(y_pred)
        return self._weigh(y_true, ops.log(p), ops.subtract(1.0, p))

    def values_linked(self, y_true, x):
        logs = ops.log_softmax(x)
        return self._weigh(y_true, logs, ops.negative(ops.expm1(logs)))

    def _weigh(self, y_true, logs, wrong):
        values = ops.multiply(logs, ops.affine(self._smooth(y_true), -self.alpha))
        factor = _power(wrong, self.gamma)
        return values if factor is None else ops.multiply(values, factor)


class KLDivergence(Loss):
    """``sum(y log(y / p))`` over the last axis, averaged over rows.

    Kullback and Leibler, "On information and sufficiency" (1951). Labels and predictions are
    probabilities and kept within [1e-7, 1], as in Keras.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("kl_divergence")
    KLDivergence()
    """

    name = "kl_divergence"
    per_row = True

    def values(self, y_true, y_pred):
        y = _at_least(_at_most(y_true, 1.0), EPSILON)
        p = _at_least(_at_most(y_pred, 1.0), EPSILON)
        return ops.multiply(y, ops.subtract(ops.log(y), ops.log(p)))


class CosineSimilarity(Loss):
    """Minus the cosine of the angle between label and prediction, averaged over rows.

    Vectors lie along the last axis; one that is shorter than 1e-7 counts as that long.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("cosine_similarity")
    CosineSimilarity()
    """

    name = "cosine_similarity"
    per_row = True

    def values(self, y_true, y_pred):
        return ops.negative(ops.multiply(_unit(y_true), _unit(y_pred)))


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
    """

    def __init__(self, function) -> None:
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


def _exponent(value, name):
    value = float(value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value


# Written so that what is inside the bounds stays as it is: ops.clip would round small
# probabilities to multiples of 6e-8. Beyond a bound the gradient is 0.

def _at_least(x, low):
    return ops.affine(ops.relu(ops.subtract(x, low)), 1.0, low)


def _at_most(x, high):
    return ops.subtract(x, ops.relu(ops.subtract(x, high)))


def _power(x, exponent):
    """``x**exponent`` for x from 0 on; None stands for 1."""
    if exponent == 0:
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return ops.square(x)
    return ops.exp(ops.affine(ops.log(_at_least(x, 1e-30)), exponent))


def _unit(x):
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return ops.divide(x, ops.sqrt(_at_least(squares, EPSILON**2)))


_classes = {
    "mean_squared_error": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "huber": Huber,
    "log_cosh": LogCosh,
    "binary_crossentropy": BinaryCrossentropy,
    "binary_focal_crossentropy": BinaryFocalCrossentropy,
    "categorical_crossentropy": CategoricalCrossentropy,
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
    "categorical_focal_crossentropy": CategoricalFocalCrossentropy,
    "hinge": Hinge,
    "kl_divergence": KLDivergence,
    "poisson": Poisson,
    "cosine_similarity": CosineSimilarity,
    "output": ModelOutput,
}
_aliases = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "huber_loss": "huber",
    "logcosh": "log_cosh",
    "binary_cross_entropy": "binary_crossentropy",
    "bce": "binary_crossentropy",
    "crossentropy": "categorical_crossentropy",
    "cross_entropy": "categorical_crossentropy",
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "cosine": "cosine_similarity",
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
