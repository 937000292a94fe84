"""Losses with weights: sum(w * l) / N, and the gradient with respect to predictions (or logits).

N is the number of elements, or the number of rows for the losses that Keras defines per row. N is
never renormalised by the weights. A weight of 0 removes its element (its row, for losses per row)
exactly, even where it is NaN. Formulas: Keras documentation of each loss.
"""

from typing import NamedTuple

import numpy as np

from .activations import log_softmax, log_softmax_vjp, sigmoid, softplus
from .common import EPSILON, float64, l2_normalize

# Every function below takes labels and predictions of one shape and returns the summands l (of that
# shape) and `pull`, which turns the gradient with respect to l into the one for the predictions.


def mse(y, p):
    e = p - y
    return e * e, lambda g: g * 2.0 * e


def mae(y, p):
    e = p - y
    return np.abs(e), lambda g: g * np.sign(e)


def huber(y, p, delta=1.0):
    e = p - y
    size = np.abs(e)
    values = np.where(size <= delta, 0.5 * e * e, delta * size - 0.5 * delta**2)
    return values, lambda g: g * np.clip(e, -delta, delta)


def log_cosh(y, p):
    e = p - y
    size = np.abs(e)
    return size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0), lambda g: g * np.tanh(e)


def hinge(y, p):
    if np.all((y == 0) | (y == 1)):  # Keras accepts 0/1 labels and maps them to -1/1
        y = 2.0 * y - 1.0
    margin = 1.0 - y * p
    return np.maximum(margin, 0.0), lambda g: g * np.where(margin > 0, -y, 0.0)


def poisson(y, p):
    shifted = p + EPSILON
    return p - y * np.log(shifted), lambda g: g * (1.0 - y / shifted)


def _clip(p, low=EPSILON, high=1.0 - EPSILON):
    return np.clip(p, low, high), (p >= low) & (p <= high)


def binary_crossentropy(y, p, from_logits=False, label_smoothing=0.0):
    y = y * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        return softplus(p) - y * p, lambda g: g * (sigmoid(p) - y)
    c, inside = _clip(p)
    values = -y * np.log(c) - (1.0 - y) * np.log1p(-c)
    return values, lambda g: g * inside * (c - y) / (c * (1.0 - c))


def binary_focal_crossentropy(
    y, p, from_logits=False, label_smoothing=0.0, alpha=0.25, gamma=2.0, apply_class_balancing=False
):
    """Lin et al. 2017, "Focal loss for dense object detection"."""
    crossentropy, pull_crossentropy = binary_crossentropy(y, p, from_logits, label_smoothing)
    y = y * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        one, zero = sigmoid(p), sigmoid(-p)
        slope = one * zero
    else:
        one, zero, slope = p, 1.0 - p, 1.0
    wrong = y * zero + (1.0 - y) * one  # 1 - p_t
    balance = y * alpha + (1.0 - y) * (1.0 - alpha) if apply_class_balancing else 1.0
    factor = balance * wrong**gamma

    def pull(g):
        dp = pull_crossentropy(g * factor)
        if gamma:
            dfactor = balance * gamma * wrong ** (gamma - 1.0) * (1.0 - 2.0 * y) * slope
            dp = dp + g * crossentropy * dfactor
        return dp

    return factor * crossentropy, pull


def _smooth(y, label_smoothing):
    return y * (1.0 - label_smoothing) + label_smoothing / y.shape[-1]


def _as_distribution(p):
    """Keras divides predictions by their sum and clips them before it takes logarithms."""
    total = np.sum(p, axis=-1, keepdims=True)
    q = p / total
    c, inside = _clip(q)

    def pull(g):
        g = g * inside
        return (g - np.sum(g * q, axis=-1, keepdims=True)) / total

    return c, pull


def categorical_crossentropy(y, p, from_logits=False, label_smoothing=0.0):
    y = _smooth(y, label_smoothing)
    if from_logits:
        return -y * log_softmax(p), lambda g: log_softmax_vjp(p, -g * y)
    c, pull = _as_distribution(p)
    return -y * np.log(c), lambda g: pull(-g * y / c)


