"""Metrics: computed over a whole epoch in double, not as means of batch means."""

import numpy as np

from pyggml._lookup import lookup
from pyggml._rowwise import argmax_last


class Metric:
    """Base of all metrics.

    A metric adds up what it needs in :meth:`update` and gives its value in :meth:`result`.

    Parameters
    ----------
    name : str, optional
    """

    name = "metric"

    def __init__(self, name=None):
        if name is not None:
            self.name = name
        self.reset()

    def reset(self):
        """Forget everything seen."""
        raise NotImplementedError(f"{type(self).__name__}.reset")

    def update(self, y_true, y_pred, sample_weight=None):
        """Take in one batch.

        Parameters
        ----------
        y_true, y_pred : numpy.ndarray of shape (n, ...)
        sample_weight : numpy.ndarray of shape (n, ...), optional
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def result(self):
        """Return the value over everything seen, as a float."""
        raise NotImplementedError(f"{type(self).__name__}.result")


class WeightedMean(Metric):
    """A mean of one value a sample; subclasses write :meth:`samples`.

    Attributes
    ----------
    normalised : bool
        Whether weighted sums are divided by the sum of the weights. Errors are not: like losses
        they are ``sum(w * v) / N``.
    """

    normalised = True

    def reset(self):
        self.total = 0.0
        self.count = 0.0

    def samples(self, y_true, y_pred):
        """Return one value a sample, as an array with the batch first."""
        raise NotImplementedError(f"{type(self).__name__}.samples")

    def update(self, y_true, y_pred, sample_weight=None):
        values = np.asarray(self.samples(y_true, y_pred), dtype=np.float64)
        if sample_weight is None:
            self.total += values.sum()
            self.count += values.size
            return
        w = np.asarray(sample_weight, dtype=np.float64)
        while w.ndim > values.ndim and w.shape[-1] == 1:
            w = w[..., 0]
        w = np.broadcast_to(w.reshape(w.shape + (1,) * (values.ndim - w.ndim)), values.shape)
        self.total += np.where(w != 0, values, 0.0).ravel() @ w.ravel()
        self.count += w.sum() if self.normalised else w.size

    def result(self):
        return float(self.total / self.count) if self.count else 0.0


class BinaryAccuracy(WeightedMean):
    """Share of elements on the right side of a threshold.

    Parameters
    ----------
    threshold : float
    """

    name = "binary_accuracy"

    def __init__(self, threshold=0.5, name=None):
        self.threshold = threshold
        super().__init__(name)

    def samples(self, y_true, y_pred):
        return (y_pred > self.threshold) == (y_true > self.threshold)


class CategoricalAccuracy(WeightedMean):
    """Share of rows whose largest prediction is where the one-hot label is largest."""

    name = "categorical_accuracy"

    def samples(self, y_true, y_pred):
        return argmax_last(y_pred) == argmax_last(y_true)


class SparseCategoricalAccuracy(WeightedMean):
    """Share of rows whose largest prediction is at the integer label."""

    name = "sparse_categorical_accuracy"

    def samples(self, y_true, y_pred):
        best = argmax_last(y_pred)
        return best == y_true.reshape(best.shape)


class MeanSquaredError(WeightedMean):
    """Mean of squared differences."""

    name = "mse"
    normalised = False

    def samples(self, y_true, y_pred):
        return (y_pred.astype(np.float64) - y_true) ** 2


class MeanAbsoluteError(WeightedMean):
    """Mean of absolute differences."""

    name = "mae"
    normalised = False

    def samples(self, y_true, y_pred):
        return np.abs(y_pred.astype(np.float64) - y_true)


class FunctionMetric(WeightedMean):
    """A metric written by the user: ``function(y_true, y_pred)`` on NumPy arrays.

    Parameters
    ----------
    function : callable
        Returns one value a sample or an element.
    """

    def __init__(self, function):
        self.function = function
        super().__init__(getattr(function, "__name__", type(function).__name__))

    def samples(self, y_true, y_pred):
        return self.function(y_true, y_pred)


_classes = {
    "binary_accuracy": BinaryAccuracy,
    "categorical_accuracy": CategoricalAccuracy,
    "sparse_categorical_accuracy": SparseCategoricalAccuracy,
    "mse": MeanSquaredError,
    "mean_squared_error": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mean_absolute_error": MeanAbsoluteError,
}


def get(identifier, loss=None, output_shape=None):
    """Return a new metric by name, or the object itself.

    Parameters
    ----------
    identifier : str, Metric or callable
        ``"accuracy"`` is the accuracy that fits the loss.
    loss : Loss, optional
    output_shape : tuple of int, optional
        Of one row.
    """
    if isinstance(identifier, Metric):
        return identifier
    if identifier in ("accuracy", "acc"):
        if loss is not None and loss.labels == "classes":
            chosen = SparseCategoricalAccuracy
        elif output_shape is not None and output_shape[-1:] == (1,):
            chosen = BinaryAccuracy
        elif loss is not None and loss.link == "sigmoid":
            chosen = BinaryAccuracy
        else:
            chosen = CategoricalAccuracy
        return chosen(name=identifier)
    found = lookup(identifier, _classes | {"accuracy": None, "acc": None}, "metric")
    if isinstance(found, type):
        return found(name=identifier) if isinstance(identifier, str) else found()
    return FunctionMetric(found)
