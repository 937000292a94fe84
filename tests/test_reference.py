"""The references against central differences, and against numbers that a hand can check."""

import math

import numpy as np
import pytest
from reference import activations, losses, metrics, optimizers
from reference.gradcheck import (
    check_gradients,
    gradient_errors,
    normal,
    numerical_gradient,
    relative_error,
)
from reference.losses import loss
from reference.network import MLP
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


# --- losses and penalties ----------------------------------------------------------------------


SMOOTH = {"label_smoothing": 0.1}
LOGITS = {"from_logits": True}
CASES = [
    ("mse", {}),
    ("mae", {}),
    ("huber", {"delta": 0.7}),
    ("log_cosh", {}),
    ("hinge", {}),
    ("poisson", {}),
    ("kl_divergence", {}),
    ("cosine_similarity", {}),
    *[
        (name, options)
        for name in losses.NAMES
        if "crossentropy" in name
        for options in ({}, LOGITS, SMOOTH, LOGITS | SMOOTH)
    ],
    ("binary_focal_crossentropy", {"apply_class_balancing": True, "alpha": 0.3, "gamma": 1.5}),
    ("binary_focal_crossentropy", LOGITS | {"gamma": 0.0}),
    ("categorical_focal_crossentropy", LOGITS | {"gamma": 0.0}),
    ("categorical_focal_crossentropy", {"alpha": 0.6, "gamma": 3.0}),
]


def loss_data(name, options, rows=5, columns=3):
    """Labels and predictions that the loss allows."""
    real = normal(rows, columns, seed=1)
    probability = np.exp(normal(rows, columns, seed=2))
    probability /= probability.sum(axis=1, keepdims=True) * 1.1
    classes = np.arange(rows) % columns
    if name in ("mse", "mae", "huber", "log_cosh", "cosine_similarity"):
        return real, normal(rows, columns, seed=3)
    if name == "poisson":
        return np.floor(4 * probability), probability * 5
    if name == "kl_divergence":
        return probability[::-1].copy(), probability
    if name == "hinge":
        return np.sign(real), normal(rows, columns, seed=3)
    pred = normal(rows, columns, seed=4) if options.get("from_logits") else probability
    if name.startswith("sparse"):
        return classes, pred
    return losses.one_hot(classes, columns), pred


def test_every_loss_has_a_case():
    assert {name for name, _ in CASES} == set(losses.NAMES)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("weighting", ["none", "rows", "elements"])
def test_loss_gradient(name, options, weighting):
    y, p = loss_data(name, options)
    weights = {
        "none": None,
        "rows": np.array([1.0, 0.0, 2.0, 0.5, 1.0]),
        "elements": np.abs(normal(*p.shape, seed=5)) * (normal(*p.shape, seed=6) > -1),
    }[weighting]
    got = loss(name, y, p, weights, **options).grad
    numeric = numerical_gradient(lambda: loss(name, y, p, weights, **options).total, p)
    assert relative_error(got, numeric, tiny=1e-2) < TOLERANCE


@pytest.mark.parametrize(("name", "options"), CASES)
def test_loss_weights(name, options):
    y, p = loss_data(name, options)
    plain = loss(name, y, p, **options)
    assert plain.divisor == (5 if name in losses.PER_ROW else 15)
    assert plain.values.shape == ((5,) if name in losses.PER_ROW else (5, 3))
    assert plain.total == pytest.approx(plain.values.sum() / plain.divisor, rel=1e-14)
    ones = loss(name, y, p, np.ones((5, 1)), **options)
    assert ones.total == plain.total
    np.testing.assert_array_equal(ones.grad, plain.grad)

    weights = np.array([1.0, 0.0, 2.0, 0.5, 1.0])
    broken = p.copy()
    broken[1] = np.nan
    got = loss(name, y, broken, weights, **options)
    rows = plain.values.reshape(5, -1).sum(axis=1)
    assert got.total == pytest.approx((weights * rows).sum() / plain.divisor, rel=1e-13)
    np.testing.assert_array_equal(got.grad[1], 0.0)
    np.testing.assert_allclose(got.grad[2], 2 * plain.grad[2], rtol=1e-13)
    assert loss(name, y, p, np.zeros(5), **options).total == 0.0


