"""One weighting rule everywhere; labels matched to outputs and checked before anything moves."""

import warnings

import numpy as np
import pytest

import pyggml
from pyggml import layers, optimizers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def zero_model(outputs=1, loss="mse", rate=0.0, metric=None, features=1):
    model = pyggml.Sequential([pyggml.Input((features,)), layers.Dense(outputs)])
    model.set_weights([np.zeros((features, outputs)), np.zeros(outputs)])
    model.compile(optimizers.SGD(rate), loss, metric)
    return model


def gradients(model, x, y, w=None, mask=None):
    with pyggml.Trainer(model, batch_size=len(x), loss_mask=mask) as trainer:
        return b"".join(g.tobytes() for g in trainer.gradients(x, y, w).values())


# ---- R04: one rule ------------------------------------------------------------------------------

X3, Y3, W3 = np.ones((3, 1)), np.array([1.0, 2, 3]), np.array([0.5, 0, 0.5])


def all_paths(y, w):
    """The same weighted loss of three rows by every path there is."""
    model = zero_model(metric=["mse"])
    mask = None if w is None else 1
    with pyggml.Trainer(model, batch_size=3, loss_mask=mask) as trainer:
        found = {"step": trainer.step(X3, y, w), "eval": trainer.eval(X3, y, w)}
    fit = model.fit(X3, y, sample_weight=w, verbose=0, shuffle=False)
    found |= {"fit": fit.history["loss"][0], "fit metric": fit.history["mse"][0]}
    two = model.fit(X3, y, sample_weight=w, batch_size=2, verbose=0, shuffle=False)
    found["fit in two batches"] = two.history["loss"][0]
    three = model.fit(X3, y, sample_weight=w, batch_size=1, nbatch_logical=3, verbose=0)
    found["accumulated"] = three.history["loss"][0]
    for size in (1, 2, 3, 8):
        logs = model.evaluate(X3, y, size, w, return_dict=True)
        found |= {f"evaluate {size}": logs["loss"], f"evaluate metric {size}": logs["mse"]}
    return found


def test_every_path_gives_the_sum_of_weighted_losses_over_their_number():
    for value in all_paths(Y3, W3).values():
        assert value == pytest.approx(5 / 3, abs=1e-6)
    for value in all_paths(Y3, None).values():
        assert value == pytest.approx(14 / 3, abs=1e-6)


def test_weights_of_one_are_no_weights_and_scale_loss_and_gradient():
    plain, ones, twos = (all_paths(Y3, w) for w in (None, np.ones(3), np.full(3, 2.0)))
    assert plain == ones
    for key, value in twos.items():
        assert value == pytest.approx(2 * plain[key], rel=1e-6)
    model = zero_model()
    g = gradients(model, X3, Y3)
    assert g == gradients(model, X3, Y3, np.ones(3), 1) == gradients(model, X3, Y3, None, 1)
    double = np.frombuffer(gradients(model, X3, Y3, np.full(3, 2.0), 1), np.float32)
    np.testing.assert_allclose(double, 2 * np.frombuffer(g, np.float32), rtol=1e-6)


@pytest.mark.parametrize("bad", [[1, -1, 1], [1, np.nan, 1], [1, np.inf, 1]])
def test_negative_and_infinite_weights_are_refused_and_nothing_moves(bad):
    model = zero_model(rate=0.1)
    before = [w.tobytes() for w in model.get_weights()]
    with pyggml.Trainer(model, batch_size=3, loss_mask=1) as trainer:
        for call in (trainer.step, trainer.eval):
            with pytest.raises(ValueError, match="sample_weight"):
                call(X3, Y3, bad)
        assert trainer.n_steps == 0
        assert [w.tobytes() for w in trainer.get_weights()] == before
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="sample_weight"):
            call(X3, Y3, sample_weight=np.array(bad))
    assert [w.tobytes() for w in model.get_weights()] == before


