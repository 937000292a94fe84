"""What the loop of ``fit`` costs beside the steps.

Prints ratios, medians of rounds in turn:

- an epoch of ``fit`` on 784-128-10 with batch 32, accuracy and progress bar included, over the
  same number of bare ``Trainer.step`` calls, for arrays, with a callback that is called for every
  batch, for a generator of ready arrays, and with one worker;
- ``evaluate`` of the same rows over as many ``Trainer.eval`` calls;
- rows gathered in a random order, as the loop reads them, against one copy of the same bytes into
  memory that was written before (a memcpy), and against NumPy's indexing.

Run ``python fit_costs.py --threads 1``. Times are those of the process, which a busy machine
disturbs less; the bar goes to stderr.
"""

import argparse
import statistics
import sys
import time

import numpy as np
from pyggml._arrays import Rows

import pyggml
from pyggml import _progress, layers

ROWS, BATCH = 6400, 32


def alternate(functions, rounds, clock=time.process_time):
    """Return the median, over rounds in turn, of each function's time over the first one's."""
    ratios = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(rounds):
        times = []
        for function in functions:
            began = clock()
            function()
            times.append(clock() - began)
        for found, t in zip(ratios, times, strict=True):
            found.append(t / times[0])
    return [statistics.median(found) for found in ratios]


class Listener(pyggml.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


def network():
    model = pyggml.Sequential([pyggml.Input((784,)), layers.Dense(128, "relu"),
                               layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"])
    return model


def loop(rounds):
    rng = np.random.default_rng(0)
    x = rng.random((ROWS, 784), dtype=np.float32)
    y = rng.integers(0, 10, ROWS)
    batches = [(x[i:i + BATCH], y[i:i + BATCH]) for i in range(0, ROWS, BATCH)]
    model = network()
    trainer = pyggml.Trainer(model, BATCH)

    def steps():
        for xs, ys in batches:
            trainer.step(xs, ys)

    def ready():
        yield from batches

    names = {
        "bare steps": steps,
        "fit, bar": lambda: model.fit(x, y, verbose=1),
        "fit, silent": lambda: model.fit(x, y, verbose=0),
        "fit, in order": lambda: model.fit(x, y, shuffle=False, verbose=0),
        "fit, callback for every batch": lambda: model.fit(x, y, verbose=0,
                                                           callbacks=[Listener()]),
        "fit, generator": lambda: model.fit(ready, batch_size=BATCH, verbose=0),
        "fit, one worker": lambda: model.fit(ready, batch_size=BATCH, verbose=0,
                                             workers=1),
    }
    ratios = alternate(list(names.values()), rounds)
    for name, ratio in zip(names, ratios, strict=True):
        print(f"{name:32} {ratio:.3f}")

    def evals():
        for xs, ys in batches:
            trainer.eval(xs, ys)

    ratios = alternate([evals, lambda: model.evaluate(x, y)], rounds)
    print(f"{'evaluate over eval':32} {ratios[1]:.3f}")


def gather(megabytes, row, rounds):
    n = megabytes * 1_000_000 // (4 * row)
    x = np.ones((n, row), np.float32)
    rows = Rows(x, "x")
    order = np.random.default_rng(0).permutation(n)
    target = np.empty_like(x)

    def copy():
        np.copyto(target, x)

    def by_batch():
        for start in range(0, n, 1024):
            rows.gather(order[start:start + 1024])

    def numpy_by_batch():
        for start in range(0, n, 1024):
            x[order[start:start + 1024]]

    _, own, numpy = alternate([copy, by_batch, numpy_by_batch], rounds)
    print(f"gather of {4 * row} byte rows from {megabytes} MB: {1 / own:.2f} of the speed of a "
          f"copy, {numpy / own:.2f} times NumPy's")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="by default what the process may use")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.threads:
        pyggml.set_num_threads(options.threads)
    if not sys.stderr.isatty():  # a bar all the same
        from tqdm import tqdm

        _progress._bar_class = lambda: type("Bar", (tqdm,), {"monitor_interval": 0})
    loop(options.rounds)
    gather(400, 784, options.rounds)
    gather(400, 16, options.rounds)
