"""R10: training and inference numbers of batch norm can be made to agree, on purpose."""

import numpy as np
import pytest
from test_r09_batch_norm_of_one_row import trainer_of

import pyggml
from pyggml import layers, ops

MOMENTA = [None, 0.99]


def make(momentum):
    pyggml.set_seed(4)
    model = pyggml.Sequential([
        pyggml.Input((5,)), layers.Dense(8), layers.BatchNormalization(momentum=momentum),
        layers.Dense(1)])
    model.compile("adam", "mse")
    return model


@pytest.fixture
def data(rng):
    x = rng.normal(10.0, 2.0, (256, 5))
    return x, (x @ rng.normal(size=5) - 3) / 10


@pytest.fixture(params=MOMENTA)
def trainer(request, data, form):
    """Three full-batch steps."""
    with trainer_of(make(request.param), 256) as trainer:
        for _ in range(3):
            trainer.step(*data)
        yield trainer


def by_hand(weights, x, y):
    """The loss, the means and the variances, from the exact statistics of all rows."""
    w1, b1, gamma, beta, _, _, w2, b2 = [w.astype(np.float64) for w in weights]
    hidden = x @ w1 + b1
    mean, variance = hidden.mean(axis=0), hidden.var(axis=0)
    out = ((hidden - mean) / np.sqrt(variance + 1e-3) * gamma + beta) @ w2 + b2
    return ((out[:, 0] - y) ** 2).mean(), mean, variance


def training_state(trainer):
    """All that calibration must leave alone, as bytes."""

    def use(state):
        return [(name, v.numpy().tobytes()) for name, v in state["weights"].items()
                if "moving" not in name] + [
            (name, [v.numpy().tobytes() for v in slots]) for name, slots in state["slots"].items()
        ] + [state["steps"], state["updates"], state["window_rows"], state["seed"]]

    return trainer._get_state(use)


def test_r10a_calibrated_statistics_are_exact_and_losses_agree(trainer, data):
    x, y = data
    before = training_state(trainer)
    lagging = trainer.eval(x, y)
    trainer.calibrate_bn(x)
    assert training_state(trainer) == before
    assert (trainer.n_steps, trainer.n_updates) == (3, 3)
    weights = trainer.get_weights()
    loss, mean, variance = by_hand(weights, x, y)
    np.testing.assert_allclose(weights[4], mean, rtol=1e-4)
    np.testing.assert_allclose(weights[5], variance, rtol=1e-4)
    assert trainer.eval(x, y) == pytest.approx(loss, abs=1e-4)
    model = trainer.model()
    assert model.evaluate(x, y) == pytest.approx(loss, abs=1e-4)
    assert lagging > 2 * loss  # without it the numbers do not agree


