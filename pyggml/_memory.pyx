# cython: language_level=3
"""Whether memory is there, asked before ggml takes it.

ggml ends the process where it finds no memory for its descriptions, and Linux ends it where more
is promised than there is. Limits of the process (``RLIMIT_AS``, ``RLIMIT_DATA``) are found out by
asking the allocator; what the machine and the control group have left is read for large requests.
"""

import os
import sys

from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    /* An allocation that is not used may be left out by the compiler, unless somebody sees it. */
    static void * volatile pyggml_seen;
    static void pyggml_see(void * p) { pyggml_seen = p; }
    """
    void pyggml_see(void * p)

# Below this the allocator's own answer is enough: reading what is left takes 100 microseconds.
cdef size_t _large = <size_t>1 << 24

# What ggml allocates beside what a call is known to need, without a way to fail.
cdef size_t _slack = <size_t>1 << 16


cdef int require(size_t nbytes, str what, bint used=True) except -1:
    """Raise MemoryError if so many more bytes do not fit.

    ``used=False`` is for memory of which ggml will hardly touch any.
    """
    cdef void * p = NULL
    cdef size_t asked = nbytes + _slack
    if asked > nbytes:
        p = malloc(asked)
        pyggml_see(p)
    if p is NULL:
        raise MemoryError(f"{nbytes} bytes for {what} could not be allocated")
    free(p)
    if used and nbytes >= _large:
        left, where = available()
        if nbytes > left:
            raise MemoryError(f"{nbytes} bytes for {what} could not be allocated: {where} has "
                              f"{left} left")
    return 0


def check(nbytes, what):
    """Raise MemoryError if so many more bytes do not fit; the same for Python code."""
    require(nbytes, what)


def _numbers(path):
    """Return the numbers of a file of names and numbers, or of one alone, as a dict."""
    try:
        with open(path) as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}
    found = {}
    for words in lines:
        if len(words) == 1 and words[0].isdigit():
            found[""] = int(words[0])
        elif len(words) > 1 and words[1].isdigit():
            found[words[0].rstrip(":")] = int(words[1])
    return found


def _group(root="/sys/fs/cgroup", membership="/proc/self/cgroup"):
    """Bytes that the control groups of this process leave, or None where they set no bound."""
    try:
        with open(membership) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    left = []
    for words in lines:
        if len(words) != 3:
            continue
        _, controllers, path = words
        parts = [p for p in path.split("/") if p]
        if not controllers:  # version 2: the bound may stand at any ancestor
            base, limit, usage = root, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base = os.path.join(root, "memory")
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        for depth in range(len(parts), -1, -1):
            folder = os.path.join(base, *parts[:depth])
            most = _numbers(os.path.join(folder, limit)).get("")
            used = _numbers(os.path.join(folder, usage)).get("")
            if most is None or used is None or most >= 1 << 62:
                continue
            # Pages of files count as used, but go when they are needed.
            stat = _numbers(os.path.join(folder, "memory.stat"))
            left.append(max(0, most - used + stat.get("inactive_file", 0)
                            + stat.get("active_file", 0)))
    return min(left) if left else None


def available():
    """Return how many bytes can still be used, and who says so.

    Returns
    -------
    tuple of int and str
        ``sys.maxsize`` where the system does not tell.
    """
    found = []
    memory = _numbers("/proc/meminfo")
    if "MemAvailable" in memory:
        found.append(((memory["MemAvailable"] + memory.get("SwapFree", 0)) * 1024, "the machine"))
    group = _group()
    if group is not None:
        found.append((group, "the control group"))
    return min(found, default=(sys.maxsize, "nobody"))
