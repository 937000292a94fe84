"""Small helpers that several references share."""

import numpy as np

EPSILON = 1e-7  # keras.config.epsilon()


def float64(x):
    return np.asarray(x, dtype=np.float64)


def pair(value):
    """An int or a pair as a pair."""
    return (value, value) if isinstance(value, int) else tuple(value)


def drop_none(gradients):
    """Leave out the gradients of arguments that were not given."""
    return {name: grad for name, grad in gradients.items() if grad is not None}


def unbroadcast(grad, shape):
    """Sum the gradient of a broadcast array back to the shape that it had."""
    extra = grad.ndim - len(shape)
    grad = grad.sum(axis=tuple(range(extra)))
    stretched = tuple(i for i, n in enumerate(shape) if n == 1 and grad.shape[i] != 1)
    return grad.sum(axis=stretched, keepdims=True)


def l2_normalize(x, axis=-1, epsilon=EPSILON):
    """x / max(|x|, epsilon) along axis (keras.ops.normalize, order 2), with its backward."""
    norm = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    scale = np.maximum(norm, epsilon)
    y = x / scale

    def backward(dy):
        along = np.sum(dy * y, axis=axis, keepdims=True)
        return (dy - np.where(norm > epsilon, along, 0.0) * y) / scale

    return y, backward
