"""Jobs in batch systems: stop in time, save, and go on in the next run.

A job that has to end before its work is done exits with :data:`EXIT_REQUEUE` (75, ``EX_TEMPFAIL``
of sysexits.h) after it has saved; 0 means that the work is done, anything else is an error. The
job script starts it again after 75 and only then.
"""

import os
import re
import signal
import threading
import time
from typing import Any

import numpy as np

from pyggml.layers.base import positive_int

__all__ = ["EXIT_REQUEUE", "PreemptionHandler", "ShuffledBatches", "run_until"]

EXIT_REQUEUE = 75


def _seconds(limit):
    """Return seconds for a number, or for text as batch systems write it: [days-]hh:mm:ss."""
    if isinstance(limit, str):
        match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", limit.strip())
        if not match:
            raise ValueError(f"time_limit must be seconds or '[days-]hours:minutes:seconds', got "
                             f"{limit!r}")
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    if isinstance(limit, bool) or not isinstance(limit, (int, float)):
        raise TypeError(f"time_limit must be a number or a string, got {type(limit).__name__}")
    if not 0 <= limit < float("inf"):
        raise ValueError(f"time_limit must be finite and not negative, got {limit}")
    return float(limit)


def _end_of_job(limit):
    """Return the time.time() at which the job ends, or None."""
    if limit != "auto":
        return None if limit is None else time.time() + _seconds(limit)
    # Slurm tells when it will end the job; PBS only how long it may run.
    if os.environ.get("SLURM_JOB_END_TIME", "").isdigit():
        return float(os.environ["SLURM_JOB_END_TIME"])
    if os.environ.get("PBS_WALLTIME", "").isdigit():
        return time.time() + float(os.environ["PBS_WALLTIME"])
    return None


class PreemptionHandler:
    """Turns signals and a time limit into a flag that the loop looks at between steps.

    Parameters
    ----------
    signals : tuple of signal.Signals, optional
        By default SIGTERM and, where there is one, SIGUSR1.
    time_limit : None, "auto", float or str
        How long the job may run from now, in seconds or as ``"[days-]hours:minutes:seconds"``.
        ``"auto"`` takes the end that Slurm announces (``SLURM_JOB_END_TIME``) or PBS'
        ``PBS_WALLTIME``, if there is one.
    margin : float
        Seconds before the end at which to stop: enough for a step and a save.

    Attributes
    ----------
    reason : str or None
        Why to stop: the name of a signal, or ``"time limit"``.

    Raises
    ------
    RuntimeError
        Entered in a thread that is not the main one: only that receives signals. Or entered
        twice.
    OSError
        Entered with a signal that cannot be caught, such as SIGKILL.

    Notes
    -----
    Handlers are installed by ``with`` and put back at its end. A handler only sets the flag: a
    computation that runs is finished.

    Examples
    --------
    >>> from pyggml import hpc
    >>> with hpc.PreemptionHandler(time_limit=0, margin=0) as stop:
    ...     stop.requested, stop.reason
    (True, 'time limit')
    """

    def __init__(self, signals=None, time_limit="auto", margin=60.0) -> None:
        if signals is None:
            signals = [signal.SIGTERM] + [getattr(signal, name) for name in ("SIGUSR1",)
                                          if hasattr(signal, name)]
        self._signals = [signal.Signals(number) for number in signals]
        self.margin = _seconds(margin)
        self._end = _end_of_job(time_limit)
        self._before: dict[int, Any] = {}
        self.reason = None

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals reach the main thread only; enter PreemptionHandler there")
        if self._before:
            raise RuntimeError("this PreemptionHandler is entered already")
        try:
            for number in self._signals:
                self._before[number] = signal.signal(number, self._handle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number, frame):
        if self.reason is None:
            self.reason = signal.Signals(number).name

    @property
    def requested(self):
        """Whether to save and stop now."""
        if self.reason is None and self._end is not None and (
                time.time() >= self._end - self.margin):
            self.reason = "time limit"
        return self.reason is not None

    def stop_if_requested(self, save):
        """Save and leave the process with :data:`EXIT_REQUEUE` if it is time to.

        Parameters
        ----------
        save : callable
            Called without arguments.

        Raises
        ------
        SystemExit
            With code 75.
        """
        if self.requested:
            save()
            raise SystemExit(EXIT_REQUEUE)