@pytest.mark.parametrize("name", losses.ELEMENTWISE)
def test_one_masked_element(name):
    y, p = loss_data(name, {})
    weights = np.ones(p.shape)
    weights[2, 1] = 0.0
    y, p = y.copy(), p.copy()
    y[2, 1] = p[2, 1] = np.nan
    got = loss(name, y, p, weights)
    assert got.divisor == 15
    assert got.grad[2, 1] == 0.0
    assert np.isfinite(got.total)
    assert np.all(np.isfinite(got.grad))


@pytest.mark.parametrize(
    ("name", "options"),
    [(n, o) for n, o in CASES if n not in ("poisson", "kl_divergence", "hinge")
     and ("crossentropy" not in n or "from_logits" in o)],
)  # fmt: skip
def test_loss_extremes(name, options):
    y, p = loss_data(name, options)
    for size in (1e4, -1e4):
        got = loss(name, y, np.sign(p) * size, **options)
        assert np.isfinite(got.total)
        assert np.all(np.isfinite(got.grad))


@pytest.mark.parametrize(
    ("name", "y", "p", "options", "total"),
    [
        ("mse", [[0.0, 2.0]], [[1.0, 0.0]], {}, 2.5),
        ("mae", [[0.0, 2.0]], [[1.0, 0.0]], {}, 1.5),
        ("huber", [[0.0, 2.0]], [[0.5, 0.0]], {"delta": 1.0}, (0.125 + 1.5) / 2),
        ("log_cosh", [[0.0]], [[1.0]], {}, math.log(math.cosh(1.0))),
        ("hinge", [[0.0, 1.0]], [[0.5, 0.5]], {}, 1.0),
        ("poisson", [[2.0]], [[1.0 - 1e-7]], {}, 1.0 - 1e-7),
        ("binary_crossentropy", [[1.0]], [[0.25]], {}, math.log(4)),
        ("binary_crossentropy", [[1.0]], [[0.0]], LOGITS, math.log(2)),
        ("binary_crossentropy", [[1.0]], [[0.0]], {}, -math.log(1e-7)),
        ("binary_focal_crossentropy", [[1.0]], [[0.25]], {}, 0.75**2 * math.log(4)),
        ("categorical_crossentropy", [[0, 1]], [[3.0, 1.0]], {}, math.log(4)),
        ("categorical_crossentropy", [[0, 1]], [[0.0, 0.0]], LOGITS | SMOOTH, math.log(2)),
        ("sparse_categorical_crossentropy", [1], [[0.75, 0.25]], {}, math.log(4)),
        (
            "categorical_focal_crossentropy",
            [[0, 1]],
            [[0.75, 0.25]],
            {},
            0.25 * 0.5625 * math.log(4),
        ),
        ("kl_divergence", [[0.5, 0.5]], [[0.25, 0.75]], {}, 0.5 * math.log(4 / 3)),
        ("cosine_similarity", [[3.0, 4.0]], [[2.0, 0.0]], {}, -0.6),
    ],
)
def test_loss_value(name, y, p, options, total):
    assert loss(name, y, p, **options).total == pytest.approx(total, rel=1e-12)


def test_penalty():
    w = normal(3, 2)
    value, grad = penalty([1.0, -2.0], l1=0.5, l2=0.25)
    assert value == 0.5 * 3 + 0.25 * 5
    np.testing.assert_array_equal(grad, [1.0, -1.5])
    numeric = numerical_gradient(lambda: penalty(w, 0.1, 0.2)[0], w)
    assert relative_error(penalty(w, 0.1, 0.2)[1], numeric) < TOLERANCE


# --- metrics --------------------------------------------------------------------------------


