"""The loss of a whole model: one loss an output, weights and penalties."""

import math

from pyggml import _loss_kernels, losses, ops
from pyggml._graph import Tensor
from pyggml._program import split
from pyggml._scalars import number
from pyggml._slot import Slot


class Built:
    """The tensors of a loss in one graph.

    Attributes
    ----------
    total : Tensor of shape (1,)
    labels : list of Slot
        Only of the outputs whose loss takes labels.
    labels_of : list of Slot or None
        One an output.
    weights : list of Slot
        One an output, or empty where the loss takes none.
    parts : list of Tensor
        The loss of each output, unscaled by its loss weight.
    predictions : list of Tensor
        What each loss was computed from, to be read after computing.
    divisors : list of int
        N of each output.
    """

    def __init__(self):
        self.total = None
        self.labels, self.labels_of, self.weights = [], [], []
        self.parts, self.predictions, self.divisors = [], [], []
        self.intake = None  # made by _feed at first use


class Criterion:
    """One loss an output, with its weight.

    Parameters
    ----------
    losses : list of Loss
    loss_weights : list of float
    output_names : list of str
    output_shapes : list of tuple
        With None for the batch.
    mask : None, "rows" or "elements"
        Whether weights are taken, and how many.
    """

    def __init__(self, losses, loss_weights, output_names, output_shapes, mask=None):
        self.losses = losses
        self.loss_weights = loss_weights
        self.output_names = output_names
        self.output_shapes = output_shapes
        self.log_names = _log_names(output_names)
        self.mask = mask

    def with_mask(self, mask):
        """Return the same losses taking weights or not."""
        return Criterion(self.losses, self.loss_weights, self.output_names, self.output_shapes,
                         mask)

    def label(self, what, i):
        """How messages call the array for output i."""
        return what if len(self.losses) == 1 else f"{what}[{self.output_names[i]!r}]"

    def build(self, graph, outputs):
        """Add the loss to a graph; returns a :class:`Built`."""
        built = Built()
        for i, (loss, factor, output) in enumerate(
                zip(self.losses, self.loss_weights, outputs, strict=True)):
            linked = loss.link is not None and output.made_by == loss.link
            source = graph.keep(output.made_from if linked else output)
            slot = self._label_slot(graph, loss, output, i)
            label = None if slot is None else slot.tensor
            kernel = None if label is None else _loss_kernels.kernel_of(loss, linked)
            values = None
            if kernel is None or not graph.carries("loss"):
                values = (loss.values_linked if linked else loss.values)(label, source)
                if not isinstance(values, Tensor) or values.graph is not graph:
                    raise TypeError(f"loss {loss.name!r} must return a tensor of the graph, got "
                                    f"{type(values).__name__}")
                if values.shape[:1] != (graph.batch_size,):
                    raise ValueError(f"loss {loss.name!r} must return a tensor whose first axis "
                                     f"is the batch of {graph.batch_size}, got shape "
                                     f"{values.shape}")
            shape = source.shape if values is None else values.shape
            n = loss.divisor(source.shape if loss.per_row else shape)
            weight = None
            if self.mask is not None:
                if self.mask == "rows":
                    shape = (graph.batch_size,) + (1,) * (len(shape) - 1)
                weight = graph.input(shape, name="weight")
                built.weights.append(Slot(weight, self.label("sample_weight", i), "weight",
                                          row_shape=() if self.mask == "rows" else None))
            if values is None:
                part = _loss_kernels.fuse(kernel, loss, label, source, weight, self.mask, 1 / n)
            else:
                if weight is not None:
                    values = ops.multiply(values, weight)
                part = ops.affine(ops.sum(values), 1 / n)
            part = graph.keep(part)
            built.labels_of.append(slot)
            if slot is not None:
                built.labels.append(slot)
            built.predictions.append((source, output.made_by if linked else None))
            built.parts.append(part)
            built.divisors.append(n)
            term = part if factor == 1 else ops.affine(part, factor)
            built.total = term if built.total is None else ops.add(built.total, term)
        for penalty in graph.penalties:
            built.total = ops.add(built.total, penalty)
        built.total = graph.keep(built.total)
        return built

    def _label_slot(self, graph, loss, output, i):
        if loss.labels == "none":
            return None
        label = graph.input(output.shape, name="label")
        if loss.labels == "classes":
            return Slot(label, self.label("y", i), "classes", output.shape[-1])
        slot = Slot(label, self.label("y", i), "dense")
        slot.joint = loss.joint
        return slot

    @property
    def labelled(self):
        """Names of the outputs whose loss takes labels."""
        return [name for name, loss in zip(self.output_names, self.losses, strict=True)
                if loss.labels != "none"]

    def split_labels(self, y):
        """Return one array for each output that takes labels."""
        names = self.labelled
        if not names:
            if y is not None:
                raise ValueError("the loss 'output' takes no labels: y must be None")
            return []
        if y is None:
            raise ValueError("y must be given")
        if len(names) < len(self.output_names):
            if isinstance(y, dict):
                y = {k: v for k, v in y.items() if k in names or v is not None}
            elif isinstance(y, (list, tuple)) and len(y) == len(self.output_names):
                y = [v for v, name in zip(y, self.output_names, strict=True)
                     if name in names or v is not None]
            if isinstance(y, (list, tuple)) and len(names) == len(y) == 1:
                y = y[0]
        return split(y, names, "y")

    def split_weights(self, sample_weight):
        """Return one array for each output; one array serves all."""
        if len(self.losses) > 1 and not isinstance(sample_weight, (list, tuple, dict)):
            return [sample_weight] * len(self.losses)
        return split(sample_weight, self.output_names, "sample_weight")


def _log_names(names):
    """What the history calls the outputs: other names where ``val_`` would make two keys one."""
    if len(names) == 1:
        return list(names)
    taken, found = {"loss", "val_loss"}, {}
    for name in sorted(names, key=lambda name: name.startswith("val")):
        label, n = name, 1
        while taken & {f"{label}_loss", f"val_{label}_loss"}:
            label = f"{name}_{n}"
            n += 1
        taken |= {f"{label}_loss", f"val_{label}_loss"}
        found[name] = label
    return [found[name] for name in names]


def per_output(value, names, what, default=None):
    """Distribute an argument of ``compile`` over the outputs: one for all, a list or a dict."""
    if value is None:
        return [default] * len(names)
    if isinstance(value, dict):
        unknown = sorted(set(value) - set(names))
        if unknown:
            raise ValueError(f"{what} names outputs {unknown}; the model has {names}")
        missing = [n for n in names if n not in value]
        if missing and default is None:
            raise ValueError(f"{what} lacks outputs {missing}")
        return [value.get(n, default) for n in names]
    if isinstance(value, (list, tuple)):
        if len(value) != len(names):
            raise ValueError(f"{what} has {len(value)} entries for {len(names)} outputs {names}")
        return list(value)
    return [value] * len(names)


def make(loss, loss_weights, output_names, output_shapes):
    """Return the Criterion for ``compile``'s arguments."""
    found = [losses.get(item) for item in per_output(loss, output_names, "loss")]
    factors = []
    for value in per_output(loss_weights, output_names, "loss_weights", 1.0):
        value = number(value, "each of loss_weights")
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"loss_weights must be finite and not negative, got {value}")
        factors.append(value)
    for item in found:
        item.settle()
    return Criterion(found, factors, output_names, output_shapes)
