"""checkpoints.fit in a process of its own, for R12: ``r12_job.py CHECKPOINT RESULT KILL``."""

import hashlib
import json
import os
import signal
import sys

import numpy as np

import pyggml
from pyggml import callbacks, checkpoints, hpc, layers, schedules

EPOCHS = 6


def run(path, kill=None):
    """Train; at batch ``kill`` of all epochs the process gets SIGTERM or, below 0, SIGKILL."""
    pyggml.set_num_threads(1)
    pyggml.set_seed(8)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(50, 4)).astype("f4"), rng.normal(size=(50, 2)).astype("f4")
    model = pyggml.Sequential([pyggml.Input((4,), name="x"), layers.Dense(8, "tanh", name="a"),
                               layers.Dropout(0.2, name="d"), layers.Dense(2, name="b")],
                              name="m")
    model.compile(pyggml.optimizers.Adam(0.01), "mse")
    seen = []

    def strike(batch, logs=None):
        seen.append(batch)
        if kill is not None and len(seen) == abs(kill):
            os.kill(os.getpid(), signal.SIGTERM if kill > 0 else signal.SIGKILL)

    watch = [schedules.CosineDecay(by="step"),
             callbacks.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True),
             callbacks.LambdaCallback(on_train_batch_end=strike)]
    with hpc.PreemptionHandler(time_limit=None) as stop:
        history = checkpoints.fit(model, x, y, path=path, epochs=EPOCHS, batch_size=8,
                                  nbatch_logical=16, validation_split=0.2, verbose=0,
                                  callbacks=watch, handler=stop)
    weights = b"".join(w.tobytes() for w in model.get_weights())
    return {"weights": hashlib.sha256(weights).hexdigest(), "epoch": history.epoch,
            "history": history.history, "batches": len(seen)}


if __name__ == "__main__":
    result = run(sys.argv[1], int(sys.argv[3]) or None)
    with open(sys.argv[2], "w") as file:
        json.dump(result, file)
