"""Callbacks that watch a value: stop, slow down, keep the best."""

import math
import os

from pyggml._callback import Callback, Monitor
from pyggml._scalars import number
from pyggml.layers.base import count
from pyggml.optimizers import _rate


class EarlyStopping(Monitor):
    """Ends training when a value has stopped improving.

    Parameters
    ----------
    monitor : str
        Name in the logs.
    patience : int
        Epochs without improvement after which training ends.
    min_delta : float
        The least change that counts as an improvement.
    mode : {"auto", "min", "max"}
        "auto" is "min" for names with "loss" or an error's name in them, else "max".
    restore_best_weights : bool
        Whether the model gets the weights of the best epoch, however training ends: by patience,
        at the last epoch, by another callback, by an exception.
    baseline : float, optional
        Only values better than it make the wait begin anew; so a run that is improving ends if it
        has not passed the baseline within ``patience`` epochs. (In Keras not in an epoch that is
        the best so far.) The best epoch is the best there was, whether or not it came so far.
    start_from_epoch : int
        Epochs before the one of this number, counted from 0, are not looked at.
    verbose : int
        Whether to say that training was ended.

    Attributes
    ----------
    best : float
        The best value.
    best_epoch : int or None
        Where it was; of equal values the first.
    stopped_epoch : int or None
        Where this callback ended training.

    Raises
    ------
    ValueError
        At the end of the first epoch: there is no such value; the message lists those there are.

    Notes
    -----
    A value that is NaN, or missing in a later epoch, is passed over with one warning.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.callbacks.EarlyStopping(patience=2).mode
    'min'
    """

    # What follows patience stands in another order in Keras: taken by position, min_delta=0 and
    # patience=5 would become patience=0 and min_delta=5 without a word.
    def __init__(self, monitor="val_loss", patience=5, *, min_delta=0, mode="auto",
                 restore_best_weights=False, baseline=None, start_from_epoch=0, verbose=0) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = count(patience, "patience")
        self.restore_best_weights = bool(restore_best_weights)
        self.baseline = None if baseline is None else number(baseline, "baseline")
        if self.baseline is not None and math.isnan(self.baseline):
            raise ValueError("baseline must be a number, got nan")
        self.start_from_epoch = count(start_from_epoch, "start_from_epoch")
        self.verbose = verbose
        self.best_weights = None
        self._forget()

    @property
    def reads_model(self):
        """Whether this takes the model's weights."""
        return self.restore_best_weights

    def _forget(self):
        self.wait = 0
        self.best = self.worst
        self.best_epoch = None
        self.stopped_epoch = None
        self.best_weights = None

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._forget()

    def on_epoch_end(self, epoch, logs=None):
        value = self.value(logs)
        if value is None or epoch < self.start_from_epoch:
            return
        if self.improved(value, self.best):
            self.best = value
            self.best_epoch = epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            if self.baseline is None or self.improved(value, self.baseline):
                self.wait = 0
                return
        self.wait += 1
        if self.wait >= self.patience:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.stopped_epoch is not None and self.verbose:
            print(f"ended after epoch {self.stopped_epoch + 1}: {self.monitor} was best in epoch "
                  f"{'none' if self.best_epoch is None else self.best_epoch + 1}")
        if self.best_weights is not None:
            self.model.set_weights(self.best_weights)
            self.best_weights = None

    def get_state(self):
        """Return what a resumed run needs."""
        return {"wait": self.wait, "best": self.best, "best_epoch": self.best_epoch,
                "best_weights": self.best_weights}

    def set_state(self, state):
        """Go on from :meth:`get_state`'s value in the next ``fit``.

        Parameters
        ----------
        state : dict
            What :meth:`get_state` returned.
        """
        self._resumed = dict(state)


class ReduceLROnPlateau(Monitor):
    """Lowers the learning rate when a value has stopped improving.

    Parameters
    ----------
    monitor : str
    factor : float
        In (0, 1): the rate is multiplied by it.
    patience : int
        Epochs without improvement after which the rate is lowered; the count starts again then.
    min_lr : float
        The rate does not go below.
    min_delta : float
    mode : {"auto", "min", "max"}
        As for :class:`EarlyStopping`.
    cooldown : int
        After a cut, counting begins again in the epoch of this number after it.
    verbose : int
        Whether to say when the rate is lowered.

    Notes
    -----
    Adds ``learning_rate`` to the history: the rate with which the epoch was trained.

    Examples
    --------
    >>> from pyggml import callbacks
    >>> callbacks.ReduceLROnPlateau(factor=0.2, patience=3).factor
    0.2
    """

    reads_model = False

    # By position, the verbose=1 of Keras would become a lowest rate of 1.
    def __init__(self, monitor="val_loss", factor=0.5, patience=5, *, min_lr=1e-7,
                 min_delta=1e-4, mode="auto", cooldown=0, verbose=0) -> None:
        super().__init__(monitor, mode, min_delta)
        self.factor = number(factor, "factor")
        if not 0 < self.factor < 1:
            raise ValueError(f"factor must be in (0, 1), got {factor}")
        self.patience = count(patience, "patience")
        self.min_lr = _rate(min_lr, "min_lr")
        self.cooldown = count(cooldown, "cooldown")
        self.verbose = verbose
        self._forget()

    def _forget(self):
        self.wait = 0
        self.best = self.worst
        self.cooldown_counter = 0

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._forget()

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        if logs is not None:
            logs.setdefault("learning_rate", optimizer.learning_rate)
        value = self.value(logs)
        if value is None:
            return
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self.improved(value, self.best):
            self.best = value
            self.wait = 0
        elif self.cooldown_counter == 0:
            self.wait += 1
            if self.wait >= self.patience:
                self._cut(epoch, optimizer)

    def _cut(self, epoch, optimizer):
        self.wait = 0
        self.cooldown_counter = self.cooldown
        old = optimizer.learning_rate
        if old > self.min_lr:
            optimizer.learning_rate = max(old * self.factor, self.min_lr)
            if self.verbose:
                print(f"epoch {epoch + 1}: learning rate {old:.3g} lowered to "
                      f"{optimizer.learning_rate:.3g}")

    def get_state(self):
        """Return what a resumed run needs."""
        return {"wait": self.wait, "best": self.best, "cooldown_counter": self.cooldown_counter}

    def set_state(self, state):
        """Go on from :meth:`get_state`'s value in the next ``fit``.

        Parameters
        ----------
        state : dict
        """
        self._resumed = dict(state)


