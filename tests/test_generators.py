"""fit_generator: every kind of source, its end, its threads, and Ctrl-C."""

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import layers, optimizers
from pyggml._prefetch import Prefetcher
from pyggml.data import Stream


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def model_of(rate=0.05):
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(1)])
    model.compile(optimizers.SGD(rate), "mse")
    model.set_weights([np.ones((3, 1)), np.zeros(1)])
    return model


rng = np.random.default_rng(0)
BATCHES = [(rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=4)) for _ in range(6)]


def weights(model):
    return [w.tobytes() for w in model.get_weights()]


def endless():
    while True:
        yield from BATCHES


class Restarting:
    def __iter__(self):
        return iter(BATCHES)


class Items:
    def __init__(self, n=6):
        self.n = n
        self.epochs = 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return BATCHES[i]

    def on_epoch_end(self):
        self.epochs += 1


def finite():
    """A callable that starts over by itself after None."""
    state = {"i": 0}

    def batch():
        i = state["i"]
        state["i"] = 0 if i == 6 else i + 1
        return None if i == 6 else BATCHES[i]

    return batch


def generator_function():
    yield from BATCHES


SOURCES = {
    "list": (lambda: BATCHES, None), "iterable": (Restarting, None), "sequence": (Items, None),
    "callable": (finite, None), "generator function": (lambda: generator_function, None),
    "endless iterator": (endless, 6),
    "endless callable": (lambda: endless().__next__, 6),
}


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_trains_as_the_same_arrays(kind, workers):
    make, steps = SOURCES[kind]
    expected, model = model_of(), model_of()
    x = np.concatenate([b[0] for b in BATCHES])
    y = np.concatenate([b[1] for b in BATCHES])
    h1 = expected.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    threads = threading.active_count()
    h2 = model.fit_generator(make(), steps_per_epoch=steps, epochs=2, batch_size=4, verbose=0,
                             workers=workers).history
    assert weights(model) == weights(expected)
    assert h1 == h2
    assert threading.active_count() == threads


def test_all_ways_to_call_are_the_same():
    found = []
    for call in (lambda m: m.fit(generator=BATCHES, batch_size=4, verbose=0),
                 lambda m: m.fit(Restarting(), batch_size=4, verbose=0),
                 lambda m: m.fit_generator(BATCHES, batch_size=4, verbose=0),
                 lambda m: pyggml.fit_generator(m, BATCHES, batch_size=4, verbose=0)):
        model = model_of()
        assert call(model).epoch == [0]
        found.append(weights(model))
    assert found.count(found[0]) == 4


def test_a_one_shot_iterator_warns_in_the_second_epoch_and_keeps_the_first():
    model = model_of()
    with pytest.warns(RuntimeWarning, match="gave no batch in epoch 1"):
        history = model.fit_generator(iter(BATCHES), batch_size=4, epochs=3, verbose=0)
    assert history.epoch == [0]
    assert len(history.history["loss"]) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_goes_on_where_the_epoch_before_stopped(workers):
    model, expected = model_of(), model_of()
    model.fit_generator(iter(BATCHES), steps_per_epoch=2, epochs=3, batch_size=4, verbose=0,
                        workers=workers)
    expected.fit_generator(iter(BATCHES), batch_size=4, verbose=0)
    assert weights(model) == weights(expected)


@pytest.mark.parametrize("rows", [3, 5])
def test_a_batch_of_another_size_is_refused_with_size_and_number(rows):
    model = model_of()
    odd = (np.ones((rows, 3)), np.ones(rows))
    with pytest.raises(ValueError,
                       match=rf"batch 3 of epoch 0 from generator has {rows} rows.*is 4"):
        model.fit_generator([*BATCHES[:2], odd], batch_size=4, verbose=0)
    assert model.compiled.trainer.n_steps == 2


def test_weights_come_and_go_but_do_not_appear():
    x, y = BATCHES[0]
    w = np.array([0, 1, 2, 3])
    model, expected = model_of(), model_of()
    model.fit_generator([(x, y, w), (x, y)], batch_size=4, verbose=0)
    expected.fit_generator([(x, y, w), (x, y, np.ones(4))], batch_size=4, verbose=0)
    assert weights(model) == weights(expected)
    with pytest.raises(ValueError, match="one weight a row, but none before"):
        model.fit_generator([(x, y), (x, y, w)], batch_size=4, verbose=0)


@pytest.mark.parametrize(("arguments", "name"), [
    ({"x": np.ones((4, 3))}, "x"), ({"y": np.ones(4)}, "y"),
    ({"sample_weight": np.ones(4)}, "sample_weight"), ({"validation_split": 0.5},
                                                       "validation_split"),
    ({"validation_data": BATCHES[0]}, "validation_data"),
    ({"shuffle_before_split": True}, "shuffle_before_split"),
])
def test_what_only_arrays_have_is_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} cannot be given together with generator"):
        model_of().fit(generator=BATCHES, batch_size=4, verbose=0, **arguments)


