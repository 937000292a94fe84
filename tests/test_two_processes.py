"""Two trainers in two processes: sharing cores costs each of them its share, not more."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity"),
]

CHILD = """
import os, sys, time
threads, n = int(sys.argv[1]), float(sys.argv[2])
os.sched_setaffinity(0, [int(c) for c in sys.argv[3].split(",")])
import numpy as np
import pyggml
from pyggml import layers

pyggml.set_num_threads(threads)
model = pyggml.Sequential([pyggml.Input((256,)), layers.Dense(256, "relu"),
                           layers.Dense(256, "relu"), layers.Dense(10)])
model.compile("adam", "mse")
x, y = np.ones((128, 256), np.float32), np.ones((128, 10), np.float32)
trainer = pyggml.Trainer(model, 128)
for _ in range(20):
    trainer.step(x, y)
print("ready", flush=True)
sys.stdin.readline()
begin = time.perf_counter()
steps = 0
while time.perf_counter() - begin < n:
    trainer.step(x, y)
    steps += 1
print((time.perf_counter() - begin) / steps, flush=True)
"""


def seconds_per_step(cpus, threads, seconds=0.6):
    """Seconds of a step in each of several processes that run at the same time."""
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(threads), str(seconds),
                          ",".join(map(str, cpu))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True, cwd=Path(__file__).parent)
        for cpu in cpus]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        return [float(child.stdout.readline()) for child in children]
    finally:
        for child in children:
            child.stdin.close()
            child.stdout.close()
            child.wait(timeout=60)


def slowdown(alone, shared, threads):
    """How much slower a step is where processes share, by medians of turns."""
    rounds = []
    for _ in range(3):
        apart = statistics.mean(seconds_per_step(alone, threads))
        together = statistics.mean(seconds_per_step(shared, threads))
        rounds.append(together / apart)
    return statistics.median(rounds)


@pytest.mark.parametrize("threads", [1, 2])
def test_two_trainers_on_one_core_take_twice_as_long_not_thirty_times(threads):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two cores")
    a, b = [cpus[0]], [cpus[1]]
    # With two threads on one core the pool's own threads share it, too.
    assert slowdown([a, b], [a, a], threads) < 5


def test_two_trainers_of_two_threads_on_the_same_two_cores():
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("needs two cores")
    assert slowdown([cpus], [cpus, cpus], 2) < 5