def categorical_focal_crossentropy(
    y, p, from_logits=False, label_smoothing=0.0, alpha=0.25, gamma=2.0
):
    """Lin et al. 2017, summed over the classes as Keras does."""
    y = _smooth(y, label_smoothing)
    if from_logits:
        logs = log_softmax(p)
        prob, wrong = np.exp(logs), -np.expm1(logs)
    else:
        prob, pull_distribution = _as_distribution(p)
        logs, wrong = np.log(prob), 1.0 - prob
    factor = alpha * wrong**gamma

    def pull(g):  # through log(prob)
        dlogs = -y * factor
        if gamma:
            dlogs = dlogs + y * alpha * gamma * wrong ** (gamma - 1.0) * prob * logs
        if from_logits:
            return log_softmax_vjp(p, g * dlogs)
        return pull_distribution(g * dlogs / prob)

    return -y * factor * logs, pull


def kl_divergence(y, p):
    y, _ = _clip(y, high=1.0)
    c, inside = _clip(p, high=1.0)
    return y * np.log(y / c), lambda g: -g * inside * y / c


def cosine_similarity(y, p):
    unit_y, _ = l2_normalize(y)
    unit_p, pull = l2_normalize(p)
    return -unit_y * unit_p, lambda g: pull(-g * unit_y)


ELEMENTWISE = {
    "mse": mse,
    "mae": mae,
    "huber": huber,
    "log_cosh": log_cosh,
    "binary_crossentropy": binary_crossentropy,
    "binary_focal_crossentropy": binary_focal_crossentropy,
    "hinge": hinge,
    "poisson": poisson,
}
PER_ROW = {
    "categorical_crossentropy": categorical_crossentropy,
    "sparse_categorical_crossentropy": categorical_crossentropy,  # on one-hot labels
    "categorical_focal_crossentropy": categorical_focal_crossentropy,
    "kl_divergence": kl_divergence,
    "cosine_similarity": cosine_similarity,
}
NAMES = (*ELEMENTWISE, *PER_ROW)


class Loss(NamedTuple):
    """``values`` are unweighted: one per element, or one per row for losses per row (0 where
    removed); ``divisor`` is N; ``total`` is the weighted loss; ``grad`` has the predictions' shape.
    """

    total: float
    values: np.ndarray
    divisor: int
    grad: np.ndarray


def one_hot(labels, classes):
    return np.eye(classes)[np.asarray(labels).astype(np.int64)]


def broadcast_weights(weights, shape):
    """[N], [N, 1], [N, T] or full weights, spread over the elements of ``shape``."""
    if weights is None:
        return np.ones(shape)
    weights = float64(weights)
    trailing = (1,) * (len(shape) - weights.ndim)
    return np.broadcast_to(weights.reshape(weights.shape + trailing), shape)


def loss(name, y_true, y_pred, weights=None, **parameters):
    """Loss ``name`` of whole arrays; see ``Loss`` for what comes back.

    Parameters: ``delta`` (huber); ``from_logits`` and ``label_smoothing`` (the crossentropies);
    ``alpha`` and ``gamma`` (focal), ``apply_class_balancing`` (binary focal). Weights are one per
    row, or one per element; for losses per row an element's weight multiplies its summand.
    """
    p = float64(y_pred)
    w = broadcast_weights(weights, p.shape)
    per_row = name in PER_ROW
    kept = w != 0
    if per_row:
        kept = np.broadcast_to(np.any(kept, axis=-1, keepdims=True), p.shape)

    if name == "sparse_categorical_crossentropy":
        labels = np.asarray(y_true).reshape(p.shape[:-1])
        y = one_hot(np.where(kept[..., 0], labels, 0), p.shape[-1])
    else:
        y = np.where(kept, float64(y_true).reshape(p.shape), 0.0)
    p = np.where(kept, p, 0.5)

    summands, pull = (ELEMENTWISE | PER_ROW)[name](y, p, **parameters)
    summands = np.where(kept, summands, 0.0)
    divisor = p.size // p.shape[-1] if per_row else p.size
    return Loss(
        total=float(np.sum(w * summands) / divisor),
        values=np.sum(summands, axis=-1) if per_row else summands,
        divisor=divisor,
        grad=np.where(kept, pull(w / divisor), 0.0),
    )
