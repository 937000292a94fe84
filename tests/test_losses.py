"""Losses against the float64 references: values, gradients, weights, extremes, names."""

import pickle

import numpy as np
import pytest
from reference import losses as reference
from reference.activations import log_softmax, sigmoid, softmax
from reference.gradcheck import normal, relative_error
from tensor_probe import loss_and_gradient

import pyggml
from pyggml import losses, ops

SHAPES = [(1, 1), (3, 7), (5, 1), (4, 3), (2, 3, 5)]
PROBABILITIES = ("binary_crossentropy", "binary_focal_crossentropy", "poisson")
SIMPLEX = ("categorical_crossentropy", "sparse_categorical_crossentropy",
           "categorical_focal_crossentropy", "kl_divergence")


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def example(name, shape, logits=False):
    """Labels and predictions that the loss is meant for."""
    y, p = normal(*shape, seed=1), normal(*shape, seed=2)
    if name == "hinge":
        y = np.where(y > 0, 1.0, -1.0)
    elif name == "poisson":
        y, p = np.abs(y), np.abs(p) + 0.1
    elif name in PROBABILITIES:
        y, p = sigmoid(3 * y), p if logits else sigmoid(2 * p)
    elif name in SIMPLEX:
        y, p = softmax(y), p if logits else softmax(p)
        if name == "sparse_categorical_crossentropy":
            y = np.argmax(y, axis=-1)
    return np.float32(y), np.float32(p)


def check(loss, name, y, p, weights=None, activation="linear", **parameters):
    value, gradient = loss_and_gradient(loss, y, p, weights, activation)
    expected = reference.loss(name, y, p, weights, **parameters)
    assert value == pytest.approx(expected.total, rel=1e-5, abs=1e-7)
    # of a single class or number, these have a gradient of 0, made of terms that cancel
    constant = p.shape[-1] == 1 and name != "kl_divergence" and name in reference.PER_ROW
    tiny = 1e-2 if constant else 1e-9
    assert relative_error(gradient, expected.grad, tiny=tiny) < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", reference.NAMES)
def test_values_and_gradients_agree_with_the_reference(name, shape):
    y, p = example(name, shape)
    check(name, name, y, p)


@pytest.mark.parametrize("weights", ["rows", "elements"])
@pytest.mark.parametrize("name", reference.NAMES)
def test_weighted_values_and_gradients_agree_with_the_reference(name, weights):
    y, p = example(name, (5, 3))
    w = np.abs(normal(5, 3, seed=3))
    w[1] = 0
    w[2, 1] = 0
    if name == "cosine_similarity" and weights == "elements":
        y[2, 1] = 0  # a label without weight is not there for the norm of its row either
    check(name, name, y, p, np.float32(w if weights == "elements" else w[:, 0]))


LINKED = [
    ("sigmoid", "binary_crossentropy"), ("sigmoid", "binary_focal_crossentropy"),
    ("softmax", "categorical_crossentropy"), ("softmax", "sparse_categorical_crossentropy"),
    ("softmax", "categorical_focal_crossentropy"),
]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("how", ["link", "from_logits"])
@pytest.mark.parametrize(("activation", "name"), LINKED)
def test_logits_are_used_where_there_are_any(activation, name, how, smoothing):
    y, x = example(name, (4, 3), logits=True)
    arguments = {"label_smoothing": smoothing}
    loss = type(losses.get(name))(from_logits=how == "from_logits", **arguments)
    check(loss, name, y, x, activation=activation if how == "link" else "linear",
          from_logits=True, **arguments)


