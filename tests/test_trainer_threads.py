"""Threads that use a trainer while another one steps: nobody waits long, nothing is torn."""

import sys
import threading
import time

import numpy as np
import pytest
from child import run_child
from trainer_nets import batch, dense, same

import pyggml
from pyggml import layers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


class Stepping:
    """``step_many`` in a thread, long enough for whatever is tried meanwhile."""

    def __init__(self, trainer, x, y, steps=200_000):
        self.trainer, self.result = trainer, None
        rows = np.broadcast_to(np.arange(len(x)), (steps, len(x))).astype(np.int64)
        self.thread = threading.Thread(target=self._run, args=(x, y, rows))

    def _run(self, x, y, rows):
        try:
            self.result = self.trainer.step_many(x, y, rows)
        except RuntimeError as error:
            self.result = error

    def __enter__(self):
        self.thread.start()
        while self.trainer.n_steps < 3:
            time.sleep(1e-4)
        return self

    def __exit__(self, *exception):
        self.trainer.free()
        self.thread.join()


def steps_during(trainer, function, times=21):
    """The lower quartile of steps that a trainer makes while something else is called.

    A busy machine may leave most calls lying; without fair locks all of them take thousands.
    """
    found = []
    for _ in range(times):
        before = trainer.n_steps
        function()
        found.append(trainer.n_steps - before)
    return np.percentile(found, 25)


def wide(optimizer="sgd"):
    """A network whose step takes some hundred microseconds, and its data."""
    model = dense((64, 256, 256, 8), optimizer=optimizer)
    return model, *batch(32, 64, 8)


def test_a_predict_during_step_many_waits_for_about_one_step():
    model, x, y = wide()
    trainer = pyggml.Trainer(model, 32)
    trainer.predict(x[:1])
    with Stepping(trainer, x, y) as stepping:
        assert steps_during(trainer, lambda: trainer.predict(x[:1])) <= 3
        assert stepping.thread.is_alive() and stepping.result is None


def test_so_does_one_of_a_trainer_that_shares_the_weights():
    inputs = pyggml.Input((64,))
    hidden = layers.Dense(256, "tanh")(layers.Dense(256, "tanh")(inputs))
    policy = pyggml.Model(inputs, layers.Dense(8)(hidden))
    policy.compile("sgd", "mse")
    x, y = batch(32, 64, 8)
    learner = pyggml.Trainer(policy, 32)
    actor = pyggml.Trainer(policy, 1, share=learner)
    actor.predict(x[:1])
    with Stepping(learner, x, y) as stepping:
        assert steps_during(learner, lambda: actor.predict(x[:1])) <= 3
        assert stepping.thread.is_alive()


@pytest.mark.parametrize("lowering", ["0", "1"])
def test_so_does_one_of_another_trainer(lowering):
    """Without kernels of our own, all graphs of the process share one pool of threads."""
    out = run_child("""
        import pyggml
        from test_trainer_threads import Stepping, dense, steps_during, wide
        pyggml.set_num_threads(2)
        model, x, y = wide()
        trainer = pyggml.Trainer(model, 32)
        other = pyggml.Trainer(dense((64, 16, 8)), 32)
        snapshot = other.snapshot()
        other.predict(x[:1])
        snapshot.predict(x[:1])
        with Stepping(trainer, x, y) as stepping:
            found = [steps_during(trainer, lambda: other.predict(x[:1])),
                     steps_during(trainer, lambda: snapshot.predict(x[:1])),
                     steps_during(trainer, lambda: other.step(x, y))]
            assert max(found) <= 3, found
            assert stepping.thread.is_alive()
        print("done")
    """, env={"PYGGML_LOWERING": lowering}, timeout=300)
    assert out == "done\n"


