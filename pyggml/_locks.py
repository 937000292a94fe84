"""Locks that are taken together."""

import threading


class Locks:
    """Several re-entrant locks as one, always taken in the same order.

    Whoever holds a trainer's weights by reference takes the locks of all trainers that may move
    them, so that no two threads wait for each other.

    Parameters
    ----------
    locks : iterable of RLock or Locks
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
    own = threading.RLock()
    return Locks([own, *locks]) if locks else own
