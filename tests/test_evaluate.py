"""evaluate, predict, predict_proba and predict_classes."""

import numpy as np
import pytest

import pyggml
from pyggml import layers, losses


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


rng = np.random.default_rng(0)
X = rng.normal(size=(50, 4)).astype(np.float32)
LABELS = rng.integers(0, 3, 50)


def classifier(activation="softmax", loss="sparse_categorical_crossentropy", n=3, metrics=None):
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(n, activation)])
    model.compile("sgd", loss, metrics)
    return model


@pytest.mark.parametrize("batch_size", [1, 7, 32, 64])
def test_cross_entropy_is_that_of_the_predictions(batch_size):
    model = classifier(metrics=["accuracy"])
    p = model.predict(X).astype(np.float64)
    loss, accuracy = model.evaluate(X, LABELS, batch_size)
    assert loss == pytest.approx(-np.log(p[np.arange(50), LABELS]).mean(), rel=1e-5)
    assert accuracy == (p.argmax(axis=1) == LABELS).mean()


def test_evaluate_returns_a_float_a_list_or_a_dict():
    loss = classifier().evaluate(X, LABELS)
    assert isinstance(loss, float)
    model = classifier(metrics=["accuracy"])
    values = model.evaluate(X, LABELS)
    assert model.evaluate(X, LABELS, return_dict=True) == dict(
        zip(["loss", "accuracy"], values, strict=True))


def test_evaluate_changes_nothing_and_makes_no_graph_anew():
    model = classifier()
    before = [w.tobytes() for w in model.get_weights()]
    first = model.evaluate(X, LABELS, sample_weight=np.ones(50))
    graphs = len(model._predictor._graphs)
    for _ in range(5):
        assert model.evaluate(X, LABELS, sample_weight=np.ones(50)) == first
    assert len(model._predictor._graphs) == graphs
    assert [w.tobytes() for w in model.get_weights()] == before


def test_predict_is_the_same_for_every_batch_size_and_kind_of_source():
    model = classifier()
    expected = model.predict(X)
    assert model.predict(X).tobytes() == expected.tobytes()
    parts = [X[:20], X[20:]]
    for found in (model.predict(X, batch_size=1), model.predict(X, batch_size=50),
                  model.predict(X.tolist()), model.predict(iter(parts)),
                  model.predict(iter([(p, None) for p in parts])),
                  model.predict(X, callbacks=[pyggml.callbacks.Callback()])):
        assert found.dtype == np.float32
        assert found == pytest.approx(expected, abs=1e-6)
    assert model.predict(X, batch_size=8, steps=2).shape == (16, 3)