def test_step_many_computes_the_same_whoever_predicts_meanwhile():
    x, y = batch()
    rows = np.tile(np.arange(8), (20_000, 1))
    with pyggml.Trainer(dense(dropout=0.3), 8) as alone:
        wanted = alone.step_many(x, y, rows)
    with pyggml.Trainer(dense(dropout=0.3), 8) as trainer:
        seen, stop = [], threading.Event()

        def use():
            while not stop.is_set():
                seen.append(trainer.predict(x))
                seen.append(trainer.eval(x, y))

        thread = threading.Thread(target=use)
        thread.start()
        try:
            while len(seen) < 2:
                time.sleep(1e-4)
            got = trainer.step_many(x, y, rows)
        finally:
            stop.set()
            thread.join()
    assert np.array_equal(got, wanted)
    assert len(seen) > 10


def test_step_of_another_thread_comes_between_two_of_step_many():
    """All steps are made, by both; the seed's masks go by the number of the step."""
    x, y = batch()
    rows = np.tile(np.arange(8), (5000, 1))
    with pyggml.Trainer(dense(dropout=0.3), 8) as alone:
        wanted = [alone.step(x, y) for _ in range(5200)]
        weights = alone.get_weights()
    with pyggml.Trainer(dense(dropout=0.3), 8) as trainer:
        losses = []
        thread = threading.Thread(target=lambda: losses.extend(trainer.step_many(x, y, rows)))
        thread.start()
        losses.extend([trainer.step(x, y) for _ in range(200)])
        thread.join()
        assert trainer.n_steps == trainer.n_updates == 5200
        assert sorted(losses) == sorted(wanted)
        assert same(trainer.get_weights(), weights)


def test_accumulated_windows_stay_whole_beside_other_threads():
    x, y = batch(32)
    rows = np.arange(32).reshape(4, 8)
    with pyggml.Trainer(dense(), 8, nbatch_logical=32) as alone:
        wanted = alone.step_many(x, y, np.tile(rows, (2000, 1)))
    with pyggml.Trainer(dense(), 8, nbatch_logical=32) as trainer:
        stop = threading.Event()

        def use():
            while not stop.is_set():
                trainer.predict(x)
                trainer.gradients(x[:8], y[:8])

        thread = threading.Thread(target=use)
        thread.start()
        try:
            got = trainer.step_many(x, y, np.tile(rows, (2000, 1)))
        finally:
            stop.set()
            thread.join()
        assert np.array_equal(got, wanted)
        assert (trainer.n_steps, trainer.n_updates) == (8000, 2000)


def test_set_lr_of_another_thread_takes_effect_at_the_next_step():
    model, x, y = wide()
    trainer = pyggml.Trainer(model, 32)
    with Stepping(trainer, x, y) as stepping:
        trainer.set_lr(0.0)
        weights, steps = trainer.get_weights(), trainer.n_steps
        while trainer.n_steps < steps + 5:
            time.sleep(1e-3)
        assert same(trainer.get_weights(), weights)
        trainer.set_lr(0.1)
        steps = trainer.n_steps
        while trainer.n_steps < steps + 5:
            time.sleep(1e-3)
        assert not same(trainer.get_weights(), weights)
        assert stepping.thread.is_alive()


def test_weights_left_out_are_ones_though_another_thread_gave_some():
    x, y = batch()
    rows = np.tile(np.arange(8), (3000, 1))
    with pyggml.Trainer(dense(optimizer="sgd"), 8, loss_mask=1) as trainer:
        trainer.set_lr(0.0)
        wanted = trainer.step(x, y)
        losses = []
        thread = threading.Thread(target=lambda: losses.extend(trainer.step_many(x, y, rows)))
        thread.start()
        while thread.is_alive():
            assert trainer.step(x, y, np.zeros(8)) == 0
        assert set(losses) == {wanted}


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a waiting thread")
def test_an_interrupt_while_others_have_their_turns_leaves_the_trainer_usable():
    out = run_child("""
        import signal, threading
        import numpy as np
        import pyggml
        from trainer_nets import batch, dense
        pyggml.set_num_threads(1)
        x, y = batch()
        rows = np.tile(np.arange(8), (500_000, 1))
        trainer = pyggml.Trainer(dense(), 8)
        stop = threading.Event()

        def use():
            while not stop.is_set():
                trainer.predict(x)

        def interrupt(number, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads:
            thread.start()
        ended = 0
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                trainer.step_many(x, y, rows)
            except KeyboardInterrupt:
                ended += 1
        stop.set()
        for thread in threads:
            thread.join()
        steps = trainer.n_steps
        trainer.step(x, y)
        trainer.free()
        print(ended, trainer, 0 < steps < 5 * len(rows))
    """)
    assert out == "5 <Trainer freed> True\n"


