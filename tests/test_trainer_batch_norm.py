"""The trainer's line R16 of the contract: batch norm."""

import itertools

import numpy as np
import pytest
from trainer_nets import batch, dense, same

import pyggml
from pyggml import layers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def normed(momentum=None):
    pyggml.set_seed(1)
    model = pyggml.Sequential([
        pyggml.Input((4,)), layers.Dense(8), layers.BatchNormalization(momentum=momentum),
        layers.Dense(2)])
    model.compile("adam", "mse")
    return model


def norm_of(model):
    return next(v for v in model.layers if isinstance(v, layers.BatchNormalization))


def test_r16_unfixed_statistics_are_told_once_and_do_not_move():
    x, y = batch()
    with pytest.warns(UserWarning, match="calibrate_bn") as found:
        trainer = pyggml.Trainer(normed(), 8)
    assert len(found) == 1 and found[0].filename == __file__
    with trainer:
        before = trainer.model().layers[1].get_weights()[2:]
        for _ in range(3):
            trainer.step(x, y)
        trainer.step_many(x, y, [range(8)] * 3)
        assert same(norm_of(trainer.model()).get_weights()[2:], before)


@pytest.mark.parametrize("fixed", ["momentum", "frozen"])
def test_r16_nothing_warns_where_statistics_are_taken_care_of(fixed):
    model = normed(0.99 if fixed == "momentum" else None)
    if fixed == "frozen":
        norm_of(model).freeze_stats = True
    with pyggml.Trainer(model, 8) as trainer:
        trainer.step(*batch())


