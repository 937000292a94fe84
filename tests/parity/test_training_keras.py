"""Training with pyggml against Keras: losses, optimizers, metrics, histories, callbacks."""

import numpy as np
import pytest
from keras_pair import LIBRARIES, close, fit, keras, pair
from layer_check import random

import pyggml

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("default")]
N = 10
X = random(N, 4, seed=1)
WEIGHTS = np.abs(random(N, seed=2))
BITS = np.float32(random(N, 3, seed=3) > 0)
CLASSES = np.arange(N) % 3
ONE_HOT = np.eye(3, dtype=np.float32)[CLASSES]
SOFT = np.float32(0.7) * ONE_HOT + np.float32(0.1)


def short(value):
    return "" if isinstance(value, np.ndarray) else str(value)


def network(activation=None, units=3):
    def make(library, x):
        hidden = library.layers.Dense(5, activation="tanh")(x)
        return library.layers.Dense(units, activation=activation)(hidden)

    return pair(make, [(4,)])


@pytest.mark.parametrize(("name", "arguments", "activation", "y"), [
    ("MeanSquaredError", {}, None, BITS), ("MeanAbsoluteError", {}, None, BITS + 0.1),
    ("Huber", {"delta": 0.3}, None, BITS), ("LogCosh", {}, None, BITS),
    ("CosineSimilarity", {}, None, BITS - 0.4), ("Poisson", {}, "softplus", BITS),
    ("Hinge", {}, "tanh", BITS), ("Hinge", {}, "tanh", 2 * BITS - 1),
    ("KLDivergence", {}, "softmax", SOFT),
    ("BinaryCrossentropy", {"label_smoothing": 0.2}, "sigmoid", BITS),
    ("BinaryCrossentropy", {"from_logits": True}, None, BITS),
    ("BinaryFocalCrossentropy", {"apply_class_balancing": True, "gamma": 1.5}, "sigmoid", BITS),
    ("CategoricalCrossentropy", {"label_smoothing": 0.2}, "softmax", SOFT),
    ("CategoricalCrossentropy", {}, "softplus", ONE_HOT),
    ("CategoricalFocalCrossentropy", {}, "softmax", ONE_HOT),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, None, CLASSES),
    ("SparseCategoricalCrossentropy", {}, "softmax", CLASSES),
], ids=short)
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(name, arguments, activation, y, weighted):
    loss = tuple(getattr(library.losses, name)(**arguments) for library in LIBRARIES)
    fit(network(activation), X, y, loss=loss, sample_weight=WEIGHTS if weighted else None)


@pytest.mark.parametrize(("name", "arguments"), [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("RMSprop", {"centered": True, "momentum": 0.9}), ("Adagrad", {}), ("Lion", {}),
    ("Adam", {"epsilon": 1e-7}), ("AdamW", {"epsilon": 1e-7}),
], ids=str)
@pytest.mark.parametrize("more", [
    {}, {"clipnorm": 0.1}, {"clipvalue": 0.05, "weight_decay": 0.1}], ids=str)
def test_optimizers(name, arguments, more):
    more = {"weight_decay": 0.01} | more if name == "AdamW" else more
    fit(network(), X, BITS, [getattr(library.optimizers, name)(0.02, **arguments, **more)
                             for library in LIBRARIES], rtol=3e-4)


@pytest.mark.parametrize(("theirs", "ours"), [
    (keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.5),
     pyggml.schedules.ExponentialDecay(0.5, 4, initial_learning_rate=0.1)),
    (keras.optimizers.schedules.CosineDecay(0.01, 10, 0.2, warmup_target=0.1, warmup_steps=5),
     pyggml.schedules.CosineDecay(0.02, 10, 5, 0.01, initial_learning_rate=0.1)),
    (keras.optimizers.schedules.CosineDecayRestarts(0.1, 4, 1.5),
     pyggml.schedules.CosineDecay(0, 4, restarts=True, t_mult=1.5, initial_learning_rate=0.1)),
    (keras.optimizers.schedules.PolynomialDecay(0.1, 4, 0.01, 0.5, cycle=True),
     pyggml.schedules.PolynomialDecay(0.01, 4, 0.5, True, initial_learning_rate=0.1)),
    (keras.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.1, 0.01, 0.001]),
     pyggml.schedules.PiecewiseConstantDecay([2, 5], [0.1, 0.01, 0.001])),
], ids=lambda schedule: type(schedule).__name__)
def test_schedules(theirs, ours):
    close(np.array([float(theirs(n)) for n in range(25)]), np.array([ours(n) for n in range(25)]))


