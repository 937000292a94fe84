"""What ``compile`` was given, matched with a model's outputs."""

import copy

import numpy as np

from pyggml import _criterion, activations, losses, metrics


class Compiled:
    """What ``compile`` was given, and what training keeps from one ``fit`` to the next."""

    def __init__(self, optimizer, loss, loss_weights, metrics_given):
        self.optimizer = optimizer
        self.loss = loss
        self.loss_weights = loss_weights
        self.metrics = metrics_given
        self.criterion = None
        self._trainer = None
        self.training_state = None  # of a file, until there is a trainer to take it

    def __getstate__(self):
        return vars(self) | {"_trainer": None, "training_state": None}

    @property
    def trainer(self):
        """The trainer that ``fit`` runs on: None before the first, and after its ``free()``."""
        return None if self._trainer is None or self._trainer.freed else self._trainer

    @trainer.setter
    def trainer(self, value):
        self._trainer = value

    def fit_to(self, program):
        """Match the arguments with the outputs of a program."""
        names = program.output_names
        shapes = [s.shape for s in program.outputs]
        self.criterion = _criterion.make(self.loss, self.loss_weights, names, shapes)
        self._logits = [getattr(loss, "from_logits", False) and not _is_sigmoid(symbol)
                        for loss, symbol in zip(self.criterion.losses, program.outputs,
                                                strict=True)]
        self._masked = {}
        for i, _, metric in self.make_metrics():
            self._try(metric, i)

    def _try(self, metric, i):
        """Refuse a metric that does not fit the labels: else it would be found after a step."""
        if not type(metric).__module__.startswith(metrics.__name__) \
                or isinstance(metric, metrics.FunctionMetric):
            return  # a user's own may do anything
        loss, shape = self.criterion.losses[i], (1, *self.criterion.output_shapes[i][1:])
        y_pred = np.full(shape, 0.5, np.float32)
        y_true = np.zeros(shape[:-1], np.int64) if loss.labels == "classes" else y_pred * 0
        if y_true.ndim == y_pred.ndim - 1 and y_pred.shape[-1] == 1:
            y_true = y_true[..., np.newaxis]
        try:
            metric.update(y_true, y_pred)
        except (ValueError, TypeError) as error:
            raise type(error)(f"metric {metric.name!r} does not fit loss {loss.name!r} of output "
                              f"{self.criterion.output_names[i]!r}: {error}") from error

    def masked(self, mask):
        """Return the criterion that takes such weights, the same one at every call."""
        if mask not in self._masked:
            self._masked[mask] = self.criterion.with_mask(mask)
        return self._masked[mask]

    def make_metrics(self):
        """Return new metrics: a list of (output index, name in the history, Metric)."""
        c = self.criterion
        found = []
        given = self.metrics
        names = c.output_names
        if len(names) == 1 and not isinstance(given, dict):
            given = [given]
        elif isinstance(given, (list, tuple)) and not any(
                isinstance(item, (list, tuple)) or item is None for item in given):
            given = [given] * len(names)
        taken = {"loss"} | {f"{name}_loss" for name in c.log_names}
        taken |= {f"val_{key}" for key in taken}
        for i, items in enumerate(_criterion.per_output(given, names, "metrics", ())):
            if items is None:
                items = ()
            if items and c.losses[i].labels == "none":
                if len(names) == 1 or isinstance(given, dict):
                    raise ValueError(f"metrics need labels, which output {names[i]!r} has not")
                continue
            for item in items if isinstance(items, (list, tuple)) else [items]:
                item = copy.copy(item) if isinstance(item, metrics.Metric) else item
                metric = metrics.get(item, c.losses[i], c.output_shapes[i], self._logits[i])
                metric.reset()
                base = metric.name if len(names) == 1 else f"{c.log_names[i]}_{metric.name}"
                label, n = base, 1
                while label in taken or f"val_{label}" in taken:
                    label = f"{base}_{n}"
                    n += 1
                taken |= {label, f"val_{label}"}
                found.append((i, label, metric))
        return found


def _is_sigmoid(symbol):
    """Whether an output is made by the sigmoid function: then it is no logit, whatever was said."""
    layer = symbol.node.layer
    while hasattr(layer, "program"):
        symbol = layer.program.outputs[symbol.index]
        layer = symbol.node.layer
    return getattr(layer, "activation", None) is activations.sigmoid


def resolve(loss):
    """Look up losses at once, so that a wrong name is an error at ``compile``."""
    if isinstance(loss, dict):
        return {key: losses.get(item) for key, item in loss.items()}
    if isinstance(loss, (list, tuple)):
        return [losses.get(item) for item in loss]
    return losses.get(loss)


def check_metrics(given):
    """Look up metrics; raise what is wrong with them."""
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, (list, tuple)):
        for item in given:
            check_metrics(item)
    elif given is not None:
        metrics.get(given)
    return given


def require_compiled(model):
    """Return what ``compile`` made, or raise for what a trainer cannot take."""
    from pyggml.models import Model

    if not isinstance(model, Model):
        raise TypeError(f"model must be a Sequential or a Model, got {type(model).__name__}")
    if model.compiled is None:
        raise ValueError(f"model {model.name!r} is not compiled; call model.compile first")
    model.require_built()
    return model.compiled
