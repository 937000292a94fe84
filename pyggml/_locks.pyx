# cython: language_level=3, freethreading_compatible=False
"""Locks that pass from thread to thread in the order of asking.

``threading.RLock`` goes to whoever is quickest. That is the thread that has just released it: one
that steps in a loop would keep others waiting for seconds. Here a lock that someone waits for is
handed to that thread when it is released, and a loop without the GIL sees by :meth:`Lock.wanted`
that it should release it.

The state of a lock is guarded by the GIL: nothing between two waits can be interrupted. Only the
number of those who wait is looked at without it.
"""

import os
import threading
from collections import deque

from libc.stdlib cimport free, malloc

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "_shared.h":
    int pyggml_peek(const int * value) noexcept nogil
    void pyggml_set(int * value, int to) noexcept nogil

cdef long _era = 0  # forks that led to this process
cdef unsigned long _forker = 0


def _after_fork_in_child():
    global _era, _forker
    _era += 1
    _forker = PyThread_get_thread_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


cdef class _Turn:
    """A thread that waits."""

    cdef unsigned long ident
    cdef object lock

    def __cinit__(self, unsigned long ident):
        self.ident = ident
        self.lock = threading.Lock()
        self.lock.acquire()


cdef class Lock:
    """A re-entrant lock that is handed on in the order of asking.

    In a child process after a fork the thread that forked may go on to hold it. Held by another
    thread, it guards what that one has left half done: whoever asks for it gets a RuntimeError.
    """

    def __cinit__(self, *args):
        self.owner = 0
        self.depth = self.n_waiting = 0
        self.era = _era
        self.queue = deque()

    cdef int take(self) except -1:
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.depth == 0:
            self.owner = me
            self.depth = 1
            self.era = _era
        elif self.owner == me and self.era == _era:
            self.depth += 1
        else:
            return self._wait(me)
        return 0

    cdef int give(self) except -1:
        if self.depth == 1 and self.n_waiting > 0:
            return self._hand_on()
        self.depth -= 1
        return 0

    cdef bint wanted(self) noexcept nogil:
        """Whether another thread waits for it."""
        return pyggml_peek(&self.n_waiting) > 0

    cdef int _wait(self, unsigned long me) except -1:
        cdef _Turn turn
        if self.era != _era:
            self._after_fork()
            return self.take()
        if self.owner == 0:
            raise RuntimeError("another thread was using this object when the process was forked; "
                               "make it anew in the child")
        turn = _Turn(me)
        if self.depth == 0:  # released while the turn was made
            return self.take()
        self.queue.append(turn)
        pyggml_set(&self.n_waiting, self.n_waiting + 1)
        try:
            turn.lock.acquire()
        except BaseException:  # an interrupt while waiting
            if self.owner == me and self.depth > 0:
                self.give()
            else:
                self.queue.remove(turn)
                pyggml_set(&self.n_waiting, self.n_waiting - 1)
            raise
        return 0

    cdef int _hand_on(self) except -1:
        """Make the thread that has waited longest the owner."""
        cdef _Turn turn
        if self.era != _era:
            self._after_fork()
            self.depth = 0
            return 0
        turn = self.queue.popleft()
        pyggml_set(&self.n_waiting, self.n_waiting - 1)
        self.owner = turn.ident
        turn.lock.release()
        return 0

    cdef int _after_fork(self) except -1:
        """Forget the threads that this process has not."""
        self.queue = deque()
        pyggml_set(&self.n_waiting, 0)
        if self.owner != _forker:
            self.owner = 0  # no thread's number
        self.era = _era
        return 0

    def acquire(self):
        """Wait for the lock."""
        self.take()

    def release(self):
        """Release what :meth:`acquire` acquired; only its thread may."""
        if not self.held():
            raise RuntimeError("this thread does not hold the lock")
        self.give()

    def held(self):
        """Whether this thread holds the lock."""
        return self.depth > 0 and self.owner == PyThread_get_thread_ident()

    def waiting(self):
        """Number of threads that wait."""
        return self.n_waiting

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, kind, value, traceback):
        self.give()


cdef class Locks(Lock):
    """Several locks as one, always taken in the same order.

    Whoever holds a trainer's weights by reference takes the locks of all trainers that may move
    them, so that no two threads wait for each other.

    Parameters
    ----------
    locks : iterable of Lock
    """

    def __cinit__(self, locks):
        cdef Lock lock
        cdef int i
        found = {}
        for lock in locks:
            for part in (<Locks>lock).parts if isinstance(lock, Locks) else [lock]:
                found[id(part)] = part
        self.parts = [found[key] for key in sorted(found)]
        self.n_members = len(self.parts)
        self.members = <void **>malloc(self.n_members * sizeof(void *))
        if self.members is NULL:
            raise MemoryError
        for i in range(self.n_members):
            self.members[i] = <void *>self.parts[i]

    def __dealloc__(self):
        free(self.members)

    cdef int take(self) except -1:
        cdef int i
        cdef int taken = 0
        try:
            for i in range(self.n_members):
                (<Lock>self.members[i]).take()
                taken += 1
        except BaseException:  # an interrupt while waiting
            for i in range(taken):
                (<Lock>self.members[taken - 1 - i]).give()
            raise
        return 0

    cdef int give(self) except -1:
        cdef int i
        for i in range(self.n_members):
            (<Lock>self.members[self.n_members - 1 - i]).give()
        return 0

    cdef bint wanted(self) noexcept nogil:
        cdef int i
        for i in range(self.n_members):
            if pyggml_peek(&(<Lock>self.members[i]).n_waiting) > 0:
                return True
        return False

    def held(self):
        """Whether this thread holds all of them."""
        return all([part.held() for part in self.parts])

    def waiting(self):
        """Number of threads that wait for any of them."""
        return sum([part.waiting() for part in self.parts])


def together(*locks):
    """Return a lock for a new owner that uses what the given locks protect."""
    own = Lock()
    return Locks([own, *locks]) if locks else own
