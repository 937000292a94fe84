"""What a Trainer costs beside the computation.

Prints

- microseconds per ``step`` and per step of ``step_many`` on a network of one weight, where nearly
  all is overhead, and their difference: what Python adds to the C calls;
- microseconds of ``predict`` for one row, by a trainer and by a snapshot of it;
- the time of ``step`` and ``predict`` in turn, against the sum of both alone;
- how many steps of a ``step_many`` pass while another thread waits for a ``predict``;
- the share of a step that dropout (drawing and applying the masks) takes in a 784-500-10 network.

Every figure is the best of several rounds, in turn, so that a busy machine spoils few of them.
Run ``python trainer_costs.py --threads 1``.
"""

import argparse
import threading
import time

import numpy as np

import pyggml
from pyggml import layers

ROUNDS = 60


def timed(functions, repeat, clock=time.perf_counter):
    """Return the best seconds per call of each function; rounds go around all of them."""
    best = [np.inf] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            started = clock()
            for _ in range(repeat):
                function()
            best[i] = min(best[i], (clock() - started) / repeat)
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


def one_row(sizes):
    trainer = pyggml.Trainer(dense(sizes, "mse"), 32)
    snapshot = trainer.snapshot()
    x = np.ones((1, sizes[0]), np.float32)
    a, b = timed([lambda: trainer.predict(x), lambda: snapshot.predict(x)], 20)
    print(f"{'-'.join(map(str, sizes))}: predict of one row {a * 1e6:.2f} us, by a snapshot "
          f"{b * 1e6:.2f} us")


def wait_of_another_thread():
    trainer = pyggml.Trainer(dense((784, 128, 10), "mse"), 32)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 784)).astype(np.float32)
    y = rng.normal(size=(32, 10)).astype(np.float32)
    rows = np.broadcast_to(np.arange(32), (20_000, 32)).copy()
    thread = threading.Thread(target=lambda: trainer.step_many(x, y, rows))
    trainer.predict(x[:1])
    thread.start()
    found = []
    while thread.is_alive():
        before, started = trainer.n_steps, time.perf_counter()
        trainer.predict(x[:1])
        found.append((trainer.n_steps - before, time.perf_counter() - started))
        time.sleep(1e-3)
    thread.join()
    steps, seconds = np.median(found[:-1], axis=0)
    print(f"784-128-10, batch 32: a predict in another thread waits {seconds * 1e6:.0f} us, "
          f"{steps:.0f} steps (median of {len(found) - 1})")


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
    # Steps are long enough to be interrupted every time; what others compute does not count.
    a, b = timed([lambda: plain.step(x, y), lambda: dropped.step(x, y)], 1, time.process_time)
    print(f"784-500-10, batch 500: step {a * 1e3:.2f} ms of processor time, with dropout "
          f"{b * 1e3:.2f} ms ({100 * (b - a) / b:.1f} % of it)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="by default what the process may use")
    options = parser.parse_args()
    if options.threads:
        pyggml.set_num_threads(options.threads)
    overhead()
    one_row((4, 64, 64, 2))
    one_row((784, 128, 10))
    wait_of_another_thread()
    alternation((4, 64, 64, 2), 32)
    alternation((784, 128, 10), 32)
    dropout_share()
