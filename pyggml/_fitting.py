"""``fit``: what is asked for is checked here, and data sources are opened."""

import contextlib
import warnings
import zlib
from types import SimpleNamespace

import numpy as np

from pyggml import _calibration
from pyggml._batches import Resident, Sliced, Streamed, Weighting, mask_for
from pyggml._epochs import Epochs
from pyggml._meter import Meter
from pyggml._prefetch import worker_count
from pyggml._random import generator as global_generator
from pyggml._random import new_generator
from pyggml.callbacks import CallbackList
from pyggml.data import Arrays, Stream, is_stream, unpack
from pyggml.layers.base import batch_rows, count, positive_int, share
from pyggml.training import (
    array_evaluation,
    batch_size_of,
    check_lazy,
    optional,
    rows_of,
    stream_evaluation,
)

# Rows that batch-norm statistics are computed from after training.
CALIBRATION_ROWS = 1024


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
        if not (value is None or (isinstance(value, (bool, int, float)) and value == 0)):
            raise ValueError(f"{name} {why}")


class Setup:
    """What one call of ``fit`` works with: trainer, batches, validation."""

    def __init__(self, model, o):
        self.model = model
        self.o = o
        self.validation = None
        self.trainer = None
        self.mask = None
        self.weighting = None
        self.calibrates = False
        self.split = None  # what tells one split from another

    @property
    def accumulates(self):
        """Whether gradients of several batches make an update."""
        return self.o.nbatch_logical not in (None, self.o.batch_size)

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
                                     None if w is None else rows_of(model, x))
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
        return self.feed(x, y, w)

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
            self.split = kept if index is None else zlib.crc32(index)
        self.calibrates = _calibrates(model)
        self.make_trainer()
        permute = _orders(o.shuffle, o.seed)
        train = None if index is None else index[:kept]
        if arrays.lazy:
            check_lazy(self.feed, arrays)
            self.batches = Sliced(arrays, self.feed, o.batch_size, 0, kept, train,
                                  permute, o.steps_per_epoch, o.workers)
        else:
            feed = self.feed(*arrays.packed())
            self.batches = Resident(feed, o.batch_size, 0, kept, train, permute,
                                    o.steps_per_epoch, arrays)
        if o.validation_split:
            rest = None if index is None else index[kept:]
            same = None if arrays.lazy or o.class_weight is not None else feed
            self.validation = array_evaluation(
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
            self.validation = stream_evaluation(
                model, Stream(given, name, o.validation_steps, o.workers))
            return
        if not isinstance(given, (list, tuple)) or len(given) not in (2, 3):
            raise ValueError("validation_data must be (x, y) or (x, y, sample_weight), got "
                             + (f"{len(given)} items" if isinstance(given, (list, tuple))
                                else f"a {type(given).__name__}"))
        arrays = Arrays(model.program, model.compiled.criterion, *given)
        self.validation = array_evaluation(model, arrays, o.validation_batch_size,
                                            steps=o.validation_steps, workers=o.workers)

    def make_trainer(self):
        with self.model._predictor.lock:
            self.trainer = self.model.make_trainer(self.o.batch_size, self.o.nbatch_logical,
                                                   self.mask)
            if self.accumulates:
                self.trainer._begin_windows()
        if self.o.seed is not None:
            self.trainer._reseed(self.o.seed)

    def hold_on(self):
        """Let the trainer be as it was made: something else may have trained with other batches.

        A callback, a generator, or another thread; which can come between what is done next as
        long as the model's lock is not held.
        """
        o, trainer = self.o, self.trainer
        with self.model._predictor.lock:
            if trainer.freed:
                raise RuntimeError("this trainer was freed")
            if self.model.compiled.trainer is not trainer:
                raise RuntimeError("the model was compiled anew while fit ran: its new optimizer "
                                   "and losses count from the next fit on")
            if (trainer.batch_size != o.batch_size or trainer.criterion.mask != self.mask
                    or trainer.nbatch_logical != (o.nbatch_logical or o.batch_size)):
                trainer._configure(o.batch_size, o.nbatch_logical, self.mask)

    def feed(self, x, y, w):
        """Return a Feed of arrays, for the trainer as it was made."""
        with self.model._predictor.lock:
            self.hold_on()
            return self.trainer._feed(x, y, w)

    # -- batch normalisation -------------------------------------------------------------

    def calibrate(self, generator=None):
        """Set batch-norm statistics that training does not move, where there are any."""
        if not self.calibrates:
            return
        if generator is not None:
            recorder = Streamed(generator, self.plain_feed, record=CALIBRATION_ROWS)
            with contextlib.closing(recorder.epoch()) as batches:
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

    def calibrate_after_error(self):
        """Set the same statistics after an exception, which is not to be hidden by another."""
        try:
            self.calibrate()
        except Exception as error:
            warnings.warn(f"batch-norm statistics were not computed after training failed: "
                          f"{error!r}", RuntimeWarning, stacklevel=5)

    def plain_feed(self, x, y, w):
        """Return a Feed for calibration, in which weights do not count."""
        with self.model._predictor.lock:
            mask, w = self.trainer.criterion.mask, None
            if mask is not None:
                w = self.weighting.match(self.model.program.split_inputs(x)[0], None, mask,
                                         "calibration_generator")
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
    return bool(_calibration.calibrated_layers(model.program))


def fit(model, x, y, **options):
    """See :meth:`pyggml.Model.fit`."""
    o = SimpleNamespace(**options)
    o.batch_size = batch_size_of(o.batch_size)
    o.epochs = count(o.epochs, "epochs")
    o.initial_epoch = count(o.initial_epoch, "initial_epoch")
    for name in ("steps_per_epoch", "validation_steps", "calibration_steps",
                 "validation_batch_size"):
        setattr(o, name, optional(getattr(o, name), name))
    o.validation_batch_size = batch_rows(o.validation_batch_size or o.batch_size,
                                         "validation_batch_size")
    o.validation_freq = positive_int(o.validation_freq, "validation_freq")
    o.workers = worker_count(o.workers)
    o.seed = None if o.seed is None else count(o.seed, "seed")
    if o.verbose not in ("auto", 0, 1, 2):
        raise ValueError(f"verbose must be 'auto', 0, 1 or 2, got {o.verbose!r}")
    o.validation_split = share(o.validation_split or 0.0, "validation_split")
    callbacks = CallbackList(o.callbacks)

    setup = Setup(model, o)
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
        setup.use_stream(stream)
    else:
        if x is None:
            raise ValueError("x must be given")
        both = [name for name in ("validation_data", "validation_generator")
                if options[name] is not None]
        if o.validation_split and both:
            raise ValueError(f"validation_split and {both[0]} cannot both be given")
        if len(both) > 1:
            raise ValueError(f"{both[0]} and {both[1]} cannot both be given")
        setup.use_arrays(x, y)
    setup.use_validation()
    return Epochs(setup, callbacks, calibration).run()


def train_on_batch(model, x, y, sample_weight, class_weight):
    """See :meth:`pyggml.Model.train_on_batch`; returns the logs."""
    model._build_from(x)
    model.require_compiled()
    n = rows_of(model, x)
    if n == 0:
        raise ValueError("x has no rows")
    # Another thread that trains the model has its turn before or after all of this.
    with model._predictor.lock:
        compiled = model.compiled
        criterion = compiled.criterion
        w = Weighting(criterion, class_weight).apply(y, sample_weight)
        first = compiled.trainer is None
        meter = Meter(criterion, compiled.make_metrics())
        trainer = model.make_trainer(n, None, mask_for(w, criterion, n))
        if first and _calibrates(model):
            warnings.warn("train_on_batch does not move the moving statistics of this model's "
                          "batch norm layers: give the layers a momentum, or call fit before "
                          "predicting", UserWarning, stacklevel=3)
        feed = trainer._feed(x, y, w)
        # Reading the arrays may have run anything.
        if model.compiled is not compiled or trainer.criterion.mask != feed.mask \
                or (trainer.batch_size, trainer.nbatch_logical) != (n, n):
            raise RuntimeError("the model was compiled or trained while the arrays of this batch "
                               "were read")
        loss, built = trainer._step_rows(feed, None, 0, n)
        meter.add(loss, built, feed, None, 0, n, True)
    return meter.logs()
