"""Snapshots, target networks, models taken from a trainer, and its end: R10 to R12 and R14."""

import gc
import math
import threading
import time
import weakref

import numpy as np
import pytest
from trainer_nets import batch, dense, same

import pyggml
from pyggml import layers, ops


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


@pytest.fixture
def trainer():
    with pyggml.Trainer(dense(), 8) as made:
        yield made


class Shift(layers.Layer):
    """Adds statistics that no gradient moves, as batch norm does."""

    def build(self, input_shape):
        self.scale = self.add_weight("scale", (input_shape[-1],), "ones")
        self.moving = self.add_weight("moving", (input_shape[-1],), "zeros", trainable=False)

    def call(self, x):
        return ops.add(ops.multiply(x, self.scale), self.moving)


# ---- R10: snapshots -----------------------------------------------------------------------

def test_r10_later_steps_do_not_move_a_snapshot(trainer):
    x, y = batch()
    trainer.step(x, y)
    snapshot = trainer.snapshot()
    weights, outputs = trainer.get_weights(), trainer.predict(x)
    for _ in range(10):
        trainer.step(x, y)
    assert same(snapshot.get_weights(), weights)
    assert np.array_equal(snapshot.predict(x), outputs)
    assert not np.array_equal(trainer.predict(x), outputs)


def test_r10_using_a_snapshot_does_not_touch_the_training():
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as quiet, pyggml.Trainer(dense(), 8) as busy:
        snapshot = busy.snapshot()
        for view in snapshot.get_weights(copy=False):
            view += 1
        for _ in range(5):
            assert quiet.step(x, y) == busy.step(x, y)
            snapshot.predict(x)


def test_r10_a_snapshot_is_in_evaluation_mode():
    x, y = batch()
    with pyggml.Trainer(dense(dropout=0.5), 8) as trainer:
        trainer.step(x, y)
        snapshot = trainer.snapshot()
        assert np.array_equal(snapshot.predict(x), snapshot.predict(x))
        assert np.array_equal(snapshot.predict(x), trainer.predict(x))


def test_r10_a_snapshot_outlives_trainer_and_model():
    x = batch()[0]
    model = dense()
    trainer = pyggml.Trainer(model, 8)
    snapshot, wanted = trainer.snapshot(), trainer.predict(x)
    trainer.free()
    del trainer, model
    gc.collect()
    assert np.array_equal(snapshot.predict(x), wanted)
    assert snapshot.predict(x[:0]).shape == (0, 2)


def test_r10_a_freed_snapshot_says_so(trainer):
    x, y = batch()
    snapshot = trainer.snapshot()
    views, outputs = snapshot.get_weights(copy=False), snapshot.predict(x)
    kept = [v.copy() for v in views]
    snapshot.free()
    snapshot.free()
    for use in (lambda: snapshot.predict(x), lambda: snapshot.get_weights(),
                lambda: trainer.update_target(snapshot), snapshot.__enter__):
        with pytest.raises(RuntimeError, match="freed"):
            use()
    assert same(views, kept) and outputs.shape == (8, 2)
    assert repr(snapshot) == "<Snapshot freed>"
    trainer.step(x, y)


def test_r10_free_by_function_and_with(trainer):
    with trainer.snapshot() as snapshot:
        assert "58 parameters" in repr(snapshot)
    assert repr(snapshot) == "<Snapshot freed>"
    other = trainer.snapshot()
    pyggml.snapshot_free(other)
    pyggml.snapshot_free(other)
    assert repr(other) == "<Snapshot freed>"
    with pytest.raises(TypeError, match="Snapshot"):
        pyggml.snapshot_free(trainer)
    with pytest.raises(TypeError, match="snapshot"):
        pyggml.Snapshot()


def test_r10_garbage_collection_is_a_backstop(trainer):
    snapshot = trainer.snapshot()
    view = snapshot.get_weights(copy=False)[0]
    owner = weakref.ref(view.base if view.base is not None else view)
    del snapshot, view
    gc.collect()
    assert owner() is None


def test_r10_another_thread_may_use_a_snapshot_while_the_trainer_steps(trainer):
    x, y = batch()
    snapshot = trainer.snapshot()
    wanted = snapshot.predict(x)
    stop, seen = threading.Event(), []

    def use():
        while not stop.is_set():
            seen.append(np.array_equal(snapshot.predict(x), wanted))

    thread = threading.Thread(target=use)
    thread.start()
    try:
        end = time.monotonic() + 60
        while len(seen) <= 10 and time.monotonic() < end:
            for _ in range(300):
                trainer.step(x, y)
            trainer.step_many(x, y, np.zeros((500, 8), int))
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 10 and all(seen)


# ---- R11: target networks -----------------------------------------------------------------