@pytest.mark.parametrize("parameters", [
    ("huber", {"delta": 0.3}), ("huber", {"delta": 4.0}),
    ("binary_focal_crossentropy", {"gamma": 0.0, "apply_class_balancing": True}),
    ("binary_focal_crossentropy", {"gamma": 1.5, "alpha": 0.7, "apply_class_balancing": True}),
    ("binary_focal_crossentropy", {"gamma": 1.0, "label_smoothing": 0.1}),
    ("categorical_focal_crossentropy", {"gamma": 0.0}),
    ("categorical_focal_crossentropy", {"gamma": 3.5, "alpha": 0.6}),
    ("categorical_focal_crossentropy", {"gamma": 1.0, "label_smoothing": 0.1}),
    ("binary_crossentropy", {"label_smoothing": 0.3}),
    ("categorical_crossentropy", {"label_smoothing": 0.3}),
])
def test_parameters(parameters):
    name, arguments = parameters
    y, p = example(name, (4, 3))
    check(type(losses.get(name))(**arguments), name, y, p, **arguments)


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [-1, 1, 1, -1], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_hinge_takes_both_kinds_of_labels(labels):
    y = np.float32(labels)[:, None]
    check("hinge", "hinge", y, np.float32(normal(4, 1)))


@pytest.mark.parametrize("name", reference.NAMES)
def test_weights_of_one_change_no_bit(name):
    y, p = example(name, (5, 3))
    plain = loss_and_gradient(name, y, p)
    for weights in (np.ones(5, np.float32), np.ones((5, 3), np.float32)):
        value, gradient = loss_and_gradient(name, y, p, weights)
        assert value == plain[0]
        assert gradient.tobytes() == plain[1].tobytes()


@pytest.mark.parametrize("name", sorted(set(reference.NAMES) - {"sparse_categorical_crossentropy"}))
def test_weight_zero_removes_a_label_that_is_nan(name):
    y, p = example(name, (5, 3))
    w = np.ones((5, 3), np.float32)
    w[1, 2] = w[3] = 0
    clean = np.where(w == 0, 0, y)
    value, gradient = loss_and_gradient(name, clean, p, w)
    dirty = np.where(w == 0, np.nan, y)
    again = loss_and_gradient(name, dirty, p, w)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    assert again[0] == value and again[1].tobytes() == gradient.tobytes()
    assert not gradient[3].any()


@pytest.mark.parametrize("n", [2, 3, 17])
def test_a_label_without_weight_still_has_its_share_in_the_length_of_its_row(n):
    y, p = np.float32(normal(5, n, seed=1)), np.float32(normal(5, n, seed=2))
    w = np.ones((5, n), np.float32)
    w[1, 0] = w[3] = 0
    unit = [a / np.linalg.norm(a.astype(np.float64), axis=-1, keepdims=True) for a in (y, p)]
    value, _ = loss_and_gradient("cosine_similarity", y, p, w)
    assert value == pytest.approx(-(w * unit[0] * unit[1]).sum() / 5, rel=1e-5)


@pytest.mark.parametrize("name", sorted(set(reference.NAMES) - {"sparse_categorical_crossentropy"}))
def test_label_zero_is_finite_for_any_prediction(name):
    p = np.float32([[-1e4, -3, -1e-8, 0, 1e-8, 0.5, 1, 3, 1e4]])
    value, gradient = loss_and_gradient(name, np.zeros_like(p), p)
    assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "log_cosh", "hinge", "cosine_similarity"])
def test_extreme_predictions(name):
    y = np.float32([[1, -1, 1, -1]])
    check(name, name, y, np.float32([[1e4, 1e4, -1e4, -1e4]]))


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "log_cosh"])
def test_gradients_of_small_errors_keep_their_digits(name):
    y, e = np.zeros((1, 7), np.float32), np.float32(1e-4 * normal(1, 7))
    value, gradient = loss_and_gradient(name, y, e)
    assert value == pytest.approx(reference.loss(name, y, e).total, rel=1e-5)
    assert relative_error(gradient, reference.loss(name, y, e).grad) < 1e-5


def test_log_cosh_around_the_end_of_its_series():
    e = np.float32([[-0.11, -0.1, -0.09, 0, 0.05, 0.0999, 0.1001, 0.3, 9, 20]])
    check("log_cosh", "log_cosh", np.zeros_like(e), e)


