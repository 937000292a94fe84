"""``fit``, ``evaluate`` and ``predict``: loops over steps that a user could have written."""

import contextlib
import warnings
from types import SimpleNamespace

import numpy as np

from pyggml import _activate
from pyggml._batches import Resident, Sliced, Streamed, Weighting, mask_for
from pyggml._feed import Feed, evaluate_rows
from pyggml._meter import Meter
from pyggml._progress import Display
from pyggml._random import generator as global_generator
from pyggml._random import new_generator
from pyggml.callbacks import CallbackList
from pyggml.data import Arrays, Stream, is_stream, unpack
from pyggml.history import History
from pyggml.layers.base import batch_rows, count, positive_int

try:
    from pyggml import _calibration
except ImportError:
    _calibration = None

# Rows that batch-norm statistics are computed from after training.
CALIBRATION_ROWS = 1024


def _optional(value, name):
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
        self.predictor = model._predictor_of_program()
        self.criterion = model.compiled.criterion
        self.weighting = Weighting(self.criterion)
        self.meter = Meter(self.criterion, model.compiled.make_metrics())
        self.batches = make_batches(self)

    def make_feed(self, x, y, w):
        """Return a Feed of arrays."""
        mask = mask_for(w, self.criterion, None if w is None else _rows(self.model, x))
        criterion = self.model.compiled.masked(mask)
        rows = max(1, _rows(self.model, x))
        with self.predictor.lock:
            g = self.predictor.graph(min(rows, self.size or rows), criterion)
            return Feed(self.model.program, criterion, g.inputs, g.loss, x, y, w)

    def run(self, callbacks=None):
        """Return the logs: loss and metrics over all rows."""
        meter = self.meter
        meter.reset()
        hooks = callbacks is not None and callbacks.test_hooks
        keep = self.batches.keep
        with contextlib.closing(self.batches.epoch(0)) as batches:
            for step, (feed, order, start, n) in enumerate(batches):
                if hooks:
                    callbacks.on_test_batch_begin(step)
                criterion = self.model.compiled.masked(feed.mask)
                with self.predictor.lock:
                    g = self.predictor.graph(n, criterion)
                    total = evaluate_rows(feed, g, order, start, n)
                    meter.add(total, g.loss, feed, order, start, n, keep)
                if hooks:
                    callbacks.on_test_batch_end(step, meter.logs())
        return meter.logs()


def _rows(model, x):
    first = model.program.split_inputs(x)[0]
    shape = np.shape(first)
    return shape[0] if shape else 0


def _array_evaluation(model, arrays, size, first=0, count=None, index=None, steps=None, feed=None,
                      workers=0):
    count = arrays.n_rows if count is None else count

    def make(evaluation):
        if arrays.lazy:
            _check_lazy(evaluation.make_feed, arrays)
            return Sliced(arrays, evaluation.make_feed, size, first, count, index, None, steps,
                          workers)
        known = evaluation.make_feed(*arrays.packed()) if feed is None else feed
        return Resident(known, size, first, count, index, None, steps, arrays)

    return Evaluation(model, make, size)


def _stream_evaluation(model, stream):
    return Evaluation(model, lambda e: Streamed(stream, e.make_feed))


def _check_lazy(make_feed, arrays):
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
    size = batch_rows(batch_size)
    steps = _optional(steps, "steps")
    workers = count(workers, "workers")
    if is_stream(x):
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight come from the generator: they must be None")
        model.require_built()
        model.require_compiled()
        evaluation = _stream_evaluation(model, Stream(x, "x", steps, workers))
    else:
        model._build_from(x)
        model.require_compiled()
        arrays = Arrays(model.program, model.compiled.criterion, x, y, sample_weight)
        evaluation = _array_evaluation(model, arrays, size, steps=steps, workers=workers)
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