def moved(trainer, tau):
    """Snapshot, ten steps, update by tau; the weights before, after and the trainer's."""
    x, y = batch()
    snapshot = trainer.snapshot()
    old = snapshot.get_weights()
    for _ in range(10):
        trainer.step(x, y)
    trainer.update_target(snapshot, tau)
    return old, snapshot.get_weights(), trainer.get_weights()


def test_r11_tau_1_copies_bit_for_bit(trainer):
    old, new, current = moved(trainer, 1)
    assert same(new, current) and not same(new, old)
    x = batch()[0]
    assert np.array_equal(trainer.snapshot().predict(x), trainer.predict(x))


def test_r11_tau_0_changes_nothing(trainer):
    old, new, _ = moved(trainer, 0)
    assert same(new, old)


@pytest.mark.parametrize("tau", [0.005, 0.3, 0.5, 0.999])
def test_r11_between_it_averages(trainer, tau):
    old, new, current = moved(trainer, tau)
    for a, b, c in zip(old, new, current, strict=True):
        np.testing.assert_allclose(b, tau * c.astype(float) + (1 - tau) * a, rtol=3e-7, atol=1e-9)


def test_r11_predictions_of_the_target_follow(trainer):
    x, y = batch()
    snapshot = trainer.snapshot()
    snapshot.predict(x)  # the graph is there before the weights move
    trainer.step(x, y)
    trainer.update_target(snapshot)
    assert np.array_equal(snapshot.predict(x), trainer.predict(x))


def test_r11_statistics_are_copied_whole():
    pyggml.set_seed(0)
    model = pyggml.Sequential([pyggml.Input((4,)), Shift(), layers.Dense(2)])
    model.compile("adam", "mse")
    with pyggml.Trainer(model, 8) as trainer:
        snapshot = trainer.snapshot()
        scale, moving = trainer.get_weights(copy=False)[:2]
        scale[:] = 3
        moving[:] = 5
        trainer.update_target(snapshot, 0.5)
        assert snapshot.get_weights()[0].tolist() == [2] * 4
        assert snapshot.get_weights()[1].tolist() == [5] * 4


def test_r11_frozen_weights_are_averaged_like_others():
    model = dense()
    model.layers[0].trainable = False
    with pyggml.Trainer(model, 8) as trainer:
        snapshot = trainer.snapshot()
        kernel = trainer.get_weights(copy=False)[0]
        before = kernel.copy()
        kernel += 1
        trainer.update_target(snapshot, 0.5)
        np.testing.assert_allclose(snapshot.get_weights()[0], before + 0.5, rtol=1e-6)


@pytest.mark.parametrize("tau", [-0.01, 1.01, math.nan, math.inf])
def test_r11_tau_is_from_0_to_1(trainer, tau):
    snapshot = trainer.snapshot()
    with pytest.raises(ValueError, match="tau"):
        trainer.update_target(snapshot, tau)


def test_r11_other_weights_are_refused_by_name_and_shape(trainer):
    def named(units, names=("dense_a", "dense_b")):
        model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(units, name=names[0]),
                                   layers.Dense(2, name=names[1])])
        model.compile("sgd", "mse")
        return pyggml.Trainer(model, 8)

    with named(8) as a, named(8) as b, named(9) as wide, named(8, ("dense_a", "x")) as other:
        a.update_target(b.snapshot())
        for target, message in ((wide, r"dense_a/kernel.*\(4, 8\).*\(4, 9\)"),
                                (other, "lacks.*dense_b/bias.*has.*x/bias")):
            snapshot = target.snapshot()
            before = snapshot.get_weights()
            with pytest.raises(ValueError, match=message):
                a.update_target(snapshot)
            assert same(snapshot.get_weights(), before)
        with pytest.raises(TypeError, match="Snapshot, a Trainer or a Model"):
            a.update_target("target")


def test_r11_a_model_or_another_trainer_can_be_the_target():
    model = dense()
    x, y = batch()
    with pyggml.Trainer(model, 8) as a, pyggml.Trainer(model, 8) as b:
        a.step(x, y)
        a.update_target(b)
        assert same(a.get_weights(), b.get_weights())
        a.update_target(model, 1.0)
        assert same(a.get_weights(), model.get_weights())
        a.update_target(a, 0.5)
        assert same(a.get_weights(), model.get_weights())


# ---- R12: model() -------------------------------------------------------------------------

def test_r12_model_returns_a_compiled_model_of_its_own(trainer):
    x, y = batch()
    trainer.step(x, y)
    model = trainer.model()
    assert np.array_equal(model.predict(x), trainer.predict(x))
    before = trainer.get_weights()
    model.fit(x, y, epochs=2, verbose=0)
    assert same(trainer.get_weights(), before)
    kept = model.get_weights()
    trainer.step(x, y)
    assert same(model.get_weights(), kept)


