"""What Python adds to a step: its time on a network where there is nearly nothing to compute."""

import json
import time
from statistics import median

import numpy as np

from benchmarks import machine
from benchmarks.contest import CLOCKS


def main(options):
    """Time ``step`` and a step of ``step_many`` in turn; the medians go to the "out" file."""
    machine.limit_processors(1)
    import pyggml

    pyggml.set_num_threads(1)
    model = pyggml.Sequential([pyggml.Input((1,)), pyggml.layers.Dense(1)])
    model.compile("adam", "mse")
    now = getattr(time, CLOCKS[options["clock"]])
    x = np.ones((1, 1), np.float32)
    rows = np.zeros((1000, 1), np.int64)
    with pyggml.Trainer(model, 1) as trainer:
        def steps():
            for _ in range(len(rows)):
                trainer.step(x, x)

        def many():
            trainer.step_many(x, x, rows)

        times = {"step": [], "many": []}
        for _ in range(3 if options["quick"] else 31):
            for name, function in (("step", steps), ("many", many)):
                begun = now()
                function()
                times[name].append((now() - begun) / len(rows))
    with open(options["out"], "w") as f:
        json.dump({name: median(seconds) for name, seconds in times.items()}, f)
