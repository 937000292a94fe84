"""Metrics against the float64 references: over whole epochs, weighted, never broadcast."""

import math

import numpy as np
import pytest
from reference import metrics as reference
from reference.activations import sigmoid, softmax
from reference.gradcheck import normal

import pyggml
from pyggml import metrics

ERRORS = ("mse", "mae", "rmse")  # weighted as losses are


def example(name, rows=101, outputs=3):
    y, p = normal(rows, outputs, seed=1), np.float32(normal(rows, outputs, seed=2))
    if "categorical" in name:
        labels = np.argmax(y + p, axis=-1)
        return (labels if "sparse" in name else np.eye(outputs)[labels]), softmax(p)
    if name in ("binary_accuracy", "precision", "recall", "f1", "auc"):
        return (y + p > 0.3).astype(np.int64), np.float32(np.round(sigmoid(p), 2))
    return y + p, p


def in_batches(metric, y, p, w=None, size=7):
    for i in range(0, len(p), size):
        metric.update(y[i:i + size], p[i:i + size], None if w is None else w[i:i + size])
    return metric.result()


@pytest.mark.parametrize("name", reference.METRICS)
def test_an_epoch_in_batches_agrees_with_the_reference_on_all_rows(name):
    y, p = example(name)
    expected = reference.METRICS[name](y, p)
    for size in (1, 7, 101):
        assert in_batches(metrics.get(name), y, p, size=size) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["rows", "column", "elements"])
@pytest.mark.parametrize("name", reference.METRICS)
def test_weights(name, kind):
    y, p = example(name)
    w = np.abs(normal(len(p), 3, seed=3))
    w[::5] = 0
    if kind != "elements":
        w = w[:, 0] if kind == "rows" else w[:, :1]
    by_row = "categorical" in name or name == "cosine"
    given = w.mean(axis=-1) if by_row and kind == "elements" else w
    expected = reference.METRICS[name](y, p, given)
    if name in ERRORS:
        mean = reference.broadcast_weights(w, p.shape).mean()
        expected *= mean if name != "rmse" else math.sqrt(mean)
    assert in_batches(metrics.get(name), y, p, w) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(reference.METRICS) - {"sparse_categorical_accuracy"}))
def test_weight_zero_hides_a_nan(name):
    y, p = example(name)
    w = np.ones(len(p))
    w[10] = 0
    expected = in_batches(metrics.get(name), y, p, w)
    y, p = y.astype(float), p.copy()
    if "sparse" not in name:
        y[10] = np.nan
    p[10] = np.nan
    got = in_batches(metrics.get(name), y, p, w)
    assert got == expected and math.isfinite(got)


@pytest.mark.parametrize(("name", "parameters"), [
    ("binary_accuracy", {"threshold": 0.705}), ("precision", {"threshold": 0.305}),
    ("recall", {"threshold": 0.705}), ("f1", {"threshold": 0.605}),
    ("top_k_categorical_accuracy", {"k": 2}), ("sparse_top_k_categorical_accuracy", {"k": 1}),
])
def test_parameters_and_config(name, parameters):
    y, p = example(name)
    metric = type(metrics.get(name))(**parameters)
    expected = reference.METRICS[name](y, p, **parameters)
    assert in_batches(metric, y, p) == pytest.approx(expected, rel=1e-12)
    again = type(metric)(**metric.get_config())
    assert in_batches(again, y, p) == pytest.approx(expected, rel=1e-12)


def test_a_hundred_thousand_batches_do_not_drift():
    metric = metrics.get("mse")
    y, p = np.full((1, 1), 0.1 ** 0.5), np.zeros((1, 1), np.float32)
    for _ in range(100_000):
        metric.update(y, p)
    assert metric.result() == pytest.approx(0.1, rel=1e-9)


def test_r2_is_stable_far_from_zero():
    y = 1e6 + normal(200, 1)
    p = y + 0.1 * normal(200, 1, seed=1)
    assert in_batches(metrics.get("r2"), y, p) == pytest.approx(reference.r2(y, p), rel=1e-6)


@pytest.mark.parametrize("name", sorted(reference.METRICS))
def test_labels_are_matched_and_never_broadcast(name):
    y, p = example(name, rows=3, outputs=1 if "categorical" not in name else 3)
    metric = metrics.get(name)
    if "categorical" in name and "sparse" not in name:
        wrong = [y[:2], y.T[:2], y[..., 0]]
    else:
        first = metrics.get(name)
        first.update(y.reshape(3), p)
        metric.update(y.reshape(3, 1), p)
        assert metric.result() == first.result() or math.isnan(first.result())
        wrong = [y[:2], np.ones((3, 3)), np.ones((1, 3)), np.ones(1)]
    for bad in wrong:
        with pytest.raises(ValueError, match="shape"):
            metrics.get(name).update(bad, p)


def test_weights_that_fit_nothing_are_refused():
    y, p = example("mse")
    for w in (np.ones(7), np.ones((101, 2)), np.ones((1, 3)), np.ones((3, 101))):
        with pytest.raises(ValueError, match="sample_weight"):
            metrics.get("mse").update(y, p, w)


