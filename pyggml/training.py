"""``fit`` and ``evaluate``: loops over the trainer's steps that a user could have written."""

import sys
import time

import numpy as np

from pyggml._feed import Feed, evaluate_rows, read
from pyggml._random import generator
from pyggml.history import History
from pyggml.layers.base import positive_int


def _count(value, name):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value.__index__() < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value.__index__()


def _mask_for(sample_weight, criterion):
    """Decide from the weights' shape whether they are one a row or one an element."""
    if sample_weight is None:
        return None
    masks = set()
    for given, shape in zip(criterion.split_weights(sample_weight), criterion.output_shapes,
                            strict=True):
        dims = np.shape(given)
        masks.add("rows" if len(dims) < 2 or (len(dims) == 2 and dims[1] == 1 != shape[-1])
                  or len(dims) != len(shape) else "elements")
    if len(masks) > 1:
        raise ValueError("sample_weight must be one a row, or one an element, for all outputs")
    return masks.pop()


def _softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


_apply = {None: lambda x: x, "softmax": _softmax, "sigmoid": _sigmoid}


def _update_metrics(found, built, feed, order, start, n):
    predictions = {}
    for i, _, metric in found:
        if i not in predictions:
            tensor, activation = built.predictions[i]
            predictions[i] = _apply[activation](read(tensor))
        y_true = feed.labels(i, order, start, n)
        y_pred = predictions[i]
        if y_true.ndim == y_pred.ndim - 1 and y_pred.shape[-1] == 1:
            y_true = y_true[..., np.newaxis]
        metric.update(y_true, y_pred, feed.weights(i, order, start, n))


class _Means:
    """Losses of an epoch, in double: sums over batches of loss times N, over N."""

    def __init__(self, criterion):
        self.criterion = criterion
        self.rows = 0
        self.total = 0.0
        self.parts = [0.0] * len(criterion.losses)
        self.divisors = [0] * len(criterion.losses)

    def add(self, rows, total, parts, divisors):
        self.rows += rows
        self.total += float(total) * rows
        for i, (part, n) in enumerate(zip(parts, divisors, strict=True)):
            self.parts[i] += float(part) * n
            self.divisors[i] += n

    def logs(self):
        logs = {"loss": self.total / self.rows}
        if len(self.parts) > 1:
            for name, part, n in zip(self.criterion.log_names, self.parts, self.divisors,
                                     strict=True):
                logs[f"{name}_loss"] = part / n
        return logs


class _Evaluation:
    """A data set to measure on, checked once."""

    def __init__(self, model, x, y, batch_size, sample_weight):
        compiled = model.compiled
        self.batch_size = batch_size
        self.criterion = compiled.criterion.with_mask(_mask_for(sample_weight, compiled.criterion))
        self.predictor = model._predictor_of_program()
        self.metrics = compiled.make_metrics()
        with self.predictor.lock:
            g = self.predictor.graph(batch_size, self.criterion)
            self.feed = Feed(model.program, self.criterion, g.inputs, g.loss, x, y, sample_weight)

    def run(self):
        """Return the logs: loss and metrics over all rows."""
        means = _Means(self.criterion)
        for _, _, metric in self.metrics:
            metric.reset()
        for start in range(0, self.feed.n_rows, self.batch_size):
            n = min(self.batch_size, self.feed.n_rows - start)
            with self.predictor.lock:
                g = self.predictor.graph(n, self.criterion)
                total, parts = evaluate_rows(self.feed, g, start, n)
                means.add(n, total, parts, g.loss.divisors)
                _update_metrics(self.metrics, g.loss, self.feed, None, start, n)
        return means.logs() | {name: metric.result() for _, name, metric in self.metrics}


def evaluate(model, x, y, batch_size, sample_weight):
    """See :meth:`pyggml.Model.evaluate`."""
    size = positive_int(batch_size, "batch_size")
    model._build_from(x)
    model.require_compiled()
    return _Evaluation(model, x, y, size, sample_weight).run()


