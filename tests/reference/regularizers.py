"""Penalties on weights (Keras documentation: L1, L2, L1L2)."""

import numpy as np

from .common import float64


def penalty(w, l1=0.0, l2=0.0):
    """l1 * sum|w| + l2 * sum(w^2) and its gradient."""
    w = float64(w)
    value = l1 * np.sum(np.abs(w)) + l2 * np.sum(w * w)
    return float(value), l1 * np.sign(w) + 2.0 * l2 * w