class ModelCheckpoint(Monitor):
    """Saves the model as training goes on.

    Parameters
    ----------
    filepath : str or path-like
        May hold ``{epoch:02d}``, counted from 1, and names of the logs: ``{val_loss:.3f}``.
    monitor : str
        With ``save_best_only``.
    verbose : int
        Whether to say what is saved.
    save_best_only : bool
        Save only where the value improved; else after every epoch.
    save_weights_only : bool
        Call the model's ``save_weights`` instead of ``save``.
    mode : {"auto", "min", "max"}
        As for :class:`EarlyStopping`.
    save_freq : "epoch" or int
        When to save: an integer counts batches, in whose logs there are no values of validation.
    initial_value_threshold : float, optional
        Only values better than it are saved.
    save : callable, optional
        Called as ``save(model, path)`` instead of the model's method.

    Attributes
    ----------
    best : float
        The best value so far; it is kept from one ``fit`` to the next.
    last_path : str or None
        What was saved last.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> from pyggml import callbacks
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> x, y = np.ones((8, 2)), np.ones(8)
    >>> keep = callbacks.ModelCheckpoint("epoch{epoch:02d}.gguf")
    >>> history = model.fit(x, y, verbose=0, callbacks=[keep])
    >>> pyggml.load_model("epoch01.gguf").count_params()
    3
    """

    _knows_epochs = True

    def __init__(self, filepath, monitor="val_loss", verbose=0, save_best_only=False,
                 save_weights_only=False, mode="auto", save_freq="epoch",
                 initial_value_threshold=None, save=None) -> None:
        super().__init__(monitor, mode, 0)
        self.filepath = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = bool(save_best_only)
        self.save_weights_only = bool(save_weights_only)
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int)
                                     or save_freq < 1):
            raise ValueError(f"save_freq must be 'epoch' or a positive integer, got {save_freq!r}")
        self.save_freq = save_freq
        self.save = save
        self.best = (self.worst if initial_value_threshold is None
                     else number(initial_value_threshold, "initial_value_threshold"))
        if math.isnan(self.best):
            raise ValueError("initial_value_threshold must be a number, got nan")
        self.last_path = None
        self._batches = 0
        self._epoch = 0
        self._epochs = None

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        name = "save_weights" if self.save_weights_only else "save"
        if self.save is None and not callable(getattr(self.model, name, None)):
            raise TypeError(f"the model has no method {name}; give save=, a function that takes "
                            "the model and a path")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    @property
    def uses_batches(self):
        """Whether this needs to be called for every batch."""
        return self.save_freq != "epoch"

    def on_train_batch_end(self, batch, logs=None):
        if self.save_freq == "epoch":
            return
        self._batches += 1
        if self._batches >= self.save_freq:
            self._batches = 0
            self._consider(self._epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        if self.save_freq == "epoch":
            self._consider(epoch, logs)

    def on_train_end(self, logs=None):
        self._epochs = None

    def _consider(self, epoch, logs):
        if self.save_best_only:
            value = self.value(logs)
            if value is None and self.save_freq != "epoch":
                self._warn(f"{self.monitor} is not in the logs of batches")
            if value is None or not self.improved(value, self.best):
                return
            self._write(epoch, logs)
            self.best = value
        else:
            self._write(epoch, logs)

    def _write(self, epoch, logs):
        values = {key: value for key, value in (logs or {}).items() if key != "epoch"}
        try:
            path = self.filepath.format(epoch=epoch + 1, **values)
        except KeyError as error:
            raise ValueError(f"filepath names {error}, which is not in the logs; they have epoch, "
                             f"{', '.join(values)}") from None
        if self.save_freq != "epoch" and self._epochs is not None:
            self._epochs.setup.calibrate()
        if self.save is not None:
            self.save(self.model, path)
        elif self.save_weights_only:
            self.model.save_weights(path)
        else:
            self.model.save(path)
        self.last_path = path
        if self.verbose:
            print(f"epoch {epoch + 1}: saved {path}")

    def get_state(self):
        """Return what a resumed run needs."""
        return {"best": self.best, "batches": self._batches}

    def set_state(self, state):
        """Take over :meth:`get_state`'s value.

        Parameters
        ----------
        state : dict
        """
        self.best = state["best"]
        self._batches = state["batches"]


class TerminateOnNaN(Callback):
    """Ends training when the loss of a batch is NaN or infinite.

    The update by that batch is done then: weights are mostly NaN, or were moved by what gradient
    an infinite loss has. ``EarlyStopping("loss", restore_best_weights=True)`` beside it brings
    back those of the best epoch; a NaN is never the best.

    Attributes
    ----------
    stopped : bool
        Whether it did.

    Examples
    --------
    >>> from pyggml import callbacks
    >>> callbacks.TerminateOnNaN().stopped
    False
    """

    reads_model = False

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False

    def on_train_begin(self, logs=None):
        self.stopped = False

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            self.stopped = True
            self.model.stop_training = True
