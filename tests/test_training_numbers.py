"""Whole networks against a float64 NumPy reference: gradients, and 100 steps of optimizers."""

import numpy as np
import pytest
from reference.gradcheck import relative_error
from reference.network import MLP
from reference.optimizers import OPTIMIZERS

import pyggml
from pyggml import _training, layers, ops, optimizers

CASES = [
    ("relu", "linear", "mse"),
    ("tanh", "linear", "mse"),
    ("sigmoid", "softmax", "categorical_crossentropy"),
    ("relu", "softmax", "sparse_categorical_crossentropy"),
    ("tanh", "sigmoid", "binary_crossentropy"),
    ("relu", "tanh", "mse"),
]


def data(loss, batches, rows, outputs, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batches, rows, 7)).astype(np.float32)
    if loss.startswith("sparse"):
        return x, rng.integers(0, outputs, (batches, rows))
    if loss.startswith("categorical"):
        return x, np.eye(outputs, dtype=np.float32)[rng.integers(0, outputs, (batches, rows))]
    if loss.startswith("binary"):
        return x, rng.integers(0, 2, (batches, rows, outputs)).astype(np.float32)
    return x, rng.normal(size=(batches, rows, outputs)).astype(np.float32)


def network(hidden, last, loss, outputs, optimizer):
    pyggml.set_seed(1)
    model = pyggml.Sequential([
        pyggml.Input((7,)), layers.Dense(17, hidden), layers.Dense(33, hidden),
        layers.Dense(outputs, last)])
    model.compile(optimizer, loss)
    rng = np.random.default_rng(2)
    model.set_weights([w + rng.normal(scale=0.1, size=w.shape) for w in model.get_weights()])
    return model


def reference_of(model, hidden, last, loss, optimizer):
    weights = [w.astype(np.float64) for w in model.get_weights()]
    return MLP(weights, [hidden, hidden, last], loss, optimizer)


@pytest.mark.parametrize(("hidden", "last", "loss"), CASES)
@pytest.mark.parametrize("rows", [1, 13])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradients_of_activations_and_losses(hidden, last, loss, rows, threads):
    outputs = 1 if rows == 1 and last == "linear" else 5
    model = network(hidden, last, loss, outputs, "sgd")
    x, y = data(loss, 1, rows, outputs)
    value, wanted = reference_of(model, hidden, last, loss, "sgd").gradients(x[0], y[0])
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(threads)
    try:
        trainer = pyggml.Trainer(model, rows)
        got = trainer.gradients(x[0], y[0])
        assert abs(trainer.eval(x[0], y[0]) - value) < 1e-5 * abs(value)
    finally:
        pyggml.set_num_threads(before)
    for (name, a), b in zip(got.items(), wanted, strict=True):
        assert relative_error(a, b) < 1e-4, name


@pytest.mark.parametrize(("name", "ours", "theirs"), [
    ("sgd", optimizers.SGD(0.05), {"lr": 0.05}),
    ("sgd", optimizers.SGD(0.05, weight_decay=0.02), {"lr": 0.05, "weight_decay": 0.02}),
    ("adam", optimizers.Adam(2e-3), {"lr": 2e-3}),
    ("adam", optimizers.Adam(2e-3, beta_1=0.8, beta_2=0.99, epsilon=1e-4),
     {"lr": 2e-3, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-4}),
    ("adamw", optimizers.AdamW(2e-3, weight_decay=0.1), {"lr": 2e-3, "weight_decay": 0.1}),
])
@pytest.mark.parametrize(("hidden", "last", "loss"), [CASES[1], CASES[3]])
def test_a_hundred_steps(name, ours, theirs, hidden, last, loss):
    model = network(hidden, last, loss, 5, ours)
    reference = reference_of(model, hidden, last, loss, OPTIMIZERS[name](**theirs))
    x, y = data(loss, 10, 16, 5)
    trainer = pyggml.Trainer(model, 16)
    for i in range(100):
        got, wanted = trainer.step(x[i % 10], y[i % 10]), reference.step(x[i % 10], y[i % 10])
        assert abs(got - wanted) < 1e-5 * abs(wanted)
    for a, b in zip(trainer.get_weights(), reference.weights, strict=True):
        assert relative_error(a, b) < 1e-5


