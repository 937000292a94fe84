"""What a Trainer costs beside the computation.

Prints

- microseconds per ``step`` and per step of ``step_many`` on a network of one weight, where nearly
  all is overhead, and their difference: what Python adds to the C calls;
- the time of ``step`` and ``predict`` in turn, against the sum of both alone;
- the share of a step that drawing the dropout masks of a 784-500-10 network takes.

Every figure is the best of several rounds, in turn, so that a busy machine spoils few of them.
Run ``python trainer_costs.py --threads 1``.
"""

import argparse
import time

import numpy as np

import pyggml
from pyggml import layers

ROUNDS = 60


def timed(functions, repeat):
    """Return the best seconds per call of each function; rounds go around all of them."""
    best = [np.inf] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            started = time.perf_counter()
            for _ in range(repeat):
                function()
            best[i] = min(best[i], (time.perf_counter() - started) / repeat)
    return best


def dense(sizes, loss, dropout=0.0):
    model = pyggml.Sequential([pyggml.Input((sizes[0],))])
    for size in sizes[1:-1]:
        model.add(layers.Dense(size, "relu"))
        if dropout:
            model.add(layers.Dropout(dropout))
    model.add(layers.Dense(sizes[-1]))
    model.compile("adam", loss)
    return model


def overhead():
    trainer = pyggml.Trainer(dense((1, 1), "mse"), 1)
    x = np.ones((1, 1), np.float32)
    rows = np.zeros((200, 1), np.int64)
    step, many = timed([lambda: trainer.step(x, x), lambda: trainer.step_many(x, x, rows)], 5)
    many /= len(rows)
    print(f"step {step * 1e6:.2f} us, in step_many {many * 1e6:.2f} us: "
          f"Python adds {(step - many) * 1e6:.2f} us")


def alternation(sizes, batch):
    trainer = pyggml.Trainer(dense(sizes, "mse"), batch)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, sizes[0])).astype(np.float32)
    y = rng.normal(size=(batch, sizes[-1])).astype(np.float32)

    def both():
        trainer.step(x, y)
        trainer.predict(x)

    step, predict, together = timed(
        [lambda: trainer.step(x, y), lambda: trainer.predict(x), both], 5)
    print(f"{'-'.join(map(str, sizes))}, batch {batch}: step {step * 1e6:.0f} us, predict "
          f"{predict * 1e6:.0f} us, in turn {together / (step + predict):.2f} of their sum")


def dropout_share():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 784)).astype(np.float32)
    y = rng.normal(size=(500, 10)).astype(np.float32)
    plain = pyggml.Trainer(dense((784, 500, 10), "mse"), 500)
    dropped = pyggml.Trainer(dense((784, 500, 10), "mse", 0.5), 500)
    a, b = timed([lambda: plain.step(x, y), lambda: dropped.step(x, y)], 1)
    print(f"784-500-10, batch 500: step {a * 1e3:.2f} ms, with dropout {b * 1e3:.2f} ms "
          f"({100 * (b - a) / b:.1f} % of it)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="by default what the process may use")
    options = parser.parse_args()
    if options.threads:
        pyggml.set_num_threads(options.threads)
    overhead()
    alternation((4, 64, 64, 2), 32)
    alternation((784, 128, 10), 32)
    dropout_share()