@pytest.mark.parametrize("bad", [3, np.ones((4, 3)), {"x": 1}, "abc", None])
def test_what_is_no_source_is_refused(bad):
    with pytest.raises((TypeError, ValueError), match="generator"):
        model_of().fit_generator(bad, verbose=0)


def test_a_callable_that_returns_a_generator_is_told_so():
    with pytest.raises(ValueError, match="returned an iterator"):
        model_of().fit_generator(lambda: iter(BATCHES), batch_size=4, verbose=0)


def test_validation_generator_every_epoch():
    model = model_of(0.0)
    history = model.fit_generator(BATCHES, batch_size=4, epochs=2, verbose=0,
                                  validation_generator=Restarting(), validation_steps=2).history
    x = np.concatenate([b[0] for b in BATCHES[:2]])
    y = np.concatenate([b[1] for b in BATCHES[:2]])
    assert history["val_loss"] == [pytest.approx(model.evaluate(x, y), rel=1e-6)] * 2


def test_a_validation_generator_that_is_used_up_warns():
    with pytest.warns(RuntimeWarning, match="validation_generator gave no batch"):
        history = model_of().fit_generator(
            BATCHES, batch_size=4, epochs=2, verbose=0, validation_generator=iter(BATCHES))
    assert len(history.history["val_loss"]) == 1


def test_a_sequence_is_told_about_the_end_of_every_epoch():
    items = Items()
    model_of().fit_generator(items, batch_size=4, epochs=3, verbose=0)
    assert items.epochs == 3


def test_the_same_array_may_be_yielded_again_with_other_contents():
    x, y = np.empty((4, 3), np.float32), np.empty((4, 1), np.float32)

    def reused():
        for bx, by in BATCHES:
            x[...], y[:, 0] = bx, by
            yield x, y

    model = model_of(0.0)
    model.compile(optimizers.SGD(0.0), "mse", ["mae"])
    batches = [(bx, by.astype(np.float32)) for bx, by in BATCHES]
    expected = model.fit_generator(batches, batch_size=4, verbose=0).history
    assert model.fit_generator(reused(), batch_size=4, verbose=0).history == expected


def test_a_model_that_does_not_know_its_input_learns_it_from_the_first_batch():
    model = pyggml.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit_generator(BATCHES, batch_size=4, verbose=0)
    assert model.input_shape == (None, 3)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.parametrize("processes", [0, 2])
def test_torch_data_loaders(processes):
    printed = run_child(f"""
        import numpy as np, torch, pyggml
        pyggml.set_num_threads(1)
        def make():
            model = pyggml.Sequential([pyggml.Input((3,)), pyggml.layers.Dense(
                1, kernel_initializer="zeros")])
            model.compile("adam", "mse", ["mae"])
            return model
        x = torch.arange(24.0).reshape(8, 3) / 24
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, x.sum(dim=1)), batch_size=4,
            num_workers={processes})
        model, expected = make(), make()
        found = model.fit(loader, batch_size=4, epochs=3, verbose=0)
        wanted = expected.fit(x.numpy(), x.sum(dim=1).numpy(), batch_size=4, epochs=3,
                              shuffle=False, verbose=0)
        for a, b in zip(model.get_weights(), expected.get_weights()):
            assert a.tobytes() == b.tobytes()
        assert found.history == wanted.history
        assert model.evaluate(loader) == expected.evaluate(x.numpy(), x.sum(dim=1).numpy(), 4)
        assert (model.predict(loader) == expected.predict(x.numpy())).all()
        print("same")
    """)
    assert printed == "same\n"


# ---- threads ----------------------------------------------------------------------------------

def test_prefetching_keeps_the_order_and_bounds_what_waits():
    begun, running = [], threading.Lock()

    def task(i):
        def run():
            with running:
                begun.append(i)
            time.sleep(0.002 * (i % 3))
            return i
        return run

    prefetcher = Prefetcher((task(i) for i in range(40)), 3, ahead=5)
    for i, found in enumerate(prefetcher):
        assert found == i
        assert max(begun) <= i + 1 + 5
    prefetcher.close()
    assert sorted(begun) == list(range(40))


def test_batches_of_a_sequence_are_prepared_at_the_same_time():
    together = threading.Barrier(2, timeout=20)

    class Slow(Items):
        def __getitem__(self, i):
            together.wait()  # passes only if two are at it
            return BATCHES[i]

    assert len(list(Stream(Slow(4), "x", workers=2).epoch())) == 4


def test_stopping_early_stops_the_threads():
    threads = threading.active_count()
    stop = pyggml.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", batch == 1))
    model = model_of()
    history = model.fit_generator(endless(), steps_per_epoch=1000, batch_size=4, verbose=0,
                                  workers=3, callbacks=[stop])
    assert history.epoch == [0]
    assert model.compiled.trainer.n_steps == 2
    assert threading.active_count() == threads


