"""Activations on NumPy arrays, for predictions that a graph gives as logits."""

import numpy as np

from pyggml._rowwise import softmax_last


def sigmoid(x):
    """Return ``1 / (1 + exp(-x))``, without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def identity(x):
    """Return x."""
    return x


apply = {None: identity, "softmax": softmax_last, "sigmoid": sigmoid}
