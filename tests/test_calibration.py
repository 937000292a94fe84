"""Exact statistics of batch normalisation from data."""

import numpy as np
import pytest
from layer_check import random
from reference import conv, norm

import pyggml
from pyggml import layers
from pyggml._calibration import calibrate, calibrated_layers


def network(activation="relu", **options):
    pyggml.set_seed(1)
    pyggml.set_num_threads(1)
    return pyggml.Sequential([
        pyggml.Input((2, 5, 7)),
        layers.Conv2D(3, 3, activation=activation),
        layers.BatchNormalization(name="a", **options),
        layers.Conv2D(4, 2),
        layers.BatchNormalization(name="b", **options),
        layers.Flatten(),
        layers.Dense(2),
        layers.BatchNormalization(name="c", **options),
    ])


def statistics(model):
    return {f"{layer.name}/{v.name}": v.numpy() for layer in model.layers
            for v in layer.weights if v.name.startswith("moving")}


def expected(model, x):
    """Layer by layer in float64: each statistic from what the calibrated layers before make."""
    first, a, second, b, _, dense, c = model.layers
    found = {}
    y = np.float64(x)

    def through(layer, y):
        mean, variance = norm.batch_statistics(y)
        found[f"{layer.name}/moving_mean"], found[f"{layer.name}/moving_variance"] = mean, variance
        return norm.batch_norm(y, layer.gamma.numpy(), layer.beta.numpy(), mean, variance,
                               training=False)[0]

    y = np.maximum(conv.conv(y, first.kernel.numpy(), first.bias.numpy())[0], 0)
    y = through(a, y)
    y = through(b, conv.conv(y, second.kernel.numpy(), second.bias.numpy())[0])
    through(c, y.reshape(len(y), -1) @ np.float64(dense.kernel.numpy()) + dense.bias.numpy())
    return found


def agree(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 100])
def test_statistics_are_those_of_all_rows_at_once(batch_size):
    model, x = network(), random(30, 2, 5, 7) + 1
    assert calibrate(model.program, {}, x, batch_size=batch_size) == 3
    agree(statistics(model), expected(model, x))


def test_the_next_prediction_uses_them():
    model, x = network(), random(30, 2, 5, 7)
    model.predict(x)
    calibrate(model.program, {}, x)
    out = model.predict(x)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(out.var(axis=0), 1, atol=5e-2)


def test_rows_beyond_the_limit_are_not_used():
    model, x = network(), random(20, 2, 5, 7)
    calibrate(model.program, {}, np.concatenate([x, np.full_like(x, np.nan)]), max_rows=20)
    agree(statistics(model), expected(model, x))


def test_only_the_rows_that_are_used_are_read():
    class Rows:
        """An array on a disk."""

        def __init__(self, x):
            self.x, self.shape, self.read = x, x.shape, 0

        def __getitem__(self, rows):
            self.read = max(self.read, rows.stop)
            return self.x[rows]

    model, rows = network(), Rows(random(40, 2, 5, 7))
    calibrate(model.program, {}, rows, max_rows=24, batch_size=10)
    assert rows.read == 24
    agree(statistics(model), expected(model, rows.x[:24]))


def test_bindings_are_set_and_the_program_stays():
    model, x = network(), random(12, 2, 5, 7)
    before = statistics(model)
    bindings = {v: v.clone() for v in model.weights}
    calibrate(model.program, bindings, x)
    assert all(np.array_equal(before[k], v) for k, v in statistics(model).items())
    calibrate(model.program, {}, x)
    for v in model.weights:
        assert np.array_equal(bindings[v].numpy(), v.numpy())


@pytest.mark.parametrize("spoil", [
    lambda x: x[:0], lambda x: x[:, :1], lambda x: np.where(x > 2, np.nan, x), lambda x: 3.0,
    lambda x: [x, x],
], ids=["no rows", "another shape", "nan", "scalar", "two arrays"])
def test_what_fails_changes_nothing(spoil):
    model, x = network(activation=None), random(40, 2, 5, 7)  # relu makes a 0 of a NaN
    before = statistics(model)
    with pytest.raises(ValueError):
        calibrate(model.program, {}, spoil(x))
    assert all(np.array_equal(before[k], v) for k, v in statistics(model).items())


def test_layers_with_a_momentum_or_frozen_statistics_are_left_alone():
    model = network()
    model.layers[3].freeze_stats = True
    assert [layer.name for layer in calibrated_layers(model.program)] == ["a", "c"]
    assert calibrated_layers(network(momentum=0.9).program) == []
    before = model.layers[3].moving_mean.numpy()
    calibrate(model.program, {}, random(10, 2, 5, 7))
    assert np.array_equal(model.layers[3].moving_mean.numpy(), before)


def test_layers_of_a_nested_model_and_several_inputs_are_found():
    inner_x = pyggml.Input((3,))
    inner = pyggml.Model(inner_x, layers.BatchNormalization(name="inner")(inner_x))
    a, b = pyggml.Input((3,), name="left"), pyggml.Input((3,), name="right")
    model = pyggml.Model([a, b], layers.Add()([inner(a), inner(b)]))
    xs = [random(9, 3, seed=1) + 2, random(9, 3, seed=2) - 1]
    calibrate(model.program, {}, {"left": xs[0], "right": xs[1]})
    layer = inner.layers[1]
    both = np.concatenate(xs).astype(np.float64)
    np.testing.assert_allclose(layer.moving_mean.numpy(), both.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance.numpy(), both.var(axis=0), rtol=1e-5)


def test_a_constant_channel_far_from_zero_gets_the_smallest_variance():
    model = pyggml.Sequential([pyggml.Input((2,)), layers.BatchNormalization()])
    calibrate(model.program, {}, np.full((100, 2), 12345.678, np.float32))
    mean, variance = model.get_weights()[2:]
    assert np.array_equal(mean, np.full(2, 12345.678, np.float32))
    assert np.array_equal(variance, np.full(2, 1e-30, np.float32))  # never 0