def test_metric_values():
    y, p = np.array([[0.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [2.0]])
    assert metrics.mse(y, p) == pytest.approx(5 / 3)
    assert metrics.rmse(y, p) == pytest.approx(math.sqrt(5 / 3))
    assert metrics.mae(y, p) == 1.0
    assert metrics.r2(y, p) == pytest.approx(1 - 5 / 8)
    assert metrics.mae(y, p, [1.0, 1.0, 0.0]) == 0.5
    assert metrics.mae(y, p, np.zeros(3)) == 0.0
    assert metrics.r2(np.ones((3, 1)), p) == 0.0
    assert metrics.cosine([[3.0, 4.0], [1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0]]) == pytest.approx(
        (0.6 + math.sqrt(0.5)) / 2
    )


def test_classification_metrics():
    y = np.array([[1], [1], [0], [0], [1]])
    p = np.array([[0.9], [0.4], [0.6], [0.1], [0.8]])
    assert metrics.confusion(y, p) == (2, 1, 1, 1)
    assert metrics.binary_accuracy(y, p) == pytest.approx(0.6)
    assert metrics.precision(y, p) == pytest.approx(2 / 3)
    assert metrics.recall(y, p) == pytest.approx(2 / 3)
    assert metrics.f1(y, p) == pytest.approx(2 / 3)
    assert metrics.precision(y, p, threshold=0.95) == 0.0
    weights = [1.0, 3.0, 1.0, 1.0, 1.0]
    assert metrics.recall(y, p, weights) == pytest.approx(2 / 5)
    assert metrics.binary_accuracy(y, p, weights) == pytest.approx(3 / 7)

    scores = np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.2, 0.6]])
    labels = np.array([1, 2, 0])
    assert metrics.sparse_categorical_accuracy(labels, scores) == pytest.approx(1 / 3)
    assert metrics.categorical_accuracy(np.eye(3)[labels], scores, [[2.0], [1.0], [1.0]]) == 0.5
    assert metrics.sparse_top_k_categorical_accuracy(labels, scores, k=2) == 1.0  # the tie counts
    assert metrics.top_k_categorical_accuracy(np.eye(3)[labels], scores, k=1) == pytest.approx(
        1 / 3
    )


def test_auc_counts_pairs():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 60), rng.integers(0, 8, 60) / 8
    w = rng.random(60)
    wins = total = 0.0
    for i in np.flatnonzero(y):
        for j in np.flatnonzero(y == 0):
            total += w[i] * w[j]
            wins += w[i] * w[j] * ((p[i] > p[j]) + 0.5 * (p[i] == p[j]))
    assert metrics.auc(y, p, w) == pytest.approx(wins / total, rel=1e-12)
    assert metrics.auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    assert math.isnan(metrics.auc([1, 1], [0.1, 0.4]))


def test_weights_of_zero_remove_rows():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, (20, 1)), rng.random((20, 1))
    w = np.arange(20) % 3
    broken = np.where(w[:, None] == 0, np.nan, p)
    integer = ("categorical_accuracy", "top_k_categorical_accuracy")
    for name, metric in metrics.METRICS.items():
        if name in integer or name.startswith("sparse"):
            continue
        want = metric(np.repeat(y, w, axis=0), np.repeat(p, w, axis=0))
        assert metric(y, broken, w) == pytest.approx(want, rel=1e-12), name


# --- optimizers -----------------------------------------------------------------------------

W, G = np.array([1.0, -2.0]), np.array([0.5, -3.0])


@pytest.mark.parametrize(
    ("optimizer", "step"),
    [
        (optimizers.SGD(0.1), 0.1 * G),
        (optimizers.SGD(0.1, momentum=0.9), 0.1 * G),
        (optimizers.SGD(0.1, momentum=0.9, nesterov=True), 0.19 * G),
        (optimizers.Adam(0.1, epsilon=0.0), 0.1 * np.sign(G)),
        (optimizers.RMSprop(0.1, rho=0.75, epsilon=0.0), 0.2 * np.sign(G)),
        (optimizers.RMSprop(0.1, rho=0.5, epsilon=0.0, centered=True), 0.2 * np.sign(G)),
        (optimizers.Adagrad(0.1, initial_accumulator_value=0.0, epsilon=0.0), 0.1 * np.sign(G)),
        (optimizers.Lion(0.1), 0.1 * np.sign(G)),
    ],
)
def test_first_step(optimizer, step):
    np.testing.assert_allclose(optimizer.step([W], [G])[0], W - step, rtol=1e-13)