@pytest.mark.parametrize("rows", [0, 1, 3, 32, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_predicting_an_array_is_the_same_with_and_without_callbacks(rows, dtype):
    model = classifier()
    x = (X[:rows] * 20).astype(dtype)
    expected = model.predict(x, callbacks=[pyggml.callbacks.Callback()])
    for source in (x, x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
        found = model.predict(source)
        assert found.shape == (rows, 3) and found.flags.owndata
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("wrong", [
    {"x": np.ones((2, 5))}, {"x": np.ones((2, 4), object)}, {"x": np.float32(1).reshape(())},
    {"x": np.full((2, 4), "a")}, {"batch_size": 0}, {"batch_size": 1.5}, {"batch_size": True},
])
def test_predict_refuses_the_same_with_and_without_callbacks(wrong):
    model = classifier()
    model.predict(X)
    told = []
    for callbacks in ((), [pyggml.callbacks.Callback()]):
        with pytest.raises((TypeError, ValueError)) as caught:
            model.predict(**{"x": X, "callbacks": callbacks} | wrong)
        told.append((caught.type, str(caught.value)))
    assert told[0] == told[1]


def test_a_model_without_input_shape_takes_it_from_the_first_array_predicted():
    model = pyggml.Sequential([layers.Dense(3)])
    assert model.predict(X).shape == (50, 3)
    assert model.predict(X[:1]).shape == (1, 3)
    with pytest.raises(ValueError, match="does not know its input shape"):
        pyggml.Sequential([layers.Dense(3)]).predict(1.0)


def test_predict_tells_callbacks_about_batches():
    seen = []
    hooks = {f"on_predict_{name}": lambda *a, name=name: seen.append(name)
             for name in ("begin", "end", "batch_begin", "batch_end")}
    classifier().predict(X, batch_size=32, callbacks=[pyggml.callbacks.LambdaCallback(**hooks)])
    assert seen == ["begin", *["batch_begin", "batch_end"] * 2, "end"]


def test_evaluate_tells_callbacks_about_batches():
    seen = []
    hooks = {f"on_test_{name}": lambda *a, name=name: seen.append(name)
             for name in ("begin", "end", "batch_begin", "batch_end")}
    classifier().evaluate(X, LABELS, callbacks=[pyggml.callbacks.LambdaCallback(**hooks)])
    assert seen == ["begin", *["batch_begin", "batch_end"] * 2, "end"]


def test_probabilities_and_classes_of_a_softmax():
    model = classifier()
    p = model.predict_proba(X)
    assert p.tobytes() == model.predict(X).tobytes()
    assert model.predict_classes(X).tolist() == p.argmax(axis=1).tolist()


def test_probabilities_and_classes_of_logits():
    model = classifier(None, losses.SparseCategoricalCrossentropy(from_logits=True))
    z = model.predict(X).astype(np.float64)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert model.predict_proba(X) == pytest.approx(p, rel=1e-5)
    assert model.predict_classes(X).tolist() == z.argmax(axis=1).tolist()


@pytest.mark.parametrize("logits", [False, True])
def test_probabilities_and_classes_of_one_output(logits):
    loss = losses.BinaryCrossentropy(from_logits=logits)
    model = classifier(None if logits else "sigmoid", loss, 1)
    z = model.predict(X)
    p = 1 / (1 + np.exp(-z.astype(np.float64))) if logits else z
    assert model.predict_proba(X) == pytest.approx(p, rel=1e-5)
    assert model.predict_classes(X).tolist() == (p[:, 0] > 0.5).astype(int).tolist()


def test_several_outputs_have_no_classes():
    x = pyggml.Input((4,))
    model = pyggml.Model(x, [layers.Dense(2)(x), layers.Dense(2)(x)])
    with pytest.raises(ValueError, match="one output"):
        model.predict_classes(X)


def test_evaluate_of_an_uncompiled_model_says_so():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(1)])
    with pytest.raises(ValueError, match="not compiled"):
        model.evaluate(X, LABELS)
    assert model.predict(X).shape == (50, 1)


def test_rowwise_helpers_are_numpys():
    from pyggml._rowwise import argmax_last, softmax_last

    for shape in ((7, 3), (5, 1), (2, 3, 4), (6,)):
        x = rng.integers(-3, 3, shape).astype(np.float32)
        assert np.array_equal(argmax_last(x), x.argmax(axis=-1))
        e = np.exp(x.astype(np.float64))
        assert softmax_last(x) == pytest.approx(e / e.sum(axis=-1, keepdims=True), rel=1e-6)
    x = np.array([[1, np.nan, 2], [np.nan, 5, np.nan], [1e4, -1e4, 0]], np.float32)
    assert np.array_equal(argmax_last(x), x.argmax(axis=-1))
    assert softmax_last(x)[2].tolist() == [1, 0, 0]
    assert argmax_last(x[:, ::2]).tolist() == x[:, ::2].argmax(axis=-1).tolist()


def test_penalties_count_in_training_and_not_in_what_is_measured():
    """evaluate is the loss of the predictions; fit reports what it trains on."""
    x, y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    model = pyggml.Sequential([
        pyggml.Input((2,)),
        pyggml.layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")])
    model.compile(pyggml.optimizers.SGD(0.0), "mse")
    history = model.fit(x, y, validation_data=(x, y), verbose=0).history
    plain = np.mean(model.predict(x).astype("d") ** 2)
    assert model.evaluate(x, y) == pytest.approx(plain) == pytest.approx(4.0)
    assert history["val_loss"] == [pytest.approx(plain)]
    assert history["loss"] == [pytest.approx(plain + 0.01 * 2)]
    with pyggml.Trainer(model, 4) as trainer:
        assert trainer.eval(x, y) == pytest.approx(plain)
        assert trainer.step(x, y) == pytest.approx(plain + 0.01 * 2)


# ---- habits from Keras ------------------------------------------------------------------------

def _classifier():
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(4, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _labelled(n=50):
    rng = np.random.default_rng(4)
    return rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 4, n)


def test_no_batch_size_means_32():
    x, y = _labelled()
    model = _classifier()
    model.fit(x, y, batch_size=None, verbose=0)
    assert model.compiled.trainer.batch_size == 32
    assert model.evaluate(x, y, batch_size=None) == model.evaluate(x, y)
    assert (model.predict(x, batch_size=None) == model.predict(x)).all()


def test_predict_shows_progress_if_asked(capsys):
    x, _ = _labelled()
    model = _classifier()
    silent = model.predict(x)
    assert capsys.readouterr().err == ""
    for source in (x, iter([x])):
        assert model.predict(source, verbose=2) == pytest.approx(silent, abs=1e-6)
        assert capsys.readouterr().err.startswith("predict")
    with pytest.raises(ValueError, match="verbose must be"):
        model.predict(x, verbose=3)


def test_train_on_batch_is_a_step_of_fit():
    x, y = _labelled()
    pyggml.set_seed(1)
    by_fit, by_hand = _classifier(), _classifier()
    by_hand.set_weights(by_fit.get_weights())
    weights = np.linspace(0, 2, 50)
    history = by_fit.fit(x, y, batch_size=50, epochs=3, shuffle=False, verbose=0,
                         sample_weight=weights)
    found = [by_hand.train_on_batch(x, y, weights) for _ in range(3)]
    assert found == [list(row) for row in zip(*history.history.values(), strict=True)]
    for a, b in zip(by_fit.get_weights(), by_hand.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()
    # Any number of rows, and fit goes on with the same optimizer.
    by_hand.train_on_batch(x[:7], y[:7])
    by_hand.fit(x, y, batch_size=10, verbose=0)
    assert by_hand.compiled.trainer.n_steps == 3 + 1 + 5
    assert by_hand.train_on_batch(x, y, return_dict=True).keys() == {"loss", "accuracy"}
    assert by_hand.metrics_names == ["loss", "accuracy"]


def test_train_on_batch_takes_class_weights_and_refuses_no_rows():
    x, y = _labelled()
    model, other = _classifier(), _classifier()
    other.set_weights(model.get_weights())
    table = {0: 1.0, 1: 0.5, 2: 2.0, 3: 0.0}
    assert model.train_on_batch(x, y, class_weight=table) == other.train_on_batch(
        x, y, np.array([table[label] for label in y]))
    with pytest.raises(ValueError, match="no rows"):
        model.train_on_batch(x[:0], y[:0])


def test_test_and_predict_on_batch_take_all_rows_at_once():
    x, y = _labelled()
    model = _classifier()
    assert model.test_on_batch(x, y) == model.evaluate(x, y, batch_size=50)
    assert (model.predict_on_batch(x) == model.predict(x, batch_size=50)).all()


@pytest.mark.parametrize("weights", [(None, np.full(2, 0.5)), (np.full((2, 1), 0.5), None),
                                     (np.full(2, 0.25), np.full((2, 1), 0.5)), (None, None)])
def test_batches_with_and_without_weights_are_measured_together(weights):
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3)])
    model.compile("sgd", "mse", ["mae"])
    y = rng.normal(size=(4, 3))
    batches = [(X[:2], y[:2], weights[0]), (X[2:4], y[2:], weights[1])]
    found = model.evaluate(iter([b if b[2] is not None else b[:2] for b in batches]))
    w = np.concatenate([np.ones((2, 1)) if w is None else w.reshape(2, 1) for w in weights])
    error = model.predict(X[:4]) - y
    assert found == pytest.approx([(w * error**2).mean(), (w * abs(error)).mean()], rel=1e-5)


def test_weights_of_rows_and_of_elements_are_measured_together():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3)])
    model.compile("sgd", "mse", ["mae"])
    y, by_element = rng.normal(size=(4, 3)), rng.random((2, 3))
    by_row = np.array([0.5, 2.0])
    found = model.evaluate(iter([(X[:2], y[:2], by_row), (X[2:4], y[2:], by_element)]))
    w = np.concatenate([np.repeat([[0.5], [2.0]], 3, axis=1), by_element])
    error = model.predict(X[:4]) - y
    assert found == pytest.approx([(w * error**2).mean(), (w * abs(error)).mean()], rel=1e-5)


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 1), (6, 4, 1, 1)])
def test_metrics_take_every_shape_of_labels_that_the_loss_takes(shape):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 12)), rng.integers(0, 3, (6, 4, 1))
    model = pyggml.Sequential([
        pyggml.Input((12,)), layers.Reshape((4, 1, 3)), layers.Activation("softmax"),
        layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy",
                  metrics=["accuracy", "sparse_top_k_categorical_accuracy"])
    right = np.mean(model.predict(x).argmax(axis=-1) == y)
    assert 0 < right < 1
    loss, accuracy, top = model.evaluate(x, y.reshape(shape), batch_size=4)
    assert (accuracy, top) == (pytest.approx(right), 1)
    logs = model.fit(x, y.reshape(shape), batch_size=6, verbose=0).history
    assert logs["accuracy"] == [pytest.approx(right)]
    assert logs["loss"] == [pytest.approx(loss, rel=1e-5)]
