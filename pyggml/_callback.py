"""The base of callbacks, and the list that training calls."""

import math
import warnings
from typing import Any

from pyggml._scalars import number

_lower_is_better = ("loss", "error", "mse", "mae", "rmse", "msle", "mape")
_begin_hooks = ("on_train_batch_begin", "on_batch_begin")
_end_hooks = ("on_train_batch_end", "on_batch_end")
_test_hooks = ("on_test_batch_begin", "on_test_batch_end")
_late_hooks = ("on_epoch_end", "on_train_end")


class Callback:
    """Base of all callbacks: hooks that do nothing.

    Attributes
    ----------
    model : Model
        Setting its ``stop_training`` ends training after the batch or epoch.
    params : dict
        ``epochs`` (the number of the last, counted from 1), ``steps`` (batches an epoch, or
        None), ``verbose``, ``metrics`` (names that the logs will have), ``initial_epoch``,
        ``batch_size``.

    Notes
    -----
    ``logs`` are dicts from names to means over the epoch so far. What a callback adds to the
    logs in ``on_epoch_end`` is seen by those after it, and by the history.

    Where no callback has a hook for batches, many steps are made at once without Python. A class
    that has one and does not read its metrics says ``reads_logs = False``: computing them for
    every batch costs more than a small step.

    Statistics of batch norm layers that steps do not move (``momentum=None``) are computed before
    ``on_epoch_end``, from up to 1024 training rows: what a callback predicts or saves then is
    right. A class that does not use the model there says ``reads_model = False``.

    Examples
    --------
    >>> import pyggml
    >>> class Halve(pyggml.callbacks.Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         self.model.optimizer.learning_rate /= 2
    """

    def __init__(self) -> None:
        self.model = None
        self.params: dict[str, Any] = {}

    def set_model(self, model):
        """Tell the model.

        Parameters
        ----------
        model : Model
        """
        self.model = model

    def set_params(self, params):
        """Tell how training is run.

        Parameters
        ----------
        params : dict
            ``epochs``, ``steps``, ``batch_size``, ``verbose`` and more, as far as they are known.
        """
        self.params = params

    def on_train_begin(self, logs=None):
        """Called before the first epoch.

        Parameters
        ----------
        logs : dict, optional
        """

    def on_train_end(self, logs=None):
        """Called after the last epoch, and after an exception that ended training.

        Parameters
        ----------
        logs : dict, optional
        """

    def on_epoch_begin(self, epoch, logs=None):
        """Called before an epoch, counted from 0.

        Parameters
        ----------
        epoch : int
        logs : dict, optional
            Losses and metrics by name.
        """

    def on_epoch_end(self, epoch, logs=None):
        """Called after an epoch and its validation.

        Parameters
        ----------
        epoch : int
        logs : dict, optional
            Losses and metrics by name.
        """

    def on_train_batch_begin(self, batch, logs=None):
        """Called before a step, counted from 0 in every epoch.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        """Called after a step.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """
        self.on_batch_end(batch, logs)

    def on_batch_begin(self, batch, logs=None):
        """Another name of :meth:`on_train_batch_begin`.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """

    def on_batch_end(self, batch, logs=None):
        """Another name of :meth:`on_train_batch_end`.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """

    def on_test_begin(self, logs=None):
        """Called before an evaluation or a validation.

        Parameters
        ----------
        logs : dict, optional
        """

    def on_test_end(self, logs=None):
        """Called after an evaluation or a validation.

        Parameters
        ----------
        logs : dict, optional
        """

    def on_test_batch_begin(self, batch, logs=None):
        """Called before a batch is evaluated.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """

    def on_test_batch_end(self, batch, logs=None):
        """Called after a batch was evaluated.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """

    def on_predict_begin(self, logs=None):
        """Called before a prediction.

        Parameters
        ----------
        logs : dict, optional
        """

    def on_predict_end(self, logs=None):
        """Called after a prediction.

        Parameters
        ----------
        logs : dict, optional
        """

    def on_predict_batch_begin(self, batch, logs=None):
        """Called before a batch is predicted.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """

    def on_predict_batch_end(self, batch, logs=None):
        """Called after a batch was predicted, with ``outputs`` in the logs.

        Parameters
        ----------
        batch : int
        logs : dict, optional
        """


class CallbackList:
    """Several callbacks called as one, in ``fit`` or in a loop of your own.

    Parameters
    ----------
    callbacks : Callback, or iterable of Callback
    model : Model, optional
    params : dict, optional
        As in :class:`Callback`.

    Raises
    ------
    TypeError
        Something that is not a Callback.

    Examples
    --------
    >>> from pyggml import callbacks
    >>> calls = callbacks.CallbackList([callbacks.LambdaCallback(
    ...     on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))])
    >>> calls.on_epoch_end(0, {"loss": 0.5})
    0 0.5
    """

    def __init__(self, callbacks=(), model=None, params=None):
        self.params = {}
        self._model = None
        self._began = []
        self._take(callbacks)
        if model is not None or params is not None:
            self.attach(model, {} if params is None else params)

    def _take(self, callbacks):
        if callbacks is None:
            callbacks = ()
        if isinstance(callbacks, (Callback, CallbackList)):
            callbacks = [callbacks]
        taken = []
        for callback in callbacks:
            if isinstance(callback, CallbackList):
                taken += callback.callbacks
            elif isinstance(callback, Callback):
                taken.append(callback)
            else:
                raise TypeError("callbacks must be Callback objects, got "
                                f"{type(callback).__name__}")
        # Who saves the states of the others comes after them.
        self.callbacks = sorted(taken, key=lambda c: getattr(c, "comes_last", False))
        # Only what somebody listens to is computed: logs of batches are dear.
        self.begin_hooks = any(_overrides(c, _begin_hooks) for c in self.callbacks)
        self.end_hooks = any(_overrides(c, _end_hooks) for c in self.callbacks)
        self.test_hooks = any(_overrides(c, _test_hooks) for c in self.callbacks)
        self.reads_logs = any(_overrides(c, _end_hooks) and getattr(c, "reads_logs", True)
                              for c in self.callbacks)
        self.reads_model = any(_overrides(c, _late_hooks) and getattr(c, "reads_model", True)
                               for c in self.callbacks)
        self._pausing = [c for c in self.callbacks if hasattr(c, "_pause")]

    def attach(self, model, params):
        """Tell all callbacks model and parameters.

        Parameters
        ----------
        model : Model
        params : dict, optional
        """
        self.params, self._model = params, model
        for callback in self.callbacks:
            callback.set_params(params)
            callback.set_model(model)

    def append(self, callback):
        """Add a callback, and tell it the model and parameters that the others were told.

        Parameters
        ----------
        callback : Callback
        """
        self._take([*self.callbacks, callback])
        if self._model is not None or self.params:
            self.attach(self._model, self.params)

    def on_train_begin(self, logs=None):
        """Call the hook of all.

        Parameters
        ----------
        logs : dict, optional
        """
        self._began = []
        for callback in self.callbacks:
            callback.on_train_begin(logs)
            self._began.append(callback)

    def on_train_end(self, logs=None):
        """Call the hook of all; where one raises, the others are called first.

        Parameters
        ----------
        logs : dict, optional
        """
        failed = None
        for callback in self.callbacks:
            try:
                callback.on_train_end(logs)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def go_on(self):
        """Take over states that were set, where an epoch goes on that had begun before."""
        for callback in self.callbacks:
            if hasattr(callback, "_go_on"):
                callback._go_on()

    def tell(self, epochs):
        """Let those who save and restore know the loop.

        Parameters
        ----------
        epochs : Epochs
        """
        for callback in self.callbacks:
            if hasattr(callback, "_knows_epochs"):
                callback._epochs = epochs

    def patience(self):
        """Return how many batches may pass before the next :meth:`pause`."""
        return min([callback._patience() for callback in self._pausing], default=1 << 40)

    def pause(self, epochs, n):
        """Tell those who want to know that n batches are done, or with 0 an epoch.

        Parameters
        ----------
        epochs : Epochs
        n : int
        """
        for callback in self._pausing:
            callback._pause(epochs, n)

    def end_after_error(self):
        """Call ``on_train_end`` of those that began; what they raise becomes a warning."""
        for callback in self._began:
            try:
                callback.on_train_end({})
            except Exception as error:
                warnings.warn(f"{type(callback).__name__}.on_train_end failed after training did: "
                              f"{error!r}", RuntimeWarning, stacklevel=2)

    def __iter__(self):
        return iter(self.callbacks)

    def __len__(self):
        return len(self.callbacks)


def _forward(name):
    def hook(self, *arguments):
        for callback in self.callbacks:
            getattr(callback, name)(*arguments)

    hook.__name__ = name
    hook.__qualname__ = f"CallbackList.{name}"
    hook.__doc__ = "Call the hook of all."
    return hook


for _name in [name for name in vars(Callback)
              if name.startswith("on_") and name not in ("on_train_begin", "on_train_end")]:
    setattr(CallbackList, _name, _forward(_name))


def _overrides(callback, names):
    """Return whether a callback wants to be called."""
    if names in (_begin_hooks, _end_hooks) and not getattr(callback, "uses_batches", True):
        return False
    return any(getattr(type(callback), name) is not getattr(Callback, name)
               or name in vars(callback) for name in names)


class LambdaCallback(Callback):
    """Hooks given as functions.

    Parameters
    ----------
    **hooks : callable
        ``on_epoch_begin``, ``on_epoch_end``, ``on_train_begin``, ``on_train_end``,
        ``on_train_batch_begin``, ``on_train_batch_end`` and all other hooks of
        :class:`Callback`, with their arguments.

    Raises
    ------
    TypeError
        A name that is no hook, or a value that cannot be called.

    Examples
    --------
    >>> import pyggml
    >>> show = pyggml.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch))
    """

    def __init__(self, **hooks):
        super().__init__()
        known = [name for name in vars(Callback) if name.startswith("on_")]
        for name, function in hooks.items():
            if function is None:
                continue
            if name not in known:
                raise TypeError(f"{name!r} is no hook; there are {', '.join(known)}")
            if not callable(function):
                raise TypeError(f"{name} must be callable, got {type(function).__name__}")
            setattr(self, name, _tolerant(function, name))


def _tolerant(function, name):
    """Let hooks that get only logs be functions of one argument, logs given or not."""
    if name.endswith(("_begin", "_end")):
        if "epoch" in name or "batch" in name:
            return lambda number, logs=None: function(number, logs)
        return lambda logs=None: function(logs)
    return function


class Monitor(Callback):
    """Base of callbacks that watch one value of the logs.

    Parameters
    ----------
    monitor : str
    mode : {"auto", "min", "max"}
    min_delta : float
    """

    def __init__(self, monitor, mode, min_delta):
        super().__init__()
        if not isinstance(monitor, str):
            raise TypeError(f"monitor must be a string, got {type(monitor).__name__}")
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode must be 'auto', 'min' or 'max', got {mode!r}")
        self.monitor = monitor
        self.min_delta = abs(number(min_delta, "min_delta"))
        if math.isnan(self.min_delta):
            raise ValueError("min_delta must be a number, got nan")
        if mode == "auto":
            parts = monitor.lower().split("_")
            lower = "loss" in monitor.lower() or any(p in _lower_is_better for p in parts)
            mode = "min" if lower else "max"
        self.mode = mode
        self.worst = math.inf if mode == "min" else -math.inf
        self._warned = False
        self._known = False
        self._resumed = None

    def on_train_begin(self, logs=None):
        self._known = False

    def on_epoch_begin(self, epoch, logs=None):
        self._go_on()

    def _go_on(self):
        # A state that was set before training began takes effect after all was forgotten.
        if self._resumed is not None:
            vars(self).update(self._resumed)
            self._resumed = None

    def improved(self, value, best):
        """Return whether a value is better than the best by more than ``min_delta``.

        Parameters
        ----------
        value, best : float
        """
        if self.mode == "min":
            return value < best - self.min_delta
        return value > best + self.min_delta

    def value(self, logs):
        """Return the monitored value, or None where it is missing or NaN.

        Parameters
        ----------
        logs : dict

        Raises
        ------
        ValueError
            It was never there and cannot come.
        """
        logs = logs or {}
        if self.monitor in logs:
            self._known = True
            value = float(logs[self.monitor])
            if not math.isnan(value):
                return value
            self._warn(f"{self.monitor} is NaN")
            return None
        if self.monitor in self.params.get("metrics", ()):
            return None  # validation is not run every epoch
        if not self._known:
            hint = ("" if not self.monitor.startswith("val_") or "val_loss" in logs
                    else "; there is no validation data")
            raise ValueError(f"{type(self).__name__} monitors {self.monitor!r}, which is not among "
                             f"{', '.join(logs) or 'the logs, which are empty'}{hint}")
        self._warn(f"{self.monitor} is missing")
        return None

    def _warn(self, what):
        if not self._warned:
            self._warned = True
            warnings.warn(f"{type(self).__name__}: {what}; such epochs are passed over",
                          RuntimeWarning, stacklevel=4)
