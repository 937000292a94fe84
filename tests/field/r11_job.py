"""A piece of a training run, for R11: ``r11_job.py CASE FIRST LAST CHECKPOINT RESULT``.

Starts anew at step 0, else from the checkpoint; saves it, and prints nothing.
"""

import hashlib
import json
import os
import sys

import numpy as np

import pyggml
from pyggml import hpc, layers

ROWS, BATCH = 26, 4


def scalar(optimizer):
    model = pyggml.Sequential([pyggml.Input((1,)),
                               layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def network(optimizer, middle=()):
    model = pyggml.Sequential([pyggml.Input((5,), name="x"), layers.Dense(7, "tanh", name="a"),
                               *middle, layers.Dense(2, name="b")], name="network")
    model.compile(optimizer=optimizer, loss="mse")
    return model


def _momentum():
    return pyggml.optimizers.SGD(0.05, momentum=0.9, nesterov=True)


def _batch_norm():
    return layers.BatchNormalization(momentum=0.9, name="m")


CASES = {f"optimizer_{name}": (lambda name=name: network(name), {})
         for name in sorted(pyggml.optimizers._classes)}
CASES |= {
    "momentum": (lambda: network(_momentum()), {}),
    "weight_decay": (lambda: network(pyggml.optimizers.AdamW(1e-2, weight_decay=0.1)), {}),
    "batch_norm": (lambda: network("adam", [_batch_norm()]), {}),
    "dropout": (lambda: network("adam", [layers.Dropout(0.4, name="m")]), {}),
    "accumulation": (lambda: network("adam"), {"nbatch_logical": 3 * BATCH}),
    "accumulation_dropout": (lambda: network("sgd", [layers.Dropout(0.4, name="m")]),
                             {"nbatch_logical": 2 * BATCH}),
}


CASES |= {f"everything_{name}": (
    lambda name=name: network(name, [_batch_norm(), layers.Dropout(0.3, name="n")]),
    {"nbatch_logical": 3 * BATCH}) for name in sorted(pyggml.optimizers._classes)}


def missing(case):
    """Why a case cannot run with this build, or None."""
    if case == "batch_norm" and not hasattr(layers, "BatchNormalization"):
        return "there is no BatchNormalization yet"
    if case == "momentum":
        try:
            _momentum()
        except TypeError:
            return "SGD has no momentum yet"
    return None


def data():
    rng = np.random.default_rng(7)
    return rng.normal(size=(ROWS, 5)).astype("f4"), rng.normal(size=(ROWS, 2)).astype("f4")


def run(case, first, last, checkpoint):
    """Do steps ``first`` to ``last`` and save; return what can be compared."""
    pyggml.set_num_threads(1)
    x, y = data()
    batches = hpc.ShuffledBatches(ROWS, BATCH, seed=3)
    rng = np.random.default_rng(11)
    if first == 0:
        pyggml.set_seed(5)
        make, arguments = CASES[case]
        trainer = pyggml.Trainer(make(), BATCH, **arguments)
    else:
        with pyggml.checkpoints.load(checkpoint) as saved:
            trainer = saved.trainer()
            saved.restore({"batches": batches, "rng": rng})
    losses, orders = [], []
    for step in range(first, last):
        rows = next(batches)
        orders.append(rows.tolist())
        if step == 4:
            trainer.set_lr(trainer.lr * 0.7)
        losses.append(trainer.step(x[rows] + rng.normal(size=(BATCH, 5)) * 0.01, y[rows]).hex())
    trainer.save_checkpoint(checkpoint, objects={"batches": batches, "rng": rng})
    digest = hashlib.sha256(b"".join(w.tobytes() for w in trainer.get_weights())).hexdigest()
    return {"losses": losses, "orders": orders, "weights": digest, "lr": trainer.lr.hex(),
            "n_steps": trainer.n_steps, "n_updates": trainer.n_updates,
            "stream": pyggml._random.generator().integers(1 << 60, size=3).tolist()}


if __name__ == "__main__":
    name, start, stop, path, out = sys.argv[1:]
    result = run(name, int(start), int(stop), path)
    with open(out, "w") as file:
        json.dump(result | {"pid": os.getpid()}, file)
