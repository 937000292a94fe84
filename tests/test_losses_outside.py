"""Predictions that a loss is not meant for: probabilities outside [0, 1], rates below 0.

Documented: they count as the bound, and have no gradient there. Both forms of a loss, kernels and
ggml's operations, give that.
"""

import numpy as np
import pytest

import pyggml
from pyggml import layers

EPS = 1e-7
PREDICTIONS = np.array([[-2.0, -0.3, 0.0], [1.0, 1.5, 7.0], [0.2, 0.9, -1e-9], [0.5, 3.0, -5.0]])
LABELS = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.25], [1.0, 0.0, 1.0], [0.0, 0.5, 1.0]])


def clipped(p, high=1 - EPS):
    return np.clip(p, EPS, high)


def binary(p, y):
    inside = (p > EPS) & (p < 1 - EPS)
    q, r = clipped(p), clipped(1 - p)
    return (-(y * np.log(q) + (1 - y) * np.log(r)).mean(),
            np.where(inside, (q - y) / (q * (1 - q)), 0) / p.size)


def poisson(p, y):
    q = np.maximum(p, 0) + EPS
    return (p - y * np.log(q)).mean(), np.where(p > 0, 1 - y / q, 1) / p.size


def divergence(p, y):
    q, t = clipped(p, 1), clipped(y, 1)
    inside = (p > EPS) & (p < 1)
    return ((t * np.log(t / q)).sum(-1).mean(), np.where(inside, -t / q, 0) / len(p))


REFERENCES = {"binary_crossentropy": binary, "poisson": poisson, "kl_divergence": divergence}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_prediction_outside_counts_as_the_bound(name, form):
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3, kernel_initializer="zeros")])
    model.compile("sgd", name)
    for p, y in zip(PREDICTIONS, LABELS, strict=True):
        model.set_weights([np.zeros((3, 3)), p])  # the bias is the prediction
        with pyggml.Trainer(model, 1) as trainer:
            x = np.ones((1, 3))
            loss, gradient = trainer.eval(x, y[None]), trainer.gradients(x, y[None])
        # 1 - 1e-7 is rounded to a float: log(1.19e-7) for log(1e-7) at the worst.
        want, slope = REFERENCES[name](np.float32(p).astype(float)[None], y[None])
        assert loss == pytest.approx(want, rel=1e-2, abs=1e-5)
        np.testing.assert_allclose(gradient[model.layers[0].name + "/bias"], slope[0], rtol=1e-4,
                                   atol=1e-6)


@pytest.mark.parametrize("name", ["categorical_crossentropy", "categorical_focal_crossentropy"])
@pytest.mark.parametrize("row", [[0, 0, 0], [-0.5, 0.5, 0], [np.inf, 1, 1], [np.inf, -np.inf, 1]])
def test_rows_without_a_usable_sum_have_no_crossentropy(name, row, form):
    """Not the number that clipping would make of infinities."""
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3, kernel_initializer="zeros")])
    model.compile("sgd", name)
    model.set_weights([np.zeros((3, 3)), np.array(row)])
    with pyggml.Trainer(model, 1) as trainer:
        x, y = np.ones((1, 3)), np.array([[0.0, 1.0, 0.0]])
        assert np.isnan(trainer.eval(x, y))
        assert np.isnan(trainer.gradients(x, y)[model.layers[0].name + "/bias"]).any()
