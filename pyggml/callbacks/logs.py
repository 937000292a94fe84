"""Callbacks that show or write down how training goes."""

import csv
import os
import warnings
from typing import Any

import numpy as np

from pyggml._callback import Callback
from pyggml._progress import Display
from pyggml.layers.base import count, positive_int


class CSVLogger(Callback):
    """Writes one line an epoch into a CSV file.

    Parameters
    ----------
    filename : str or path-like
    separator : str
    append : bool
        Whether to go on in a file that exists: a header is written only into an empty one. What
        the header of another file lacks is left out, with a warning.

    Notes
    -----
    Columns are ``epoch``, counted from 0, and what the first epoch logs; values that an epoch
    lacks are left empty. Every line is on its way to the disk when the epoch ends. Where training
    goes on from a backup, lines that are younger than that are taken away.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> from pyggml import callbacks
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> x, y = np.ones((8, 2)), np.ones(8)
    >>> log = callbacks.CSVLogger("log.csv")
    >>> history = model.fit(x, y, verbose=0, callbacks=[log])
    >>> with open("log.csv") as f:
    ...     f.readline().strip()
    'epoch,loss'
    """

    reads_model = False

    def __init__(self, filename, separator=",", append=False) -> None:
        super().__init__()
        self.filename = os.fspath(filename)
        self.separator = separator
        self.append = append
        self._file = None
        self._columns = None
        self._size = None

    def on_train_begin(self, logs=None):
        self._columns = None
        self._size = None if self.append else 0
        # Nothing is lost yet: a backup may say that training goes on.
        self._file = open(self.filename, "a", newline="")  # noqa: SIM115

    def on_epoch_begin(self, epoch, logs=None):
        self._go_on()

    def _go_on(self):
        if self._size is not None:
            self._file.truncate(self._size)
            self._file.seek(0, os.SEEK_END)
            self._size = None

    def on_epoch_end(self, epoch, logs=None):
        self._go_on()
        if self._columns is None and self._file.tell():
            with open(self.filename, newline="") as f:
                self._columns = next(csv.reader(f, delimiter=self.separator))
            names = dict.fromkeys([*(logs or {}), *self.params.get("metrics", ())])
            lacking = [name for name in names if name not in self._columns]
            if lacking:
                warnings.warn(f"{self.filename} has no column for {', '.join(lacking)}, which are "
                              "left out", RuntimeWarning, stacklevel=4)
        row = {"epoch": epoch} | dict(logs or {})
        writer = csv.writer(self._file, delimiter=self.separator, lineterminator="\n")
        if self._columns is None:
            known = list(self.params.get("metrics", ()))
            self._columns = list(row) + [name for name in known if name not in row]
            writer.writerow(self._columns)
        writer.writerow([_number(row.get(name, "")) for name in self._columns])
        self._file.flush()

    def on_train_end(self, logs=None):
        if self._file is not None:
            self._file.close()
            self._file = None

    def get_state(self):
        """Return what a resumed run needs."""
        size = self._file.tell() if self._size is None else self._size
        return {"size": size, "columns": self._columns}

    def set_state(self, state):
        """Go on after the lines that the file had when :meth:`get_state` was called.

        Parameters
        ----------
        state : dict
        """
        self._size, self._columns = state["size"], state["columns"]


def _number(value):
    return repr(float(value)) if isinstance(value, (float, np.floating)) else value


class ProgbarLogger(Callback):
    """Shows progress as ``verbose=1`` does: for loops of your own.

    ``fit`` shows progress by itself; with this callback give it ``verbose=0``.

    Examples
    --------
    >>> from pyggml import callbacks
    >>> callbacks.ProgbarLogger().uses_batches
    True
    """

    reads_model = False
    uses_batches = True

    def on_train_begin(self, logs=None):
        params = self.params
        self._display = Display(1, getattr(self.model, "optimizer", None), params.get("steps"),
                                params.get("epochs", 1))

    def on_epoch_begin(self, epoch, logs=None):
        self._display.begin(epoch)

    def on_train_batch_end(self, batch, logs=None):
        self._display.batch(batch + 1, _Logs(logs or {}))

    def on_epoch_end(self, epoch, logs=None):
        self._display.end(epoch, logs or {})

    def on_train_end(self, logs=None):
        self._display.abandon()


class _Logs:
    def __init__(self, logs) -> None:
        self._logs = logs

    def shown(self):
        return self._logs


class TensorBoard(Callback):
    """Writes losses and metrics for TensorBoard, in directories ``train`` and ``validation``.

    Parameters
    ----------
    log_dir : str or path-like
    histogram_freq : int
        Every so many epochs the distribution of each weight is written; 0 for never.
    update_freq : "epoch" or int
        An integer writes the training values every so many batches too.

    Raises
    ------
    ImportError
        tensorboardX is missing; it comes with ``pip install 'pyggml[tensorboard]'``.

    Examples
    --------
    >>> from pyggml import callbacks
    >>> issubclass(callbacks.TensorBoard, callbacks.Callback)
    True
    """

    def __init__(self, log_dir="logs", histogram_freq=0, update_freq="epoch") -> None:
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq = count(histogram_freq, "histogram_freq")
        if update_freq != "epoch":
            update_freq = positive_int(update_freq, "update_freq")
        self.update_freq = update_freq
        self._writers: dict[str, Any] = {}
        self._step = 0
        _summary_writer()

    @property
    def reads_model(self):
        """Whether this takes the model's weights."""
        return self.histogram_freq > 0

    @property
    def uses_batches(self):
        """Whether this needs to be called for every batch."""
        return self.update_freq != "epoch"

    def _writer(self, name):
        if name not in self._writers:
            self._writers[name] = _summary_writer()(os.path.join(self.log_dir, name))
        return self._writers[name]

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        if self.update_freq != "epoch" and self._step % self.update_freq == 0:
            for name, value in (logs or {}).items():
                self._writer("train").add_scalar(f"batch_{name}", value, self._step)

    def on_epoch_end(self, epoch, logs=None):
        for name, value in (logs or {}).items():
            validation = name.startswith("val_")
            writer = self._writer("validation" if validation else "train")
            writer.add_scalar(f"epoch_{name[4:] if validation else name}", value, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            for variable, name in self.model.weight_names.items():
                self._writer("train").add_histogram(name, variable.numpy(), epoch)
        for writer in self._writers.values():
            writer.flush()

    def on_train_end(self, logs=None):
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def get_state(self):
        """Return what a resumed run needs."""
        return {"step": self._step}

    def set_state(self, state):
        """Take over :meth:`get_state`'s value.

        Parameters
        ----------
        state : dict
        """
        self._step = state["step"]


def _summary_writer():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its protocol buffers
            from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard needs tensorboardX: pip install 'pyggml[tensorboard]'"
                          ) from error
    return SummaryWriter