def test_crossentropy_of_extreme_logits():
    logits = np.float32([[1000, 0, -1000]])
    for label, loss in ((0, 0), (1, 1000), (2, 2000)):
        value, gradient = loss_and_gradient(
            "sparse_categorical_crossentropy", np.array([label]), logits, activation="softmax")
        assert value == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(gradient, np.eye(3)[[0]] - np.eye(3)[[label]], atol=1e-6)
    for logit in (1000, -1000):
        for label in (0, 1):
            value, gradient = loss_and_gradient(
                "binary_crossentropy", np.float32([[label]]), np.float32([[logit]]),
                activation="sigmoid")
            wrong = (logit > 0) != label
            assert value == (1000 if wrong else 0)
            assert gradient[0, 0] == (wrong if logit > 0 else -wrong)


@pytest.mark.parametrize("name", ["binary_crossentropy", "binary_focal_crossentropy",
                                  "categorical_crossentropy", "categorical_focal_crossentropy",
                                  "sparse_categorical_crossentropy", "kl_divergence"])
def test_probabilities_of_exactly_0_and_1_are_clipped(name):
    p = np.float32([[0, 1, 0], [1, 0, 0]])
    y = np.float32([[1, 0, 0], [1, 0, 0]])
    if name == "sparse_categorical_crossentropy":
        y = np.argmax(y, axis=-1)
    value, gradient = loss_and_gradient(name, y, p)
    assert value == pytest.approx(reference.loss(name, y, p).total, rel=1e-5)
    assert np.isfinite(gradient).all()


def test_small_probabilities_are_not_rounded():
    p = np.float32([[2e-7, 1e-6, 3e-5]])
    check("binary_crossentropy", "binary_crossentropy", np.ones_like(p), p)
    check("binary_crossentropy", "binary_crossentropy", np.zeros_like(p), 1 - p)


def test_reported_crossentropy_is_the_one_of_the_predictions():
    x, logits = normal(6, 4), None
    model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    y = np.array([0, 1, 2, 0, 1, 2])
    p = model.predict(x)
    assert model.evaluate(x, y) == pytest.approx(-np.log(p[np.arange(6), y]).mean(), rel=1e-5)
    kernel, bias = model.get_weights()
    logits = x @ kernel + bias
    assert model.evaluate(x, y) == pytest.approx(-log_softmax(logits)[np.arange(6), y].mean(),
                                                 rel=1e-5)


# ---- names ----------------------------------------------------------------------------------

ALIASES = {
    "mse": "mean_squared_error", "mae": "mean_absolute_error", "huber_loss": "huber",
    "logcosh": "log_cosh", "crossentropy": "categorical_crossentropy",
    "cross_entropy": "categorical_crossentropy", "binary_cross_entropy": "binary_crossentropy",
    "kld": "kl_divergence",
}


@pytest.mark.parametrize("name", [*reference.NAMES, *ALIASES, "output"])
def test_names_and_aliases(name):
    loss = losses.get(name)
    assert loss.name == ALIASES.get(name, name)
    again = type(loss)(**loss.get_config())
    assert vars(again) == vars(loss) == vars(pickle.loads(pickle.dumps(loss)))


def test_unknown_names_and_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="mean_squared_error"):
        losses.get("mean_square")
    with pytest.raises(TypeError, match="loss"):
        losses.get(3)
    for make, name in ((lambda: losses.Huber(0), "delta"), (lambda: losses.Huber(np.inf), "delta"),
                       (lambda: losses.BinaryCrossentropy(label_smoothing=2), "label_smoothing"),
                       (lambda: losses.CategoricalFocalCrossentropy(gamma=-1), "gamma"),
                       (lambda: losses.BinaryFocalCrossentropy(alpha=2), "alpha")):
        with pytest.raises(ValueError, match=name):
            make()


