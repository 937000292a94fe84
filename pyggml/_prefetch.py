"""Batches prepared ahead of the training step, in threads, in order, a bounded number."""

import os
import threading
import time

from pyggml._scalars import integer

MAX_WORKERS = 256


def worker_count(value):
    """Return a number of threads as an int, or raise TypeError or ValueError."""
    value = integer(value, "workers")
    if not 0 <= value <= MAX_WORKERS:
        raise ValueError(f"workers must be from 0 to {MAX_WORKERS}, got {value}")
    return value


class Prefetcher:
    """Iterates over the results of tasks that threads work on ahead.

    Parameters
    ----------
    tasks : iterator of callable
        Each is called without arguments in one of the threads. The iterator itself is advanced
        by one thread at a time.
    workers : int
        Number of threads.
    ahead : int, optional
        How many results may wait; by default twice the number of threads.

    Notes
    -----
    Results come in the order of the tasks. What a task, or the iterator, raises is raised where
    its result would have come. :meth:`close` waits for the threads, but not for ever: user code
    that does not return is left behind in a daemon thread.
    """

    patience = 1.0  # seconds that close waits for a task to return

    def __init__(self, tasks, workers, ahead=None):
        self._tasks = tasks
        self._pid = os.getpid()
        self._ahead = 2 * workers if ahead is None else ahead
        self._changed = threading.Condition()
        self._advance = threading.Lock()
        self._results = {}
        self._given = 0  # results handed out
        self._taken = 0  # tasks begun
        self._end = None  # number of tasks, once it is known
        self._closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True,
                                          name=f"pyggml-prefetch-{i}") for i in range(workers)]
        for begun, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:  # the system gives no more
                self._threads = self._threads[:begun]
                self.close()
                raise RuntimeError(f"thread {begun + 1} of workers={workers} cannot be started: "
                                   f"{error}") from error

    def _work(self):
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._end is not None
                    or self._taken < self._given + self._ahead)
                if self._closed or self._end is not None:
                    return
            with self._advance:
                with self._changed:
                    if self._closed or self._end is not None:
                        return
                    if self._taken >= self._given + self._ahead:
                        continue
                    number = self._taken
                    self._taken += 1
                try:
                    task = next(self._tasks)
                except StopIteration:
                    with self._changed:
                        self._end = number
                        self._changed.notify_all()
                    return
                except BaseException as error:  # handed over to the consumer, whatever it is
                    self._put(number, None, error)
                    return
            try:
                self._put(number, task(), None)
            except BaseException as error:  # likewise
                self._put(number, None, error)
                return

    def _put(self, number, result, error):
        with self._changed:
            self._results[number] = (result, error)
            if error is not None:
                self._end = number + 1 if self._end is None else min(self._end, number + 1)
            self._changed.notify_all()

    def __iter__(self):
        return self

    def __next__(self):
        if os.getpid() != self._pid:
            raise RuntimeError("the threads that prepare batches are not in a forked child; begin "
                               "the training there anew")
        with self._changed:
            # With a time limit, so that Ctrl-C is seen on every system.
            while not (self._given in self._results
                       or (self._end is not None and self._given >= self._end)):
                self._changed.wait(0.2)
            if self._given not in self._results:
                raise StopIteration
            result, error = self._results.pop(self._given)
            self._given += 1
            self._changed.notify_all()
        if error is not None:
            self.close()
            raise error
        return result

    def close(self):
        """Stop the threads and drop what they prepared."""
        if os.getpid() != self._pid:  # nobody is left to stop, or to release the locks
            return
        with self._changed:
            self._closed = True
            self._results.clear()
            self._changed.notify_all()
        deadline = time.monotonic() + self.patience
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
