"""Losses of numbers."""

import math

from pyggml import ops
from pyggml._scalars import number
from pyggml.losses.base import EPSILON, Loss


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
        self.delta = number(delta, "delta")
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


class Poisson(Loss):
    """``p - y log(p + 1e-7)``, averaged over all elements.

    Predictions are rates: below 0 they count as 0 in the logarithm, which has no gradient there.

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
    joint = True

    def values(self, y_true, y_pred):
        return ops.negative(ops.multiply(_unit(y_true), _unit(y_pred)))


def _unit(x):
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return ops.divide(x, ops.sqrt(ops.maximum(squares, EPSILON**2)))