def test_r12_original_returned_and_trainer_in_any_order():
    x, y = batch()
    original = dense(dropout=0.2)
    with pyggml.Trainer(original, 8) as trainer:
        users = [original, trainer.model(), trainer.model()]
        for i in range(12):
            users[i % 3].predict(x[:1 + i % 8])
            trainer.step(x, y)
            users[(i + 1) % 3].evaluate(x, y)
            trainer.predict(x)
            users[(i + 2) % 3].fit(x, y, verbose=0)
            users[i % 3] = trainer.model()
    for model in users:
        assert np.isfinite(model.predict(x)).all()


def test_r12_a_model_that_was_changed_is_refused():
    model = dense()
    with pyggml.Trainer(model, 8) as trainer:
        model.add(layers.Dense(2))
        with pytest.raises(RuntimeError, match="changed"):
            trainer.model()
        trainer.step(*batch())


# ---- R14: the end -------------------------------------------------------------------------

def calls(trainer, snapshot):
    x, y = batch()
    gradients = trainer.gradients(x, y)
    return {
        "step": lambda: trainer.step(x, y),
        "step_many": lambda: trainer.step_many(x, y, np.zeros((2, 8), int)),
        "eval": lambda: trainer.eval(x, y),
        "predict": lambda: trainer.predict(x),
        "gradients": lambda: trainer.gradients(x, y),
        "apply_gradients": lambda: trainer.apply_gradients(gradients),
        "snapshot": trainer.snapshot,
        "update_target": lambda: trainer.update_target(snapshot),
        "model": trainer.model,
        "get_weights": trainer.get_weights,
        "calibrate_bn": lambda: trainer.calibrate_bn(x),
        "set_lr": lambda: trainer.set_lr(0.1),
        "lr": lambda: trainer.lr,
        "n_steps": lambda: trainer.n_steps,
        "n_updates": lambda: trainer.n_updates,
        "with": trainer.__enter__,
    }


def test_r14_free_twice_is_harmless_and_then_every_method_says_freed():
    trainer = pyggml.Trainer(dense(), 8)
    uses = calls(trainer, trainer.snapshot())
    for use in uses.values():
        use()
    trainer.free()
    trainer.free()
    trainer.close()
    for name, use in uses.items():
        with pytest.raises(RuntimeError, match="freed"):
            use()
            pytest.fail(name)


def test_r14_close_is_free():
    trainer = pyggml.Trainer(dense(), 8)
    trainer.close()
    trainer.close()
    assert repr(trainer) == "<Trainer freed>"


def test_r14_what_is_not_freed_is_cleaned_up_at_garbage_collection():
    trainer = pyggml.Trainer(dense(), 8)
    trainer.step(*batch())
    owners = [weakref.ref(view.base) for view in trainer.get_weights(copy=False)]
    del trainer
    gc.collect()
    assert [owner() for owner in owners] == [None] * 4


def test_r14_n_steps_counts_calls_and_n_updates_updates():
    x, y = batch()
    with pyggml.Trainer(dense(), 8, nbatch_logical=24) as trainer:
        counts = []
        for _ in range(7):
            trainer.step(x, y)
            trainer.eval(x, y)
            trainer.predict(x)
            counts.append((trainer.n_steps, trainer.n_updates))
        trainer.step_many(x, y, np.tile(np.arange(8), (5, 1)))
        counts.append((trainer.n_steps, trainer.n_updates))
    assert counts == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (12, 4)]


def test_r14_with_frees_after_an_error_too():
    with pytest.raises(KeyError, match="mine"), pyggml.Trainer(dense(), 8) as trainer:
        raise KeyError("mine")
    with pytest.raises(RuntimeError, match="freed"):
        trainer.step(*batch())


def test_r14_views_of_weights_stay_after_free():
    trainer = pyggml.Trainer(dense(), 8)
    x, y = batch()
    views = trainer.get_weights(copy=False)
    trainer.step(x, y)
    assert same(views, trainer.get_weights())  # they follow
    kept = trainer.get_weights()
    trainer.free()
    del trainer
    gc.collect()
    assert same(views, kept)
    views[0][...] = 1
    assert (views[0] == 1).all()


def test_r14_weights_are_freed_with_the_last_view():
    trainer = pyggml.Trainer(dense(), 8)
    view = trainer.get_weights(copy=False)[0]
    owner = weakref.ref(view.base)
    trainer.free()
    gc.collect()
    assert owner() is not None
    del view
    assert owner() is None


def test_r14_a_trainer_is_not_pickled(trainer):
    import copy
    import pickle

    for owner in (trainer, trainer.snapshot()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(owner)
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.deepcopy(owner)
