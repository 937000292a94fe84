"""Metrics over a whole epoch in float64, with optional weights per row or per element.

Means are sum(w * v) / sum(w), and 0 where all weights are 0 (Keras).
"""

import numpy as np

from .common import float64, l2_normalize
from .losses import broadcast_weights


def _mean(values, weights):
    w = broadcast_weights(weights, values.shape)
    total = np.sum(w)
    return float(np.sum(np.where(w != 0, w * values, 0.0)) / total) if total else 0.0


def _pair(y_true, y_pred):
    p = float64(y_pred)
    return float64(y_true).reshape(p.shape), p


def _row_weights(weights, values):
    """Weights for ``values`` that have lost the last axis: [N, 1] becomes [N]."""
    if weights is None or np.ndim(weights) <= values.ndim:
        return weights
    return float64(weights)[..., 0]


def mse(y_true, y_pred, weights=None):
    y, p = _pair(y_true, y_pred)
    return _mean((p - y) ** 2, weights)


def mae(y_true, y_pred, weights=None):
    y, p = _pair(y_true, y_pred)
    return _mean(np.abs(p - y), weights)


def rmse(y_true, y_pred, weights=None):
    return float(np.sqrt(mse(y_true, y_pred, weights)))


def cosine(y_true, y_pred, weights=None):
    """Mean cosine of the angle between label and prediction rows."""
    y, p = _pair(y_true, y_pred)
    values = np.sum(l2_normalize(y)[0] * l2_normalize(p)[0], axis=-1)
    return _mean(values, _row_weights(weights, values))


def r2(y_true, y_pred, weights=None):
    """1 - residual / total variation, averaged over the outputs; 0 for a constant label."""
    y, p = _pair(y_true, y_pred)
    y, p = y.reshape(len(y), -1), p.reshape(len(p), -1)
    w = broadcast_weights(weights, y.shape)
    y, p = np.where(w != 0, y, 0.0), np.where(w != 0, p, 0.0)
    mean = np.sum(w * y, axis=0) / np.sum(w, axis=0)
    residual = np.sum(w * (y - p) ** 2, axis=0)
    total = np.sum(w * (y - mean) ** 2, axis=0)
    varies = total > 0
    return float(np.mean(np.where(varies, 1.0 - residual / np.where(varies, total, 1.0), 0.0)))


def binary_accuracy(y_true, y_pred, weights=None, threshold=0.5):
    y, p = _pair(y_true, y_pred)
    return _mean((y == (p > threshold)).astype(np.float64), weights)


def sparse_categorical_accuracy(y_true, y_pred, weights=None):
    """Labels are class numbers; of equal scores the first is the prediction."""
    values = np.argmax(y_pred, axis=-1)
    values = (values == np.asarray(y_true).reshape(values.shape)).astype(np.float64)
    return _mean(values, _row_weights(weights, values))


def categorical_accuracy(y_true, y_pred, weights=None):
    """Labels are one-hot."""
    return sparse_categorical_accuracy(np.argmax(y_true, axis=-1), y_pred, weights)


def sparse_top_k_categorical_accuracy(y_true, y_pred, weights=None, k=5):
    """Fewer than k classes have a higher score than the label's."""
    p = float64(y_pred)
    labels = np.asarray(y_true).reshape(p.shape[:-1]).astype(np.int64)
    own = np.take_along_axis(p, labels[..., None], axis=-1)
    values = (np.sum(p > own, axis=-1) < k).astype(np.float64)
    return _mean(values, _row_weights(weights, values))


def top_k_categorical_accuracy(y_true, y_pred, weights=None, k=5):
    return sparse_top_k_categorical_accuracy(np.argmax(y_true, axis=-1), y_pred, weights, k)


def confusion(y_true, y_pred, weights=None, threshold=0.5):
    """Weighted (true positives, false positives, false negatives, true negatives)."""
    y, p = _pair(y_true, y_pred)
    w = broadcast_weights(weights, p.shape)
    label, guess = y > 0.5, p > threshold
    return tuple(
        float(np.sum(w[chosen]))
        for chosen in (label & guess, ~label & guess, label & ~guess, ~label & ~guess)
    )


def _ratio(a, b):
    return a / b if b else 0.0


def precision(y_true, y_pred, weights=None, threshold=0.5):
    tp, fp, _, _ = confusion(y_true, y_pred, weights, threshold)
    return _ratio(tp, tp + fp)


def recall(y_true, y_pred, weights=None, threshold=0.5):
    tp, _, fn, _ = confusion(y_true, y_pred, weights, threshold)
    return _ratio(tp, tp + fn)


def f1(y_true, y_pred, weights=None, threshold=0.5):
    """2 tp / (2 tp + fp + fn) over all elements."""
    tp, fp, fn, _ = confusion(y_true, y_pred, weights, threshold)
    return _ratio(2.0 * tp, 2.0 * tp + fp + fn)


def auc(y_true, y_pred, weights=None):
    """Area under the ROC curve: how often a positive scores above a negative, ties count half.

    Hanley and McNeil 1982. NaN where one of the classes is missing.
    """
    y, p = _pair(y_true, y_pred)
    w = broadcast_weights(weights, p.shape).ravel()
    positive, scores = y.ravel() > 0.5, p.ravel()
    levels, group = np.unique(scores, return_inverse=True)
    wins = np.bincount(group, weights=w * positive, minlength=len(levels))
    others = np.bincount(group, weights=w * ~positive, minlength=len(levels))
    if not wins.sum() or not others.sum():
        return float("nan")
    below = np.cumsum(others) - others
    return float(np.sum(wins * (below + 0.5 * others)) / (wins.sum() * others.sum()))


METRICS = {
    "mse": mse,
    "mae": mae,
    "rmse": rmse,
    "r2": r2,
    "cosine": cosine,
    "binary_accuracy": binary_accuracy,
    "categorical_accuracy": categorical_accuracy,
    "sparse_categorical_accuracy": sparse_categorical_accuracy,
    "top_k_categorical_accuracy": top_k_categorical_accuracy,
    "sparse_top_k_categorical_accuracy": sparse_top_k_categorical_accuracy,
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "auc": auc,
}