@pytest.mark.parametrize(("name", "arguments", "y"), [
    ("BinaryAccuracy", {}, BITS), ("Precision", {}, BITS), ("Recall", {}, BITS),
    ("CategoricalAccuracy", {}, ONE_HOT), ("SparseCategoricalAccuracy", {}, CLASSES),
    ("TopKCategoricalAccuracy", {"k": 2}, ONE_HOT), ("CosineSimilarity", {}, BITS),
    ("R2Score", {}, BITS), ("AUC", {}, BITS),
], ids=short)
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_over_uneven_batches(name, arguments, y, weighted):
    p = 1 / (1 + np.exp(-random(N, 3, seed=8)))
    ours = getattr(pyggml.metrics, name)(**arguments)
    fine = {"num_thresholds": 20000} if name == "AUC" else {}
    theirs = getattr(keras.metrics, name)(**arguments, **fine)
    for rows in (slice(0, 4), slice(4, 5), slice(5, N)):
        w = WEIGHTS[rows] if weighted else None
        ours.update(y[rows], p[rows], w)
        theirs.update_state(y[rows], p[rows], sample_weight=w)
    close(theirs.result(), np.array(ours.result()), rtol=1e-3 if fine else 1e-5)


@pytest.mark.parametrize("arguments", [
    {"validation_split": 0.3, "sample_weight": WEIGHTS}, {"validation_split": 0.25},
    {"validation_data": (X, BITS, WEIGHTS), "validation_freq": 2, "epochs": 4},
    {"validation_data": (X, BITS), "validation_steps": 2, "validation_batch_size": 3},
], ids=[0, 1, 2, 3])
def test_histories(arguments):
    metrics = () if "sample_weight" in arguments or "validation_freq" in arguments else ["mae"]
    fit(network(), X, BITS, compile_with={"metrics": list(metrics)}, **arguments)


def test_class_weights_of_integer_and_one_hot_labels():
    weights = {0: 0.5, 1: 2.0, 2: 3.0}
    for loss, y in (("sparse_categorical_crossentropy", CLASSES),
                    ("categorical_crossentropy", ONE_HOT)):
        fit(network("softmax"), X, y, loss=loss, class_weight=weights)


def test_several_outputs_and_penalties():
    def make(library, x):
        hidden = library.layers.Dense(5, activation="tanh", kernel_regularizer="l2")(x)
        return [library.layers.Dense(3, name="a", bias_regularizer="l1")(hidden),
                library.layers.Dense(3, activation="softmax", name="b")(hidden)]

    fit(pair(make, [(4,)]), X, [BITS, ONE_HOT], loss=["mse", "categorical_crossentropy"],
        compile_with={"loss_weights": [0.3, 2.0], "metrics": [["mae"], ["accuracy"]]})


@pytest.mark.parametrize("values", [
    [5, 4, 3, 3.5, 3.6, 3.2, 2.9, 3, 3, 3, 3], [5.0] * 9, [1, 2, 3, 4, 5, 6]], ids=[0, 1, 2])
@pytest.mark.parametrize(("name", "arguments"), [
    ("EarlyStopping", {"patience": 2}), ("EarlyStopping", {"patience": 0}),
    ("EarlyStopping", {"patience": 1, "min_delta": 0.2, "start_from_epoch": 2}),
    ("EarlyStopping", {"patience": 2, "mode": "max", "restore_best_weights": True}),
    ("ReduceLROnPlateau", {"patience": 1, "factor": 0.5, "cooldown": 2, "min_lr": 0.0}),
    ("ReduceLROnPlateau", {"patience": 2, "factor": 0.1, "min_delta": 0.2, "min_lr": 0.002}),
], ids=str)
def test_callbacks_that_watch_a_value(values, name, arguments):
    found = []
    for library in LIBRARIES:
        model = network()[LIBRARIES.index(library)]
        model.compile(library.optimizers.SGD(0.1), "mse")
        callback = getattr(library.callbacks, name)("val_loss", **arguments)
        callback.set_model(model)
        callback.set_params({"metrics": ["loss", "val_loss"]})
        callback.on_train_begin()
        rates = []
        for epoch, value in enumerate(values):
            callback.on_epoch_begin(epoch)
            callback.on_epoch_end(epoch, {"loss": 1.0, "val_loss": float(value)})
            rates.append(round(float(model.optimizer.learning_rate), 6))
            if model.stop_training:
                break
        callback.on_train_end()
        found.append((rates, getattr(callback, "best_epoch", None)))
    assert found[0] == found[1]
