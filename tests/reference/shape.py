"""Layers that move elements: Flatten, Reshape, Permute, ZeroPadding2D, UpSampling2D."""

import math

import numpy as np

from .common import float64, pair


def flatten(x):
    """[N, ...] to [N, product of the rest], in memory order."""
    return reshape(x, (-1,))


def reshape(x, target_shape):
    """``target_shape`` leaves the batch out; one -1 is inferred."""
    x = float64(x)
    shape = tuple(target_shape)
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        shape = tuple(math.prod(x.shape[1:]) // known if n == -1 else n for n in shape)
    return x.reshape(x.shape[:1] + shape), lambda dout: {"x": dout.reshape(x.shape)}


def permute(x, dims):
    """``dims`` counts from 1, the batch stays in front (Keras)."""
    order = (0, *dims)
    return float64(x).transpose(order), lambda dout: {"x": dout.transpose(np.argsort(order))}


def channels_first(x):
    """[N, ..., C] to [N, C, ...]."""
    return np.moveaxis(x, -1, 1)


def channels_last(x):
    """[N, C, ...] to [N, ..., C]."""
    return np.moveaxis(x, 1, -1)


def zero_padding2d(x, padding=(1, 1)):
    """``padding`` is n, (height, width) or ((top, bottom), (left, right))."""
    (top, bottom), (left, right) = (pair(p) for p in pair(padding))
    out = np.pad(float64(x), ((0, 0), (0, 0), (top, bottom), (left, right)))
    height, width = x.shape[2:]
    return out, lambda dout: {"x": dout[:, :, top : top + height, left : left + width]}


def _interpolation_matrix(size, factor, interpolation):
    """(size * factor, size) matrix; pixel centres lie at half integers."""
    matrix = np.zeros((size * factor, size))
    for i in range(size * factor):
        if interpolation == "nearest":
            matrix[i, i // factor] = 1.0
            continue
        at = min(max((i + 0.5) / factor - 0.5, 0.0), size - 1.0)
        low = int(at)
        high = min(low + 1, size - 1)
        matrix[i, low] += 1.0 - (at - low)
        matrix[i, high] += at - low
    return matrix


def upsampling2d(x, size=(2, 2), interpolation="nearest"):
    """``interpolation`` is "nearest" or "bilinear"."""
    x = float64(x)
    rows, columns = (
        _interpolation_matrix(n, factor, interpolation)
        for n, factor in zip(x.shape[2:], pair(size), strict=True)
    )

    def backward(dout):
        return {"x": rows.T @ dout @ columns}

    return rows @ x @ columns.T, backward
