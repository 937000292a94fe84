"""Normalisation layers. Defaults of epsilon and momentum are Keras'."""

import numpy as np

from .common import drop_none, float64


def _along(vector, ndim, axes):
    """A vector of the axes' sizes, shaped to broadcast against an array of ``ndim`` axes."""
    if vector is None:
        return None
    vector = float64(vector)
    shape = [1] * ndim
    for axis, n in zip(axes, vector.shape, strict=True):
        shape[axis] = n
    return vector.reshape(shape)


def _affine(unit, gamma, beta, axes):
    """unit * gamma + beta with weights on ``axes``; gives dunit and the weights' gradients."""
    scale, shift = (_along(v, unit.ndim, axes) for v in (gamma, beta))
    others = tuple(i for i in range(unit.ndim) if i not in axes)
    out = unit if scale is None else unit * scale
    out = out if shift is None else out + shift

    def backward(dout):
        dunit = dout if scale is None else dout * scale
        dgamma = None if scale is None else (dout * unit).sum(axis=others)
        dbeta = None if shift is None else dout.sum(axis=others)
        return dunit, dgamma, dbeta

    return out, backward


def _standardise(x, axes, epsilon):
    """(x - mean) / sqrt(variance + epsilon) over ``axes``, with its backward."""
    centred = x - x.mean(axis=axes, keepdims=True)
    inverse = 1.0 / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)
    unit = centred * inverse

    def backward(dunit):
        mean = dunit.mean(axis=axes, keepdims=True)
        along = (dunit * unit).mean(axis=axes, keepdims=True)
        return inverse * (dunit - mean - unit * along)

    return unit, backward


def batch_statistics(x, axis=1):
    """Mean and biased variance for each index of ``axis``."""
    x = float64(x)
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    return x.mean(axis=others), x.var(axis=others)


def running_average(moving, batch, momentum=0.99):
    """moving * momentum + batch * (1 - momentum) (Keras; biased variance)."""
    return float64(moving) * momentum + float64(batch) * (1.0 - momentum)


def batch_norm(
    x, gamma=None, beta=None, moving_mean=None, moving_variance=None, axis=1, epsilon=1e-3,
    training=True,
):  # fmt: skip
    """Ioffe and Szegedy 2015. Training normalises by the batch, otherwise by the moving values."""
    x = float64(x)
    axis = axis % x.ndim
    if training:
        others = tuple(i for i in range(x.ndim) if i != axis)
        unit, pull = _standardise(x, others, epsilon)
    else:
        mean, variance = (_along(v, x.ndim, (axis,)) for v in (moving_mean, moving_variance))
        inverse = 1.0 / np.sqrt(variance + epsilon)
        unit = (x - mean) * inverse

        def pull(dunit):
            return dunit * inverse

    out, affine_backward = _affine(unit, gamma, beta, (axis,))

    def backward(dout):
        dunit, dgamma, dbeta = affine_backward(dout)
        return drop_none({"x": pull(dunit), "gamma": dgamma, "beta": dbeta})

    return out, backward


def _axes(axis, ndim):
    axes = (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % ndim for a in axes))


def layer_norm(x, gamma=None, beta=None, axis=-1, epsilon=1e-3):
    """Ba et al. 2016; statistics and weights on ``axis`` (an int or several)."""
    x = float64(x)
    axes = _axes(axis, x.ndim)
    unit, pull = _standardise(x, axes, epsilon)
    out, affine_backward = _affine(unit, gamma, beta, axes)

    def backward(dout):
        dunit, dgamma, dbeta = affine_backward(dout)
        return drop_none({"x": pull(dunit), "gamma": dgamma, "beta": dbeta})

    return out, backward


def rms_norm(x, scale=None, axis=-1, epsilon=1e-6):
    """Zhang and Sennrich 2019: x / sqrt(mean(x^2) + epsilon) * scale."""
    x = float64(x)
    axes = _axes(axis, x.ndim)
    inverse = 1.0 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + epsilon)
    unit = x * inverse
    out, affine_backward = _affine(unit, scale, None, axes)

    def backward(dout):
        dunit, dscale, _ = affine_backward(dout)
        along = (dunit * unit).mean(axis=axes, keepdims=True)
        return drop_none({"x": inverse * (dunit - unit * along), "scale": dscale})

    return out, backward
