"""Locks of objects that threads share, alone and taken together; what a fork does to them."""

import os
import threading
import weakref


class Lock(type(threading.RLock())):
    """A re-entrant lock that does not make a forked child wait for a thread it does not have."""

    __slots__ = ()


class _Abandoned(Lock):
    """What a lock becomes in a forked child if another thread held it."""

    __slots__ = ()

    def acquire(self, blocking=True, timeout=-1):
        raise RuntimeError("another thread was using this object when the process was forked; "
                           "make it anew in the child")

    def __enter__(self):
        self.acquire()


_known = weakref.WeakSet()


def new_lock():
    """Return a re-entrant lock for one object."""
    lock = Lock()
    _known.add(lock)
    return lock


def _after_fork_in_child():
    for lock in _known:
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock.__class__ = _Abandoned


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Locks:
    """Several re-entrant locks as one, always taken in the same order.

    Whoever holds a trainer's weights by reference takes the locks of all trainers that may move
    them, so that no two threads wait for each other.

    Parameters
    ----------
    locks : iterable of Lock or Locks
    """

    def __init__(self, locks):
        found = {}
        for lock in locks:
            for part in lock.parts if isinstance(lock, Locks) else [lock]:
                found[id(part)] = part
        self.parts = [found[key] for key in sorted(found)]

    def __enter__(self):
        taken = []
        try:
            for part in self.parts:
                part.acquire()
                taken.append(part)
        except BaseException:  # an interrupt while waiting
            for part in reversed(taken):
                part.release()
            raise
        return self

    def __exit__(self, *exception):
        for part in reversed(self.parts):
            part.release()


def together(*locks):
    """Return a lock for a new owner that uses what the given locks protect."""
    own = new_lock()
    return Locks([own, *locks]) if locks else own
