"""R01: epoch and evaluation numbers weight every sample equally."""

import functools

import numpy as np
import pytest
from _models import zero_model

import pyggml

X = np.ones((5, 1), np.float32)
Y = np.array([1, 1, 1, 1, 3], np.float32)
BATCHES = [(X[:2], Y[:2]), (X[2:4], Y[2:4]), (X[4:], Y[4:])]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 7])
def test_r01a_evaluate_is_the_mean_over_rows(batch_size):
    loss, mae = zero_model(metrics=["mae"]).evaluate(X, Y, batch_size=batch_size)
    assert loss == pytest.approx(2.6, abs=1e-6)
    assert mae == pytest.approx(1.4, abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 7])
def test_r01a_history_is_the_mean_over_rows(batch_size):
    model = zero_model(optimizer=pyggml.optimizers.SGD(0.0), metrics=["mae"])
    history = model.fit(X, Y, batch_size=batch_size, verbose=0, validation_data=(X, Y)).history
    for name in ("loss", "val_loss"):
        assert history[name] == [pytest.approx(2.6, abs=1e-6)]
    for name in ("mae", "val_mae"):
        assert history[name] == [pytest.approx(1.4, abs=1e-6)]


@pytest.mark.parametrize("source", [
    lambda: iter(BATCHES),
    lambda: functools.partial(next, iter(BATCHES), None),
], ids=["iterator", "callable"])
def test_r01a_evaluate_of_a_generator_with_a_short_batch(source):
    loss, mae = zero_model(metrics=["mae"]).evaluate(source())
    assert loss == pytest.approx(2.6, abs=1e-6)
    assert mae == pytest.approx(1.4, abs=1e-6)


def test_r01a_validation_generator_with_a_short_batch():
    model = zero_model(optimizer=pyggml.optimizers.SGD(0.0))
    history = model.fit(X, Y, verbose=0, validation_generator=BATCHES).history
    assert history["val_loss"] == [pytest.approx(2.6, abs=1e-6)]


def test_r01b_two_hundred_thousand_batches_are_added_in_double():
    n = 200_000
    x = np.ones((n, 1), np.float32)
    y = np.full(n, np.sqrt(0.1))
    assert zero_model().evaluate(x, y, batch_size=1) == pytest.approx(0.1, abs=1e-5)
