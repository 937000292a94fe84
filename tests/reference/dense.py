"""Dense and Dropout."""

import numpy as np

from .activations import activation, activation_vjp
from .common import drop_none, float64


def dense(x, kernel, bias=None, activation_name="linear"):
    """activation(x @ kernel + bias) on the last axis; kernel (in, out), bias (out,)."""
    x, kernel = float64(x), float64(kernel)
    z = x @ kernel + (0.0 if bias is None else bias)

    def backward(dout):
        dz = activation_vjp(activation_name, z, dout)
        rows = dz.reshape(-1, dz.shape[-1])
        return drop_none(
            {
                "x": dz @ kernel.T,
                "kernel": x.reshape(len(rows), -1).T @ rows,
                "bias": None if bias is None else rows.sum(axis=0),
            }
        )

    return activation(activation_name, z), backward


def dropout(x, kept, rate):
    """Inverted dropout with a given 0/1 array: x * kept / (1 - rate)."""
    scale = np.asarray(kept) / (1.0 - rate)
    return float64(x) * scale, lambda dout: {"x": dout * scale}