def test_a_learning_rate_of_zero_leaves_every_bit():
    model = network("tanh", "linear", "mse", 5, optimizers.AdamW(0.0, weight_decay=0.5))
    x, y = data("mse", 1, 16, 5)
    trainer = pyggml.Trainer(model, 16)
    before = trainer.get_weights()
    for _ in range(5):
        trainer.step(x[0], y[0])
    for a, b in zip(before, trainer.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()


def test_the_same_seed_gives_the_same_bits():
    def run():
        pyggml.set_seed(5)
        model = pyggml.Sequential([pyggml.Input((7,)), layers.Dense(33, "relu"),
                                   layers.Dropout(0.5), layers.Dense(5)])
        model.compile("adam", "mse")
        x, y = data("mse", 1, 50, 5)
        model.fit(x[0], y[0], batch_size=16, epochs=3, verbose=0)
        return b"".join(w.tobytes() for w in model.get_weights())

    assert run() == run()


def test_accumulated_batches_equal_one_large_batch():
    x, y = data("mse", 1, 24, 5)
    large = network("tanh", "linear", "mse", 5, "adam")
    small = large.copy()
    whole = pyggml.Trainer(large, 24)
    parts = pyggml.Trainer(small, 8, nbatch_logical=24)
    for _ in range(20):
        whole.step(x[0], y[0])
        for i in range(0, 24, 8):
            parts.step(x[0, i:i + 8], y[0, i:i + 8])
    assert (whole.n_updates, parts.n_updates, parts.n_steps) == (20, 20, 60)
    for a, b in zip(parts.get_weights(), whole.get_weights(), strict=True):
        assert relative_error(a, b) < 1e-5


class Spare(layers.Layer):
    """Has a weight that is not used."""

    def build(self, input_shape):
        self.factor = self.add_weight("factor", (input_shape[-1],), "ones")
        self.spare = self.add_weight("spare", (3,), "ones")

    def call(self, x, training=False):
        return ops.multiply(x, self.factor)


@pytest.mark.parametrize("room", [2048, 0])
@pytest.mark.parametrize("optimizer", [
    optimizers.SGD(0.1, weight_decay=0.5), optimizers.Adam(0.1, weight_decay=0.5),
    optimizers.Lion(0.1, weight_decay=0.5, global_clipnorm=1.0)], ids=lambda o: o.rule)
def test_a_weight_that_the_loss_does_not_depend_on_is_not_decayed_in_windows_either(
        optimizer, room):
    x, y = data("mse", 1, 8, 1)
    model = pyggml.Sequential([pyggml.Input((7,)), Spare(), layers.Dense(1)])
    model.compile(optimizer, "mse")
    try:
        _training.set_static_room(room)
        with pyggml.Trainer(model, 8) as whole, pyggml.Trainer(model, 4, 8) as parts:
            for _ in range(3):
                whole.step(x[0], y[0])
                parts.step(x[0, :4], y[0, :4])
                parts.step(x[0, 4:], y[0, 4:])
            assert parts.n_updates == 3
            found, expected = parts.get_weights(), whole.get_weights()
    finally:
        _training.set_static_room()
    assert found[1].tolist() == expected[1].tolist() == [1, 1, 1]
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) < 1e-5


def test_dropout_keeps_the_mean_and_is_drawn_anew_every_step():
    model = pyggml.Sequential([pyggml.Input((500,)), layers.Dropout(0.3)])
    ones = np.ones((40, 500), np.float32)
    np.testing.assert_array_equal(model.predict(ones), ones)

    inputs = pyggml.Input((2000,))
    model = pyggml.Model(inputs, layers.Dense(1, use_bias=False, kernel_initializer="ones")(
        layers.Dropout(0.3)(inputs)))
    model.compile(optimizers.SGD(0.0), "mse")
    trainer = pyggml.Trainer(model, 32)
    x = np.full((32, 2000), 1 / 2000, np.float32)
    losses = [trainer.step(x, np.ones((32, 1))) for _ in range(20)]
    assert len(set(losses)) == 20
    # The mean of 2000 masks has variance rate / (1 - rate) / 2000.
    assert np.mean(losses) == pytest.approx(0.3 / 0.7 / 2000, rel=0.25)
