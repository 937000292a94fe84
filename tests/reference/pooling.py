"""Pooling on [N, C, L] and [N, C, H, W].

Padded places never win a maximum and do not count in an average (Keras). Of equal maxima in a
window the first in row-major order gets the gradient.
"""

import numpy as np

from .common import float64
from .conv import as_tuple, spatial_padding, tap_windows


def _windows(x, pool_size, strides, padding, fill):
    rank = x.ndim - 2
    pools = as_tuple(pool_size, rank)
    strides = pools if strides is None else as_tuple(strides, rank)
    ones = (1,) * rank
    pads = spatial_padding(x.shape[2:], pools, strides, ones, padding)
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    windows = [window for _, window in tap_windows(padded.shape[2:], pools, strides, ones)]
    inner = tuple(slice(b, b + n) for (b, _), n in zip(pads, x.shape[2:], strict=True))
    return padded, windows, (slice(None), slice(None), *inner)


def max_pooling(x, pool_size=2, strides=None, padding="valid"):
    """MaxPooling1D/2D; ``strides`` None means the pool size."""
    padded, windows, inner = _windows(float64(x), pool_size, strides, padding, -np.inf)
    seen = np.stack([padded[window] for window in windows])
    winner = np.argmax(seen, axis=0)

    def backward(dout):
        dpadded = np.zeros_like(padded)
        for tap, window in enumerate(windows):
            dpadded[window] += np.where(winner == tap, dout, 0.0)
        return {"x": dpadded[inner]}

    return np.max(seen, axis=0), backward


def average_pooling(x, pool_size=2, strides=None, padding="valid"):
    """AveragePooling1D/2D; ``strides`` None means the pool size."""
    x = float64(x)
    padded, windows, inner = _windows(x, pool_size, strides, padding, 0.0)
    present = np.zeros_like(padded)
    present[inner] = 1.0
    count = sum(present[window] for window in windows)

    def backward(dout):
        dpadded = np.zeros_like(padded)
        for window in windows:
            dpadded[window] += dout / count
        return {"x": dpadded[inner]}

    return sum(padded[window] for window in windows) / count, backward


def global_max_pooling(x, keepdims=False):
    """Maximum over all spatial axes, [N, C]."""
    x = float64(x)
    rows = x.reshape(*x.shape[:2], -1)
    winner = np.argmax(rows, axis=-1)[..., None]
    out = np.take_along_axis(rows, winner, axis=-1)
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2) * keepdims)

    def backward(dout):
        drows = np.zeros_like(rows)
        np.put_along_axis(drows, winner, dout.reshape(out.shape), axis=-1)
        return {"x": drows.reshape(x.shape)}

    return out.reshape(shape), backward


def global_average_pooling(x, keepdims=False):
    """Mean over all spatial axes, [N, C]."""
    x = float64(x)
    axes = tuple(range(2, x.ndim))
    places = x[0, 0].size

    def backward(dout):
        spread = dout.reshape(*x.shape[:2], *(1,) * len(axes)) / places
        return {"x": np.broadcast_to(spread, x.shape).copy()}

    return x.mean(axis=axes, keepdims=keepdims), backward
