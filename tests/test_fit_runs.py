"""Steps of ``fit`` that run without Python in between are the same steps, and cost no objects."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import pyggml
from pyggml import _progress, callbacks, layers, losses, optimizers, schedules


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def data(n):
    rng = np.random.default_rng(3)
    return rng.normal(size=(n, 6)).astype(np.float32), rng.integers(0, 4, n)


def classifier(optimizer, middle=(), **arguments):
    model = pyggml.Sequential([pyggml.Input((6,)), layers.Dense(9, "relu"), *middle,
                               layers.Dense(4, "softmax")])
    model.compile(optimizer, losses.SparseCategoricalCrossentropy(), ["accuracy"], **arguments)
    return model


def two_headed():
    inputs = pyggml.Input((6,))
    inner = layers.Dense(5, "tanh")(inputs)
    heads = [layers.Dense(1, name="a")(inner), layers.Dense(4, name="b")(inner)]
    model = pyggml.Model(inputs, heads)
    model.compile(optimizers.SGD(0.02, momentum=0.9), ["mse", "mae"], loss_weights=[1.0, 0.3],
                  metrics=[["mae"], ["mse"]])
    return model


class Listener(callbacks.Callback):
    """Wants to know about every batch, but not what was measured in it."""

    reads_logs = False

    def on_train_batch_end(self, batch, logs=None):
        pass


CASES = {
    "shuffled": (lambda: classifier("adam"), {}),
    "in order": (lambda: classifier(optimizers.SGD(0.1)), {"shuffle": False}),
    "dropout": (lambda: classifier("adam", [layers.Dropout(0.3)]), {}),
    "batch norm": (lambda: classifier("adam", [layers.BatchNormalization(momentum=0.9)]), {}),
    "windows": (lambda: classifier("adam"), {"nbatch_logical": 24}),
    "clipped": (lambda: classifier(optimizers.Adam(clipnorm=0.1)), {}),
    "weights": (lambda: classifier("adam"), {"sample_weight": np.linspace(0, 2, 2045)}),
    "schedule": (lambda: classifier(optimizers.SGD(
        schedules.ExponentialDecay(0.99, initial_learning_rate=0.1))), {}),
    "decay": (lambda: classifier(optimizers.AdamW(weight_decay=0.1)), {}),
    "split": (lambda: classifier("adam"), {"validation_split": 0.2, "shuffle_before_split": True}),
}


def trained(make, listeners=(), verbose=0, n=2045, y=None, **arguments):
    pyggml.set_seed(7)
    model = make()
    x, labels = data(n)
    history = model.fit(x, labels if y is None else y, batch_size=8, epochs=3, verbose=verbose,
                        callbacks=listeners, **arguments)
    trainer = model.compiled.trainer
    return ([w.tobytes() for w in model.get_weights()], history.history, trainer.n_steps,
            trainer.n_updates, model.optimizer.learning_rate)


@pytest.mark.parametrize("case", CASES)
def test_runs_of_steps_equal_single_steps_bit_for_bit(case):
    make, arguments = CASES[case]
    assert trained(make, **arguments) == trained(make, [Listener()], **arguments)


def test_runs_of_two_outputs_equal_single_steps():
    rng = np.random.default_rng(5)
    y = [rng.normal(size=(2045, 1)), rng.normal(size=(2045, 4))]
    assert trained(two_headed, y=y) == trained(two_headed, [Listener()], y=y)


def test_a_bar_that_is_drawn_all_the_time_changes_no_bit(monkeypatch, capsys):
    rng = np.random.default_rng(5)
    y = [rng.normal(size=(2045, 1)), rng.normal(size=(2045, 4))]
    silent = trained(two_headed, y=y)
    monkeypatch.setattr(_progress, "_interval", 0.0)
    from tqdm import tqdm

    monkeypatch.setattr(_progress, "_bar_class",
                        lambda: type("Bar", (tqdm,), {"monitor_interval": 0}))
    assert trained(two_headed, y=y, verbose=1) == silent
    assert "a_mae" in capsys.readouterr().err


def test_memory_maps_are_read_in_runs_too(tmp_path):
    x, y = data(500)
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=x.shape)
    found = []
    for source in (x, mapped):
        pyggml.set_seed(1)
        model = classifier("adam")
        model.fit(source, y, epochs=2, verbose=0)
        found.append([w.tobytes() for w in model.get_weights()])
    assert found[0] == found[1]


@pytest.mark.parametrize("loss", ["nan", "inf"])
def test_the_first_loss_that_is_not_finite_is_told_with_its_step(loss):
    x, y = data(400)
    x[8 * 30 + 2] = float(loss)
    model = classifier(optimizers.SGD(0.01))
    with pytest.warns(RuntimeWarning, match="the loss is nan at step 31") as found:
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert len(found) == 1
    assert model.compiled.trainer.n_steps == 50


def test_labels_that_go_bad_during_training_are_refused_before_their_step():
    x, y = data(400)
    model = classifier("adam")

    def spoil(epoch, logs):
        if epoch == 1:
            y[8 * 20 + 3] = 9

    with pytest.raises(ValueError, match=r"y holds 9 in row 163.*range \[0, 4\)"):
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0,
                  callbacks=[callbacks.LambdaCallback(on_epoch_begin=spoil)])
    assert model.compiled.trainer.n_steps == 50 + 20


def test_weights_that_go_bad_during_training_are_refused_before_their_step():
    x, y = data(400)
    w = np.ones(400)
    model = classifier("adam")

    def spoil(epoch, logs):
        if epoch == 1:
            w[8 * 20 + 3] = -1

    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, sample_weight=w,
                  callbacks=[callbacks.LambdaCallback(on_epoch_begin=spoil)])
    assert model.compiled.trainer.n_steps == 50 + 20


def test_a_flag_set_by_another_thread_ends_a_long_epoch():
    x, y = data(8)
    x, y = np.broadcast_to(x[:1], (50_000_000, 6)), np.broadcast_to(y[:1], 50_000_000)
    model = classifier("adam")
    began = []

    def stop():
        time.sleep(0.2)
        began.append(time.monotonic())
        model.stop_training = True

    stopper = threading.Thread(target=stop)
    start = callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: stopper.start())
    history = model.fit(x, y, batch_size=1, shuffle=False, verbose=0, callbacks=[start])
    assert time.monotonic() - began[0] < 2
    stopper.join()
    assert history.epoch == [0]
    assert 0 < model.compiled.trainer.n_steps < 50_000_000


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process")
def test_ctrl_c_ends_a_long_epoch_within_two_seconds_and_leaves_the_model_usable():
    code = textwrap.dedent("""
        import numpy as np, pyggml
        pyggml.set_num_threads(1)
        model = pyggml.Sequential([pyggml.Input((6,)), pyggml.layers.Dense(1)])
        model.compile("adam", "mse")
        x = np.broadcast_to(np.ones((1, 6), np.float32), (500_000_000, 6))
        y = np.broadcast_to(np.ones(1, np.float32), 500_000_000)
        start = pyggml.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: print("ready", flush=True))
        try:
            model.fit(x, y, shuffle=False, verbose=0, callbacks=[start])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        assert model.compiled.trainer.n_steps > 0
        model.fit(x[:64], y[:64], verbose=0)
        print("usable", flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert time.monotonic() - began < 2
    assert child.stdout.readline() == "usable\n"
    assert child.wait(60) == 0
    child.stdout.close()


def test_of_python_a_batch_costs_only_the_optimizers_numbers():
    calls = []

    def count(n):
        x, y = data(n)
        model = classifier("adam")
        model.fit(x, y, batch_size=2, verbose=0)
        seen = []
        sys.setprofile(lambda frame, event, argument: seen.append(frame.f_code.co_name))
        try:
            model.fit(x, y, batch_size=2, verbose=0)
        finally:
            sys.setprofile(None)
        calls.append(len([name for name in seen if name not in ("params", "follow_schedule")]))

    count(2_000)
    count(22_000)
    # 10000 batches more; what remains are metrics of 1024 rows at once, and looks at the clock.
    assert calls[1] - calls[0] < 3_000


def test_an_epoch_leaves_no_object_behind_for_each_batch():
    x, y = data(20_000)
    model = classifier("adam")
    model.fit(x, y, batch_size=2, verbose=0)
    before = sys.getallocatedblocks()
    model.fit(x, y, batch_size=2, verbose=0)
    assert sys.getallocatedblocks() - before < 1_000
