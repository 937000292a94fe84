"""Activations against the float64 references: values, gradients, extremes, names."""

import functools
import pickle

import numpy as np
import pytest
from reference import activations as reference
from reference.gradcheck import normal, relative_error
from tensor_probe import value_and_gradient

import pyggml
from pyggml import activations, layers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def compare(name, x, function=None, **parameters):
    dy = normal(*x.shape, seed=7).astype(np.float32)
    value, gradient = value_and_gradient(function or activations.get(name), x, dy)
    assert relative_error(value, reference.activation(name, x, **parameters)) < 1e-5
    assert relative_error(gradient, reference.activation_vjp(name, x, dy, **parameters)) < 1e-4


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 3, 17), (5, 33)])
@pytest.mark.parametrize("name", reference.NAMES)
def test_value_and_gradient_agree_with_the_reference(name, shape):
    compare(name, np.float32(3 * normal(*shape)))


@pytest.mark.parametrize("name", reference.NAMES)
def test_kinks_zero_and_moderate_numbers(name):
    compare(name, np.float32([[-21, -20, -6, -3, -1, -0.01, 0, 0.01, 1, 3, 6, 6.1, 9, 20, 21]]))


@pytest.mark.parametrize("name", sorted(set(reference.NAMES) - {"exponential"}))
def test_extremes_are_finite_and_right(name):
    big = np.float32([1e4, 1e3, 100, 88, 50])
    for x in (np.concatenate([big, -big])[None], big[:, None], -big[:, None],
              np.float32([[1e4, -1e4, 0]])):
        dy = np.ones(x.shape, np.float32)
        value, gradient = value_and_gradient(activations.get(name), x, dy)
        assert np.isfinite(value).all() and np.isfinite(gradient).all()
        np.testing.assert_allclose(value, reference.activation(name, x), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(gradient, reference.activation_vjp(name, x, dy), atol=1e-4)


def test_negative_side_of_smooth_gates_goes_to_exactly_zero():
    x = np.float32([[-1e4, -1e3, -200]])
    for name in ("gelu", "gelu_tanh", "silu", "mish", "hard_swish"):
        value, gradient = value_and_gradient(activations.get(name), x, np.ones_like(x))
        assert not value.any() and not gradient.any()


@pytest.mark.parametrize("name", ["elu", "selu", "gelu", "silu", "softsign", "mish", "relu"])
def test_small_numbers_keep_their_digits(name):
    for size in (1e-4, 1e-2, 0.1, 0.3):
        compare(name, np.float32(size * normal(1, 7)))


def test_exact_gelu_is_good_to_a_millionth_everywhere():
    x = np.linspace(-6, 6, 4001, dtype=np.float32)[None]
    value, gradient = value_and_gradient(activations.gelu, x, np.ones_like(x))
    assert np.abs(value - reference.activation("gelu", x)).max() < 1e-6
    assert np.abs(gradient - reference.activation_vjp("gelu", x, np.ones_like(x))).max() < 5e-6


@pytest.mark.parametrize(("name", "parameters"), [
    ("leaky_relu", {"negative_slope": 0.01}), ("leaky_relu", {"negative_slope": 0.0}),
    ("elu", {"alpha": 0.3}),
])
def test_parameters(name, parameters):
    function = activations.get({"name": name} | parameters)
    compare(name, np.float32(3 * normal(3, 7)), function, **parameters)
    assert activations.serialize(function) == {"name": name} | parameters
    again = pickle.loads(pickle.dumps(function))
    assert activations.serialize(again) == {"name": name} | parameters


@pytest.mark.parametrize("name", [*reference.NAMES, "hard_silu"])
def test_names_are_found_and_written_back(name):
    function = activations.get(name)
    assert activations.get(activations.serialize(function)) is function
    assert pyggml.layers.Dense(2, activation=name).activation is function
    assert pickle.loads(pickle.dumps(function)) is function


def test_what_get_takes_and_refuses():
    def mine(x):
        return x

    assert activations.get(None) is activations.linear
    assert activations.get(mine) is mine
    assert activations.serialize(mine) is mine
    bound = functools.partial(activations.gelu, approximate=True)
    assert activations.serialize(bound) == {"name": "gelu", "approximate": True}
    with pytest.raises(ValueError, match="leaky_relu"):
        activations.get("leaky")
    with pytest.raises(ValueError, match="name"):
        activations.get({"negative_slope": 0.1})
    with pytest.raises(TypeError, match="activation"):
        activations.get(3)


def test_an_argument_that_an_activation_does_not_take_is_refused(form):
    x = np.ones((1, 2), np.float32)
    for call in (lambda x: activations.elu(x, alfa=0.5), lambda x: activations.selu(x, 0.5)):
        with pytest.raises(TypeError, match=r"alfa|too many"):
            pyggml.Sequential([pyggml.Input((2,)), layers.Lambda(call)]).predict(x)
