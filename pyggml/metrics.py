"""Metrics: computed over a whole epoch in double, not as means of batch means."""

import math

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

    def __init__(self, name=None) -> None:
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

    def get_config(self):
        """Return the arguments of the constructor."""
        return {"name": self.name}


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
        w = spread_weights(sample_weight, values.shape)
        self.total += np.where(w != 0, values, 0.0).ravel() @ w.ravel()
        self.count += w.sum() if self.normalised else w.size

    def result(self):
        return float(self.total / self.count) if self.count else 0.0


def spread_weights(weights, shape):
    """Return float64 weights for values of a shape.

    Parameters
    ----------
    weights : array_like
        One a row, or one an element. Where values have lost the last axis, a row counts with the
        mean of its elements' weights.
    shape : tuple of int

    Raises
    ------
    ValueError
        They fit neither the rows nor the elements.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim > len(shape):
        w = w.mean(axis=tuple(range(len(shape), w.ndim)))
    w = w.reshape(w.shape + (1,) * (len(shape) - w.ndim))
    if any(have not in (1, want) for have, want in zip(w.shape, shape, strict=True)) \
            or w.shape[:1] != shape[:1]:
        raise ValueError(f"sample_weight of shape {np.shape(weights)} does not fit values of "
                         f"shape {shape}")
    return np.broadcast_to(w, shape)


def match(y_true, y_pred):
    """Return labels and predictions as arrays of one shape; nothing is broadcast.

    Raises
    ------
    ValueError
        The shapes differ by more than a last axis of size 1.
    """
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    if y_true.shape != y_pred.shape:
        if y_true.shape not in (y_pred.shape[:-1], (*y_pred.shape, 1)) or (
                y_true.size != y_pred.size):
            raise ValueError(f"labels of shape {y_true.shape} do not fit predictions of shape "
                             f"{y_pred.shape}")
        y_true = y_true.reshape(y_pred.shape)
    return y_true, y_pred


def _match_classes(y_true, y_pred):
    """The same for integer labels, one a row of scores."""
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    rows = y_pred.shape[:-1]
    if y_true.shape not in (rows, (*rows, 1)):
        raise ValueError(f"integer labels for predictions of shape {y_pred.shape} must have shape "
                         f"{rows}, got {y_true.shape}")
    return y_true.reshape(rows), y_pred


# ---- accuracies ---------------------------------------------------------------------------

class BinaryAccuracy(WeightedMean):
    """Share of elements on the right side of a threshold; labels above 0.5 count as positive.

    Parameters
    ----------
    threshold : float
        For the predictions.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.BinaryAccuracy()
    >>> metric.update(np.array([1, 0, 1, 1]), np.array([0.9, 0.2, 0.4, 0.6]))
    >>> metric.result()
    0.75
    """

    name = "binary_accuracy"

    def __init__(self, threshold=0.5, name=None) -> None:
        self.threshold = float(threshold)
        super().__init__(name)

    def samples(self, y_true, y_pred):
        y_true, y_pred = match(y_true, y_pred)
        return (y_pred > self.threshold) == (y_true > 0.5)

    def get_config(self):
        return super().get_config() | {"threshold": self.threshold}


class CategoricalAccuracy(WeightedMean):
    """Share of rows whose largest prediction is where the one-hot label is largest.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.CategoricalAccuracy()
    >>> metric.update(np.eye(2), np.array([[0.9, 0.1], [0.8, 0.2]]))
    >>> metric.result()
    0.5
    """

    name = "categorical_accuracy"

    def samples(self, y_true, y_pred):
        y_true, y_pred = match(y_true, y_pred)
        return argmax_last(y_pred) == argmax_last(y_true)


class SparseCategoricalAccuracy(WeightedMean):
    """Share of rows whose largest prediction is at the integer label.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.SparseCategoricalAccuracy()
    >>> metric.update(np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]]))
    >>> metric.result()
    0.5
    """

    name = "sparse_categorical_accuracy"

    def samples(self, y_true, y_pred):
        y_true, y_pred = _match_classes(y_true, y_pred)
        return argmax_last(y_pred) == y_true


class SparseTopKCategoricalAccuracy(WeightedMean):
    """Share of rows in which fewer than k classes score above the integer label's.

    Parameters
    ----------
    k : int

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.SparseTopKCategoricalAccuracy(k=2)
    >>> metric.update(np.array([0, 2]), np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]))
    >>> metric.result()
    0.5
    """

    name = "sparse_top_k_categorical_accuracy"

    def __init__(self, k=5, name=None) -> None:
        if isinstance(k, bool) or not hasattr(k, "__index__") or k < 1:
            raise ValueError(f"k must be a positive integer, got {k!r}")
        self.k = k.__index__()
        super().__init__(name)

    def samples(self, y_true, y_pred):
        labels, y_pred = _match_classes(y_true, y_pred)
        own = np.take_along_axis(y_pred, labels.astype(np.int64)[..., None], axis=-1)
        return (y_pred > own).sum(axis=-1) < self.k

    def get_config(self):
        return super().get_config() | {"k": self.k}


class TopKCategoricalAccuracy(SparseTopKCategoricalAccuracy):
    """The same for one-hot labels.

    Parameters
    ----------
    k : int

    Examples
    --------
    >>> from pyggml import metrics
    >>> metrics.TopKCategoricalAccuracy(k=3).k
    3
    """

    name = "top_k_categorical_accuracy"

    def samples(self, y_true, y_pred):
        y_true, y_pred = match(y_true, y_pred)
        return super().samples(y_true.argmax(axis=-1), y_pred)


# ---- errors -------------------------------------------------------------------------------

def _difference(y_true, y_pred):
    y_true, y_pred = match(y_true, y_pred)
    return y_pred.astype(np.float64) - y_true


class MeanSquaredError(WeightedMean):
    """Mean of squared differences, weighted as losses are: ``sum(w * e**2) / N``.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metrics.get("mean_squared_error").name
    'mean_squared_error'
    """

    name = "mse"
    normalised = False

    def samples(self, y_true, y_pred):
        return _difference(y_true, y_pred) ** 2


class RootMeanSquaredError(MeanSquaredError):
    """Root of :class:`MeanSquaredError` over the whole epoch.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.RootMeanSquaredError()
    >>> metric.update(np.array([0.0, 0.0]), np.array([3.0, 3.0]))
    >>> metric.result()
    3.0
    """

    name = "rmse"

    def result(self):
        return math.sqrt(super().result())


class MeanAbsoluteError(WeightedMean):
    """Mean of absolute differences, weighted as losses are: ``sum(w * |e|) / N``.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metrics.get("mae").name
    'mae'
    """

    name = "mae"
    normalised = False

    def samples(self, y_true, y_pred):
        return np.abs(_difference(y_true, y_pred))


class R2Score(Metric):
    """Coefficient of determination: 1 - residual / total variation, averaged over the outputs.

    An output whose labels are all the same counts 0. Means and variations are merged batch by
    batch (Chan et al., "Algorithms for computing the sample variance", 1983).

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.R2Score()
    >>> metric.update(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    >>> metric.result()
    1.0
    """

    name = "r2"

    def reset(self):
        self.weight = self.mean = self.variation = self.residual = 0.0

    def update(self, y_true, y_pred, sample_weight=None):
        y, p = match(y_true, y_pred)
        w = np.ones(y.shape) if sample_weight is None else spread_weights(sample_weight, y.shape)
        y = np.where(w != 0, y, 0.0).astype(np.float64).reshape(len(y), -1)
        p = np.where(w != 0, p, 0.0).astype(np.float64).reshape(len(p), -1)
        w = w.reshape(y.shape)
        weight = w.sum(axis=0)
        mean = (w * y).sum(axis=0) / np.where(weight > 0, weight, 1.0)
        total = self.weight + weight
        share = weight / np.where(total > 0, total, 1.0)
        shift = mean - self.mean
        self.variation = (self.variation + (w * (y - mean) ** 2).sum(axis=0)
                          + self.weight * share * shift**2)
        self.mean = self.mean + share * shift
        self.residual = self.residual + (w * (y - p) ** 2).sum(axis=0)
        self.weight = total

    def result(self):
        varies = np.asarray(self.variation) > 0
        ratio = self.residual / np.where(varies, self.variation, 1.0)
        return float(np.mean(np.where(varies, 1.0 - ratio, 0.0)))


class CosineSimilarity(WeightedMean):
    """Mean cosine of the angle between the rows of labels and predictions.

    Rows lie along the last axis; one that is shorter than 1e-7 counts as that long.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.CosineSimilarity()
    >>> metric.update(np.array([[0.0, 2.0]]), np.array([[0.0, 5.0]]))
    >>> metric.result()
    1.0
    """

    name = "cosine"

    def samples(self, y_true, y_pred):
        y, p = (a.astype(np.float64) for a in match(y_true, y_pred))
        lengths = [np.maximum(np.sqrt((a * a).sum(axis=-1)), 1e-7) for a in (y, p)]
        return (y * p).sum(axis=-1) / (lengths[0] * lengths[1])


# ---- from counts of right and wrong -------------------------------------------------------

class _Counts(Metric):
    """Weighted counts of true and false positives and of false negatives."""

    def __init__(self, threshold=0.5, name=None) -> None:
        self.threshold = float(threshold)
        super().__init__(name)

    def reset(self):
        self.true_positives = self.false_positives = self.false_negatives = 0.0

    def update(self, y_true, y_pred, sample_weight=None):
        y, p = match(y_true, y_pred)
        w = np.ones(y.shape) if sample_weight is None else spread_weights(sample_weight, y.shape)
        label, guess = y > 0.5, p > self.threshold
        self.true_positives += w[label & guess].sum()
        self.false_positives += w[~label & guess].sum()
        self.false_negatives += w[label & ~guess].sum()

    def get_config(self):
        return super().get_config() | {"threshold": self.threshold}


class Precision(_Counts):
    """Share of positive predictions that are right; 0 where there are none.

    Parameters
    ----------
    threshold : float
        Predictions above it are positive.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.Precision()
    >>> metric.update(np.array([1, 0, 1]), np.array([0.9, 0.8, 0.1]))
    >>> metric.result()
    0.5
    """

    name = "precision"

    def result(self):
        return _ratio(self.true_positives, self.true_positives + self.false_positives)


class Recall(_Counts):
    """Share of positive labels that are found; 0 where there are none.

    Parameters
    ----------
    threshold : float
        Predictions above it are positive.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.Recall()
    >>> metric.update(np.array([1, 0, 1]), np.array([0.9, 0.8, 0.1]))
    >>> metric.result()
    0.5
    """

    name = "recall"

    def result(self):
        return _ratio(self.true_positives, self.true_positives + self.false_negatives)


class F1Score(_Counts):
    """Harmonic mean of precision and recall over all elements: ``2 tp / (2 tp + fp + fn)``.

    Parameters
    ----------
    threshold : float
        Predictions above it are positive.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.F1Score()
    >>> metric.update(np.array([1, 0, 1]), np.array([0.9, 0.8, 0.1]))
    >>> metric.result()
    0.5
    """

    name = "f1"

    def result(self):
        right = 2 * self.true_positives
        return _ratio(right, right + self.false_positives + self.false_negatives)


class AUC(Metric):
    """Area under the ROC curve: how often a positive scores above a negative; ties count half.

    Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic
    (ROC) curve" (1982). Exact: the scores of an epoch are kept, in single precision 5
    bytes an element, 13 with weights. NaN where one of the classes is missing.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metric = metrics.AUC()
    >>> metric.update(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> metric.result()
    0.75
    """

    name = "auc"

    def reset(self):
        self.seen = []

    def update(self, y_true, y_pred, sample_weight=None):
        y, p = match(y_true, y_pred)
        w = None if sample_weight is None else spread_weights(sample_weight, y.shape)
        kept = slice(None) if w is None else w != 0
        self.seen.append((y[kept].ravel() > 0.5, p[kept].ravel().copy(),
                          None if w is None else w[kept].ravel()))

    def result(self):
        if not self.seen:
            return math.nan
        positive, scores = (np.concatenate([part[i] for part in self.seen]) for i in (0, 1))
        weights = np.concatenate([np.ones(len(part[0])) if part[2] is None else part[2]
                                  for part in self.seen])
        levels, group = np.unique(scores, return_inverse=True)
        above = np.bincount(group, weights * positive, len(levels))
        others = np.bincount(group, weights * ~positive, len(levels))
        if not above.sum() or not others.sum():
            return math.nan
        below = np.cumsum(others) - others
        return float((above * (below + 0.5 * others)).sum() / (above.sum() * others.sum()))


def _ratio(a, b):
    return float(a / b) if b else 0.0


class FunctionMetric(WeightedMean):
    """A metric written by the user: ``function(y_true, y_pred)`` on NumPy arrays.

    Parameters
    ----------
    function : callable
        Returns one value a sample or an element; the metric is their mean over the epoch, with
        weights ``sum(w * v) / sum(w)``. Labels have the shape of the predictions, or one integer
        a row.

    Examples
    --------
    >>> from pyggml import metrics
    >>> def largest_error(y_true, y_pred):
    ...     return np.abs(y_true - y_pred).max(axis=-1)
    >>> metrics.get(largest_error).name
    'largest_error'
    """

    def __init__(self, function) -> None:
        self.function = function
        super().__init__(getattr(function, "__name__", type(function).__name__))

    def samples(self, y_true, y_pred):
        return self.function(y_true, y_pred)

    def get_config(self):
        return {"function": self.function}


_classes = {
    "binary_accuracy": BinaryAccuracy,
    "categorical_accuracy": CategoricalAccuracy,
    "sparse_categorical_accuracy": SparseCategoricalAccuracy,
    "top_k_categorical_accuracy": TopKCategoricalAccuracy,
    "sparse_top_k_categorical_accuracy": SparseTopKCategoricalAccuracy,
    "precision": Precision,
    "recall": Recall,
    "f1": F1Score,
    "f1_score": F1Score,
    "auc": AUC,
    "mse": MeanSquaredError,
    "mean_squared_error": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mean_absolute_error": MeanAbsoluteError,
    "rmse": RootMeanSquaredError,
    "root_mean_squared_error": RootMeanSquaredError,
    "r2": R2Score,
    "r2_score": R2Score,
    "cosine": CosineSimilarity,
    "cosine_similarity": CosineSimilarity,
}


def get(identifier, loss=None, output_shape=None):
    """Return a new metric by name, or the object itself.

    Parameters
    ----------
    identifier : str, Metric or callable
        ``"accuracy"`` is the accuracy that fits the loss.
    loss : Loss, optional
    output_shape : tuple of int, optional
        Its last size is looked at.

    Raises
    ------
    ValueError
        An unknown name; the message lists the known ones.

    Examples
    --------
    >>> from pyggml import losses, metrics
    >>> type(metrics.get("accuracy", losses.get("sparse_categorical_crossentropy"))).__name__
    'SparseCategoricalAccuracy'
    """
    if isinstance(identifier, Metric):
        return identifier
    if identifier in ("accuracy", "acc"):
        if loss is not None and loss.labels == "classes":
            chosen = SparseCategoricalAccuracy
        elif (output_shape or ())[-1:] == (1,) or getattr(loss, "link", None) == "sigmoid":
            chosen = BinaryAccuracy
        else:
            chosen = CategoricalAccuracy
        return chosen(name=identifier)
    found = lookup(identifier, _classes | {"accuracy": None, "acc": None}, "metric")
    if isinstance(found, type):
        return found(name=identifier) if isinstance(identifier, str) else found()
    return FunctionMetric(found)
