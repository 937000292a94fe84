"""How fast files of models and checkpoints are beside NumPy's, for 100 MB of weights.

Prints medians, over rounds in turn, of the time of

- ``save``, ``save_weights`` and ``save_checkpoint`` over ``numpy.save`` of the same bytes, brought
  to the disk by both (``fsync``), and over ``numpy.save`` that leaves them to the system;
- ``load_model``, ``load_weights`` and ``from_checkpoint``, with the model of the file and with one
  that is given, over ``numpy.load``.

Before each, unmeasured, what was written before is brought to the disk and garbage is collected,
so that nobody waits for another's bytes or pays for pages that another one still holds.

Run ``python files.py --folder /where/the/disk/is``.
"""

import argparse
import gc
import os
import statistics
import tempfile
import time

import numpy as np

import pyggml
from pyggml import layers


def alternate(functions, rounds):
    """Return each function's times by its name, one a round, each round in another order."""
    times = {name: [] for name in functions}
    for function in functions.values():
        function()
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for name in rng.permutation(list(functions)):
            function = functions[name]
            gc.collect()
            if hasattr(os, "sync"):
                os.sync()
            began = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - began)
    return times


def ratio(some, others, share=1.0):
    return statistics.median(a / b for a, b in zip(some, others, strict=True)) * share


def main(folder, rounds):
    def place(name):
        return os.path.join(folder, name)

    model = pyggml.Sequential([pyggml.Input((5000,)), layers.Dense(5000, use_bias=False)])
    model.compile("sgd", "mse")
    array = model.get_weights()[0]
    trainer = pyggml.Trainer(model, 1)
    trained = pyggml.Sequential([pyggml.Input((2900,)), layers.Dense(2900, use_bias=False)])
    trained.compile("adam", "mse")  # weights and two moments: 100 MB together
    adam = pyggml.Trainer(trained, 1)

    def durable():
        with open(place("npy"), "wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())

    savers = {"save": lambda: model.save(place("gguf")),
              "save_weights": lambda: model.save_weights(place("weights")),
              "save_checkpoint": lambda: trainer.save_checkpoint(place("ckpt")),
              "save_checkpoint, Adam": lambda: adam.save_checkpoint(place("adam"))}
    loaders = {"load_model": lambda: pyggml.load_model(place("gguf")),
               "load_weights": lambda: model.load_weights(place("weights")),
               "from_checkpoint": lambda: pyggml.Trainer.from_checkpoint(place("ckpt")).free(),
               "from_checkpoint, model given":
                   lambda: pyggml.Trainer.from_checkpoint(place("ckpt"), model).free(),
               "from_checkpoint, Adam":
                   lambda: pyggml.Trainer.from_checkpoint(place("adam")).free()}
    times = alternate({"durable": durable, "plain": lambda: np.save(place("npy"), array), **savers,
                       "load": lambda: np.load(place("npy")), **loaders}, rounds)
    share = os.path.getsize(place("npy")) / os.path.getsize(place("adam"))
    for name in ("durable", "plain", "load"):
        print(f"numpy, {name}: {statistics.median(times[name]) * 1000:.0f} ms")
    for name in savers:
        equal = share if "Adam" in name else 1.0
        print(f"{name}: {ratio(times[name], times['durable'], equal):.2f} of numpy.save on the "
              f"disk, {ratio(times[name], times['plain'], equal):.2f} of numpy.save left to the "
              "system")
    for name in loaders:
        equal = share if "Adam" in name else 1.0
        print(f"{name}: {ratio(times[name], times['load'], equal):.2f} of numpy.load")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="by default one for temporary files")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        main(made, options.rounds)
