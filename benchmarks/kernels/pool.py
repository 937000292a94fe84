"""What a region of the thread pool costs, and what two processes on the same cores cost each other.

    python benchmarks/kernels/pool.py
"""

import os
import subprocess
import sys

from pyggml import _kernels as K

WORK = """
import os, sys
os.sched_setaffinity(0, {int(c) for c in sys.argv[1].split(",")})
from pyggml import _kernels as K
K.set_num_threads(2)
K.region_seconds(2, 1000, 2000)
print(min(K.region_seconds(2, 20000, 2000) for _ in range(3)))
"""


def latency():
    for threads in (1, 2):
        K.set_num_threads(threads)
        K.region_seconds(threads, 20000)
        t = min(K.region_seconds(threads, 20000) for _ in range(20)) / 20000
        print(f"empty region, {threads} thread(s): {t * 1e6:.2f} us")
        for turns in (500, 5000, 50000):
            reps = 5_000_000 // turns
            t = min(K.region_seconds(2, reps, turns) for _ in range(10)) / reps
            print(f"  two parts of {turns} turns, {threads} thread(s): {t * 1e6:.1f} us")


def sharing():
    cores = sorted(os.sched_getaffinity(0))
    places = [("one core", str(cores[0]))]
    if len(cores) > 1:
        places.append(("two cores", f"{cores[0]},{cores[1]}"))
    for name, place in places:
        def start(place=place):
            return subprocess.Popen([sys.executable, "-c", WORK, place], stdout=subprocess.PIPE)

        alone = float(start().communicate()[0])
        pair = [start(), start()]
        both = max(float(p.communicate()[0]) for p in pair)
        print(f"two processes of 2 threads on {name}: {both / alone:.2f} times as long as one")


latency()
if hasattr(os, "sched_setaffinity"):
    sharing()
