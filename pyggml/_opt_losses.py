"""Losses of :mod:`pyggml.opt`, as operations added to a user's graph."""

import math

from pyggml import ops
from pyggml._slot import Slot

LOSS_TYPES = ("mean", "sum", "mse", "weighted_mse", "mae", "huber", "cross_entropy",
              "binary_cross_entropy")


class Head:
    """One output with its loss.

    Parameters
    ----------
    graph : Graph
    loss_type : str
    output : Tensor of shape (batch, n)
    number : int or None
        For messages, where there are several.
    delta : float
        Of the Huber loss.

    Attributes
    ----------
    output, part : Tensor
        Output and loss, to be read after an evaluation.
    labels, weights : Slot or None
    """

    def __init__(self, graph, loss_type, output, number, delta):
        self.loss_type = loss_type
        self.output = graph.keep(output)
        suffix = "" if number is None else f"[{number}]"
        self.labels = self.weights = None
        labels = weights = None
        if loss_type not in ("mean", "sum"):
            labels = graph.input(output.shape, name="labels")
            self.labels = Slot(labels, f"labels{suffix}")
        if loss_type == "weighted_mse":
            weights = graph.input(output.shape, name="weights")
            self.weights = Slot(weights, f"weights{suffix}", "weight")
        values, divisor = _values(loss_type, self.output, labels, weights, delta)
        self.part = graph.keep(ops.affine(ops.sum(values), 1 / divisor))


def _values(loss_type, outputs, labels, weights, delta):
    """Return the loss of each element and by what their sum is divided."""
    if loss_type == "mean":
        return outputs, math.prod(outputs.shape)
    if loss_type == "sum":
        return outputs, 1
    if loss_type == "cross_entropy":
        return ops.negative(ops.multiply(ops.log_softmax(outputs), labels)), outputs.shape[0]
    n = math.prod(outputs.shape)
    if loss_type == "binary_cross_entropy":
        return ops.subtract(ops.softplus(outputs), ops.multiply(outputs, labels)), n
    error = ops.subtract(outputs, labels)
    if loss_type == "mse":
        return ops.square(error), n
    if loss_type == "weighted_mse":
        return ops.multiply(ops.square(error), weights), n
    size = ops.absolute(error)
    if loss_type == "mae":
        return size, n
    inner = ops.subtract(size, ops.relu(ops.subtract(size, delta)))  # min(size, delta)
    outer = ops.subtract(size, inner)
    return ops.add(ops.multiply(ops.square(inner), 0.5), ops.multiply(outer, delta)), n
