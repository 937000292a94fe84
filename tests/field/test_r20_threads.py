"""R20: predict from several threads: right numbers.

Documented choice: calls on one object are serialised, so every result is the serial one.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from child import STRETCH, run_child

PRELUDE = """
import sys, threading
import numpy as np
import pyggml
from pyggml import layers
from trainer_nets import batch, dense, same
sys.setswitchinterval(1e-5)

def together(*functions):
    errors = []

    def run(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors
"""


def child(code, **arguments):
    # Without kernels, threads that wait for one another in ggml's pool take turns with all else
    # that the machine does.
    arguments = {"timeout": 900} | arguments
    assert run_child(PRELUDE + code + "\nprint('done')\n", **arguments) == "done\n"


EIGHT = """
pyggml.set_num_threads({n_threads})
x, y = batch(50)
rng = np.random.default_rng(5)
wrong, done = [], threading.Event()

def disturb():
    other = dense(seed=5)
    trainer = pyggml.Trainer(other, 50)
    weights = other.get_weights()
    for i in range(10**9):
        other.set_weights([w + i % 3 for w in weights])
        trainer.step(x, y)
        trainer.predict(x[:3])
        if done.is_set():
            return

def check(owners):
    wanted = [{{n: owner.predict(x[:n]) for n in range(1, 51)}} for owner in owners]
    left = [8]

    def predict(i):
        owner, numbers = owners[i % len(owners)], wanted[i % len(owners)]
        for n in np.random.default_rng(i).permutation(np.arange(300) % 50 + 1):
            if not np.array_equal(owner.predict(x[:n]), numbers[n]):
                wrong.append((i, n))
        left[0] -= 1
        if left[0] == 0:
            done.set()

    together(disturb, *[lambda i=i: predict(i) for i in range(8)])
    assert not wrong, wrong

kind = {kind!r}
if kind == "one model":
    check([dense()])
elif kind == "eight models":
    check([dense(seed=i) for i in range(8)])
elif kind == "one trainer":
    check([pyggml.Trainer(dense(), 50)])
elif kind == "one snapshot":
    check([pyggml.Trainer(dense(), 50).snapshot()])
"""


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", ["one model", "eight models", "one trainer", "one snapshot"])
def test_r20a_concurrent_predicts_give_the_serial_numbers(kind, n_threads):
    child(EIGHT.format(kind=kind, n_threads=n_threads))


def test_r20a_threads_may_be_set_while_others_predict():
    child("""
x, y = batch(50)
model, trainer = dense((4, 64, 64, 2)), pyggml.Trainer(dense((4, 64, 64, 2)), 50)
wanted = model.predict(x)
done = threading.Event()

def predict():
    for _ in range(300):
        np.testing.assert_allclose(model.predict(x), wanted, rtol=1e-5, atol=1e-6)
        trainer.step(x, y)
    done.set()

def change():
    while not done.is_set():
        for n in (1, 2, 3):
            pyggml.set_num_threads(n)

together(predict, change)
""")


# ---- b: changes while others predict ---------------------------------------------------------

CHANGES = """
pyggml.set_num_threads({n_threads})
model = pyggml.Sequential([pyggml.Input((64,)), layers.Dense(64), layers.Dense(64)])
model.compile("sgd", "mse")
trainer = pyggml.Trainer(model, 4)
snapshot = trainer.snapshot()
x = np.ones((4, 64), np.float32)
values = [[np.full(w.shape, value, np.float32) for w in model.get_weights()] for value in (1, 2)]
allowed = []
for value in values:
    model.set_weights(value)
    allowed.append(model.predict(x))
done, bad = threading.Event(), []
assert not np.array_equal(*allowed)
source = [pyggml.Trainer(model, 4), pyggml.Trainer(model, 4)]
for s, value in zip(source, values):
    for view, w in zip(s.get_weights(copy=False), value):
        view[...] = w
source[0].update_target(model)
source[0].update_target(snapshot)
trainer.restore(source[0])

def predict():
    while not done.is_set():
        for owner in {owners}:
            found = owner.predict(x)
            if not any(np.array_equal(found, a) for a in allowed):
                bad.append(found)

def change():
    try:
        for i in range({times}):
            {change}
    finally:
        done.set()

together(change, predict, predict, predict)
assert not bad, len(bad)
"""


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(("owners", "change"), [
    ("[model]", "model.set_weights(values[i % 2])"),
    ("[model]", 'model.compile("adam", "mse"); model.set_weights(values[i % 2])'),
    ("[model, snapshot]", "[source[i % 2].update_target(t) for t in (model, snapshot)]"),
    ("[trainer]", "trainer.restore(source[i % 2])"),
], ids=["set_weights", "compile", "update_target", "restore"])
def test_r20b_predict_sees_weights_before_or_after_a_change(owners, change, n_threads):
    """Weights are all 1 or all 2; a mixture would show."""
    child(CHANGES.format(owners=owners, change=change, n_threads=n_threads, times=1000))


@pytest.mark.parametrize("times", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_r20b_compile_save_and_load_while_others_predict(times, tmp_path):
    change = f"""model.compile("adam", "mse")
            path = {str(tmp_path / "model.gguf")!r}
            model.set_weights(values[i % 2])
            model.save(path)
            loaded = pyggml.load_model(path)
            assert same(loaded.get_weights(), values[i % 2])
            model.save_weights(path + ".w")
            model.load_weights(path + ".w")"""
    child(CHANGES.format(owners="[model]", change=change, n_threads=1, times=times))


def test_r20b_fit_steps_while_others_predict():
    """Every prediction is that of the weights between two updates, which are all known."""
    child("""
pyggml.set_num_threads(1)
x, y = batch(8)

def record(model):
    outputs = {model.predict(x).tobytes()}
    trainer = model.make_trainer(8, None, None)
    feed = trainer._feed(x, y, None)
    for _ in range(1000):
        trainer._step_rows(feed, None, 0, 8)
        outputs.add(model.predict(x).tobytes())
    return outputs

allowed = record(dense())
model, done, bad = dense(), threading.Event(), []

def train():
    try:
        model.fit(x, y, batch_size=8, epochs=1000, shuffle=False, verbose=0)
    finally:
        done.set()

def predict():
    while not done.is_set():
        if model.predict(x).tobytes() not in allowed:
            bad.append(1)

together(train, predict, predict)
assert not bad, len(bad)
assert model.predict(x).tobytes() in allowed
""")


def test_r20b_free_while_others_predict():
    child("""
pyggml.set_num_threads(1)
x, y = batch()
model = dense()
wanted = pyggml.Trainer(model, 8).predict(x)
for i in range(1000):
    trainer = pyggml.Trainer(model, 8)
    owner = trainer.snapshot() if i % 2 else trainer
    ready = threading.Barrier(2)

    def predict():
        ready.wait()
        try:
            while True:
                assert np.array_equal(owner.predict(x), wanted)
        except RuntimeError as error:
            assert "freed" in str(error)

    def free():
        ready.wait()
        owner.free()

    together(predict, free)
""")


def test_r20b_steps_of_two_threads_are_serialised():
    """Equal batches: whatever the order, the losses are those of one thread."""
    child("""
pyggml.set_num_threads(1)
x, y = batch()
serial = pyggml.Trainer(dense(), 8)
wanted = [serial.step(x, y) for _ in range(400)]
trainer = pyggml.Trainer(dense(), 8)
losses = []

def work():
    for _ in range(100):
        losses.append(trainer.step(x, y))

together(work, work, work, work)
assert trainer.n_steps == 400
assert sorted(losses) == sorted(wanted)
assert same(trainer.get_weights(), serial.get_weights())
""")


# ---- c: what else the process does -------------------------------------------------------------

LONG_FIT = """
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20000, 64)).astype(np.float32), rng.normal(size=(20000, 8))
model = dense((64, 256, 256, 8))
"""


@pytest.mark.parametrize("n_threads", [1, 2])
def test_r20c_a_counter_goes_on_during_a_long_fit(n_threads):
    """Longest time between two looks of a thread that wants to look every millisecond."""
    child(LONG_FIT + f"""
