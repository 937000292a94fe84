"""A training with BackupAndRestore: ``backup_job.py CASE FOLDER RESULT STRIKE``.

At batch STRIKE of the process it is killed: by SIGTERM, or SIGKILL where STRIKE is negative; never
where it is 0.
"""

import hashlib
import json
import os
import signal
import sys

import numpy as np

import pyggml
from pyggml import callbacks, hpc, layers, schedules

ROWS, BATCH, EPOCHS = 53, 4, 4


def network(optimizer, middle=()):
    model = pyggml.Sequential([pyggml.Input((5,), name="x"), layers.Dense(7, "tanh", name="a"),
                               *middle, layers.Dense(2, name="b")], name="network")
    model.compile(optimizer, "mse", metrics=["mae", "r2"])
    return model


class Noisy:
    """A generator whose place can be saved."""

    def __init__(self):
        self.rng = np.random.default_rng(2)

    def __call__(self):
        x = self.rng.normal(size=(BATCH, 5))
        return x, x[:, :2]

    def get_state(self):
        return self.rng.bit_generator.state

    def set_state(self, state):
        self.rng.bit_generator.state = state


class Batches:
    """A sequence of batches."""

    def __init__(self):
        self.x, self.y = data()

    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, i):
        rows = slice(i * BATCH, (i + 1) * BATCH)
        return self.x[rows], self.y[rows]


def by_batches():
    batches = Batches()
    for i in range(len(batches)):
        yield batches[i]


def data():
    rng = np.random.default_rng(7)
    return rng.normal(size=(ROWS, 5)).astype("f4"), rng.normal(size=(ROWS, 2)).astype("f4")


def _batch_norm(momentum):
    return layers.BatchNormalization(momentum=momentum, name="m")


CASES = {f"optimizer_{name}": (lambda name=name: network(name), {})
         for name in sorted(pyggml.optimizers._classes)}
CASES |= {
    "batch_norm": (lambda: network("adam", [_batch_norm(0.9)]), {}),
    "calibrated": (lambda: network("adam", [_batch_norm(None)]), {"validation_split": 0.2}),
    "dropout": (lambda: network("adam", [layers.Dropout(0.4, name="m")]), {"seed": 3}),
    "window": (lambda: network("adam"), {"nbatch_logical": 3 * BATCH}),
    "in order": (lambda: network("adam"), {"shuffle": False}),
    "split": (lambda: network("adam"), {"validation_split": 0.3, "shuffle_before_split": True}),
    "generator": (lambda: network("adam"), {"generator": Noisy, "steps_per_epoch": 13}),
    "sequence": (lambda: network("adam"), {"generator": Batches}),
    "factory": (lambda: network("adam"), {"generator": by_batches, "steps_per_epoch": 13}),
    "workers": (lambda: network("adam"), {"generator": Batches, "workers": 2}),
}


def run(case, folder, strike=0, save_freq=2):
    pyggml.set_num_threads(1)
    pyggml.set_seed(8)
    make, arguments = CASES[case]
    arguments = dict(arguments)
    source = data()
    if "generator" in arguments:
        source = ()
        made = arguments["generator"]
        arguments["generator"] = made if case == "factory" else made()
    model = make()
    seen = []

    def count(batch, logs=None):
        seen.append(batch)
        if strike and len(seen) == abs(strike):
            os.kill(os.getpid(), signal.SIGTERM if strike > 0 else signal.SIGKILL)

    with hpc.PreemptionHandler(time_limit=None) as stop:
        watch = [
            schedules.CosineDecay(by="step"),
            callbacks.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True),
            callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=9),
            callbacks.BackupAndRestore(folder, save_freq=save_freq, handler=stop),
            callbacks.CSVLogger(folder + ".csv"),
            callbacks.LambdaCallback(on_train_batch_end=count),
        ]
        history = model.fit(*source, batch_size=BATCH, epochs=EPOCHS, verbose=0,
                            callbacks=watch, **arguments)
    weights = b"".join(w.tobytes() for w in model.get_weights())
    trainer = model.compiled.trainer
    with open(folder + ".csv") as file:
        lines = file.read()
    return {"weights": hashlib.sha256(weights).hexdigest(), "epoch": history.epoch,
            "history": {k: [v.hex() for v in row] for k, row in history.history.items()},
            "steps": trainer.n_steps, "updates": trainer.n_updates, "lines": lines,
            "rate": model.optimizer.learning_rate.hex(),
            "best": watch[1].best, "wait": watch[2].wait,
            "stream": pyggml._random.generator().integers(1 << 60, size=3).tolist(),
            "batches": len(seen)}


if __name__ == "__main__":
    found = run(sys.argv[1], sys.argv[2], int(sys.argv[4]))
    with open(sys.argv[3], "w") as out:
        json.dump(found, out)