def test_all_weights_zero_is_a_loss_of_zero_and_no_step():
    model = zero_model(rate=0.1)
    with pyggml.Trainer(model, batch_size=3, loss_mask=1) as trainer:
        assert trainer.step(X3, Y3, np.zeros(3)) == 0
        assert not any(w.any() for w in trainer.get_weights())


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3)])
def test_weights_of_rows_count_for_all_of_a_row_whatever_its_axes(shape):
    """Sequences and images: the weight of a sample is that of all its steps or pixels."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, *shape)), np.array([0, 0.5, 2, 1])
    y = rng.normal(size=(4, *shape))
    model = pyggml.Sequential([pyggml.Input(shape), layers.Dense(3, use_bias=False)])
    model.set_weights([np.eye(3)])
    each = w.reshape(4, *[1] * len(shape))
    for loss, labels, values in [
            ("mse", y, (x - y) ** 2),
            (pyggml.losses.SparseCategoricalCrossentropy(from_logits=True),
             y.argmax(-1), (np.log(np.exp(x).sum(-1)) - np.take_along_axis(
                 x, y.argmax(-1)[..., None], -1)[..., 0])[..., None])]:
        model.compile(optimizers.SGD(1.0), loss)
        expected = float((each * values).mean())
        assert model.evaluate(x, labels, sample_weight=w) == pytest.approx(expected, rel=1e-5)
        with pyggml.Trainer(model, batch_size=4, loss_mask=1) as trainer:
            assert trainer.eval(x, labels, w) == pytest.approx(expected, rel=1e-5)
            (g,) = trainer.gradients(x, labels, w).values()
        if loss == "mse":
            want = x.reshape(-1, 3).T @ (2 * each * (x - y) / y.size).reshape(-1, 3)
            np.testing.assert_allclose(g, want, rtol=1e-4, atol=1e-6)


def test_weights_of_rows_where_a_row_is_one_number():
    x, y, w = np.arange(12.0).reshape(4, 3), np.arange(4.0), np.array([0, 0.5, 2, 1])
    inputs = pyggml.Input((3,))
    model = pyggml.Model(inputs, layers.Lambda(lambda x: pyggml.ops.sum(x, axis=1))(
        layers.Dense(3)(inputs)))
    assert model.output_shape == (None,)
    model.compile(optimizers.SGD(0.0), "mse")
    expected = float((w * (model.predict(x) - y) ** 2).mean())
    assert model.evaluate(x, y, sample_weight=w) == pytest.approx(expected, rel=1e-5)
    with pyggml.Trainer(model, batch_size=4, loss_mask=1) as trainer:
        assert trainer.eval(x, y, w) == pytest.approx(expected, rel=1e-5)
        assert trainer.step(x, y, w) == pytest.approx(expected, rel=1e-5)


# ---- R05: weights by element --------------------------------------------------------------------

def test_elements_are_really_switched_off():
    model = zero_model(3)
    x, y = np.ones((2, 1)), np.array([[1.0, 2, 3], [4, 5, 6]])
    w = np.array([[1, 1, 0], [0, 1, 0]])
    found = []
    for other in (3, 1e6, 1e30, np.nan, np.inf):
        y[0, 2] = other
        with pyggml.Trainer(model, batch_size=2, loss_mask=3) as trainer:
            loss = trainer.eval(x, y, w)
        found.append((loss, gradients(model, x, y, w, 3), model.evaluate(x, y, sample_weight=w)))
    assert found[0][0] == found[0][2] == pytest.approx(5.0)
    assert all(item == found[0] for item in found)


def test_a_row_that_is_switched_off_may_hold_nan_in_its_inputs():
    model = zero_model(2)
    model.set_weights([np.ones((1, 2)), np.zeros(2)])
    x, y = np.array([[1.0], [2.0], [3.0]]), np.ones((3, 2))
    for w, mask in ((np.array([1, 0, 1]), 1), (np.array([[1, 1], [0, 0], [1, 1]]), 2)):
        clean = gradients(model, x, y, w, mask), model.evaluate(x, y, sample_weight=w)
        for bad in (np.nan, np.inf, -np.inf):
            dirty, labels = x.copy(), y.copy()
            dirty[1], labels[1] = bad, np.nan
            assert clean == (gradients(model, dirty, labels, w, mask),
                             model.evaluate(dirty, labels, sample_weight=w))


def test_weights_by_row_spread_over_the_elements():
    model = zero_model(3)
    x, y = np.ones((2, 1)), np.array([[1.0, 2, 3], [4, 5, 6]])
    for w in (np.array([1, 0]), np.array([[1], [0]]), np.array([[1, 1, 1], [0, 0, 0]])):
        assert model.evaluate(x, y, sample_weight=w) == pytest.approx(14 / 6)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (3,), (2, 3, 1), (2, 4), (1, 3), (1,)])
def test_weights_of_another_shape_are_refused_by_name(shape):
    model = zero_model(3)
    x, y = np.ones((2, 1)), np.ones((2, 3))
    for mask in (1, 3):
        with pyggml.Trainer(model, batch_size=2, loss_mask=mask) as trainer, \
                pytest.raises(ValueError, match="sample_weight"):
            trainer.step(x, y, np.ones(shape))
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="sample_weight"):
            call(x, y, sample_weight=np.ones(shape))


def test_a_vector_means_rows_even_where_the_batch_is_square():
    model = zero_model(3)
    y = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    w = np.array([1.0, 0, 0])
    assert model.evaluate(np.ones((3, 1)), y, sample_weight=w) == pytest.approx(14 / 9)
    with pyggml.Trainer(model, batch_size=3, loss_mask=1) as trainer:
        assert trainer.step(np.ones((3, 1)), y, w) == pytest.approx(14 / 9)


def test_a_column_without_weight_leaves_what_only_it_needs():
    model = pyggml.Sequential([pyggml.Input((2,)), layers.Dense(2)])
    model.compile("adam", "mse")
    x, y = np.ones((4, 2)), np.ones((4, 2))
    w = np.repeat([[1.0, 0.0]], 4, axis=0)
    with pyggml.Trainer(model, batch_size=4, loss_mask=2) as trainer:
        for _ in range(5):
            trainer.step(x, y, w)
        (kernel, bias), (k, b) = model.get_weights(), trainer.get_weights()
    assert kernel[:, 1].tobytes() == k[:, 1].tobytes() and bias[1] == b[1]
    assert (kernel[:, 0] != k[:, 0]).all() and bias[0] != b[0]


# ---- R06: labels and outputs --------------------------------------------------------------------

def identity_model(metric=None, loss="mse"):
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1, use_bias=False)])
    model.set_weights([np.ones((1, 1))])
    model.compile(optimizers.SGD(0.0), loss, metric)
    return model


@pytest.mark.parametrize("rows", [1, 3])
def test_labels_without_the_last_axis_are_not_broadcast(rows):
    def mine(y_true, y_pred):
        assert y_true.shape == y_pred.shape
        return pyggml.ops.square(pyggml.ops.subtract(y_true, y_pred))

    def distance(y_true, y_pred):
        assert y_true.shape == y_pred.shape
        return np.abs(y_true - y_pred)

    x = np.arange(1.0, rows + 1)[:, None]
    for loss in ("mse", mine):
        model = identity_model(["mae", "rmse", distance], loss)
        for y in (x, x[:, 0]):
            assert model.evaluate(x, y) == [0, 0, 0, 0]
            history = model.fit(x, y, verbose=0).history
            assert all(values == [0] for values in history.values())
            with pyggml.Trainer(model, batch_size=rows) as trainer:
                assert trainer.step(x, y) == 0


@pytest.mark.parametrize(("outputs", "shape"), [
    (2, (3,)), (2, (3, 1)), (2, (2, 3)), (2, (6,)), (1, (4, 1)), (1, (3, 3)), (1, (1, 3)),
    (2, (3, 2, 1)), (1, ()),
])
def test_labels_of_another_shape_are_refused_before_any_update(outputs, shape):
    model = zero_model(outputs, rate=0.1)
    before = [w.tobytes() for w in model.get_weights()]
    y = np.ones(shape)
    with pyggml.Trainer(model, batch_size=3) as trainer, pytest.raises(ValueError, match="y"):
        trainer.step(X3, y)
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="y"):
            call(X3, y)
    assert [w.tobytes() for w in model.get_weights()] == before


# ---- R07: class labels --------------------------------------------------------------------------

def classifier(loss="sparse_categorical_crossentropy"):
    pyggml.set_seed(0)
    model = pyggml.Sequential([pyggml.Input((2,)), layers.Dense(3, "softmax")])
    model.compile("adam", loss)
    return model


@pytest.mark.parametrize("bad", [
    [0, 1, 3], [0, -1, 2], [0, 2**31, 1], [0, 1.5, 2], [0, np.nan, 1], ["a", "b", "c"],
])
def test_labels_out_of_range_are_named_and_nothing_moves(bad):
    model = classifier()
    x, good = np.float32([[1, 2], [3, 4], [5, 6]]), np.array([0, 1, 2])
    model.fit(x, good, verbose=0)
    before = [w.tobytes() for w in model.get_weights()]
    error = TypeError if isinstance(bad[0], str) else ValueError
    label = next((str(v) for v in bad if v not in (0, 1, 2)), "")
    bad = np.array(bad)
    twice = np.concatenate([x, x]), np.concatenate([good.astype(bad.dtype), bad])
    calls = [lambda: model.fit(x, bad, verbose=0), lambda: model.evaluate(x, bad),
             lambda: model.fit(*twice, batch_size=3, shuffle=False, verbose=0),
             lambda: model.fit(x, good, validation_data=(x, bad), verbose=0)]
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        if error is ValueError:
            assert "[0, 3)" in str(caught.value) and label in str(caught.value)
        assert [w.tobytes() for w in model.get_weights()] == before
    with pyggml.Trainer(model, batch_size=3) as trainer:
        with pytest.raises(error):
            trainer.step(x, bad)
        assert trainer.n_steps == trainer.n_updates == 0


def test_all_kinds_of_whole_numbers_are_labels():
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    expected = classifier().evaluate(x, np.array([0, 1, 1]))
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, bool, np.float32, np.float64):
        for y in (np.array([0, 1, 1], dtype), np.array([[0], [1], [1]], dtype), [0, 1, 1]):
            assert classifier().evaluate(x, y) == expected


def test_the_two_forms_of_labels_are_not_mixed_up():
    x = np.ones((2, 2))
    with pytest.raises(ValueError, match="categorical_crossentropy"):
        classifier().evaluate(x, np.eye(3)[[0, 1]])
    with pytest.raises(ValueError, match="sparse_categorical_crossentropy"):
        classifier("categorical_crossentropy").evaluate(x, np.array([0, 1]))


def test_rows_of_soft_labels_need_not_sum_to_one():
    model = classifier("categorical_crossentropy")
    x, y = np.float32([[1, 2], [3, 4]]), np.array([[0.0, 0, 0], [1, 0, 1]])
    p = model.predict(x).astype(np.float64)
    assert model.evaluate(x, y) == pytest.approx(-(y * np.log(p)).sum() / 2, rel=1e-5)
    with pyggml.Trainer(model, batch_size=2) as trainer:
        got = trainer.gradients(x, y)
    expected = (p * y.sum(axis=1, keepdims=True) - y) / 2
    kernel, bias = got.values()
    np.testing.assert_allclose(bias, expected.sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(kernel, x.T @ expected, atol=1e-5)


# ---- R19: numbers that are not finite -----------------------------------------------------------

def test_a_nan_passes_with_a_warning_once_and_shows_in_the_history():
    for where in ("x", "y"):
        x, y = np.ones((3, 1)), np.ones((3, 1))
        (x if where == "x" else y)[1] = np.nan
        model = zero_model()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history = model.fit(x, y, verbose=0, epochs=2).history
        assert np.isnan(history["loss"]).all()
        assert [w.category for w in caught] == [RuntimeWarning]
        with pyggml.Trainer(zero_model(), batch_size=3) as trainer:
            with pytest.warns(RuntimeWarning, match="nan"):
                assert np.isnan(trainer.step(x, y))
            assert trainer.n_steps == 1
