"""Contestants that do the same work take turns."""

import gc
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHECKED = 20    # training steps whose losses are compared
BATCHES = 8     # that training steps go around
CLOCKS = {"wall": "perf_counter", "cpu": "process_time"}    # functions of the module time
TASKS = Path("/proc/self/task")
BLOCK = 0.05    # seconds of work that are timed at once
# Relative differences that are no fault: float32 sums in another order, and Keras' and
# scikit-learn's Adam, which add epsilon before the second moment's bias is corrected: up to 9e-5.
TOLERANCE = {"step": 5e-4, "fit": 5e-4, "predict": 1e-4}


@dataclass
class Contestant:
    """One library in one form of use.

    Attributes
    ----------
    peer, form : str
    check : callable
        Called once, before anything else: what all contestants must agree on. Losses of the first
        steps from the given weights, the mean loss of the first pass, or predictions.
    run : callable
        ``run(n)`` does n units of work, and returns when they are done.
    """

    peer: str
    form: str
    check: Callable
    run: Callable


class Unsupported(Exception):
    """A library has no such layer, loss or way of use."""


def training(peer, form, step, batches, finish=lambda: None):
    """A contestant from a function that takes a step and returns its loss, ready or not."""
    n = len(batches)

    def check():
        return [float(step(*batches[i % n])) for i in range(CHECKED)]

    def run(count):
        for i in range(count):
            step(*batches[i % n])
        finish()

    return Contestant(peer, form, check, run)


def difference(found, expected):
    """The largest difference, relative to the largest expected value; inf where not finite."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape:
        raise ValueError(f"values of shape {found.shape} where {expected.shape} was expected")
    worst = np.max(np.abs(found - expected)) / np.max(np.abs(expected))
    return float(worst) if math.isfinite(worst) else math.inf


def settle(limit=0.5):
    """Wait until this process is idle, and return whether it is.

    Threads of the contestant before may still spin in wait of work, for up to some ten
    milliseconds. What the system says of each thread tells; elsewhere than on Linux, the
    processor time of the whole process.
    """
    end = time.perf_counter() + limit
    idle = 0
    while time.perf_counter() < end:
        begun, used = time.perf_counter(), time.process_time()
        time.sleep(0.003)
        if TASKS.exists():
            busy = _another_thread_runs()
        else:
            busy = time.process_time() - used > 0.2 * (time.perf_counter() - begun)
        idle = 0 if busy else idle + 1
        if idle == 2:
            return True
    return False


def _another_thread_runs():
    """Whether any other thread is on a processor or waits for one."""
    own = str(threading.get_native_id())
    for task in TASKS.iterdir():
        if task.name == own:
            continue
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:     # it has ended since
            continue
        if state == "R":
            return True
    return False


def calibrate(contestant, block):
    """How often to run it in a block, measured after what happens at first calls."""
    contestant.run(2)
    count = 1
    while block:
        begun = time.perf_counter()
        contestant.run(count)
        taken = time.perf_counter() - begun
        if taken > block / 4 or count >= 100_000:
            return max(1, round(count * block / taken))
        count *= 4
    return count


def alternate(contestants, rounds, block=BLOCK, clock="wall"):
    """Return lists of seconds per unit of work, one a contestant, and how many blocks began busy.

    In every round each contestant has one block, in turn, beginning with another one each time.
    Before a block the process becomes idle, and the contestant runs for a tenth of its block
    without being timed, so that its threads and caches are awake. The clock "cpu" counts what
    this process was on processors, all its threads together.
    """
    now = getattr(time, CLOCKS[clock])
    counts = [calibrate(c, block) for c in contestants]
    times = [[] for _ in contestants]
    busy = 0
    gc.collect()
    gc.freeze()      # else each collection walks all that the libraries hold
    for r in range(rounds):
        for k in range(len(contestants)):
            i = (r + k) % len(contestants)
            gc.collect()
            busy += not settle()
            contestants[i].run(max(1, counts[i] // 10))
            gc.disable()
            begun = now()
            contestants[i].run(counts[i])
            times[i].append((now() - begun) / counts[i])
            gc.enable()
    gc.unfreeze()
    return times, busy
