"""R04: one weighting rule, sum(w * l) / N, the same everywhere."""

import numpy as np
import pytest
from _models import weight, zero_model

import pyggml

X = np.ones((3, 1), np.float32)
Y = np.array([1, 2, 3], np.float32)
W = np.array([0.5, 0, 0.5], np.float32)
EXPECTED = (0.5 * 1 + 0.5 * 9) / 3


def still(**arguments):
    return zero_model(optimizer=pyggml.optimizers.SGD(0.0), **arguments)


def test_r04a_step():
    with pyggml.Trainer(still(), 3, loss_mask=1) as trainer:
        assert trainer.step(X, Y, W) == pytest.approx(EXPECTED, abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_r04a_fit_evaluate_and_the_weighted_metric(batch_size):
    model = still(metrics=["mse"])
    history = model.fit(X, Y, batch_size=batch_size, sample_weight=W, verbose=0,
                        validation_data=(X, Y, W)).history
    for name in ("loss", "mse", "val_loss", "val_mse"):
        assert history[name] == [pytest.approx(EXPECTED, abs=1e-6)]
    assert model.evaluate(X, Y, batch_size, W) == pytest.approx([EXPECTED] * 2, abs=1e-6)


def test_r04a_generator():
    model = still()
    history = model.fit_generator(iter([(X, Y, W)]), batch_size=3, verbose=0).history
    assert history["loss"] == [pytest.approx(EXPECTED, abs=1e-6)]
    assert model.evaluate(iter([(X[:2], Y[:2], W[:2]), (X[2:], Y[2:], W[2:])])) == pytest.approx(
        EXPECTED, abs=1e-6)


def test_r04a_accumulated_micro_batches_make_the_same_update():
    weights = []
    for size, logical in ((3, None), (1, 3)):
        model = zero_model()
        history = model.fit(X, Y, batch_size=size, nbatch_logical=logical, sample_weight=W,
                            shuffle=False, verbose=0).history
        assert history["loss"] == [pytest.approx(EXPECTED, abs=1e-6)]
        weights.append(weight(model))
    # gradient of sum(w (p - y)^2) / 3 at p = 0
    assert weights == pytest.approx([0.1 * 2 * (0.5 * 1 + 0.5 * 3) / 3] * 2, abs=1e-6)


def fitted(w):
    model = zero_model()
    history = model.fit(X, Y, sample_weight=w, shuffle=False, verbose=0).history
    return history["loss"][0], weight(model)


def test_r04b_ones_change_nothing_and_twos_double():
    assert fitted(np.ones(3)) == fitted(None)
    assert fitted(np.full(3, 2.0)) == pytest.approx([2 * v for v in fitted(None)], rel=1e-6)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_r04b_negative_and_nan_weights_are_refused_everywhere(bad):
    model = zero_model()
    w = [1, bad, 1]
    for call in (lambda: model.fit(X, Y, sample_weight=w, verbose=0),
                 lambda: model.evaluate(X, Y, sample_weight=w),
                 lambda: model.fit(X, Y, validation_data=(X, Y, w), verbose=0),
                 lambda: model.fit_generator(iter([(X, Y, w)]), batch_size=3, verbose=0)):
        with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
            call()
    assert weight(model) == 0