class _Display:
    """Progress on stderr: a bar on a terminal, else a line an epoch."""

    def __init__(self, verbose, epochs, first, batches):
        self.verbose = verbose
        self.last = first + epochs
        self.batches = batches
        self.bar = None

    def begin(self, epoch):
        self.started = time.perf_counter()
        self.seen = 0
        if self.verbose == 1 and sys.stderr.isatty():
            from tqdm.auto import tqdm

            self.bar = tqdm(total=self.batches, desc=f"epoch {epoch + 1}/{self.last}",
                            unit="batch", leave=True, mininterval=0.2)

    def batch(self, loss):
        if self.bar is not None:
            self.seen += 1
            if self.seen % 16 == 0:
                self.bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
            self.bar.update()

    def end(self, epoch, logs):
        text = "  ".join(f"{key} {value:.4g}" for key, value in logs.items())
        if self.bar is not None:
            self.bar.set_postfix_str(text)
            self.bar.close()
            self.bar = None
        elif self.verbose:
            seconds = time.perf_counter() - self.started
            print(f"epoch {epoch + 1}/{self.last}  {seconds:.2f} s  {text}", file=sys.stderr)

    def abandon(self):
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def _split(arrays, n):
    """Cut arrays, alone or in lists or dicts, into the first n rows and the others."""
    if arrays is None:
        return None, None
    if isinstance(arrays, dict):
        pairs = {k: _split(v, n) for k, v in arrays.items()}
        return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}
    if isinstance(arrays, (list, tuple)) and any(hasattr(a, "shape") for a in arrays):
        pairs = [_split(a, n) for a in arrays]
        return [p[0] for p in pairs], [p[1] for p in pairs]
    if not hasattr(arrays, "shape"):
        arrays = np.asarray(arrays)
    return arrays[:n], arrays[n:]


def _rows_of(x):
    if isinstance(x, dict):
        return _rows_of(next(iter(x.values())))
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape"):
        return len(x[0])
    return len(x)


def fit(model, x, y, *, batch_size, epochs, verbose, callbacks, validation_split,
        validation_data, shuffle, sample_weight, initial_epoch, nbatch_logical):
    """See :meth:`pyggml.Model.fit`."""
    size = positive_int(batch_size, "batch_size")
    epochs = _count(epochs, "epochs")
    first = _count(initial_epoch, "initial_epoch")
    if verbose not in (0, 1, 2):
        raise ValueError(f"verbose must be 0, 1 or 2, got {verbose!r}")
    if x is None:
        raise ValueError("x must be given")
    if callbacks:
        raise NotImplementedError("callbacks")
    if not 0 <= validation_split < 1:
        raise ValueError(f"validation_split must be in [0, 1), got {validation_split}")
    model._build_from(x)
    model.require_compiled()

    if validation_split:
        if validation_data is not None:
            raise ValueError("validation_split and validation_data cannot both be given")
        rows = _rows_of(x)
        kept = rows - int(rows * validation_split)
        x, x_val = _split(x, kept)
        y, y_val = _split(y, kept)
        validation_data = (x_val, y_val)
        if sample_weight is not None:
            sample_weight, w_val = _split(sample_weight, kept)
            validation_data += (w_val,)
        if kept == rows:
            validation_data = None
    validation = None
    if validation_data is not None:
        if not isinstance(validation_data, (list, tuple)) or len(validation_data) not in (2, 3):
            raise ValueError("validation_data must be (x, y) or (x, y, sample_weight)")
        weights = validation_data[2] if len(validation_data) == 3 else None
        validation = _Evaluation(model, validation_data[0], validation_data[1], size, weights)

    criterion = model.compiled.criterion
    trainer = model.make_trainer(size, nbatch_logical, _mask_for(sample_weight, criterion))
    feed = trainer._feed(x, y, sample_weight)
    found = model.compiled.make_metrics()
    history = History()
    display = _Display(verbose, epochs, first, -(-feed.n_rows // size))
    try:
        for epoch in range(first, first + epochs):
            display.begin(epoch)
            logs = _epoch(trainer, feed, found, size, shuffle, display)
            if validation is not None:
                logs |= {f"val_{key}": value for key, value in validation.run().items()}
            history.append(epoch, logs)
            display.end(epoch, logs)
    finally:
        display.abandon()
    return history


def _epoch(trainer, feed, found, size, shuffle, display):
    order = generator().permutation(feed.n_rows) if shuffle else None
    means = _Means(trainer.criterion)
    for _, _, metric in found:
        metric.reset()
    for start in range(0, feed.n_rows, size):
        n = min(size, feed.n_rows - start)
        loss, built = trainer._step_rows(feed, order, start, n)
        parts = [read(part)[0] for part in built.parts] if len(built.parts) > 1 else [loss]
        means.add(n, loss, parts, built.divisors)
        _update_metrics(found, built, feed, order, start, n)
        display.batch(loss)
    trainer._finish_window()
    return means.logs() | {name: metric.result() for _, name, metric in found}