# ---- losses of the user ----------------------------------------------------------------------

def pinball(y_true, y_pred):
    e = ops.subtract(y_true, y_pred)
    return ops.add(ops.affine(e, 0.9), ops.relu(ops.negative(e)))


def test_a_function_is_a_loss():
    y, p = np.float32(normal(5, 3, seed=1)), np.float32(normal(5, 3, seed=2))
    e = np.float64(y) - p
    value, gradient = loss_and_gradient(pinball, y, p)
    assert value == pytest.approx(np.maximum(0.9 * e, -0.1 * e).mean(), rel=1e-5)
    assert relative_error(gradient, np.where(e > 0, -0.9, 0.1) / e.size) < 1e-5


def test_a_function_may_return_one_value_a_row():
    y, p = np.float32(normal(5, 3, seed=1)), np.float32(normal(5, 3, seed=2))

    def distance(y_true, y_pred):
        return ops.sum(ops.square(ops.subtract(y_true, y_pred)), axis=-1)

    w = np.float32([1, 0, 2, 1, 0.5])
    value, _ = loss_and_gradient(distance, y, p, w)
    assert value == pytest.approx((w @ ((y - p) ** 2).sum(axis=-1)) / 5, rel=1e-5)


def test_a_loss_of_rows_may_return_one_value_a_row():
    class Distance(losses.Loss):
        name = "distance"
        per_row = True

        def values(self, y_true, y_pred):
            return ops.sum(ops.square(ops.subtract(y_true, y_pred)), axis=-1)

    for shape in ((5, 3), (4, 2, 3)):
        y, p = np.float32(normal(*shape, seed=1)), np.float32(normal(*shape, seed=2))
        value, gradient = loss_and_gradient(Distance(), y, p)
        rows = y.size // 3
        assert value == pytest.approx(((y - p) ** 2).sum() / rows, rel=1e-5)
        assert relative_error(gradient, 2 * (p - y) / rows) < 1e-5


def test_a_function_with_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="first axis"):
        loss_and_gradient(lambda y, p: ops.sum(p), np.zeros((4, 2)), np.ones((4, 2)))


# ---- the model computes its loss -------------------------------------------------------------

def test_output_is_the_mean_of_what_the_model_returns():
    p = np.float32(normal(5, 3))
    value, gradient = loss_and_gradient("output", None, p)
    assert value == pytest.approx(p.mean(dtype=np.float64), rel=1e-5)
    np.testing.assert_allclose(gradient, np.full((5, 3), 1 / 15), rtol=1e-6)
    w = np.float32([1, 0, 2, 0, 1])
    value, gradient = loss_and_gradient("output", None, p, w)
    assert value == pytest.approx((w @ p).sum() / 15, rel=1e-5)
    np.testing.assert_allclose(gradient, np.repeat(w, 3).reshape(5, 3) / 15, rtol=1e-6)


def test_output_takes_no_labels():
    model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    model.compile("sgd", loss="output")
    x = np.ones((4, 2))
    for call in (lambda: model.fit(x, np.ones((4, 1)), verbose=0),
                 lambda: model.evaluate(x, np.ones((4, 1)))):
        with pytest.raises(ValueError, match="y must be None"):
            call()
    with pytest.raises(ValueError, match="labels"):
        model.compile("sgd", loss="output", metrics=["mae"])
    before = model.evaluate(x)
    history = model.fit(x, verbose=0, epochs=3, validation_split=0.5)
    assert history.history["loss"][0] == pytest.approx(before)
    assert model.evaluate(x) < before