def test_a_thread_that_cannot_be_started_is_an_error_and_the_others_end(monkeypatch):
    threads = threading.active_count()
    start = threading.Thread.start

    def third_time_fails(thread):
        if thread.name == "pyggml-prefetch-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_time_fails)
    with pytest.raises(RuntimeError, match="thread 3 of workers=5"):
        model_of().fit_generator(Items(), batch_size=4, verbose=0, workers=5)
    assert threading.active_count() == threads


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["steps", "waiting"])
def test_ctrl_c_ends_within_two_seconds_and_leaves_the_model_usable(source, workers):
    code = textwrap.dedent(f"""
        import threading, time
        import numpy as np, pyggml
        pyggml.set_num_threads(1)
        model = pyggml.Sequential([pyggml.Input((30,)), pyggml.layers.Dense(100),
                                   pyggml.layers.Dense(1)])
        model.compile("adam", "mse")
        x, y = np.ones((64, 30), np.float32), np.ones(64, np.float32)
        n = 0
        def batch():
            global n
            n += 1
            if n == 20:
                print("ready", flush=True)
            if n >= 20 and {source!r} == "waiting":
                time.sleep(0.5)
            return x, y
        try:
            model.fit_generator(batch, steps_per_epoch=10**9, batch_size=64, verbose=0,
                                workers={workers})
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        assert threading.active_count() == 1, threading.enumerate()
        assert all(np.isfinite(w).all() for w in model.get_weights())
        model.predict(x)
        model.fit(x, y, verbose=0)
        print("usable", flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert time.monotonic() - began < 2
    assert child.stdout.readline() == "usable\n"
    assert child.wait(60) == 0
    child.stdout.close()


class LikeATensor:
    """Has no dtype that NumPy knows, but can be made an array: as PyTorch's tensors."""

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


def test_loaders_that_yield_lists_of_tensors():
    class Loader:
        def __len__(self):
            return len(BATCHES)

        def __iter__(self):
            return iter([[LikeATensor(x), LikeATensor(y)] for x, y in BATCHES])

    model, expected = model_of(), model_of()
    h1 = model.fit_generator(Loader(), batch_size=4, epochs=2, verbose=0,
                             validation_generator=Loader()).history
    h2 = expected.fit_generator(BATCHES, batch_size=4, epochs=2, verbose=0,
                                validation_generator=BATCHES).history
    assert h1 == h2
    assert weights(model) == weights(expected)


# ---- calibration ------------------------------------------------------------------------------

class Calibration:
    """Stands for the module that sets batch-norm statistics; keeps what it is given."""

    def __init__(self):
        self.seen = []

    def calibrated_layers(self, program):
        return ["a layer"]

    def calibrate(self, program, bindings, x, max_rows):
        assert bindings == {} and max_rows == 1024
        self.seen.append(np.array(x))


@pytest.fixture
def calibration(monkeypatch):
    from pyggml import _fitting

    found = Calibration()
    monkeypatch.setattr(_fitting, "_calibration", found)
    return found


def test_statistics_are_computed_from_rows_recorded_of_the_generator(calibration):
    model_of().fit_generator(BATCHES * 60, batch_size=4, epochs=2, verbose=0)
    x = np.concatenate([b[0] for b in BATCHES * 60])
    assert [seen.tobytes() for seen in calibration.seen] == [x[:1024].tobytes()]


def test_statistics_are_computed_from_rows_spread_over_arrays(calibration):
    x = np.arange(2048 * 3, dtype=np.float32).reshape(-1, 3) / 10_000
    model_of().fit(x, x.sum(axis=1), validation_split=0.5, batch_size=512, verbose=0)
    # before the validation, and after training; of the training part alone
    assert [seen.tobytes() for seen in calibration.seen] == [x[:1024].tobytes()] * 2
    calibration.seen.clear()
    model_of().fit(x, x.sum(axis=1), batch_size=512, verbose=0)
    assert calibration.seen[0].tobytes() == x[::2].tobytes()


def test_a_calibration_generator_is_used_up_to_its_steps(calibration):
    model_of().fit_generator(BATCHES, batch_size=4, verbose=0, calibration_steps=2,
                             calibration_generator=iter([b[:2] for b in BATCHES[3:]]))
    expected = np.concatenate([b[0] for b in BATCHES[3:5]])
    assert [seen.tobytes() for seen in calibration.seen] == [expected.tobytes()]


def test_an_empty_calibration_generator_warns_and_training_rows_are_used(calibration):
    with pytest.warns(RuntimeWarning, match="calibration_generator gave no batch"):
        model_of().fit_generator(BATCHES, batch_size=4, verbose=0,
                                 calibration_generator=lambda: None)
    assert len(calibration.seen[0]) == 24


def test_statistics_that_cannot_be_computed_do_not_cost_the_history(calibration):
    def fail(*arguments, **options):
        raise ValueError("the statistics of layer 'bn' are not finite")

    calibration.calibrate = fail
    with pytest.warns(RuntimeWarning, match="were not computed: the statistics of layer 'bn'"):
        history = model_of().fit_generator(BATCHES, batch_size=4, verbose=0)
    assert history.epoch == [0]
