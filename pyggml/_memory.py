"""How much memory is left: a system may hand out more than it has, and end the process later."""

import os
import sys

# Below this nobody asks: reading the system's files takes longer than the allocation.
_CHECKED = 64 << 20


def _meminfo():
    """Bytes that Linux says are free for programs, swap included."""
    found = {}
    try:
        with open("/proc/meminfo") as f:
            for line in f:
                key, value = line.split(":", 1)
                found[key] = int(value.split()[0]) << 10
    except (OSError, ValueError):
        return None
    if "MemAvailable" not in found:
        return None
    return found["MemAvailable"] + found.get("SwapFree", 0)


def _number(*parts):
    try:
        with open(os.path.join(*parts)) as f:
            return int(f.read())
    except (OSError, ValueError):  # "max" is no bound
        return None


def _cgroup(root="/sys/fs/cgroup"):
    """Bytes that the control groups of the process leave it, or None without a bound."""
    try:
        with open("/proc/self/cgroup") as f:
            lines = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return None
    left = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            names, base = ("memory.max", "memory.current"), root
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            base = os.path.join(root, "memory")
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):  # the bound may stand at any ancestor
            folder = os.path.join(base, *parts[:depth])
            limit, used = (_number(folder, name) for name in names)
            if limit is not None and used is not None:
                left.append(limit - used + _cached(folder))
    return max(0, min(left)) if left else None


def _cached(folder):
    """Bytes of files in memory, which the system gives up when programs want them."""
    try:
        with open(os.path.join(folder, "memory.stat")) as f:
            stat = dict(line.split() for line in f)
    except (OSError, ValueError):
        return 0
    return int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))


def _address_space():
    """Bytes of address space that ``ulimit -v`` leaves, or None without a bound."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    pages = 0
    try:
        with open("/proc/self/statm") as f:
            pages = int(f.read().split()[0])
    except OSError:
        return limit
    return max(0, limit - pages * resource.getpagesize())


def available():
    """Return about how many bytes the process can still get, or None where nobody tells.

    Returns
    -------
    int or None
        The smallest of what the system, the control group and ``ulimit -v`` leave.
    """
    if sys.platform.startswith("linux"):
        bounds = [_meminfo(), _cgroup(), _address_space()]
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        bounds = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    else:
        bounds = []
    return min((b for b in bounds if b is not None), default=None)


def require(nbytes, what):
    """Raise MemoryError where so many bytes are not there.

    Parameters
    ----------
    nbytes : int
    what : str
        What they are for.
    """
    if nbytes < _CHECKED:
        return
    left = available()
    if left is not None and nbytes > left:
        raise MemoryError(f"{nbytes} bytes for {what} could not be allocated: about {left} bytes "
                          "of memory are left")
