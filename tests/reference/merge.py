"""Layers with several inputs. ``xs`` is a list, and so is the gradient of "xs".

Inputs of different shapes broadcast. Where maxima are equal, the first input gets the gradient.
"""

import numpy as np

from .common import float64, l2_normalize, unbroadcast


def _result(out, xs, pull):
    """``pull(dout, i)`` gives the gradient of input i in the output's shape."""
    shapes = [x.shape for x in xs]

    def backward(dout):
        return {"xs": [unbroadcast(pull(dout, i), shape) for i, shape in enumerate(shapes)]}

    return out, backward


def add(xs):
    xs = [float64(x) for x in xs]
    return _result(sum(xs), xs, lambda dout, i: dout)


def subtract(xs):
    a, b = (float64(x) for x in xs)
    return _result(a - b, [a, b], lambda dout, i: -dout if i else dout)


def average(xs):
    xs = [float64(x) for x in xs]
    return _result(sum(xs) / len(xs), xs, lambda dout, i: dout / len(xs))


def multiply(xs):
    xs = [float64(x) for x in xs]

    def pull(dout, i):
        for k, x in enumerate(xs):
            if k != i:
                dout = dout * x
        return dout

    out = xs[0]
    for x in xs[1:]:
        out = out * x
    return _result(out, xs, pull)


def maximum(xs):
    xs = [float64(x) for x in xs]
    stacked = np.stack(np.broadcast_arrays(*xs))
    winner = np.argmax(stacked, axis=0)
    return _result(np.max(stacked, axis=0), xs, lambda dout, i: np.where(winner == i, dout, 0.0))


def concatenate(xs, axis=-1):
    xs = [float64(x) for x in xs]
    ends = np.cumsum([x.shape[axis] for x in xs])[:-1]
    return np.concatenate(xs, axis=axis), lambda dout: {"xs": np.split(dout, ends, axis=axis)}


def dot(xs, axes=-1, normalize=False):
    """Keras' Dot: contracts one axis of each input, row by row; two vectors give [N, 1].

    ``axes`` is one axis for both inputs or a pair; ``normalize`` makes it a cosine.
    """
    a, b = (float64(x) for x in xs)
    axis_a, axis_b = (axes, axes) if isinstance(axes, int) else axes
    pulls = [lambda d: d, lambda d: d]
    if normalize:
        a, pulls[0] = l2_normalize(a, axis_a)
        b, pulls[1] = l2_normalize(b, axis_b)
    left, right = np.moveaxis(a, axis_a, -1), np.moveaxis(b, axis_b, -1)
    rows_a = left.reshape(len(a), -1, left.shape[-1])
    rows_b = right.reshape(len(b), -1, right.shape[-1])
    shape = (len(a), *left.shape[1:-1], *right.shape[1:-1])

    def backward(dout):
        d = dout.reshape(len(a), rows_a.shape[1], rows_b.shape[1])
        da = np.moveaxis((d @ rows_b).reshape(left.shape), -1, axis_a)
        db = np.moveaxis((d.transpose(0, 2, 1) @ rows_a).reshape(right.shape), -1, axis_b)
        return {"xs": [pulls[0](da), pulls[1](db)]}

    out = rows_a @ rows_b.transpose(0, 2, 1)
    return out.reshape(shape if len(shape) > 1 else (len(a), 1)), backward
