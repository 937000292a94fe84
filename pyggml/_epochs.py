"""The loop of ``fit`` over epochs and batches: where it stands, and how it goes on from there."""

import contextlib
import warnings

from pyggml._meter import Meter
from pyggml._progress import Display
from pyggml._random import generator as global_generator
from pyggml.history import History


class Epochs:
    """The epochs of one call of ``fit``.

    Parameters
    ----------
    setup : Setup
        Model, trainer, batches and validation.
    callbacks : CallbackList
    calibration : Stream, optional

    Attributes
    ----------
    epoch, step : int
        What comes next: batch ``step`` of the epoch.
    finished : bool
        Whether training ended by itself, not by an exception.
    """

    def __init__(self, setup, callbacks, calibration):
        o, model = setup.o, setup.model
        self.setup = setup
        self.model = model
        self.trainer = setup.trainer
        self.batches = setup.batches
        self.validation = setup.validation
        self.callbacks = callbacks
        self.calibration = calibration
        self.meter = Meter(self.trainer.criterion, model.compiled.make_metrics())
        self.epoch = o.initial_epoch
        self.last = o.initial_epoch + o.epochs
        self.step = 0
        self.finished = False
        self.drawn = None  # the random stream before the order of the epoch was drawn
        self.resumed = False
        names = self.meter.names
        if self.validation is not None:
            names = names + [f"val_{name}" for name in self.validation.meter.names]
        size = self.batches.size
        callbacks.attach(model, {"epochs": self.last, "steps": size, "verbose": o.verbose,
                                 "metrics": names, "initial_epoch": o.initial_epoch,
                                 "batch_size": o.batch_size})
        self.history = History()
        self.history.params = callbacks.params
        self.display = Display(o.verbose, model.optimizer, size, self.last)

    def run(self):
        """Run all of them; returns the History."""
        model = self.model
        model.history = self.history
        model.stop_training = False
        before = self.trainer.n_steps
        self.callbacks.tell(self)
        try:
            self.callbacks.on_train_begin()
            if self.resumed and not self._goes_on():
                self.callbacks.go_on()  # no epoch begins: they only end
            while self._goes_on():
                if not self._run_epoch():
                    break
            self.finished = True
        except BaseException as error:
            if self.setup.accumulates:
                self.trainer._discard_window()
            self.display.abandon()
            self.callbacks.end_after_error()
            # Who goes on with the model after Ctrl-C wants to predict with it; an exit does not.
            if isinstance(error, (Exception, KeyboardInterrupt)) and not self.trainer.freed \
                    and self.trainer.n_steps > before:
                self.setup.calibrate_after_error()
            raise
        self.display.abandon()
        self.callbacks.on_train_end(self.history.last())
        if self.setup.o.epochs and self.history.epoch:
            self.setup.calibrate(self.calibration)
        return self.history

    def _goes_on(self):
        # Where an epoch was interrupted it goes on, if only to its end.
        return self.epoch < self.last and (self.step or not self.model.stop_training)

    def _run_epoch(self):
        """Run an epoch, or what is left of it; return False where the source gave nothing."""
        o, meter, callbacks, epoch = self.setup.o, self.meter, self.callbacks, self.epoch
        if self.step:
            callbacks.go_on()
        else:
            callbacks.on_epoch_begin(epoch)
            meter.reset()
        self.display.begin(epoch)
        self._begin_batches()
        self.setup.hold_on()
        if callbacks.begin_hooks or callbacks.end_hooks or not self.batches.keep:
            self._step_by_step()
        else:
            self._in_runs()
        if self.setup.accumulates:  # else an open window is that of a fit around this one
            self.trainer._finish_window()
        name = self.setup.name
        if meter.batches == 0:
            warnings.warn(
                f"{name} gave no batch in epoch {epoch}: it must start over by itself; "
                f"training ends after {len(self.history.epoch)} epochs", RuntimeWarning,
                stacklevel=5)
            return False
        if o.steps_per_epoch is not None and meter.batches < o.steps_per_epoch \
                and not self.model.stop_training:
            warnings.warn(f"{name} gave {meter.batches} batches in epoch {epoch}, but "
                          f"steps_per_epoch is {o.steps_per_epoch}", RuntimeWarning, stacklevel=5)
        logs = meter.logs()
        if self.validation is not None and (epoch + 1) % o.validation_freq == 0:
            logs |= self._validate()
        elif callbacks.reads_model:
            self.setup.calibrate()
        # Before the callbacks, so that one that saves the model finds everything done.
        self.batches.end_epoch()
        callbacks.on_epoch_end(epoch, logs)
        self.history.append(epoch, logs)
        self.display.end(epoch, logs)
        self.epoch, self.step, self.drawn = epoch + 1, 0, None
        callbacks.pause(self, 0)
        return True

    def _begin_batches(self):
        stream = global_generator().bit_generator
        now = stream.state
        if self.drawn is None:
            self.drawn = now
            self.batches.begin(self.epoch)
            return
        # The order is drawn as at the epoch's beginning; the stream has gone on since.
        stream.state = self.drawn
        self.batches.begin(self.epoch)
        stream.state = now

    def _in_runs(self):
        """Step many times at once: nobody wants to know about single batches."""
        model, meter, size = self.model, self.meter, self.setup.o.batch_size
        feed, order = self.batches.feed, self.batches.order
        step_run, hold_on = self.trainer._step_run, self.setup.hold_on
        lock, patience = model._predictor.lock, self.callbacks.patience
        with contextlib.closing(self.batches.spans(self.step)) as spans:
            for start, end in spans:
                while start < end:
                    if self.step and model.stop_training:
                        return
                    with lock:
                        hold_on()
                        at = step_run(feed, order, start, end, meter, patience())
                    self._stepped(-(-(at - start) // size))
                    start = at

    def _step_by_step(self):
        callbacks, meter, keep = self.callbacks, self.meter, self.batches.keep
        begin, end = callbacks.begin_hooks, callbacks.end_hooks
        lock, hold_on = self.model._predictor.lock, self.setup.hold_on
        with contextlib.closing(self.batches.epoch(self.step)) as batches:
            while not (self.step and self.model.stop_training):
                batch = next(batches, None)
                if batch is None:
                    break
                if begin:
                    callbacks.on_train_batch_begin(self.step)
                with lock:
                    hold_on()
                    loss, built = self.trainer._step_rows(*batch)
                    meter.add(loss, built, *batch, keep)
                if end:
                    callbacks.on_train_batch_end(
                        self.step, meter.logs() if callbacks.reads_logs else meter.shown())
                    hold_on()
                self._stepped(1)

    def _stepped(self, n):
        self.step += n
        self.display.batch(self.step, self.meter)
        self.callbacks.pause(self, n)

    def _validate(self):
        """Return the logs of the validation data, with their prefix."""
        self.setup.calibrate()  # what is measured depends on the statistics
        self.callbacks.on_test_begin()
        logs = self.validation.run(self.callbacks)
        if self.validation.meter.batches == 0:
            source = self.validation.batches.stream
            warnings.warn(f"{source.name} gave no batch: it must start over by itself",
                          RuntimeWarning, stacklevel=6)
            logs = {}
        self.callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}

    # -- going on in another process -----------------------------------------------------

    def _about(self):
        o = self.setup.o
        return {"batch_size": o.batch_size, "steps": self.batches.size,
                "nbatch_logical": o.nbatch_logical, "shuffle": bool(o.shuffle), "seed": o.seed}

    def get_state(self):
        """Return where training stands, beside what the trainer and the callbacks hold."""
        within = self.step > 0
        validation = None if self.validation is None else self.validation.batches.get_state()
        return {
            "epoch": self.epoch, "step": self.step, "about": self._about(),
            "split": self.setup.split,
            "drawn": self.drawn if within else None,
            "meter": self.meter.get_state() if within else None,
            "source": self.batches.get_state(), "validation": validation,
            "history": [(e, row) for e, row in self.history.rows()],
            "stopped": bool(self.model.stop_training),
        }

    def check_state(self, state):
        """See whether :meth:`set_state` can take a state.

        Raises
        ------
        ValueError
            Within an epoch: it was one of other batches.
        """
        if state["step"] and state["about"] != self._about():
            raise ValueError(f"the epoch that was interrupted had {state['about']}, this call of "
                             f"fit has {self._about()}")
        if state["split"] != self.setup.split:
            raise ValueError("validation_split now takes other rows than before; give seed")

    def set_state(self, state):
        """Go on where :meth:`get_state` was called; before the first epoch only."""
        if state["step"]:
            self.meter.set_state(state["meter"])
        self.batches.set_state(state["source"])
        if self.validation is not None:
            self.validation.batches.set_state(state["validation"])
        self.epoch, self.step, self.drawn = state["epoch"], state["step"], state["drawn"]
        self.resumed = True
        self.model.stop_training = state["stopped"]
        for epoch, logs in state["history"]:
            self.history.append(epoch, logs)