def test_second_steps():
    def twice(optimizer):
        w = [np.array([0.0])]
        for g in (1.0, 3.0):
            w = optimizer.step(w, [np.array([g])])
        return -w[0][0]

    assert twice(optimizers.SGD(1.0, momentum=0.5)) == pytest.approx(1 + 3.5)
    assert twice(optimizers.SGD(1.0, momentum=0.5, nesterov=True)) == pytest.approx(1.5 + 4.75)
    adam = optimizers.Adam(1.0, beta_1=0.5, beta_2=0.5, epsilon=0.0)
    assert twice(adam) == pytest.approx(1 + (1.75 / 0.75) / math.sqrt(4.75 / 0.75))
    rms = optimizers.RMSprop(1.0, rho=0.5, momentum=0.5, epsilon=0.0)
    first = 1 / math.sqrt(0.5)
    assert twice(rms) == pytest.approx(1.5 * first + 3 / math.sqrt(4.75))
    adagrad = optimizers.Adagrad(1.0, initial_accumulator_value=3.0, epsilon=0.0)
    assert twice(adagrad) == pytest.approx(0.5 + 3 / math.sqrt(13))
    lion = optimizers.Lion(1.0, beta_1=0.5, beta_2=0.5)
    assert twice(lion) == 2.0


def test_decay_and_frozen_weights():
    weights, grads = [W, W, W], [np.zeros(2)] * 3
    optimizer = optimizers.AdamW(0.5, weight_decay=0.1)
    a, b, c = optimizer.step(weights, grads, [True, True, False], [True, False, True])
    np.testing.assert_allclose(a, 0.95 * W)
    np.testing.assert_array_equal(b, W)
    np.testing.assert_array_equal(c, W)


def test_clipping():
    grads = [np.array([3.0, 4.0]), np.array([0.0, 12.0])]
    clip = optimizers.clip_gradients
    np.testing.assert_allclose(clip(grads, clipnorm=6.5), [[3.0, 4.0], [0.0, 6.5]])
    np.testing.assert_allclose(clip(grads, clipvalue=3.5), [[3.0, 3.5], [0.0, 3.5]])
    np.testing.assert_allclose(clip(grads, global_clipnorm=6.5), [[1.5, 2.0], [0.0, 6.0]])
    np.testing.assert_allclose(clip(grads, global_clipnorm=20.0), grads)
    with pytest.raises(ValueError, match="only one"):
        clip(grads, clipnorm=1.0, clipvalue=1.0)
    moved = optimizers.SGD(1.0, global_clipnorm=2.5).step(grads, grads, [True, False])
    np.testing.assert_allclose(moved, [[1.5, 2.0], [0.0, 12.0]])


# --- network --------------------------------------------------------------------------------


def network(last="softmax", loss_name="categorical_crossentropy", **options):
    weights = [normal(4, 5) * 0.5, np.zeros(5), normal(5, 3) * 0.5, np.zeros(3)]
    return MLP(weights, ["tanh", last], loss_name, **options)


@pytest.mark.parametrize(
    ("last", "loss_name"),
    [("softmax", "categorical_crossentropy"), ("sigmoid", "binary_crossentropy"),
     ("linear", "huber"), ("softmax", "mse")],
)  # fmt: skip
def test_network_gradients(last, loss_name):
    net, x, y = network(last, loss_name), normal(6, 4), np.eye(3)[[0, 1, 2, 2, 1, 0]]
    weights = np.arange(6.0)
    total, grads = net.gradients(x, y, weights)
    assert total == net.evaluate(x, y, weights)
    assert total == pytest.approx(loss(loss_name, y, net.predict(x), weights).total, rel=1e-12)
    for w, grad in zip(net.weights, grads, strict=True):
        numeric = numerical_gradient(lambda: net.evaluate(x, y, weights), w)
        assert relative_error(grad, numeric) < TOLERANCE


def test_accumulated_batches_equal_one_large_batch():
    x, y = normal(8, 4), np.eye(3)[[0, 1, 2, 2, 1, 0, 1, 1]]
    large, small = network(), network(accumulate=2)
    large.step(x, y)
    start = [w.copy() for w in small.weights]
    small.step(x[:4], y[:4])
    np.testing.assert_array_equal(small.weights[0], start[0])
    small.step(x[4:], y[4:])
    for a, b in zip(large.weights, small.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_network_learns(name):
    x, y = normal(30, 4), np.eye(3)[np.arange(30) % 3]
    optimizer = optimizers.OPTIMIZERS[name](lr=0.3 if name == "sgd" else 0.01)
    net = network(optimizer=optimizer)
    history = net.train([(x[:15], y[:15]), (x[15:], y[15:])], 200)
    assert len(history) == 200
    assert np.mean(history[-4:]) < 0.9 * np.mean(history[:4])