def test_output_beside_a_loss_with_labels():
    x = pyggml.Input((3,), name="x")
    h = pyggml.layers.Dense(4, "tanh")(x)
    fit = pyggml.layers.Dense(2)(h)
    penalty = pyggml.layers.Activation(ops.square)(h)
    for order in (("fit", "penalty"), ("penalty", "fit")):
        both = {"fit": fit, "penalty": penalty}
        model = pyggml.Model(x, {name: both[name] for name in order})
        model.compile("adam", {"fit": "mse", "penalty": "output"}, {"fit": ["mae"]},
                      {"fit": 1.0, "penalty": 0.5})
        data, y = normal(6, 3), normal(6, 2)
        p = dict(zip(order, model.predict(data), strict=True))
        total = ((p["fit"] - y) ** 2).mean() + 0.5 * p["penalty"].mean()
        for given in (y, {"fit": y}, [y], {"fit": y, "penalty": None},
                      [{"fit": y}.get(name) for name in order]):
            logs = model.evaluate(data, given, return_dict=True)
            assert logs["loss"] == pytest.approx(total, rel=1e-5)
            assert logs["fit_mae"] == pytest.approx(np.abs(p["fit"] - y).mean(), rel=1e-5)
        w = {"fit": np.float32([1, 0, 1, 1, 1, 1]), "penalty": np.ones(6, np.float32)}
        y[1] = np.nan
        model.fit(data, y, sample_weight=w, verbose=0)
        assert np.isfinite(model.get_weights()[0]).all()


class Surrogate(pyggml.layers.Layer):
    """Minus PPO's clipped objective, one value a row (Schulman et al., 2017)."""

    def call(self, inputs):
        logits, action, before, advantage = inputs
        log_p = ops.sum(ops.multiply(ops.log_softmax(logits), action), axis=-1, keepdims=True)
        ratio = ops.exp(ops.subtract(log_p, before))
        clipped = ops.clip(ratio, 0.8, 1.2)
        return ops.negative(ops.minimum(ops.multiply(ratio, advantage),
                                        ops.multiply(clipped, advantage)))


def test_an_objective_of_several_inputs_is_trained_on():
    n = 9
    obs = pyggml.Input((4,), name="obs")
    action = pyggml.Input((3,), name="action")
    before = pyggml.Input((1,), name="before")
    advantage = pyggml.Input((1,), name="advantage")
    policy = pyggml.layers.Dense(3, name="policy")
    model = pyggml.Model([obs, action, before, advantage],
                         Surrogate()([policy(obs), action, before, advantage]))
    model.compile(pyggml.optimizers.SGD(0.1), loss="output")
    x = {"obs": np.float32(normal(n, 4)), "action": np.eye(3)[np.arange(n) % 3],
         "before": np.float32(-1 + 0.3 * normal(n, 1, seed=1)),
         "advantage": np.float32(normal(n, 1, seed=2))}

    kernel, bias = model.get_weights()
    log_p = log_softmax(x["obs"] @ kernel.astype(float) + bias)
    ratio = np.exp((log_p * x["action"]).sum(axis=-1, keepdims=True) - x["before"])
    a = x["advantage"]
    value = -np.minimum(ratio * a, np.clip(ratio, 0.8, 1.2) * a)
    used = np.where(a > 0, ratio < 1.2, ratio > 0.8)
    assert 0 < used.sum() < n
    slope = -(ratio * a * used) * (x["action"] - np.exp(log_p)) / n
    with pyggml.Trainer(model, batch_size=n) as trainer:
        got = trainer.gradients(x, None)
        np.testing.assert_allclose(got["policy/bias"], slope.sum(axis=0), atol=1e-5)
        np.testing.assert_allclose(got["policy/kernel"], x["obs"].T @ slope, atol=1e-5)
        steps = [trainer.step(x, None) for _ in range(5)]
    assert steps[0] == pytest.approx(value.mean(), rel=1e-5)
    assert steps[-1] < steps[0]
    act = pyggml.Model(obs, pyggml.layers.Activation("softmax")(policy(obs)))
    np.testing.assert_allclose(act.predict(x["obs"]), np.exp(log_p), rtol=1e-4)
