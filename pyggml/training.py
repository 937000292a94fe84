"""``evaluate`` and ``predict``: loops over batches that a user could have written."""

import contextlib

import numpy as np

from pyggml import _activate
from pyggml._arrays import shape_of
from pyggml._batches import Resident, Sliced, Streamed, Weighting, mask_for
from pyggml._feed import Feed, evaluate_rows
from pyggml._meter import Meter
from pyggml._prefetch import worker_count
from pyggml._progress import Display
from pyggml.callbacks import CallbackList
from pyggml.data import Arrays, Stream, is_stream
from pyggml.layers.base import batch_rows, positive_int


def batch_size_of(value):
    """Return a batch size; None stands for 32, as in Keras."""
    return 32 if value is None else batch_rows(value)


def optional(value, name):
    return None if value is None else positive_int(value, name)


# ---- evaluation -------------------------------------------------------------------------------

class Evaluation:
    """A data set to measure on, checked once.

    Parameters
    ----------
    model : Model
    make_batches : callable
        From this object to a source of batches.
    size : int, optional
        Rows of a batch, where that is known.
    """

    def __init__(self, model, make_batches, size=None):
        self.model = model
        self.size = size
        self.program = model.program
        self.predictor = model._predictor_of_program()
        # A callback may compile the model anew: all numbers are of the losses that it began with.
        self.compiled = model.compiled
        self.criterion = self.compiled.criterion
        self.weighting = Weighting(self.criterion)
        self.meter = Meter(self.criterion, self.compiled.make_metrics())
        self.batches = make_batches(self)

    def make_feed(self, x, y, w):
        """Return a Feed of arrays."""
        mask = mask_for(w, self.criterion, None if w is None else rows_of(self, x))
        criterion = self.compiled.masked(mask)
        rows = max(1, rows_of(self, x))
        with self.predictor.lock:
            g = self.predictor.graph(min(rows, self.size or rows), criterion)
            return Feed(self.program, criterion, g.inputs, g.loss, x, y, w)

    def run(self, callbacks=None):
        """Return the logs: loss and metrics over all rows."""
        meter = self.meter
        meter.reset()
        hooks = callbacks is not None and callbacks.test_hooks
        keep = self.batches.keep
        self.batches.begin(0)
        with contextlib.closing(self.batches.epoch()) as batches:
            for step, (feed, order, start, n) in enumerate(batches):
                if hooks:
                    callbacks.on_test_batch_begin(step)
                criterion = self.compiled.masked(feed.mask)
                with self.predictor.lock:
                    g = self.predictor.graph(n, criterion)
                    total = evaluate_rows(feed, g, order, start, n)
                    meter.add(total, g.loss, feed, order, start, n, keep)
                if hooks:
                    callbacks.on_test_batch_end(step, meter.logs())
        return meter.logs()


def rows_of(model, x):
    first = model.program.split_inputs(x)[0]
    shape = shape_of(first, "x")
    return shape[0] if shape else 0


def array_evaluation(model, arrays, size, first=0, count=None, index=None, steps=None, feed=None,
                      workers=0):
    count = arrays.n_rows if count is None else count

    def make(evaluation):
        if arrays.lazy:
            check_lazy(evaluation.make_feed, arrays)
            return Sliced(arrays, evaluation.make_feed, size, first, count, index, None, steps,
                          workers)
        known = evaluation.make_feed(*arrays.packed()) if feed is None else feed
        return Resident(known, size, first, count, index, None, steps, arrays)

    return Evaluation(model, make, size)


def stream_evaluation(model, stream):
    return Evaluation(model, lambda e: Streamed(stream, e.make_feed))


def check_lazy(make_feed, arrays):
    """Check what is read later: shapes at once, labels and weights slab by slab."""
    if arrays.n_rows == 0:
        raise ValueError("x has no rows")
    one = arrays.read(slice(0, 1))
    make_feed(*one)
    if not arrays.y and not arrays.w:
        return
    for rows in arrays.slabs(1 << 16):
        # The first row of x stands for all: x may be large, and holds nothing to be checked.
        make_feed(_repeated(one[0], rows.stop - rows.start), *arrays.read_labels(rows))


def _repeated(x, n):
    if isinstance(x, tuple):
        return tuple(_repeated(item, n) for item in x)
    return np.broadcast_to(x, (n, *x.shape[1:]))