def test_r10b_a_second_call_changes_nothing(trainer, data):
    trainer.calibrate_bn(data[0])
    once = trainer.get_weights()
    trainer.calibrate_bn(data[0])
    for a, b in zip(trainer.get_weights(), once, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r10_a_layer_that_feeds_itself_gets_the_statistics_of_all_its_uses(rng, momentum):
    x = rng.normal(1.0, 2.0, (64, 3))
    inputs = pyggml.Input((3,))
    norm = layers.BatchNormalization(momentum=momentum)
    model = pyggml.Model(inputs, layers.Dense(1)(norm(layers.Dense(3, "tanh")(norm(inputs)))))
    model.compile("sgd", "mse")
    with trainer_of(model, 64) as trainer:
        trainer.calibrate_bn(x)
        gamma, beta, mean, variance, w, b = [a.astype(float) for a in trainer.get_weights()[:6]]
        normal = (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta
        seen = np.concatenate([x, np.tanh(normal @ w + b)])
        np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance, seen.var(axis=0), rtol=1e-4)
        trainer.calibrate_bn(x)
        for again, once in zip(trainer.get_weights()[2:4], (mean, variance), strict=True):
            np.testing.assert_allclose(again, once, rtol=1e-5, atol=1e-6)


def test_r10_statistics_of_a_layer_that_feeds_itself_and_do_not_settle_are_warned_of(rng):
    x = rng.normal(1.0, 1.0, (64, 1))
    inputs = pyggml.Input((1,))
    norm = layers.BatchNormalization()
    amplify = layers.Lambda(lambda t: ops.affine(t, 20.0))
    model = pyggml.Model(inputs, layers.Dense(1)(norm(amplify(norm(inputs)))))
    model.compile("sgd", "mse")
    with (trainer_of(model, 64) as trainer,
          pytest.warns(RuntimeWarning, match="feeds itself do not settle")):
        trainer.calibrate_bn(x)


def test_r10b_uneven_batches_equal_one_batch(trainer, data):
    x = data[0]
    trainer.calibrate_bn(x)
    once = trainer.get_weights()
    ends = [1, 3, 50, 51, 128, 200]
    batches = np.split(x, ends)
    assert len(batches) == 7
    trainer.calibrate_bn(iter(batches))
    for a, b in zip(trainer.get_weights(), once, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    trainer.calibrate_bn((batch, "labels are passed over") for batch in batches)
    for a, b in zip(trainer.get_weights(), once, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_r10b_fit_takes_uneven_batches_too(data):
    x, y = data
    found = []
    for batches in ([(x, y)], [(x[a:b], y[a:b]) for a, b in [(0, 3), (3, 200), (200, 256)]]):
        model = make(None)
        model.fit(x, y, batch_size=256, verbose=0, calibration_generator=batches)
        found.append(model.get_weights())
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("nothing", [np.empty((0, 5)), iter([]), iter([np.empty((0, 5))])],
                         ids=["array", "generator", "empty batch"])
def test_r10b_no_rows_are_an_error(data, form, nothing):
    with trainer_of(make(None), 256) as trainer:
        trainer.step(*data)
        before = [w.tobytes() for w in trainer.get_weights()]
        with pytest.raises(ValueError, match="no rows"):
            trainer.calibrate_bn(nothing)
        assert [w.tobytes() for w in trainer.get_weights()] == before
        trainer.calibrate_bn(data[0])


def test_r10b_without_batch_norm_nothing_happens(data, form):
    model = pyggml.Sequential([pyggml.Input((5,)), layers.Dense(8, "relu"), layers.Dense(1)])
    model.compile("adam", "mse")
    with pyggml.Trainer(model, 256) as trainer:
        trainer.step(*data)
        before = [w.tobytes() for w in trainer.get_weights()], training_state(trainer)
        assert trainer.calibrate_bn(data[0]) is None
        assert ([w.tobytes() for w in trainer.get_weights()], training_state(trainer)) == before


def test_r10b_frozen_statistics_are_not_calibrated(data, form):
    model = make(None)
    model.freeze_bn_stats()
    with pyggml.Trainer(model, 256) as trainer:
        before = [w.tobytes() for w in trainer.get_weights()]
        trainer.calibrate_bn(data[0])
        assert [w.tobytes() for w in trainer.get_weights()] == before


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r10b_evaluate_and_predict_never_change_the_statistics(data, form, momentum):
    x, y = data
    model = make(momentum)
    model.fit(x, y, verbose=0)
    before = [w.tobytes() for w in model.get_weights()]
    model.predict(x)
    model.evaluate(x, y)
    assert [w.tobytes() for w in model.get_weights()] == before
    with trainer_of(model, 256) as trainer:
        trainer.step(x, y)
        before = [w.tobytes() for w in trainer.get_weights()]
        trainer.eval(x, y)
        trainer.predict(x)
        trainer.gradients(x, y)
        trainer.snapshot().predict(x)
        assert [w.tobytes() for w in trainer.get_weights()] == before


def test_r10b_fit_leaves_a_running_average_to_the_steps(data, form):
    """Only who calls ``calibrate_bn`` gets exact statistics in place of an average."""
    x, y = data
    model = make(0.5)
    model.fit(x, y, batch_size=256, verbose=0, shuffle=False)
    hidden = x @ make(0.5).get_weights()[0].astype(np.float64)
    np.testing.assert_allclose(model.get_weights()[4], hidden.mean(axis=0) / 2, rtol=1e-4)
