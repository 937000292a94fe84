"""The references against central differences, and against numbers that a hand can check."""

import math

import numpy as np
import pytest
from reference import activations, losses
from reference.gradcheck import (
    check_gradients,
    gradient_errors,
    normal,
    numerical_gradient,
    relative_error,
)
from reference.regularizers import penalty

TOLERANCE = 1e-6

# --- gradcheck -------------------------------------------------------------------------------


def test_relative_error():
    assert relative_error([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert math.isnan(relative_error([math.nan], [1.0]))
    with pytest.raises(ValueError, match="shapes differ"):
        relative_error([1.0], [[1.0]])


def test_a_wrong_gradient_is_seen():
    def wrong(x):
        return x**2, lambda dout: {"x": 1.001 * 2 * x * dout}

    assert gradient_errors(wrong, {"x": normal(3)})["/x"] > 5e-4


# --- activations -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", activations.NAMES)
def test_activation_gradient(name):
    x = normal(4, 7) * 2.5
    check_gradients(activations.activation_layer, {"x": x}, name=name)


@pytest.mark.parametrize(
    ("name", "options"),
    [("leaky_relu", {"negative_slope": 0.01}), ("elu", {"alpha": 0.5}), ("softmax", {"axis": 1}),
     ("log_softmax", {"axis": 0})],
)  # fmt: skip
def test_activation_parameters(name, options):
    check_gradients(activations.activation_layer, {"x": normal(3, 4, 2)}, name=name, **options)


@pytest.mark.parametrize("name", [n for n in activations.NAMES if n != "exponential"])
def test_activation_extremes(name):
    x = np.array([[-1e4, -50.0, 0.0, 50.0, 1e4]])
    assert np.all(np.isfinite(activations.activation(name, x)))
    assert np.all(np.isfinite(activations.activation_vjp(name, x, np.ones_like(x))))


@pytest.mark.parametrize(
    ("name", "x", "value"),
    [
        ("linear", -2.0, -2.0),
        ("relu", -1.0, 0.0),
        ("relu6", 7.0, 6.0),
        ("leaky_relu", -1.0, -0.2),
        ("elu", -1.0, math.exp(-1) - 1),
        ("selu", 1.0, 1.0507009873554805),
        ("selu", -1.0, 1.0507009873554805 * 1.6732632423543772 * (math.exp(-1) - 1)),
        ("gelu", 1.0, 0.8413447460685429),
        ("gelu_tanh", 1.0, 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))),
        ("silu", 1.0, 1 / (1 + math.exp(-1))),
        ("swish", 1.0, 1 / (1 + math.exp(-1))),
        ("sigmoid", 0.0, 0.5),
        ("hard_sigmoid", 1.5, 0.75),
        ("hard_swish", 1.5, 1.125),
        ("tanh", 0.5, math.tanh(0.5)),
        ("softplus", 0.0, math.log(2)),
        ("softsign", -1.0, -0.5),
        ("mish", 1.0, math.tanh(math.log1p(math.e))),
        ("exponential", 1.0, math.e),
    ],
)
def test_activation_value(name, x, value):
    assert activations.activation(name, x) == pytest.approx(value, rel=1e-14)


def test_softmax_value():
    x = np.log([[1.0, 2.0, 5.0]])
    np.testing.assert_allclose(activations.softmax(x), [[0.125, 0.25, 0.625]], rtol=1e-14)
    np.testing.assert_allclose(
        activations.log_softmax(x), np.log([[0.125, 0.25, 0.625]]), rtol=1e-14
    )