def evaluate(model, x, y, batch_size, sample_weight, steps=None, callbacks=None, verbose=0,
             workers=0):
    """See :meth:`pyggml.Model.evaluate`."""
    size = batch_size_of(batch_size)
    steps = optional(steps, "steps")
    workers = worker_count(workers)
    if is_stream(x):
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight come from the generator: they must be None")
        model.require_built()
        model.require_compiled()
        evaluation = stream_evaluation(model, Stream(x, "x", steps, workers))
    else:
        model._build_from(x)
        model.require_compiled()
        arrays = Arrays(model.program, model.compiled.criterion, x, y, sample_weight)
        evaluation = array_evaluation(model, arrays, size, steps=steps, workers=workers)
    hooks = CallbackList(callbacks, model, {"steps": evaluation.batches.size, "verbose": verbose})
    hooks.on_test_begin()
    logs = evaluation.run(hooks)
    if evaluation.meter.batches == 0:
        raise ValueError("x gave no batch: there are no rows to evaluate")
    hooks.on_test_end(logs)
    if verbose:
        Display(verbose, None).message(logs)
    return logs


# ---- prediction -------------------------------------------------------------------------------

def predict(model, x, batch_size, steps=None, callbacks=None, workers=0, verbose=0):
    """See :meth:`pyggml.Model.predict`; returns a list of arrays, one an output."""
    display = Display(verbose, None)
    display.begin(None)
    found = _predict(model, x, batch_size, steps, callbacks, workers, display)
    display.end(None, {"rows": len(found[0])})
    return found


def _predict(model, x, batch_size, steps, callbacks, workers, display):
    size = batch_size_of(batch_size)
    steps = optional(steps, "steps")
    workers = worker_count(workers)
    predictor = None
    hooks = CallbackList(callbacks, model, {"steps": steps})
    if is_stream(x):
        model.require_built()
        predictor = model._predictor_of_program()
        hooks.on_predict_begin()
        found = []
        with contextlib.closing(Stream(x, "x", steps, workers).epoch()) as batches:
            for step, batch in enumerate(batches):
                hooks.on_predict_batch_begin(step)
                x = _x_of(batch, model)
                found.append(predictor.predict(x, size))
                display.batch(step + 1)
                hooks.on_predict_batch_end(step, {"outputs": found[-1]})
        hooks.on_predict_end()
        if not found:
            raise ValueError("x gave no batch: there are no rows to predict")
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]
    model._build_from(x)
    predictor = model._predictor_of_program()
    arrays = None
    if not isinstance(x, np.ndarray) or isinstance(x, np.memmap):
        arrays = Arrays(model.program, None, x)
        x, _, _ = arrays.packed()
    chunk = None
    if callbacks or steps is not None or display.verbose:
        chunk = size
    elif arrays is not None and (arrays.lazy or arrays.watch() is not None):
        chunk = -(-1024 // size) * size
    if chunk is None:
        return predictor.predict(x, predictor.rows_at_once if batch_size is None else size)
    if arrays is None:
        arrays = Arrays(model.program, None, x)
    return _predict_slabs(predictor, arrays, size, chunk, steps, hooks, display)


def _x_of(batch, model):
    """Return x of a batch that may have labels beside it."""
    if isinstance(batch, tuple):
        return batch[0]
    # Lists of (x, y), as loaders make them; but two inputs come as a list too.
    inputs = model.program.inputs
    labelled = (isinstance(batch, list) and len(batch) in (2, 3) and len(inputs) == 1
                and np.ndim(batch[0]) == len(inputs[0].shape))
    return batch[0] if labelled else batch


def _predict_slabs(predictor, arrays, size, chunk, steps, hooks, display):
    n = arrays.n_rows if steps is None else min(arrays.n_rows, steps * size)
    results = None
    hooks.on_predict_begin()
    for step, rows in enumerate(arrays.slabs(chunk)):
        if rows.start >= n:
            break
        hooks.on_predict_batch_begin(step)
        rows = slice(rows.start, min(rows.stop, n))
        part = predictor.predict(arrays.read(rows)[0], size)
        hooks.on_predict_batch_end(step, {"outputs": part})
        display.batch(step + 1)
        if results is None:
            results = [np.empty((n, *p.shape[1:]), np.float32) for p in part]
        for result, p in zip(results, part, strict=True):
            result[rows] = p
    hooks.on_predict_end()
    if results is None:
        return predictor.predict(arrays.read(slice(0, 0))[0], size)
    return results


def _one_output(model, what):
    if len(model.program.outputs) != 1:
        raise ValueError(f"{what} needs a model of one output, this one has {model.output_names}")


def probabilities(model, outputs):
    """Return outputs as probabilities: logits go through what their loss undoes."""
    _one_output(model, "predict_proba")
    if model.compiled is not None:
        loss = model.compiled.criterion.losses[0]
        if getattr(loss, "from_logits", False):
            return _activate.apply[loss.link](outputs)
    return outputs


def classes(model, outputs):
    """Return the most probable class of each row."""
    p = probabilities(model, outputs)
    if p.shape[-1] > 1:
        return p.argmax(axis=-1)
    return (p[..., 0] > 0.5).astype(np.int64)
