"""Weights from PyTorch and Keras as arrays: matched, transposed, or refused as a whole."""

import numpy as np
import pytest

import pyggml
from pyggml import layers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 5)).astype(np.float32)


def network():
    return pyggml.Sequential([pyggml.Input((5,)), layers.Dense(4, "relu", name="first"),
                              layers.Dense(3, name="second")], name="net")


def torch_state():
    return {"net.0.weight": RNG.normal(size=(4, 5)), "net.0.bias": RNG.normal(size=4),
            "net.2.weight": RNG.normal(size=(3, 4)), "net.2.bias": RNG.normal(size=3)}


def expected(state):
    hidden = np.maximum(X @ state["net.0.weight"].T + state["net.0.bias"], 0)
    return hidden @ state["net.2.weight"].T + state["net.2.bias"]


def test_linear_layers_are_transposed():
    model, state = network(), torch_state()
    pyggml.load_torch_state_dict(model, state)
    np.testing.assert_allclose(model.predict(X), expected(state), rtol=1e-5, atol=1e-5)


def test_names_tell_which_module_is_which_layer():
    model, state = network(), torch_state()
    shuffled = {k: state[k] for k in sorted(state, reverse=True)}
    with pytest.raises(ValueError, match=r"module 'net.2' does not fit layer 'first' \(Dense\)"):
        pyggml.load_torch_state_dict(model, shuffled)
    pyggml.load_torch_state_dict(model, shuffled, {"first": "net.0", "second": "net.2"})
    np.testing.assert_allclose(model.predict(X), expected(state), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change, names, message", [
    (lambda s: s.pop("net.2.bias"), None, r"gives \['kernel'\], the layer has"),
    (lambda s: s.update({"net.3.weight": np.ones((3, 3))}), None, r"2 layers .* 3 modules"),
    (lambda s: s.update({"net.0.weight": np.ones((4, 6))}), None, r"\(5, 4\), got \(6, 4\)"),
    (lambda s: s.update({"net.0.weight": np.ones((4, 5, 1))}), None, "axes"),
    (lambda s: s.update({"net.0.weight": np.array([["a"] * 5] * 4)}), None, "real numbers"),
    (lambda s: None, {"first": "net.0"}, "keys"),
    (lambda s: None, {"first": "net.0", "second": "net.1"}, r"no modules \['net.1'\]"),
])
def test_what_does_not_fit_changes_nothing(change, names, message):
    model, state = network(), torch_state()
    before = model.get_weights()
    change(state)
    with pytest.raises(ValueError, match=message):
        pyggml.load_torch_state_dict(model, state, names)
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def test_layers_without_a_counterpart_are_named():
    class Scale(layers.Layer):
        def build(self, input_shape):
            self.factor = self.add_weight("factor", (input_shape[-1],), "ones")

        def call(self, x):
            return pyggml.ops.multiply(x, self.factor)

    model = pyggml.Sequential([pyggml.Input((5,)), Scale(name="s")])
    with pytest.raises(ValueError, match=r"'s' is a Scale.*known are"):
        pyggml.load_torch_state_dict(model, {"s.weight": np.ones(5)})


def test_keras_weights_by_order_and_by_path():
    model, source = network(), network()
    given = source.get_weights()
    pyggml.load_keras_weights(model, given)
    assert (model.predict(X) == source.predict(X)).all()
    for form in ("{}", "model/{}", "{}:0", "a/b/{}:0"):
        model = network()
        paths = ["first/kernel", "first/bias", "second/kernel", "second/bias"]
        pyggml.load_keras_weights(
            model, {form.format(p): w for p, w in reversed(list(zip(paths, given, strict=True)))})
        assert (model.predict(X) == source.predict(X)).all()


@pytest.mark.parametrize("change, message", [
    (lambda w: w[:3], "has 4 weights, got 3"),
    (lambda w: [w[0], w[1], w[2].T, w[3]], r"'second/kernel' has shape \(4, 3\), got \(3, 4\)"),
    (lambda w: {"first/kernel": w[0], "other/bias": w[1]}, r"'second/kernel'.*'other/bias'"),
    (lambda w: {"a/first/kernel": w[0], "b/first/kernel": w[0]}, "two keys"),
])
def test_keras_weights_that_do_not_fit_change_nothing(change, message):
    model = network()
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        pyggml.load_keras_weights(model, change([w + 1 for w in before]))
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))
