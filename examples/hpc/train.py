"""Train in a batch job that may be stopped at any moment, and goes on in the next run.

    python train.py --checkpoint run.ckpt --steps 20000

Run it again after it was stopped, by a signal, by the time limit or by a power failure: it goes
on from the checkpoint and ends with the same bits as a run that was never stopped. It exits with
0 when the work is done and with 75 when it has to be started again.
"""

import argparse
import hashlib

import numpy as np

import pyggml
from pyggml import checkpoints, hpc, layers

BATCH = 32


def make_data(n=4096):
    """Return points on two noisy spirals and which one they are on."""
    rng = np.random.default_rng(1)
    label = rng.integers(2, size=n)
    t = rng.uniform(0.5, 3, n) * np.pi
    x = np.stack([t * np.cos(t + np.pi * label), t * np.sin(t + np.pi * label)], axis=1) / 8
    return (x + rng.normal(scale=0.02, size=x.shape)).astype(np.float32), label


def make_model():
    """Return the compiled network."""
    model = pyggml.Sequential([
        pyggml.Input((2,), name="point"),
        layers.Dense(32, "tanh", name="hidden_1"),
        layers.Dropout(0.05, name="dropout"),
        layers.Dense(32, "tanh", name="hidden_2"),
        layers.Dense(2, "softmax", name="spiral"),
    ], name="spirals")
    model.compile(optimizer=pyggml.optimizers.AdamW(3e-3, weight_decay=1e-3),
                  loss="sparse_categorical_crossentropy")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="run.ckpt")
    parser.add_argument("--model", default="model.gguf", help="written when the work is done")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--save-every", type=float, default=600.0, help="seconds")
    parser.add_argument("--time-limit", default="auto", help="[days-]hh:mm:ss from now")
    parser.add_argument("--margin", type=float, default=60.0, help="seconds kept for saving")
    given = parser.parse_args()

    # First of all, so that a signal during the start is not lost.
    with hpc.PreemptionHandler(time_limit=given.time_limit, margin=given.margin) as stop:
        train(given, stop)


def train(given, stop):
    """Go on from the checkpoint, if there is one, until the work is done."""
    x, y = make_data()
    batches = hpc.ShuffledBatches(len(x), BATCH, seed=2)
    found = checkpoints.latest(given.checkpoint)
    if found is None:
        pyggml.set_seed(3)
        # Gradients of 4 batches make one update; a stop between them loses nothing either.
        trainer = pyggml.Trainer(make_model(), BATCH, nbatch_logical=4 * BATCH)
    else:
        with checkpoints.load(found) as saved:
            trainer = saved.trainer()
            saved.restore({"batches": batches})
    print(f"step {trainer.n_steps}", flush=True)

    def step():
        rows = next(batches)
        loss = trainer.step(x[rows], y[rows])
        if trainer.n_steps % 1000 == 0:
            print(f"step {trainer.n_steps}  epoch {batches.epoch}  loss {loss:.4f}", flush=True)

    def save():
        trainer.save_checkpoint(given.checkpoint, keep=2, objects={"batches": batches})

    hpc.run_until(lambda: trainer.n_steps >= given.steps, step, save,
                  save_every=given.save_every, handler=stop)
    trainer.model().save(given.model)
    right = (trainer.predict(x).argmax(axis=1) == y).mean()
    weights = b"".join(w.tobytes() for w in trainer.get_weights())
    print(f"accuracy {right:.3f}")
    print(f"weights {hashlib.sha256(weights).hexdigest()}")


if __name__ == "__main__":
    main()