def test_free_during_step_many_ends_it_with_an_error():
    model, x, y = wide()
    trainer = pyggml.Trainer(model, 32)
    with Stepping(trainer, x, y) as stepping:
        trainer.free()
        stepping.thread.join(60)
        assert isinstance(stepping.result, RuntimeError)
        assert "freed" in str(stepping.result)


def test_a_snapshot_taken_while_another_thread_steps_is_of_one_moment():
    x, y = batch()
    rows = np.tile(np.arange(8), (3000, 1))
    with pyggml.Trainer(dense(), 8) as trainer:
        moments = {tuple(w.tobytes() for w in trainer.get_weights())}
        for _ in range(3000):
            trainer.step(x, y)
            moments.add(tuple(w.tobytes() for w in trainer.get_weights()))
    with pyggml.Trainer(dense(), 8) as trainer:
        target = trainer.snapshot()
        thread = threading.Thread(target=lambda: trainer.step_many(x, y, rows))
        thread.start()
        found = []
        while thread.is_alive():
            with trainer.snapshot() as snapshot:
                found.append(snapshot.get_weights())
            trainer.update_target(target)
            found.append(target.get_weights())
        thread.join()
    assert len(found) > 2
    assert all(tuple(w.tobytes() for w in weights) in moments for weights in found)


def test_the_number_of_threads_may_change_during_step_many():
    model, x, y = wide()
    trainer = pyggml.Trainer(model, 32)
    with Stepping(trainer, x, y) as stepping:
        for n in (2, 1, 2, 1):
            steps = trainer.n_steps
            pyggml.set_num_threads(n)
            while trainer.n_steps < steps + 5:
                time.sleep(1e-3)
        assert stepping.thread.is_alive()


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_threads_that_train_one_model_on_other_batches_measure_their_own(quick_switches):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3)).astype(np.float32)
    y = x.sum(axis=1)
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(1)])
    model.compile(pyggml.optimizers.SGD(0.0), "mse", metrics=["mse"])
    kernel, bias = (w.astype(float) for w in model.get_weights())
    errors = ((x @ kernel + bias)[:, 0] - y) ** 2
    calls = [(slice(0, 5), np.full(5, 2.0)), (slice(5, 10), None), (slice(3, 7), None)]
    found = [[] for _ in calls]

    def train(i, rows, w):
        for _ in range(1000):
            try:
                found[i].append(model.train_on_batch(x[rows], y[rows], sample_weight=w))
            except Exception as error:
                found[i].append(error)
                return

    threads = [threading.Thread(target=train, args=(i, *call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (rows, w), numbers in zip(calls, found, strict=True):
        want = (errors[rows] * (1 if w is None else w)).mean()
        assert np.array(numbers) == pytest.approx(want, rel=1e-5)
    assert model.compiled.trainer.n_updates == 3000


def test_a_fit_beside_another_thread_that_trains_its_model_keeps_to_its_windows(quick_switches):
    x, y = batch(64)
    model = dense()
    model.compile(pyggml.optimizers.SGD(0.0), "mse")
    model.train_on_batch(x[:3], y[:3])
    ended, refused = threading.Event(), []
    steps = [0]

    def train():
        while not ended.is_set():
            try:
                model.train_on_batch(x[:3], y[:3])
                steps[0] += 1
            except RuntimeError as error:
                refused.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for logical in (8, 16):
            history = model.fit(x, y, batch_size=8, nbatch_logical=logical, epochs=50, verbose=0)
            assert history.history["loss"] == pytest.approx(50 * [model.evaluate(x, y)], rel=1e-5)
    finally:
        ended.set()
        thread.join()
    assert all("of 16 rows of a window wait" in message for message in refused)
    trainer = model.compiled.trainer
    assert trainer.n_steps == 1 + steps[0] + 2 * 50 * 8
    assert trainer.n_updates == 1 + steps[0] + 50 * (8 + 4)
