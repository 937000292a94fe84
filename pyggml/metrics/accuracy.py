"""Shares of right answers."""

import numpy as np

from pyggml._rowwise import argmax_last
from pyggml._scalars import number
from pyggml.metrics.base import WeightedMean, match


def _match_classes(y_true, y_pred):
    """The same for integer labels, one a row of scores."""
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    rows = y_pred.shape[:-1]
    if y_true.shape not in (rows, (*rows, 1)):
        raise ValueError(f"integer labels for predictions of shape {y_pred.shape} must have shape "
                         f"{rows}, got {y_true.shape}")
    return y_true.reshape(rows), y_pred


class BinaryAccuracy(WeightedMean):
    """Share of elements on the right side of a threshold; labels above 0.5 count as positive.

    Parameters
    ----------
    threshold : float
        For the predictions.
    name : str, optional

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
        self.threshold = number(threshold, "threshold")
        super().__init__(name)

    def samples(self, y_true, y_pred):
        y_true, y_pred = match(y_true, y_pred)
        return (y_pred > self.threshold) == (y_true > 0.5)

    def get_config(self):
        return super().get_config() | {"threshold": self.threshold}


class CategoricalAccuracy(WeightedMean):
    """Share of rows whose largest prediction is where the one-hot label is largest.

    Parameters
    ----------
    name : str, optional

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

    Parameters
    ----------
    name : str, optional

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

    Ties are in the label's favour. NaN counts as above, and so does every class above a NaN.

    Parameters
    ----------
    k : int
    name : str, optional

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
        classes = y_pred.shape[-1]
        if labels.size and not (labels.min() >= 0 and labels.max() < classes):
            raise ValueError(f"integer labels must lie in the range [0, {classes}), got "
                             f"{labels.min()} to {labels.max()}")
        own = np.take_along_axis(y_pred, labels.astype(np.int64)[..., None], axis=-1)
        return (~(y_pred <= own)).sum(axis=-1) < self.k

    def get_config(self):
        return super().get_config() | {"k": self.k}


class TopKCategoricalAccuracy(SparseTopKCategoricalAccuracy):
    """The same for one-hot labels.

    Parameters
    ----------
    k : int
    name : str, optional

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