def predict(model, x, batch_size, steps=None, callbacks=None, workers=0):
    """See :meth:`pyggml.Model.predict`; returns a list of arrays, one an output."""
    size = batch_rows(batch_size)
    steps = _optional(steps, "steps")
    workers = count(workers, "workers")
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
                x = batch[0] if isinstance(batch, tuple) else batch
                found.append(predictor.predict(x, size))
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
    if callbacks or steps is not None:
        chunk = size
    elif arrays is not None and (arrays.lazy or arrays.watch() is not None):
        chunk = -(-1024 // size) * size
    if chunk is None:
        return predictor.predict(x, size)
    if arrays is None:
        arrays = Arrays(model.program, None, x)
    return _predict_slabs(predictor, arrays, size, chunk, steps, hooks)


def _predict_slabs(predictor, arrays, size, chunk, steps, hooks):
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


# ---- fit --------------------------------------------------------------------------------------

def _orders(shuffle, seed):
    """Return a function from epoch and n to an order of n rows, or None."""
    if not isinstance(shuffle, (bool, np.bool_)):
        raise TypeError(f"shuffle must be True or False, got {shuffle!r}")
    if not shuffle:
        return None
    if seed is None:
        return lambda epoch, n: global_generator().permutation(n)

    def order(epoch, n):
        # By the epoch's number: a resumed run draws what the uninterrupted one would have.
        sequence = np.random.SeedSequence([seed, epoch])
        return np.random.Generator(np.random.PCG64(sequence)).permutation(n)

    return order


def _split(n, share, seed, shuffled):
    """Return how many rows are for training, and an order of all rows or None."""
    kept = int(n * (1 - share) + 1e-9)
    if n and not 0 < kept < n:
        raise ValueError(f"validation_split={share} of {n} rows leaves {kept} rows to train on and "
                         f"{n - kept} to validate on; both need at least one")
    if not shuffled:
        return kept, None
    rng = global_generator() if seed is None else new_generator(seed)
    return kept, rng.permutation(n)


def _refuse(options, names, why):
    for name in names:
        value = options[name]
        if not (value is None or value is False or (isinstance(value, float) and value == 0.0)):
            raise ValueError(f"{name} {why}")


class _Training:
    """What one call of ``fit`` works with: trainer, batches, validation."""

    def __init__(self, model, o):
        self.model = model
        self.o = o
        self.validation = None
        self.trainer = None
        self.mask = None
        self.weighting = None
        self.calibrates = False

    # -- sources -----------------------------------------------------------------------

    def use_stream(self, stream):
        """Take batches from a stream; looks at its first batch."""
        o, model = self.o, self.model
        first = None
        batches = stream.epoch()
        try:
            if o.epochs:
                try:
                    first = next(batches)
                except StopIteration:
                    raise ValueError(f"{stream.name} ended before its first batch: there are no "
                                     "rows to train on") from None
                x, y, w = unpack(first, stream.name, 1)
                model._build_from(x if hasattr(x, "shape") else np.asarray(x)
                                  if model._program is None else x)
            model.require_compiled()
            self.weighting = Weighting(model.compiled.criterion, o.class_weight)
            if first is not None:
                w = self.weighting.apply(y, w)
                self.mask = mask_for(w, model.compiled.criterion,
                                     None if w is None else _rows(model, x))
            self.calibrates = _calibrates(model)
            self.make_trainer()
        except BaseException:
            batches.close()
            raise
        begun = None if first is None else _Begun(first, batches)
        self.name = stream.name
        self.batches = Streamed(stream, self.stream_feed, o.batch_size, begun,
                                CALIBRATION_ROWS if self.calibrates else 0)

    def stream_feed(self, x, y, w):
        w = self.weighting.apply(y, w)
        if self.mask is not None or w is not None:
            w = self.weighting.match(self.model.program.split_inputs(x)[0], w, self.mask,
                                     self.name)
        return self.trainer._feed(x, y, w)

    def use_arrays(self, x, y):
        """Take batches from arrays, and validation data where they are split off."""
        o, model = self.o, self.model
        model._build_from(x)
        model.require_compiled()
        criterion = model.compiled.criterion
        self.name = "x"
        arrays = Arrays(model.program, criterion, x, y, o.sample_weight)
        if arrays.n_rows == 0:
            raise ValueError("x has no rows")
        self.weighting = Weighting(criterion, o.class_weight)
        w = None if not arrays.w else arrays.packed()[2]
        # Class weights do not count in validation, so a split-off part keeps its own.
        plain = arrays
        if o.class_weight is not None:
            given = None if w is None else _resident(arrays.w)
            w = self.weighting.apply(_resident(arrays.y), given)
            arrays = Arrays(model.program, criterion, x, y, w)
        self.mask = mask_for(w, criterion, arrays.n_rows)
        kept, index = arrays.n_rows, None
        if o.validation_split:
            kept, index = _split(arrays.n_rows, o.validation_split, o.seed,
                                 o.shuffle_before_split)
        self.calibrates = _calibrates(model)
        self.make_trainer()
        permute = _orders(o.shuffle, o.seed)
        train = None if index is None else index[:kept]
        if arrays.lazy:
            _check_lazy(self.trainer._feed, arrays)
            self.batches = Sliced(arrays, self.trainer._feed, o.batch_size, 0, kept, train,
                                  permute, o.steps_per_epoch, o.workers)
        else:
            feed = self.trainer._feed(*arrays.packed())
            self.batches = Resident(feed, o.batch_size, 0, kept, train, permute,
                                    o.steps_per_epoch, arrays)
        if o.validation_split:
            rest = None if index is None else index[kept:]
            same = None if arrays.lazy or o.class_weight is not None else feed
            self.validation = _array_evaluation(
                model, plain, o.validation_batch_size, 0 if index is not None else kept,
                arrays.n_rows - kept, rest, o.validation_steps, same, o.workers)

    def use_validation(self):
        """Take validation data from ``validation_data`` or ``validation_generator``."""
        o, model = self.o, self.model
        given, name = o.validation_data, "validation_data"
        if o.validation_generator is not None:
            given, name = o.validation_generator, "validation_generator"
        if given is None:
            return
        if name == "validation_generator" or is_stream(given):
            self.validation = _stream_evaluation(
                model, Stream(given, name, o.validation_steps, o.workers))
            return
        if not isinstance(given, (list, tuple)) or len(given) not in (2, 3):
            raise ValueError("validation_data must be (x, y) or (x, y, sample_weight), got "
                             + (f"{len(given)} items" if isinstance(given, (list, tuple))
                                else f"a {type(given).__name__}"))
        arrays = Arrays(model.program, model.compiled.criterion, *given)
        self.validation = _array_evaluation(model, arrays, o.validation_batch_size,
                                            steps=o.validation_steps, workers=o.workers)

    def make_trainer(self):
        self.trainer = self.model.make_trainer(self.o.batch_size, self.o.nbatch_logical, self.mask)
        if self.o.seed is not None:
            self.trainer._reseed(self.o.seed)

    # -- batch normalisation -------------------------------------------------------------

    def calibrate(self, generator=None):
        """Set batch-norm statistics that training does not move, where there are any."""
        if not self.calibrates:
            return
        if generator is not None:
            recorder = Streamed(generator, self.plain_feed, record=CALIBRATION_ROWS)
            with contextlib.closing(recorder.epoch(0)) as batches:
                for _ in batches:
                    if recorder.record <= 0:
                        break
            if not recorder.recorded:
                warnings.warn("calibration_generator gave no batch; batch-norm statistics are "
                              "computed from training rows", RuntimeWarning, stacklevel=4)
                recorder = self.batches
        else:
            recorder = self.batches
        with self.model._predictor.lock:
            try:
                _calibration.calibrate(self.model.program, {}, recorder.sample(CALIBRATION_ROWS),
                                       max_rows=CALIBRATION_ROWS)
            except ValueError as error:  # training diverged: the history tells more than this
                warnings.warn(f"batch-norm statistics were not computed: {error}", RuntimeWarning,
                              stacklevel=5)

    def plain_feed(self, x, y, w):
        """Return a Feed for calibration, in which weights do not count."""
        if self.mask is not None:
            w = self.weighting.match(self.model.program.split_inputs(x)[0], None, self.mask,
                                     "calibration_generator")
        else:
            w = None
        return self.trainer._feed(x, y, w)


class _Begun:
    """An epoch whose first batch was already taken."""

    def __init__(self, first, batches):
        self.first = [first]
        self.batches = batches

    def __iter__(self):
        return self

    def __next__(self):
        return self.first.pop() if self.first else next(self.batches)

    def close(self):
        self.batches.close()


def _resident(arrays):
    return np.asarray(arrays[0].source[:] if hasattr(arrays[0], "source") else arrays[0])


def _calibrates(model):
    """Return whether a layer has statistics that are set after training."""
    return _calibration is not None and bool(_calibration.calibrated_layers(model.program))


def fit(model, x, y, **options):
    """See :meth:`pyggml.Model.fit`."""
    o = SimpleNamespace(**options)
    o.batch_size = batch_rows(o.batch_size)
    o.epochs = count(o.epochs, "epochs")
    o.initial_epoch = count(o.initial_epoch, "initial_epoch")
    for name in ("steps_per_epoch", "validation_steps", "calibration_steps",
                 "validation_batch_size"):
        setattr(o, name, _optional(getattr(o, name), name))
    o.validation_batch_size = batch_rows(o.validation_batch_size or o.batch_size,
                                         "validation_batch_size")
    o.validation_freq = positive_int(o.validation_freq, "validation_freq")
    o.workers = count(o.workers, "workers")
    o.seed = None if o.seed is None else count(o.seed, "seed")
    if o.verbose not in ("auto", 0, 1, 2):
        raise ValueError(f"verbose must be 'auto', 0, 1 or 2, got {o.verbose!r}")
    if not 0 <= o.validation_split < 1:
        raise ValueError(f"validation_split must be in [0, 1), got {o.validation_split}")
    callbacks = CallbackList(o.callbacks)

    run = _Training(model, o)
    calibration = None
    if o.calibration_generator is not None:
        calibration = Stream(o.calibration_generator, "calibration_generator",
                             o.calibration_steps)
    if o.generator is None and y is None and is_stream(x):
        o.generator, x = x, None
    if o.generator is not None:
        given = options | {"x": x, "y": y}
        _refuse(given, ("x", "y", "sample_weight", "validation_split", "validation_data",
                        "shuffle_before_split"),
                "cannot be given together with generator")
        stream = Stream(o.generator, "generator", o.steps_per_epoch, o.workers)
        run.use_stream(stream)
    else:
        if x is None:
            raise ValueError("x must be given")
        both = [name for name in ("validation_data", "validation_generator")
                if options[name] is not None]
        if o.validation_split and both:
            raise ValueError(f"validation_split and {both[0]} cannot both be given")
        if len(both) > 1:
            raise ValueError(f"{both[0]} and {both[1]} cannot both be given")
        run.use_arrays(x, y)
    run.use_validation()
    return _run(run, callbacks, calibration)


def _run(run, callbacks, calibration):
    """Run the epochs of a training that was set up; returns the History."""
    model, o = run.model, run.o
    meter = Meter(run.trainer.criterion, model.compiled.make_metrics())
    names = meter.names
    if run.validation is not None:
        names = names + [f"val_{name}" for name in run.validation.meter.names]
    size = run.batches.size
    callbacks.attach(model, {"epochs": o.initial_epoch + o.epochs, "steps": size,
                             "verbose": o.verbose, "metrics": names,
                             "initial_epoch": o.initial_epoch, "batch_size": o.batch_size})
    history = model.history = History()
    history.params = callbacks.params
    model.stop_training = False
    display = Display(o.verbose, model.optimizer, size, o.initial_epoch + o.epochs)
    try:
        callbacks.on_train_begin()
        for epoch in range(o.initial_epoch, o.initial_epoch + o.epochs):
            if model.stop_training:
                break
            callbacks.on_epoch_begin(epoch)
            display.begin(epoch)
            _epoch(run, meter, callbacks, display, epoch)
            if meter.batches == 0:
                warnings.warn(
                    f"{run.name} gave no batch in epoch {epoch}: it must start over by itself; "
                    f"training ends after {len(history.epoch)} epochs", RuntimeWarning,
                    stacklevel=4)
                break
            if o.steps_per_epoch is not None and meter.batches < o.steps_per_epoch \
                    and not model.stop_training:
                warnings.warn(f"{run.name} gave {meter.batches} batches in epoch {epoch}, but "
                              f"steps_per_epoch is {o.steps_per_epoch}", RuntimeWarning,
                              stacklevel=4)
            logs = meter.logs()
            if run.validation is not None and (epoch + 1) % o.validation_freq == 0:
                logs |= _validate(run, callbacks)
            # Before the callbacks, so that one that saves the model finds everything done.
            run.batches.end_epoch()
            callbacks.on_epoch_end(epoch, logs)
            history.append(epoch, logs)
            display.end(epoch, logs)
    except BaseException:
        run.trainer._discard_window()
        display.abandon()
        callbacks.end_after_error()
        raise
    display.abandon()
    callbacks.on_train_end(history.last())
    if o.epochs and history.epoch:
        run.calibrate(calibration)
    return history


def _epoch(run, meter, callbacks, display, epoch):
    """Run one epoch of training steps."""
    model, trainer, keep = run.model, run.trainer, run.batches.keep
    begin, end = callbacks.begin_hooks, callbacks.end_hooks
    meter.reset()
    with contextlib.closing(run.batches.epoch(epoch)) as batches:
        for step, (feed, order, start, n) in enumerate(batches):
            if begin:
                callbacks.on_train_batch_begin(step)
            loss, built = trainer._step_rows(feed, order, start, n)
            meter.add(loss, built, feed, order, start, n, keep)
            if end:
                callbacks.on_train_batch_end(step, meter.logs())
            display.batch(step, meter)
            if model.stop_training:
                break
    trainer._finish_window()


def _validate(run, callbacks):
    """Return the logs of the validation data, with their prefix."""
    run.calibrate()  # what is measured depends on the statistics
    callbacks.on_test_begin()
    logs = run.validation.run(callbacks)
    if run.validation.meter.batches == 0:
        source = run.validation.batches.stream
        warnings.warn(f"{source.name} gave no batch: it must start over by itself",
                      RuntimeWarning, stacklevel=5)
        logs = {}
    callbacks.on_test_end(logs)
    return {f"val_{name}": value for name, value in logs.items()}
