"""The machine: its processors, who else uses them, and what is installed."""

import importlib.util
import os
import pkgutil
import platform
import sys
import time
from importlib import metadata
from pathlib import Path


def processors():
    """The processors that this process may use, one of each core first."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    seen, first, rest = set(), [], []
    for cpu in allowed:
        core = _sibling(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    return first + rest


def _sibling(cpu):
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return path.read_text() if path.exists() else str(cpu)


def limit_processors(n):
    """Keep this process, and threads it will start, on n processors; False where it cannot be."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, processors()[:n])
    return True


class OtherLoad:
    """How busy others keep the processors meanwhile."""

    def __init__(self):
        self.begun = _processor_seconds()

    def share(self):
        """The share of all processor time since then that others used; None where not known."""
        end = _processor_seconds()
        if self.begun is None:
            return None
        (busy0, all0, own0), (busy1, all1, own1) = self.begun, end
        total = all1 - all0
        return None if total <= 0 else max(0.0, (busy1 - busy0 - (own1 - own0)) / total)


def _processor_seconds():
    """Busy and all seconds of all processors, and those of this process."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(v) for v in stat.read_text().split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, (busy + idle + iowait) / tick, time.process_time()


def describe(packages):
    """Processor, system and versions, as a dict."""
    return {
        "processor": _processor_name(),
        "processors": len(processors()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {p: metadata.version(p) for p in packages if _installed(p)},
    }


def _processor_name():
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines
                 if line.startswith("model name")), "") or platform.processor() or "unknown"
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    sets = [label for flag, label in (("avx2", "AVX2"), ("avx512f", "AVX-512")) if flag in flags]
    return name + (f" ({', '.join(sets)})" if sets else "")


def _installed(package):
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def installed_sizes(package):
    """Bytes on disk of an installed package and of all that it needs, by name."""
    sizes, left = {}, [package]
    while left:
        name = left.pop()
        if name in sizes or not _installed(name):
            continue
        distribution = metadata.distribution(name)
        sizes[name] = _size(distribution)
        left += [_name(r) for r in distribution.requires or () if "extra ==" not in r]
    return sizes


def _name(requirement):
    head = requirement
    for mark in " ;<>=!~[(":
        head = head.split(mark, 1)[0]
    return head.lower().replace("_", "-").replace(".", "-")


def _size(distribution):
    files = [Path(distribution.locate_file(f)) for f in distribution.files or ()]
    total = sum(f.stat().st_size for f in files if f.is_file() and f.suffix != ".pyc")
    if "editable" not in (distribution.read_text("direct_url.json") or ""):
        return total
    # Its files lie elsewhere: count the modules that an import would find.
    package = importlib.import_module(distribution.metadata["Name"])
    found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    origins = {importlib.util.find_spec(m.name).origin for m in found} | {package.__file__}
    return sum(Path(o).stat().st_size for o in origins if o)


def peak_memory():
    """The most bytes of memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():     # getrusage would count what the parent had before this one began
        line = next(s for s in status.read_text().splitlines() if s.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
