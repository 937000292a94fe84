"""Losses as one node with its gradient, where a kernel computes them."""

from pyggml import losses, ops
from pyggml._fused import fused_loss
from pyggml._lowering import LOSSES


def kernel_of(loss, linked):
    """Return the kernel's name and its two parameters, or None where there is none.

    Parameters
    ----------
    loss : Loss
    linked : bool
        Whether it is computed from what went into the activation that it undoes.
    """
    kind = type(loss)
    if kind in _plain:
        return _plain[kind], (0.0, 0.0)
    if kind is losses.Huber:
        return "huber", (loss.delta, 0.0)
    if kind is losses.BinaryCrossentropy:
        return ("bce_logits" if linked or loss.from_logits else "bce"), (0.0, 0.0)
    if kind in (losses.CategoricalCrossentropy, losses.SparseCategoricalCrossentropy):
        return ("softmax_ce" if linked or loss.from_logits else "ce"), (0.0, 0.0)
    return None


_plain = {losses.MeanSquaredError: "mse", losses.MeanAbsoluteError: "mae",
          losses.LogCosh: "log_cosh", losses.Poisson: "poisson"}


def fuse(kernel, loss, label, source, weight, mask, scale):
    """Return ``scale * sum(weight * l)`` as one node.

    Parameters
    ----------
    kernel : tuple
        From :func:`kernel_of`.
    loss : Loss
    label, source : Tensor of the same shape
    weight : Tensor or None
    mask : None, "rows" or "elements"
    scale : float

    Returns
    -------
    Tensor of shape (1,)
    """
    smooth = getattr(loss, "_smooth", None)
    if smooth is not None:
        label = smooth(label)
    if mask == "elements" and loss.per_row:
        # Kernels of rows weight rows; an element's weight may as well stand in its label.
        label, weight = ops.multiply(label, weight), None
    by_row = mask == "rows"
    if by_row and len(source.shape) == 1:
        by_row = False  # an element is a row of the batch
    elif by_row:
        # A kernel's rows are those of the last axis: all of a sample's get its weight.
        weight = ops.broadcast_to(weight, (*source.shape[:-1], 1))
    name, parameters = kernel
    return fused_loss(source, label, weight, LOSSES[name], parameters, scale, by_row)
