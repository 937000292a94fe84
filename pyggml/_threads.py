"""How many threads a process may use: affinity, control group, batch system."""

import os
import sys


def _positive_int(text):
    try:
        value = int(text.split(",")[0])  # OMP_NUM_THREADS may list one number a nesting level
    except ValueError:
        return None
    return value if value > 0 else None


def _cgroup_quota(root="/sys/fs/cgroup"):
    """CPUs that the control group grants, or None where it sets no bound."""

    def read(*parts):
        try:
            with open(os.path.join(root, *parts)) as f:
                return f.read().split()
        except OSError:
            return None

    found = []
    try:
        with open("/proc/self/cgroup") as f:
            lines = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        lines = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        path = path.strip("/")
        if not controllers:  # version 2: the bound may stand at any ancestor
            parts = path.split("/") if path else []
            for depth in range(len(parts), -1, -1):
                words = read(*parts[:depth], "cpu.max")
                if words and len(words) == 2 and words[0] != "max":
                    found.append(int(words[0]) / int(words[1]))
        elif "cpu" in controllers.split(","):
            for folder in (path, ""):
                quota = read("cpu", folder, "cpu.cfs_quota_us")
                period = read("cpu", folder, "cpu.cfs_period_us")
                if quota and period and int(quota[0]) > 0:
                    found.append(int(quota[0]) / int(period[0]))
    return max(1, int(min(found))) if found else None


def processors():
    """Return how many processors this process may run on."""
    if sys.platform.startswith("linux"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_num_threads():
    """Return the smallest of what affinity, control group and environment allow.

    Returns
    -------
    int
        At least 1. ``OMP_NUM_THREADS`` and ``SLURM_CPUS_PER_TASK`` count where they hold a
        positive number. ``PYGGML_NUM_THREADS`` stands above all of them: so many, even if there
        are fewer processors.
    """
    chosen = _positive_int(os.environ.get("PYGGML_NUM_THREADS", ""))
    if chosen is not None:
        return chosen
    bounds = [processors()]
    if sys.platform.startswith("linux"):
        bounds.append(_cgroup_quota())
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        bounds.append(_positive_int(os.environ.get(name, "")))
    return max(1, min(b for b in bounds if b))
