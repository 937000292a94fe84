"""The end of the interpreter: nothing is said, whatever is alive and whatever still runs."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import atexit, gc, os, sys, threading, time, weakref
import numpy as np
import pyggml
from pyggml import callbacks, layers, ops, opt
pyggml.set_num_threads({threads})
x, y = np.ones((64, 4), np.float32), np.zeros((64, 1), np.float32)
index = np.tile(np.arange(8), (1_000, 1))

def make():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(8, "relu"), layers.Dropout(0.2),
                               layers.BatchNormalization(momentum=0.9), layers.Dense(1)])
    model.compile("adam", "mse")
    return model

def context():
    graph = opt.Graph(2, training=True)
    t = graph.input((2, 3))
    return opt.OptContext(t, ops.linear(t, opt.Variable((3, 1), "w", axes=(1, 0))))

class Cycle:
    def __init__(self, *held):
        self.held, self.own = held, self

class Late:
    def __init__(self, call):
        self.call = call
    def __del__(self):
        try:
            self.call()
        except Exception:  # modules are gone by now
            pass

def quiet(call):
    try:
        return call()
    except (RuntimeError, ValueError, NameError):  # others freed or dropped what it uses
        pass

started = threading.Event()
def forever(call):
    started.set()
    while True:
        quiet(call)
def later(call, times=30):
    started.set()
    for _ in range(times):
        quiet(call)

model, trainer = make(), pyggml.Trainer(make(), 8)
trainer.step(x[:8], y[:8])
"""

# Lines that leave something behind; some need what others made.
THINGS = [
    "snapshot = trainer.snapshot()", "other = pyggml.Trainer(model, 4)",
    "ring = Cycle(trainer, model)",
    "shared = pyggml.Trainer(model, 8, share=None)", "model.fit(x, y, verbose=0)",
    "view = trainer.get_weights(copy=False)[0]", "kept = context(); kept.step(x[:2, :3], y[:2])",
    "data = opt.Dataset(3, 1, 8); rows = data.data",
    "ring2 = Cycle(context(), opt.Dataset(3, 1, 8))",
    "sys.kept = trainer", "np.kept = model", "threading.kept = [trainer.snapshot()]",
    "late = Late(lambda: trainer.step(x[:8], y[:8]))", "late2 = Late(lambda: model.predict(x))",
    "late3 = Cycle(Late(lambda: model.fit(x, y, verbose=0)))",
    "weakref.finalize(model, trainer.free)", "atexit.register(trainer.free)",
    "atexit.register(lambda: quiet(lambda: trainer.step(x[:8], y[:8])))",
    "atexit.register(model.predict, x)",
    "atexit.register(gc.collect)", "atexit.register(pyggml.set_num_threads, 3)",
    "pyggml.set_num_threads(1)", "pyggml.set_num_threads(4)", "gc.disable()",
    "del trainer; trainer = pyggml.Trainer(model, 8)",
    "generator = iter([(x, y)] * 3); next(generator)",
    "model.fit_generator([(x[:8], y[:8])] * 4, batch_size=8, verbose=0, workers=2)",
]
# Threads that run when the main one ends.
RUNNING = [
    "trainer.step(x[:8], y[:8])", "model.predict(x)", "model.fit(x, y, verbose=0)",
    "trainer.step_many(x, y, index)", "trainer.snapshot().predict(x)",
    "pyggml.Trainer(model, 4).step(x[:4], y[:4])", "model.evaluate(x, y)", "gc.collect()",
    "context().step(x[:2, :3], y[:2])", "model.copy()", "pyggml.set_num_threads(2)",
    "model.fit_generator([(x[:8], y[:8])] * 4, batch_size=8, verbose=0, workers=1)",
]
ENDS = ["", "", "sys.exit(0)", "raise SystemExit", "del model, trainer", "time.sleep(0.02)",
        "trainer.free()", "sys.exit()"]


def program(seed):
    rng = random.Random(seed)
    lines = [START.format(threads=rng.choice([1, 2, 2, 4]))]
    lines += rng.sample(THINGS, rng.randint(0, 6))
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        call = rng.choice(RUNNING)
        if rng.random() < 0.6:
            lines.append(f"threading.Thread(target=forever, args=(lambda: {call},), daemon=True)"
                         ".start()")
        else:
            lines.append(f"threading.Thread(target=later, args=(lambda: {call}, 5)).start()")
        lines.append("started.wait(60)")
    lines.append(rng.choice(ENDS))
    return "\n".join(lines)


def ends_in_silence(seed):
    code = program(seed)
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], text=True,
                          timeout=300, capture_output=True, check=False,
                          cwd=Path(__file__).parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (
        f"{code}\n{done.returncode} {done.stdout} {done.stderr}")


@pytest.mark.parametrize("seed", range(8))
def test_the_interpreter_ends_in_silence(seed):
    ends_in_silence(seed)


@pytest.mark.slow
def test_two_hundred_programs_end_in_silence():
    for seed in range(100, 300):
        ends_in_silence(seed)