import time
sys.setswitchinterval(0.005)
pyggml.set_num_threads({n_threads})
model.fit(x[:64], y[:64], verbose=0)
done, gaps = threading.Event(), []

def count():
    last = time.perf_counter()
    while not done.is_set():
        time.sleep(0.001)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now

def train():
    model.fit(x, y, batch_size=2000, epochs=5, verbose=0)
    trainer = pyggml.Trainer(model, 2000)
    trainer.step_many(x, y, np.tile(np.arange(2000), (50, 1)))
    model.predict(x, batch_size=20000)
    model.evaluate(x, y, batch_size=20000)
    done.set()

together(train, count)
assert len(gaps) > 100, len(gaps)
assert max(gaps) < 0.5 and np.median(gaps) < 0.05, (max(gaps), np.median(gaps))
""")


INTERRUPTED = PRELUDE + LONG_FIT + """
import time
pyggml.set_num_threads({n_threads})
trainer = pyggml.Trainer(model, 32)
index = np.tile(np.arange(32), (10**6, 1))
calls = {{
    "fit": lambda: model.fit(x, y, epochs=10**6, verbose=0),
    "large": lambda: model.fit(x, y, batch_size=20000, epochs=10**6, verbose=0),
    "step_many": lambda: trainer.step_many(x, y, index),
    "evaluate": lambda: [model.evaluate(x, y) for _ in range(10**6)],
    "predict": lambda: [model.predict(x) for _ in range(10**6)],
}}
model.fit(x[:64], y[:64], verbose=0)
print("ready", flush=True)
try:
    calls[{name!r}]()
except KeyboardInterrupt:
    print("interrupted", time.monotonic(), flush=True)
for owner in (model, trainer):
    assert all(np.isfinite(w).all() for w in owner.get_weights())
assert np.isfinite(model.predict(x[:5])).all()
model.save({path!r})
assert same(pyggml.load_model({path!r}).get_weights(), model.get_weights())
assert np.isfinite(model.fit(x[:100], y[:100], verbose=0).history["loss"]).all()
assert np.isfinite(trainer.step(x[:32], y[:32]))
print("done", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
@pytest.mark.parametrize(("name", "n_threads"), [
    ("fit", 1), ("large", 2), ("step_many", 2), ("evaluate", 1), ("predict", 1)])
def test_r20c_ctrl_c_ends_a_long_call_within_two_seconds(name, n_threads, tmp_path):
    code = INTERRUPTED.format(name=name, n_threads=n_threads, path=str(tmp_path / "m.gguf"))
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(0.5)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        word, when = process.stdout.readline().split()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (word, out, err, process.returncode) == ("interrupted", "done\n", "", 0)
    assert float(when) - sent < 2 * STRETCH
    assert np.isfinite(float(when))
