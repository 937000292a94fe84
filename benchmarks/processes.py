"""What takes a process for each contestant: import time, memory, and size on disk."""

import json
import subprocess
import sys
import tempfile

from benchmarks import children, machine, peers
from benchmarks.contest import CLOCKS
from benchmarks.workloads import workloads

IMPORTS = {"pyggml": "import pyggml", "torch": "import torch", "keras": "import keras",
           "jax": "import jax", "sklearn": "import sklearn.neural_network",
           "numpy": "import numpy"}


def import_times(keys, rounds, clock):
    """Seconds that an import takes in a new process, lists by key, NumPy's beside them."""
    now = CLOCKS[clock]
    times = {key: [] for key in (*keys, "numpy")}
    with tempfile.TemporaryDirectory() as folder:
        for r in range(rounds + 1):
            for key, seconds in times.items():
                code = (f"from time import {now} as now; t = now(); {IMPORTS[key]}; "
                        "print(now() - t)")
                done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True,
                                      capture_output=True, text=True,
                                      env=children.environment(1))
                if r:       # the first brings the files into memory
                    seconds.append(float(done.stdout.split()[-1]))
    return times


def memory(keys, name, quick):
    """The most bytes that a process has had which trains 50 steps, by key; None where it failed."""
    found = {}
    for key in keys:
        result = children.run("processes", {"peer": key, "workload": name, "quick": quick}, 1)
        found[key] = result and result["bytes"]
    return found


def main(options):
    """The child: train, then tell the peak."""
    machine.limit_processors(1)
    peer = peers.load(options["peer"])
    peer.configure(1)
    workload = workloads(options["quick"])[options["workload"]]
    _, make = next(iter(peer.contestants(workload, False)))
    make().run(50)
    with open(options["out"], "w") as f:
        json.dump({"bytes": machine.peak_memory()}, f)


def sizes(keys):
    """Bytes on disk of each peer with all that it needs, by key."""
    return {key: sum({name: size for package in peers.load(key).PACKAGES
                      for name, size in machine.installed_sizes(package).items()}.values())
            for key in keys}