def run_until(finished, step, save, save_every=600.0, handler=None):
    """Step until the work is done or the job has to stop.

    Parameters
    ----------
    finished : callable
        Returns whether the work is done; asked before every step.
    step : callable
        Does one piece of work, short against the handler's margin.
    save : callable
        Saves all that the next run needs.
    save_every : float or None
        Seconds between saves, besides the one at the end.
    handler : PreemptionHandler, optional
        Already entered; by default a new one.

    Raises
    ------
    SystemExit
        With code 75, after a save, if the job has to stop before the work is done. An exception
        from ``step`` passes through, and nothing is saved then.

    Examples
    --------
    >>> from pyggml import hpc
    >>> done = []
    >>> hpc.run_until(lambda: len(done) == 3, lambda: done.append(0), lambda: None)
    >>> len(done)
    3
    """
    if handler is None:
        with PreemptionHandler() as handler:
            run_until(finished, step, save, save_every, handler)
        return
    every = None if save_every is None else _seconds(save_every)
    last = time.monotonic()
    while not finished():
        handler.stop_if_requested(save)
        step()
        if every is not None and time.monotonic() - last >= every:
            save()
            last = time.monotonic()
    save()


class ShuffledBatches:
    """Rows in a new order every epoch, from a place that can be saved in a few numbers.

    The order of an epoch depends on the seed and the epoch's number only. Rows that do not fill
    a batch are left out, other ones every epoch.

    Parameters
    ----------
    n_rows, batch_size : int
    seed : int
        Not negative.

    Attributes
    ----------
    epoch : int
        Number of the current epoch, from 0.
    position : int
        Batches of it that were taken.

    Examples
    --------
    >>> from pyggml import hpc
    >>> batches = hpc.ShuffledBatches(10, 4, seed=1)
    >>> first = next(batches)
    >>> state = batches.get_state()
    >>> second = next(batches)
    >>> batches.set_state(state)
    >>> bool((next(batches) == second).all())
    True
    """

    def __init__(self, n_rows, batch_size, seed=0) -> None:
        self.n_rows = positive_int(n_rows, "n_rows")
        self.batch_size = positive_int(batch_size, "batch_size")
        if self.batch_size > self.n_rows:
            raise ValueError(f"batch_size must be at most n_rows, got {batch_size} and {n_rows}")
        if not hasattr(seed, "__index__"):
            raise TypeError(f"seed must be an integer, got {type(seed).__name__}")
        self.seed = seed.__index__()
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.epoch = self.position = 0
        self._order = None

    def __iter__(self):
        return self

    def __next__(self):
        if self.position == self.n_rows // self.batch_size:
            self.epoch, self.position, self._order = self.epoch + 1, 0, None
        if self._order is None:
            rng = np.random.Generator(np.random.PCG64([self.seed, self.epoch]))
            self._order = rng.permutation(self.n_rows)
        start = self.position * self.batch_size
        self.position += 1
        return self._order[start:start + self.batch_size]

    def get_state(self):
        """Return the place and what it belongs to, as a dict of int."""
        return {key: getattr(self, key) for key in
                ("n_rows", "batch_size", "seed", "epoch", "position")}

    def set_state(self, state):
        """Go to a place.

        Parameters
        ----------
        state : dict
            What :meth:`get_state` returned.

        Raises
        ------
        ValueError
            It belongs to another number of rows, batch size or seed.
        """
        for key in ("n_rows", "batch_size", "seed"):
            if state[key] != getattr(self, key):
                raise ValueError(f"the state has {key} {state[key]}, not {getattr(self, key)}")
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= self.n_rows // self.batch_size:
            raise ValueError(f"there is no batch {position} of epoch {epoch}")
        self.epoch, self.position, self._order = epoch, position, None
