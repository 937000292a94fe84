"""Metrics from counts of right and wrong answers, and the area under the ROC curve."""

import math

import numpy as np

from pyggml._scalars import number
from pyggml.metrics.base import Metric, match, spread_weights


class _Counts(Metric):
    """Weighted counts of true and false positives and of false negatives."""

    def __init__(self, threshold=0.5, name=None) -> None:
        self.threshold = number(threshold, "threshold")
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
    name : str, optional

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
    name : str, optional

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
    name : str, optional

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
    bytes an element, 13 with weights. NaN where one of the classes is missing, or a score is NaN.

    Parameters
    ----------
    name : str, optional

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
        if np.isnan(scores).any():
            return math.nan
        levels, group = np.unique(scores, return_inverse=True)
        above = np.bincount(group, weights * positive, len(levels))
        others = np.bincount(group, weights * ~positive, len(levels))
        if not above.sum() or not others.sum():
            return math.nan
        below = np.cumsum(others) - others
        return float((above * (below + 0.5 * others)).sum() / (above.sum() * others.sum()))


def _ratio(a, b):
    return float(a / b) if b else 0.0
