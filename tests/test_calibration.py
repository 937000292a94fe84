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


# ---- whoever looks at the model during fit, or after it failed, finds statistics of the data -----

ROWS = random(40, 3, seed=7) * 4 + 2


def normed():
    """A model whose first layer normalises: its statistics are those of the rows."""
    model = pyggml.Sequential([pyggml.Input((3,)), layers.BatchNormalization(name="n"),
                               layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def check_statistics(model, rows=ROWS):
    found = statistics(model)
    assert found["n/moving_mean"] == pytest.approx(rows.mean(axis=0, dtype=float), rel=1e-5)
    assert found["n/moving_variance"] == pytest.approx(rows.var(axis=0, dtype=float), rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"validation_data": (ROWS, ROWS[:, 0])},
                                     {"validation_data": (ROWS, ROWS[:, 0]), "validation_freq": 3}])
@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_end"])
def test_a_callback_at_the_end_of_an_epoch_sees_the_statistics_of_the_data(hook, options):
    model, seen = normed(), []

    def look(*arguments):
        check_statistics(model)
        seen.append(arguments)

    model.fit(ROWS, ROWS[:, 0], epochs=2, verbose=0, **options,
              callbacks=[pyggml.callbacks.LambdaCallback(**{hook: look})])
    assert len(seen) == (2 if hook == "on_epoch_end" else 1)


@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_a_checkpoint_holds_the_statistics_of_the_data(save_freq, tmp_path):
    model = normed()
    path = str(tmp_path / "m.gguf")
    model.fit(ROWS, ROWS[:, 0], batch_size=10, epochs=1, verbose=0, callbacks=[
        pyggml.callbacks.ModelCheckpoint(path, save_freq=save_freq)])
    check_statistics(pyggml.load_model(path))


def test_callbacks_that_do_not_use_the_model_cost_no_calibration(monkeypatch):
    model, calls = normed(), []
    real = calibrate
    monkeypatch.setattr("pyggml._calibration.calibrate",
                        lambda *args, **kw: calls.append(1) or real(*args, **kw))
    model.fit(ROWS, ROWS[:, 0], epochs=3, verbose=0, callbacks=[
        pyggml.schedules.StepDecay(), pyggml.callbacks.EarlyStopping("loss"),
        pyggml.callbacks.TerminateOnNaN(), pyggml.callbacks.ReduceLROnPlateau("loss")])
    assert len(calls) == 1
    model.fit(ROWS, ROWS[:, 0], epochs=3, verbose=0, callbacks=[
        pyggml.callbacks.EarlyStopping("loss", restore_best_weights=True)])
    assert len(calls) == 1 + 3 + 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("source", ["arrays", "generator"])
def test_after_an_exception_the_statistics_are_those_of_the_data(error, source):
    def fail(batch, logs):
        if batch == 3:
            raise error

    model = normed()
    hook = pyggml.callbacks.LambdaCallback(on_train_batch_end=fail)
    with pytest.raises(error):
        if source == "arrays":
            model.fit(ROWS, ROWS[:, 0], batch_size=10, verbose=0, callbacks=[hook])
        else:
            model.fit_generator([(ROWS[i:i + 10], ROWS[i:i + 10, 0]) for i in range(0, 40, 10)],
                                batch_size=10, verbose=0, callbacks=[hook])
    check_statistics(model)


def test_an_exception_before_the_first_step_changes_nothing():
    model = normed()
    before = [w.tobytes() for w in model.get_weights()]
    with pytest.raises(ZeroDivisionError):
        model.fit(ROWS, ROWS[:, 0], verbose=0, callbacks=[
            pyggml.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: 1 / 0)])
    assert [w.tobytes() for w in model.get_weights()] == before


def test_train_on_batch_tells_once_that_statistics_do_not_move():
    model = normed()
    with pytest.warns(UserWarning, match="train_on_batch does not move the moving statistics"):
        model.train_on_batch(ROWS, ROWS[:, 0])
    model.train_on_batch(ROWS, ROWS[:, 0])
