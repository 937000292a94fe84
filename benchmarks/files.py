"""How fast model files are beside NumPy's, for 100 MB.

Prints medians, over rounds in turn, of the time of

- ``model.save`` over ``numpy.save`` of the same bytes, brought to the disk by both (``fsync``), and
  over ``numpy.save`` that leaves them to the system;
- ``load_model`` over ``numpy.load``;
- ``save_checkpoint`` and ``from_checkpoint`` over the same, byte for byte.

Run ``python files.py --folder /where/the/disk/is``.
"""

import argparse
import os
import statistics
import tempfile
import time

import numpy as np

import pyggml
from pyggml import layers


def alternate(functions, rounds):
    """Return each function's times, one a round."""
    times = [[] for _ in functions]
    for _ in range(rounds):
        for found, function in zip(times, functions, strict=True):
            began = time.perf_counter()
            function()
            found.append(time.perf_counter() - began)
    return times


def ratio(some, others, share=1.0):
    return statistics.median(a / b * share for a, b in zip(some, others, strict=True))


def main(folder, rounds):
    model = pyggml.Sequential([pyggml.Input((5000,)), layers.Dense(5000, use_bias=False)])
    model.compile("sgd", "mse")
    array = model.get_weights()[0]
    npy, gguf = os.path.join(folder, "a.npy"), os.path.join(folder, "m.gguf")
    ckpt = os.path.join(folder, "m.ckpt")
    trainer = pyggml.Trainer(model, 1)

    def numpy_save():
        with open(npy, "wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())

    functions = [numpy_save, lambda: np.save(npy, array), lambda: np.load(npy),
                 lambda: model.save(gguf), lambda: pyggml.load_model(gguf),
                 lambda: trainer.save_checkpoint(ckpt),
                 lambda: pyggml.Trainer.from_checkpoint(ckpt).free()]
    for function in functions:
        function()
    durable, plain, load, save, load_model, save_ckpt, load_ckpt = alternate(functions, rounds)
    share = os.path.getsize(npy) / os.path.getsize(ckpt)
    print(f"model.save: {ratio(save, durable):.2f} of numpy.save on the disk, "
          f"{ratio(save, plain):.2f} of numpy.save left to the system")
    print(f"load_model: {ratio(load_model, load):.2f} of numpy.load")
    print(f"save_checkpoint: {ratio(save_ckpt, durable, share):.2f} of numpy.save on the disk")
    print(f"from_checkpoint: {ratio(load_ckpt, load, share):.2f} of numpy.load")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="by default one for temporary files")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        main(place, options.rounds)