def test_a_score_of_nan_gives_no_auc():
    metric = metrics.AUC()
    metric.update(np.array([0, 1, 1]), np.array([0.2, np.nan, 0.8]))
    assert math.isnan(metric.result())
    hidden = metrics.AUC()
    hidden.update(np.array([0, 1, 1]), np.array([0.2, np.nan, 0.8]), np.array([1, 0, 1]))
    assert hidden.result() == 1


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_is_no_class_is_never_among_the_best(label):
    with pytest.raises(ValueError, match=r"\[0, 3\)"):
        metrics.SparseTopKCategoricalAccuracy(2).update(np.array([label]), np.ones((1, 3)))


def test_a_missing_class_gives_no_auc_and_no_division_by_zero():
    zeros, p = np.zeros((4, 1)), np.linspace(0, 0.4, 4)[:, None]
    assert math.isnan(in_batches(metrics.get("auc"), zeros, p))
    assert math.isnan(metrics.get("auc").result())
    for name in ("precision", "recall", "f1", "r2"):
        assert in_batches(metrics.get(name), zeros, p) == 0


def test_predictions_of_nan_are_not_among_the_best():
    p = np.array([[0.1, np.nan, 0.3, 0.2], [np.nan] * 4, [0.1, 0.2, 0.3, 0.4]])
    for label, right in ((2, 2 / 3), (3, 1 / 3), (0, 0.0)):
        metric = metrics.SparseTopKCategoricalAccuracy(2)
        metric.update(np.full(3, label), p)
        assert metric.result() == pytest.approx(right), label


@pytest.mark.parametrize("name", sorted(metrics._classes))
def test_reset_and_names(name):
    metric = metrics.get(name)
    assert metric.name == name
    base = {"root_mean_squared_error": "rmse"}.get(name, name)
    y, p = example(base)
    first = in_batches(metric, y, p)
    metric.reset()
    assert in_batches(metric, y, p) == first
    with pytest.raises(ValueError, match="precision"):
        metrics.get("accuracies")


# ---- in training ------------------------------------------------------------------------------

def trained(loss, metric, y, activation=None, outputs=1, **arguments):
    model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(outputs, activation)])
    model.compile(pyggml.optimizers.SGD(0.0), loss, metric)
    x = np.float32(normal(len(y), 2, seed=4))
    history = model.fit(x, y, batch_size=4, verbose=0, **arguments).history
    return model, x, history


def test_accuracy_is_the_one_that_fits_the_loss():
    labels = np.arange(11) % 3
    for loss, activation, outputs, y, name in (
            ("sparse_categorical_crossentropy", "softmax", 3, labels,
             "sparse_categorical_accuracy"),
            ("categorical_crossentropy", "softmax", 3, np.eye(3)[labels], "categorical_accuracy"),
            ("binary_crossentropy", "sigmoid", 1, labels > 1, "binary_accuracy"),
            ("binary_crossentropy", "sigmoid", 2, np.eye(3)[labels][:, :2], "binary_accuracy")):
        model, x, history = trained(loss, ["accuracy"], y, activation, outputs)
        expected = reference.METRICS[name](y, model.predict(x))
        assert history["accuracy"][0] == pytest.approx(expected)
        assert model.evaluate(x, y, 3, return_dict=True)["accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
@pytest.mark.parametrize("nested", [False, True])
def test_accuracy_of_logits_is_that_of_their_probabilities(activation, nested):
    output = pyggml.layers.Dense(1, activation)
    model = pyggml.Sequential([pyggml.Input((1,)), output])
    model.set_weights([np.ones((1, 1)), np.zeros(1)])
    if nested:
        model = pyggml.Sequential([pyggml.Input((1,)), model])
    model.compile("sgd", pyggml.losses.BinaryCrossentropy(from_logits=True), ["accuracy"])
    x = np.array([[0.2], [-0.2], [0.3], [1.0], [-1.0]])
    assert model.evaluate(x, np.array([1, 0, 1, 0, 0]))[1] == pytest.approx(0.8)


def test_labels_without_the_axis_of_one_output():
    y = normal(11)
    model, x, history = trained("mse", ["mae", "r2", lambda a, b: np.abs(a - b)], y)
    p = model.predict(x)[:, 0]
    assert history["mae"][0] == pytest.approx(np.abs(p - y).mean(), rel=1e-6)
    assert history["<lambda>"][0] == pytest.approx(np.abs(p - y).mean(), rel=1e-6)
    assert history["r2"][0] == pytest.approx(reference.r2(y[:, None], p[:, None]), rel=1e-6)


def test_a_weighted_error_equals_the_weighted_loss():
    y, w = normal(11), np.abs(normal(11, seed=1))
    w[3] = 0
    _, _, history = trained("mse", ["mse", "rmse"], y, sample_weight=w)
    assert history["mse"][0] == pytest.approx(history["loss"][0], rel=1e-6)
    assert history["rmse"][0] == pytest.approx(history["loss"][0] ** 0.5, rel=1e-6)


def test_two_metrics_of_one_name_are_told_apart():
    y = np.arange(11) % 2
    both = [metrics.Precision(0.3), metrics.Precision(0.7)]
    model, x, history = trained("binary_crossentropy", both, y, "sigmoid")
    p = model.predict(x)[:, 0]
    assert history["precision"][0] == pytest.approx(reference.precision(y, p, threshold=0.3))
    assert history["precision_1"][0] == pytest.approx(reference.precision(y, p, threshold=0.7))
