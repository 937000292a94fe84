"""R09: batch norm and a batch of one.

The documented behaviour (``BatchNormalization``): training goes on. A channel of which a batch
holds one element is normalised with variance 0 and does not move the moving variance, and no
stored variance is ever 0.
"""

import numpy as np
import pytest

import pyggml
from pyggml import layers

MOMENTA = [None, 0.99]


def make(momentum, optimizer="adam"):
    pyggml.set_seed(3)
    model = pyggml.Sequential([
        pyggml.Input((3,)), layers.Dense(4), layers.BatchNormalization(momentum=momentum),
        layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def trainer_of(model, batch_size):
    if model.layers[1].momentum is None:
        with pytest.warns(UserWarning, match="calibrate_bn"):
            return pyggml.Trainer(model, batch_size)
    return pyggml.Trainer(model, batch_size)


def variance(weights):
    return weights[5]


def check(weights):
    assert all(np.isfinite(w).all() for w in weights)
    assert (variance(weights) > 0).all(), variance(weights)


@pytest.fixture
def data(rng):
    return rng.normal(2.0, 3.0, (5, 3)), rng.normal(size=5)


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r09a_the_last_batch_of_an_epoch_may_have_one_row(data, form, momentum):
    model = make(momentum)
    history = model.fit(*data, batch_size=2, epochs=3, verbose=0).history
    assert np.isfinite(history["loss"]).all() and len(history["loss"]) == 3
    check(model.get_weights())


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r09a_every_batch_may_have_one_row(data, form, momentum):
    model = make(momentum)
    history = model.fit(*data, batch_size=1, epochs=3, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    check(model.get_weights())
    if momentum:  # no batch had a variance
        np.testing.assert_array_equal(variance(model.get_weights()), np.ones(4))
    else:  # all five rows together have one
        assert (variance(model.get_weights()) > 1e-3).all()


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r09a_a_data_set_of_one_row_keeps_the_variance(data, form, momentum):
    x, y = data
    model = make(momentum)
    model.fit(x[:1], y[:1], epochs=3, verbose=0)
    check(model.get_weights())
    np.testing.assert_array_equal(variance(model.get_weights()), np.ones(4))


def test_r09a_a_batch_of_one_row_does_not_count_among_others(data, form):
    """With momentum 0 the variance is that of the last batch that has one."""
    x, y = data
    model = make(0.0, pyggml.optimizers.SGD(0.0))
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
    dense = x[2:4] @ model.get_weights()[0].astype(np.float64)
    np.testing.assert_allclose(variance(model.get_weights()), dense.var(axis=0), rtol=1e-5)


@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("many", [False, True])
def test_r09a_steps_on_single_rows(data, form, momentum, many):
    x, y = data
    with trainer_of(make(momentum), 1) as trainer:
        if many:
            losses = trainer.step_many(x, y, np.arange(20)[:, None] % 5)
        else:
            losses = [trainer.step(x[i % 5:i % 5 + 1], y[i % 5:i % 5 + 1]) for i in range(20)]
        assert np.isfinite(losses).all()
        check(trainer.get_weights())
        np.testing.assert_array_equal(variance(trainer.get_weights()), np.ones(4))
        assert np.isfinite(trainer.predict(x)).all()


@pytest.mark.parametrize("momentum", [None, 0.99, 0.5, 0.0])
def test_r09a_equal_rows_leave_a_positive_variance(data, form, momentum):
    """A variance of exactly 0 over and over: the moving one falls, but never to 0."""
    x, y = np.repeat(data[0][:1], 4, axis=0), data[1][:4]
    model = make(momentum)
    history = model.fit(x, y, batch_size=2, epochs=3, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    check(model.get_weights())
    with trainer_of(model, 4) as trainer:
        losses = trainer.step_many(x, y, np.tile(np.arange(4), (3000, 1)))
        assert np.isfinite(losses).all()
        if momentum is None:
            trainer.calibrate_bn(x)
        check(trainer.get_weights())
        assert variance(trainer.get_weights()).max() < 1.0
        assert np.isfinite(trainer.predict(data[0])).all()


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r09a_calibration_on_one_row_keeps_the_variance(data, form, momentum):
    x, _ = data
    with trainer_of(make(momentum), 4) as trainer:
        trainer.calibrate_bn(x)
        before = variance(trainer.get_weights())
        trainer.calibrate_bn(x[:1])
        np.testing.assert_array_equal(variance(trainer.get_weights()), before)
        check(trainer.get_weights())


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r09a_an_image_of_one_row_has_a_variance(rng, form, momentum):
    """What counts is how many elements of a channel there are, not rows."""
    model = pyggml.Sequential([
        pyggml.Input((1, 4, 4)), layers.Conv2D(2, 3), layers.BatchNormalization(momentum=momentum),
        layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse")
    x = rng.normal(size=(1, 1, 4, 4))
    model.fit(x, np.ones(1), verbose=0)
    found = model.layers[1].moving_variance.numpy()
    assert (found > 0).all() and (found != 1).all()


@pytest.mark.parametrize("momentum", MOMENTA)
def test_r09b_one_row_after_training_with_batches_of_four(rng, form, momentum):
    x, y = rng.normal(size=(16, 3)).astype(np.float32), rng.normal(size=16)
    model = make(momentum)
    model.fit(x, y, batch_size=4, epochs=3, verbose=0)
    whole = model.predict(x[:4], batch_size=4)
    one = model.predict(x[:1])
    assert one.shape == (1, 1) and np.isfinite(one).all()
    np.testing.assert_allclose(one, whole[:1], rtol=1e-5, atol=1e-6)
    others = np.concatenate([x[:1], 100 * x[5:8]])
    assert model.predict(others, batch_size=4)[0] == whole[0]
    loss = model.evaluate(x[:1], y[:1])
    assert loss == pytest.approx((float(one[0, 0]) - y[0]) ** 2, rel=1e-4, abs=1e-6)
