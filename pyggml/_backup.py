"""``BackupAndRestore``: a training in ``fit`` that can be killed and goes on in the next run."""

import contextlib
import os
import re

from pyggml._callback import Callback

_endless = 1 << 40


class Backup(Callback):
    """Saves all that a training depends on, and goes on from the file where there is one.

    Parameters
    ----------
    path : str
        Of the checkpoint.
    save_freq : "epoch" or int
        When to save: after every epoch, or after so many batches.
    keep : int
        Files to keep, older ones under ``<path>.1`` and so on.
    delete : bool
        Whether the files are removed when training ends by itself.
    handler : pyggml.hpc.PreemptionHandler, optional
        When it asks to stop, all is saved after the batch and the process ends with
        :data:`pyggml.hpc.EXIT_REQUEUE`.
    """

    comes_last = True
    _knows_epochs = True
    reads_model = False  # what it saves is trained on

    def __init__(self, path, save_freq="epoch", keep=1, delete=True, handler=None):
        super().__init__()
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int)
                                     or save_freq < 1):
            raise ValueError(f"save_freq must be 'epoch' or a positive integer, got {save_freq!r}")
        self.path = path
        self.save_freq = save_freq
        self.keep = keep
        self.delete = bool(delete)
        self.handler = handler
        self.restored = None
        self._batches = 0
        self._epochs = None

    def on_train_begin(self, logs=None):
        from pyggml import checkpoints

        self._batches = 0
        self.restored = None
        found = checkpoints.latest(self.path)
        if found is None:
            return
        objects = self._objects()
        with checkpoints.load(found) as saved:
            state = saved.extra.get("fit") if isinstance(saved.extra, dict) else None
            if state is None:
                raise ValueError(f"{found}: it was not saved by fit")
            if saved.objects != sorted(objects):
                raise ValueError(f"{found}: it holds states of the callbacks {saved.objects}, but "
                                 f"{sorted(objects)} were given")
            try:
                self._epochs.check_state(state)
            except ValueError as error:
                raise ValueError(f"{found}: {error}") from None
            saved.resume(self.model.compiled.trainer)
            self._epochs.set_state(state)
            saved.restore(objects)
            self._batches = state["since_save"]
        self.restored = found

    def _objects(self):
        """The callbacks that have a state, by place and kind."""
        return {f"{i}_{type(c).__name__}": c for i, c in enumerate(self._epochs.callbacks)
                if c is not self and hasattr(c, "get_state") and hasattr(c, "set_state")}

    def _patience(self):
        return _endless if self.save_freq == "epoch" else self.save_freq - self._batches

    def _pause(self, epochs, n):
        self._batches += n
        asked = self.handler is not None and self.handler.requested
        if n == 0:
            due = self.save_freq == "epoch"
            asked = asked and epochs.epoch < epochs.last and not self.model.stop_training
        else:
            due = self.save_freq != "epoch" and self._batches >= self.save_freq
        if due:
            self._batches = 0
        if due or asked:
            self._save()
        if asked:
            from pyggml.hpc import EXIT_REQUEUE

            raise SystemExit(EXIT_REQUEUE)

    def _save(self):
        from pyggml import checkpoints

        folder = os.path.dirname(self.path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        state = self._epochs.get_state() | {"since_save": self._batches}
        checkpoints.save(self.path, self.model.compiled.trainer, keep=self.keep,
                         objects=self._objects(), extra={"fit": state})

    def on_train_end(self, logs=None):
        epochs, self._epochs = self._epochs, None
        if self.delete and epochs is not None and epochs.finished:
            self._remove()

    def _remove(self):
        folder, name = os.path.split(self.path)
        for entry in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
            if re.fullmatch(re.escape(name) + r"(\.\d+)?", entry):
                os.remove(os.path.join(folder, entry))


class BackupAndRestore(Backup):
    """Lets a training that was killed go on as if nothing had happened, bit for bit.

    Where the directory holds a backup, training goes on from it when ``fit`` is called with the
    same arguments: weights, moments, learning rate, epoch and batch within the epoch, sums of
    losses and metrics, order of the rows, dropout, an accumulation window that was open, history,
    and the states of the other callbacks.

    Parameters
    ----------
    backup_dir : str or path-like
        Made if need be, and used for nothing else.
    save_freq : "epoch" or int
        When to save: after every epoch, or after so many batches.
    double_checkpoint : bool
        Whether the backup before the last is kept too; it is used where the last is damaged.
    delete_checkpoint : bool
        Whether the backup is removed when training ends by itself: at the last epoch, or because
        a callback ended it. After an exception, or a kill, it stays.
    handler : pyggml.hpc.PreemptionHandler, optional
        When it asks to stop, all is saved after the batch and the process ends with
        :data:`pyggml.hpc.EXIT_REQUEUE`.

    Attributes
    ----------
    restored : str or None
        The file that training went on from.

    Raises
    ------
    ValueError
        When training begins: the backup is of another model, optimizer or list of callbacks, or,
        within an epoch, of other batches.
    FileFormatError
        A ``ValueError``: all backups are damaged.

    Notes
    -----
    The history holds the epochs before the stop too. A callback takes part if it has ``get_state``
    and ``set_state``; so does a generator, where ``workers`` is 0. Without them, batches of
    the interrupted epoch that were trained on already are drawn and passed over; a callable or an
    iterator with ``steps_per_epoch`` goes on with what it gives next, with a warning.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import pyggml
    >>> x = np.random.default_rng(0).normal(size=(64, 4))
    >>> def train(epochs, folder):
    ...     pyggml.set_seed(1)
    ...     model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1, name="d")])
    ...     model.compile("adam", "mse")
    ...     backup = pyggml.callbacks.BackupAndRestore(folder, save_freq=3)
    ...     stop = pyggml.callbacks.LambdaCallback(
    ...         on_epoch_begin=lambda epoch, logs: 1 / 0 if epoch == epochs else None)
    ...     return model.fit(x, x[:, 0], epochs=4, callbacks=[backup, stop], verbose=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     straight = train(4, os.path.join(folder, "a"))
    ...     try:
    ...         train(2, os.path.join(folder, "b"))
    ...     except ZeroDivisionError:
    ...         pass
    ...     resumed = train(4, os.path.join(folder, "b"))
    >>> resumed.history == straight.history
    True
    """

    def __init__(self, backup_dir, save_freq="epoch", double_checkpoint=False,
                 delete_checkpoint=True, handler=None):
        self.backup_dir = os.fspath(backup_dir)
        if not self.backup_dir:
            raise ValueError("backup_dir must name a directory, got ''")
        super().__init__(os.path.join(self.backup_dir, "training.ckpt"), save_freq,
                         2 if double_checkpoint else 1, delete_checkpoint, handler)

    def _remove(self):
        super()._remove()
        with contextlib.suppress(OSError):  # the user keeps something in it
            os.rmdir(self.backup_dir)