def test_r16_momentum_keeps_running_averages_in_every_kind_of_step():
    x, y = batch()
    model = normed(0.9)
    with pyggml.Trainer(model, 8) as a, pyggml.Trainer(model, 8) as b:
        hidden = x @ model.layers[0].get_weights()[0] + model.layers[0].get_weights()[1]
        a.step(x, y)
        mean, variance = norm_of(a.model()).get_weights()[2:]
        np.testing.assert_allclose(mean, 0.1 * hidden.mean(axis=0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(variance, 0.9 + 0.1 * hidden.var(axis=0), rtol=1e-4)
        for _ in range(4):
            a.step(x, y)
        b.step_many(x, y, [range(8)] * 5)
        assert same(a.get_weights(), b.get_weights())
        a.gradients(x, y)
        a.eval(x, y)
        a.predict(x)
        assert same(a.get_weights(), b.get_weights())


@pytest.mark.filterwarnings("ignore:steps do not move")
def test_r16_calibrate_bn_sets_the_statistics_exactly():
    rng = np.random.default_rng(0)
    x = rng.normal(10, 2, size=(256, 4)).astype(np.float32)
    y = rng.normal(size=(256, 2)).astype(np.float32)
    with pyggml.Trainer(normed(), 256) as trainer:
        for _ in range(3):
            trainer.step(x, y)
        before, steps = trainer.get_weights(), trainer.n_steps
        trainer.calibrate_bn(x)
        after = trainer.get_weights()
        assert same(before[:4], after[:4]) and same(before[6:], after[6:])
        assert (trainer.n_steps, trainer.n_updates) == (steps, steps)
        hidden = x.astype(float) @ after[0] + after[1]
        np.testing.assert_allclose(after[4], hidden.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(after[5], hidden.var(axis=0), rtol=1e-4)
        # Training and evaluation mode agree on this data then; a step tells its loss before it.
        assert trainer.eval(x, y) == pytest.approx(trainer.step(x, y), rel=1e-4)
        snapshot = trainer.snapshot()
        trainer.calibrate_bn(x)
        trainer.update_target(snapshot, 0.0)  # statistics are copied whole all the same
        assert same(snapshot.get_weights()[4:6], trainer.get_weights()[4:6])


@pytest.mark.filterwarnings("ignore:steps do not move")
def test_r16_calibrate_bn_uses_up_to_1024_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 4)).astype(np.float32)
    x[1024:] = 1e3
    with pyggml.Trainer(normed(), 8) as trainer:
        trainer.calibrate_bn(x)
        kernel, bias, _, _, mean, variance = trainer.get_weights()[:6]
        hidden = x[:1024].astype(float) @ kernel + bias
        np.testing.assert_allclose(mean, hidden.mean(axis=0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(variance, hidden.var(axis=0), rtol=1e-4)


def test_r16_calibrate_bn_sets_running_averages_too_where_it_is_asked_to():
    rng = np.random.default_rng(0)
    x = rng.normal(3, 2, size=(64, 4)).astype(np.float32)
    with pyggml.Trainer(normed(0.9), 64) as trainer:
        trainer.calibrate_bn(x)
        kernel, bias, _, _, mean, variance = trainer.get_weights()[:6]
        hidden = x.astype(float) @ kernel + bias
        np.testing.assert_allclose(mean, hidden.mean(axis=0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(variance, hidden.var(axis=0), rtol=1e-4)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_r16_calibrate_bn_leaves_frozen_statistics(momentum):
    model = normed(momentum)
    model.freeze_bn_stats()
    with pyggml.Trainer(model, 8) as trainer:
        model.unfreeze_bn_stats()  # for trainers to come
        before = trainer.get_weights()
        trainer.calibrate_bn(batch()[0])
        assert same(trainer.get_weights(), before)


def every_graph(trainer, x, y):
    """Steps by graphs that are made at different times; the statistics after each kind."""
    found = []
    trainer.step(x, y)
    found.append(trainer.get_weights()[4:6])
    trainer.gradients(x, y)
    trainer._configure(8, 16, None)  # gradients are accumulated from here on
    trainer.step(x, y)
    trainer.step_many(x, y, [range(8)])
    found.append(trainer.get_weights()[4:6])
    return found


def test_r16_frozen_statistics_are_those_of_when_the_trainer_was_made():
    """In all its graphs, whenever they are made; the next trainer goes by what is frozen then."""
    x, y = batch()
    model = normed(0.9)
    start = model.get_weights()[4:6]
    with pyggml.Trainer(model, 8) as moving:
        model.freeze_bn_stats()
        with pyggml.Trainer(model, 8) as fixed:
            model.unfreeze_bn_stats()
            for statistics in every_graph(fixed, x, y):
                assert same(statistics, start)
            probe = fixed.gradients(x, y)
        model.freeze_bn_stats()
        one, two = every_graph(moving, x, y)
        assert not same(one, start) and not same(two, one)
        # Normalised by the batch the gradient is another one than by the statistics.
        assert not same(list(moving.gradients(x, y).values()), list(probe.values()))


def test_r16_a_layer_that_is_not_trainable_keeps_its_statistics():
    x, y = batch()
    model = normed(0.9)
    start = model.get_weights()[2:6]
    with pyggml.Trainer(model, 8) as moving:
        norm_of(model).trainable = False
        with pyggml.Trainer(model, 8) as still:
            norm_of(model).trainable = True
            assert same(every_graph(still, x, y)[-1], start[2:])
            assert same(still.get_weights()[2:6], start)
        norm_of(model).trainable = False
        one, two = every_graph(moving, x, y)
        assert not same(one, start[2:]) and not same(two, one)


def test_r16_fit_follows_what_is_frozen_between_two_calls():
    x, y = batch(32)
    pyggml.set_seed(1)
    model = pyggml.Sequential([
        pyggml.Input((4,)), layers.Dense(8),
        layers.BatchNormalization(momentum=0.5, center=False, scale=False), layers.Dense(2)])
    model.compile("adam", "mse")
    seen = [norm_of(model).get_weights()]
    for change in (lambda: None, lambda: setattr(norm_of(model), "trainable", False),
                   lambda: setattr(norm_of(model), "trainable", True), model.freeze_bn_stats,
                   model.unfreeze_bn_stats):
        change()
        model.fit(x, y, batch_size=8, epochs=1, verbose=0)
        seen.append(norm_of(model).get_weights())
    moved = [not same(a, b) for a, b in itertools.pairwise(seen)]
    assert moved == [True, False, True, False, True]


def test_r16_calibrate_bn_without_batch_norm_does_nothing():
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        trainer.step(x, y)
        before = trainer.get_weights()
        trainer.calibrate_bn(x)
        assert same(trainer.get_weights(), before)
        assert trainer.n_steps == 1


def test_r16_calibrate_bn_needs_rows():
    with pyggml.Trainer(dense(), 8) as trainer, pytest.raises(ValueError, match="no rows"):
        trainer.calibrate_bn(np.zeros((0, 4)))
