"""Distances between labels and predictions."""

import math

import numpy as np

from pyggml.metrics.base import Metric, WeightedMean, match, spread_weights


def _difference(y_true, y_pred):
    y_true, y_pred = match(y_true, y_pred)
    return y_pred.astype(np.float64) - y_true


class MeanSquaredError(WeightedMean):
    """Mean of squared differences, weighted as losses are: ``sum(w * e**2) / N``.

    Parameters
    ----------
    name : str, optional

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

    Parameters
    ----------
    name : str, optional

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

    Parameters
    ----------
    name : str, optional

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

    Parameters
    ----------
    name : str, optional

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

    Parameters
    ----------
    name : str, optional

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
