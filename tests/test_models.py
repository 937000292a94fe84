"""Models: any acyclic graph, shared and nested layers, outputs by name, copies, configurations."""

import json
import pickle

import numpy as np
import pytest
from interrupts import interrupt_everywhere
from reference.gradcheck import normal, relative_error

import pyggml
from pyggml import layers, losses, metrics, ops, optimizers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def gradients_by_differences(model, x, y, step=1e-2):
    """Central differences of evaluate with respect to every weight."""
    found = []
    start = [w.astype(np.float64) for w in model.get_weights()]
    for i, w in enumerate(start):
        g = np.zeros(w.shape)
        for index in np.ndindex(w.shape):
            sides = []
            for sign in (1, -1):
                moved = [v.copy() for v in start]
                moved[i][index] += sign * step
                model.set_weights(moved)
                loss = model.evaluate(x, y)
                sides.append(loss[0] if isinstance(loss, list) else loss)
            g[index] = (sides[0] - sides[1]) / (2 * step)
        found.append(g)
    model.set_weights(start)
    return found


def check_gradients(model, x, y):
    rows = len(x[0]) if isinstance(x, list) else len(x)
    with pyggml.Trainer(model, batch_size=rows) as trainer:
        got = trainer.gradients(x, y)
    assert list(got) == list(model.weight_names.values())
    for g, want in zip(got.values(), gradients_by_differences(model, x, y), strict=True):
        assert relative_error(g, want, tiny=1e-2) < 2e-3


# ---- Sequential -----------------------------------------------------------------------------

def test_get_layer_by_name_and_index():
    a, b = layers.Dense(3, name="a"), layers.Dense(2, name="b")
    model = pyggml.Sequential([pyggml.Input((4,)), a, b])
    assert model.get_layer("b") is b and model.get_layer(index=0) is a
    assert model.get_layer(index=-1) is b
    with pytest.raises(ValueError, match=r"'c'.*\['a', 'b'\]"):
        model.get_layer("c")
    with pytest.raises(ValueError, match="from -2 to 1"):
        model.get_layer(index=2)
    with pytest.raises(TypeError, match="index"):
        model.get_layer(index=1.0)
    for arguments in ({}, {"name": "a", "index": 0}):
        with pytest.raises(ValueError, match="exactly one"):
            model.get_layer(**arguments)


def test_add_and_pop_rebuild_the_model():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3)])
    model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
    model.pop()
    assert model.output_shape == (None, 3) and len(model.layers) == 1
    assert model.predict(np.ones((2, 4))).shape == (2, 3)


def test_a_layer_that_does_not_fit_is_not_added():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3, name="only")])
    model.compile("sgd", "mse")
    x, y = normal(5, 4), normal(5, 3)
    model.fit(x, y, verbose=0)
    before = model.predict(x)
    with pytest.raises(ValueError, match="4 axes"):
        model.add(layers.Conv2D(2, 2))
    with pytest.raises(ValueError, match="metrics"):
        model.compile("sgd", "mse", {"only": "mae"})
        model.add(layers.Dense(2, name="last"))  # the metric's output is gone
    assert [layer.name for layer in model.layers] == ["only"]
    assert model.predict(x).tobytes() == before.tobytes()
    assert np.isfinite(model.evaluate(x, y)).all()
    model.fit(x, y, verbose=0)


def test_a_sequence_frozen_before_its_input_is_known_stays_frozen():
    model = pyggml.Sequential([layers.Dense(3)])
    model.trainable = False
    model.add(layers.Dense(2))
    model.build((4,))
    assert len(model.weights) == 4 and not model.trainable_weights


def test_weights_have_keras_order_and_shapes_and_views_follow_training():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3), layers.Dense(2)])
    assert [w.shape for w in model.get_weights()] == [(4, 3), (3,), (3, 2), (2,)]
    x = normal(5, 4)
    k1, b1, k2, b2 = model.get_weights()
    np.testing.assert_allclose(model.predict(x), (x @ k1 + b1) @ k2 + b2, rtol=1e-5, atol=1e-6)
    views = model.get_weights(copy=False)
    model.compile("sgd", "mse")
    model.fit(x, normal(5, 2), verbose=0)
    for view, copied in zip(views, model.get_weights(), strict=True):
        np.testing.assert_array_equal(view, copied)
    assert not np.array_equal(k1, views[0])


def test_set_weights_checks_everything_first():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3)])
    before = model.get_weights()
    for wrong in ([np.zeros((4, 3))], [np.zeros((4, 3)), np.zeros(4)],
                  [np.zeros((3, 4)), np.zeros(3)]):
        with pytest.raises(ValueError):
            model.set_weights(wrong)
    with pytest.raises(TypeError):
        model.set_weights([np.zeros((4, 3)), np.array(["a", "b", "c"])])
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


# ---- functional -----------------------------------------------------------------------------

def two_towers():
    a, b = pyggml.Input((3,), name="a"), pyggml.Input((2,), name="b")
    shared = layers.Dense(4, "tanh", name="shared")
    left = shared(layers.Dense(3, name="pre_a")(a))
    right = shared(layers.Dense(3, "tanh", name="pre_b")(b))
    both = Sum(name="sum")([left, right, left])
    return pyggml.Model([a, b], {"u": layers.Dense(2, name="head_u")(both),
                                 "v": layers.Dense(1, "sigmoid", name="head_v")(right)})


class Sum(layers.Layer):
    """Adds up several inputs."""

    def call(self, x):
        total = x[0]
        for other in x[1:]:
            total = ops.add(total, other)
        return total


class Halves(layers.Layer):
    """Returns two outputs."""

    def call(self, x):
        return [ops.affine(x, 0.5), ops.affine(x, 0.5, 1.0)]


def two_tower_data(rows=6):
    x = [np.float32(normal(rows, 3)), np.float32(normal(rows, 2, seed=1))]
    y = [np.float32(normal(rows, 2, seed=2)), (normal(rows, 1, seed=3) > 0).astype(np.float32)]
    return x, y


def two_tower_output(model, x):
    w = {v: model.get_layer(v).get_weights() for v in
         ("pre_a", "pre_b", "shared", "head_u", "head_v")}

    def dense(name, x):
        return x @ w[name][0] + w[name][1]

    left = np.tanh(dense("shared", dense("pre_a", x[0])))
    right = np.tanh(dense("shared", np.tanh(dense("pre_b", x[1]))))
    return dense("head_u", 2 * left + right), 1 / (1 + np.exp(-dense("head_v", right)))


def test_several_inputs_outputs_and_a_shared_layer():
    model = two_towers()
    x, y = two_tower_data()
    assert len([v for v in model.weights if v.shape == (3, 4)]) == 1
    for given in (x, tuple(x), {"b": x[1], "a": x[0]}):
        for got, want in zip(model.predict(given), two_tower_output(model, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    model.compile("sgd", ["mse", "binary_crossentropy"], loss_weights=[1.0, 0.5])
    check_gradients(model, x, y)


def test_a_layer_applied_to_its_own_output_sums_its_gradients():
    x = pyggml.Input((3,))
    twice = layers.Dense(3, "tanh")
    model = pyggml.Model(x, twice(twice(twice(x))))
    model.compile("sgd", "mse")
    assert len(model.weights) == 2
    check_gradients(model, normal(5, 3), normal(5, 3, seed=1))


def test_nested_models_and_layers_with_several_outputs():
    inner_in = pyggml.Input((3,))
    inner = pyggml.Model(inner_in, Halves()(layers.Dense(3, "tanh", name="inside")(inner_in)),
                         name="inner")
    assert inner.output_shape == [(None, 3), (None, 3)]
    block = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3)], name="block")
    x = pyggml.Input((3,))
    first, second = inner(block(x))
    third, _ = inner(second)
    model = pyggml.Model(x, Sum()([first, third]))
    data = normal(4, 3)
    k, b = block.get_weights()
    ki, bi = inner.get_weights()
    h = np.tanh((data @ k + b) @ ki + bi)
    expected = 0.5 * h + 0.5 * np.tanh((0.5 * h + 1) @ ki + bi)
    np.testing.assert_allclose(model.predict(data), expected, rtol=1e-4, atol=1e-5)
    model.compile("sgd", "mse")
    check_gradients(model, data, normal(4, 3, seed=1))
    assert len(model.weights) == 4


def test_an_output_may_be_an_input_or_used_by_another_output():
    x = pyggml.Input((3,), name="x")
    h = layers.Dense(3, name="h")(x)
    model = pyggml.Model(x, [x, h, layers.Activation("relu", name="r")(h)])
    data = np.float32(normal(4, 3))
    a, b, c = model.predict(data)
    np.testing.assert_array_equal(a, data)
    np.testing.assert_array_equal(c, np.maximum(b, 0))


def test_wrong_wirings_are_refused():
    x, other = pyggml.Input((3,)), pyggml.Input((3,), name="other_input")
    y = layers.Dense(2)(Sum()([x, other]))
    with pytest.raises(ValueError, match="other_input"):
        pyggml.Model(x, y)
    with pytest.raises(ValueError, match="inputs must come from Input"):
        pyggml.Model(y, y)
    with pytest.raises(TypeError, match="symbols"):
        pyggml.Model(x, np.zeros(3))
    with pytest.raises(ValueError, match="two layers are named"):
        pyggml.Model(x, layers.Dense(2, name="d")(layers.Dense(3, name="d")(x)))


# ---- losses of several outputs ------------------------------------------------------------------

def losses_of_two_towers(model, x, y):
    u, v = model.predict(x)
    return ((u - y[0]) ** 2).mean(), -np.log(np.where(y[1] > 0.5, v, 1 - v)).mean()


@pytest.mark.parametrize(("loss", "loss_weights"), [
    (["mse", "binary_crossentropy"], [2.0, 0.5]),
    ({"v": "binary_crossentropy", "u": losses.MeanSquaredError()}, {"u": 2.0, "v": 0.5}),
    ({"u": "mse", "v": "binary_crossentropy"}, None),
    (["mse", "binary_crossentropy"], [1.0, 0.0]),
])
def test_the_total_is_the_weighted_sum_of_losses_by_output(loss, loss_weights):
    model = two_towers()
    x, y = two_tower_data()
    model.compile(optimizers.SGD(0.0), loss, {"v": ["accuracy"], "u": "mae"}, loss_weights)
    u, v = losses_of_two_towers(model, x, y)
    factors = loss_weights or [1, 1]
    if isinstance(factors, dict):
        factors = [factors["u"], factors["v"]]
    expected = {"loss": factors[0] * u + factors[1] * v, "u_loss": u, "v_loss": v}
    for labels in (y, {"u": y[0], "v": y[1]}):
        logs = model.evaluate(x, labels, batch_size=4, return_dict=True)
        history = model.fit(x, labels, batch_size=4, verbose=0, validation_data=(x, labels)).history
        for key, value in expected.items():
            assert logs[key] == pytest.approx(value, rel=1e-5)
            assert history[key][0] == pytest.approx(value, rel=1e-5)
            assert history[f"val_{key}"][0] == pytest.approx(value, rel=1e-5)
        assert set(logs) == {*expected, "u_mae", "v_accuracy"}
    assert model.evaluate(x, y) == pytest.approx(list(logs.values()), rel=1e-6)


def test_a_single_loss_serves_all_outputs():
    model = two_towers()
    x, y = two_tower_data()
    model.compile("sgd", "mse", ["mae"])
    logs = model.evaluate(x, y, return_dict=True)
    assert set(logs) == {"loss", "u_loss", "v_loss", "u_mae", "v_mae"}
    assert logs["loss"] == pytest.approx(logs["u_loss"] + logs["v_loss"], rel=1e-6)


@pytest.mark.parametrize("names", [("a", "val_a"), ("val_a", "a"), ("val", "b"), ("a", "b")])
def test_names_of_outputs_never_collide_in_the_history(names):
    x = pyggml.Input((2,))
    model = pyggml.Model(x, {name: layers.Dense(1)(x) for name in names})
    model.compile(optimizers.SGD(0.0), "mse", ["mae"])
    data = normal(4, 2)
    y = [normal(4, 1, seed=i) for i in range(2)]
    other = [v + 10 for v in y]
    history = model.fit(data, y, validation_data=(data, other), verbose=0).history
    assert len(history) == 2 * (1 + 2 + 2)
    values = [values[0] for values in history.values()]
    assert len(set(values)) == len(values)
    assert history["loss"][0] < history["val_loss"][0]
    if "b" in names and "a" in names:
        assert {"a_loss", "b_loss", "a_mae", "b_mae"} < set(history)


@pytest.mark.parametrize("arguments", [
    {"loss": ["mse"]}, {"loss": {"u": "mse"}}, {"loss": {"u": "mse", "v": "mse", "w": "mse"}},
    {"loss": "mse", "loss_weights": [1.0]}, {"loss": "mse", "loss_weights": [-1.0, 1.0]},
    {"loss": "mse", "loss_weights": {"w": 1.0}}, {"loss": "no"}, {"loss": ["mse", "no"]},
    {"loss": "mse", "metrics": ["no"]}, {"loss": "mse", "metrics": {"w": ["mae"]}},
    {"loss": "mse", "optimizer": "no"}, {"loss": None},
])
def test_compile_refuses_what_does_not_fit_and_keeps_what_it_had(arguments):
    model = two_towers()
    x, y = two_tower_data()
    model.compile("sgd", "mse")
    before = model.evaluate(x, y)
    with pytest.raises(ValueError):
        model.compile(**arguments)
    assert model.evaluate(x, y) == before


def test_labels_that_fit_no_output_are_refused():
    model = two_towers()
    x, y = two_tower_data()
    model.compile("sgd", "mse")
    before = [w.tobytes() for w in model.get_weights()]
    for wrong in (y[:1], [*y, y[0]], {"u": y[0]}, {"u": y[0], "w": y[1]}, y[::-1],
                  [y[0], y[1][:3]]):
        with pytest.raises(ValueError):
            model.fit(x, wrong, verbose=0)
        with pytest.raises(ValueError):
            model.evaluate(x, wrong)
    with pytest.raises(ValueError, match="y must be given"):
        model.fit(x, verbose=0)
    assert [w.tobytes() for w in model.get_weights()] == before


# ---- copies, pickles, configurations ---------------------------------------------------------

def halved(y_true, y_pred):
    """A loss that pickles by reference."""
    return ops.affine(ops.square(ops.subtract(y_true, y_pred)), 0.5)


def all_kinds():
    x = pyggml.Input((3,))
    inner = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3, "gelu")])
    shared = layers.Dense(3, {"name": "leaky_relu", "negative_slope": 0.1})
    nested = pyggml.Model(x, layers.Dense(2)(shared(inner(shared(x)))))
    return {
        "sequential": pyggml.Sequential([
            pyggml.Input((3,)), layers.Dense(4, "tanh", kernel_initializer="he_normal"),
            layers.Dropout(0.5), layers.Dense(2, use_bias=False)]),
        "nested": nested,
    }


@pytest.mark.parametrize("how", ["copy", "pickle"])
@pytest.mark.parametrize("kind", ["sequential", "nested"])
def test_copies_and_pickles_are_equal_and_independent(kind, how):
    model = all_kinds()[kind]
    model.compile(optimizers.SGD(0.1, momentum=0.9), halved, [metrics.R2Score(), "mae"])
    x, y = normal(6, 3), normal(6, 2)
    model.fit(x, y, verbose=0)
    other = model.copy() if how == "copy" else pickle.loads(pickle.dumps(model))
    p = model.predict(x)
    assert other.predict(x).tobytes() == p.tobytes()
    assert other.evaluate(x, y) == model.evaluate(x, y)
    assert other.optimizer.get_config() == model.optimizer.get_config()
    assert [len(m.weights) for m in (model, other)] == [len(model.get_weights())] * 2
    other.fit(x, y, verbose=0)
    assert model.predict(x).tobytes() == p.tobytes() != other.predict(x).tobytes()


@pytest.mark.parametrize("kind", ["sequential", "nested"])
def test_a_configuration_is_json_and_makes_the_same_model(kind):
    model = all_kinds()[kind]
    config = json.loads(json.dumps(model.get_config()))
    other = type(model).from_config(config)
    assert [layer.name for layer in other.layers] == [layer.name for layer in model.layers]
    assert other.output_names == model.output_names
    assert json.loads(json.dumps(other.get_config())) == config
    other.set_weights(model.get_weights())
    x = normal(5, 3)
    assert other.predict(x).tobytes() == model.predict(x).tobytes()


def test_two_towers_come_back_from_their_configuration():
    model = two_towers()
    config = json.loads(json.dumps(model.get_config()))
    other = pyggml.Model.from_config(config, custom_objects={"Sum": Sum})
    other.set_weights(model.get_weights())
    x, _ = two_tower_data()
    for a, b in zip(model.predict(x), other.predict(x), strict=True):
        assert a.tobytes() == b.tobytes()
    with pytest.raises(ValueError, match="Sum"):
        pyggml.Model.from_config(config)


class Scale(layers.Layer):
    """A custom layer with a weight, arguments and a configuration."""

    def __init__(self, start=1.0, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.start = start
        self.activation = pyggml.activations.get(activation)

    def build(self, input_shape):
        start = pyggml.initializers.get("ones")
        self.factor = self.add_weight("factor", (input_shape[-1],), start)
        self.factor.assign(np.full(input_shape[-1], self.start))

    def call(self, x, training=False):
        y = ops.multiply(x, self.factor)
        return self.activation(ops.affine(y, 2.0) if training else y)

    def get_config(self):
        return super().get_config() | {
            "start": self.start, "activation": pyggml.activations.serialize(self.activation)}


def test_custom_layers_train_and_come_back():
    model = pyggml.Sequential([pyggml.Input((3,)), Scale(0.5, "softsign", name="scale")])
    model.compile(optimizers.SGD(1.0), "mse")
    x, y = normal(4, 3), normal(4, 3, seed=1)
    np.testing.assert_allclose(model.predict(x), 0.5 * x / (1 + np.abs(0.5 * x)), rtol=1e-5)
    with pyggml.Trainer(model, batch_size=4) as trainer:  # twice as large in training
        p = x / (1 + np.abs(x))
        assert trainer.step(x, y) == pytest.approx(((p - y) ** 2).mean(), rel=1e-5)
        slope = 2 * (p - y) / p.size * 2 * x / (1 + np.abs(x)) ** 2
        np.testing.assert_allclose(trainer.get_weights()[0], 0.5 - slope.sum(axis=0), rtol=1e-4)
    config = json.loads(json.dumps(model.get_config()))
    other = pyggml.Sequential.from_config(config, custom_objects={"Scale": Scale})
    assert other.predict(x).tobytes() == model.predict(x).tobytes()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(x).tobytes() == model.predict(x).tobytes()


class Residual(layers.Layer):
    """Its layers are private attributes, and get their weights where they are first called."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self._inner = layers.Dense(units)
        self._others = {"after": layers.Dense(units)}

    def call(self, x):
        return ops.add(x, self._others["after"](self._inner(x)))

    def compute_output_shape(self, input_shape):
        return input_shape


def test_layers_inside_a_layer_are_trained_and_frozen_whatever_their_attributes_are_called():
    model = pyggml.Sequential([pyggml.Input((3,)), Residual(3)])
    assert [v.name for v in model.program.variables] == ["kernel", "bias"] * 2
    model.compile(optimizers.SGD(0.1), "mse")
    check_gradients(model, normal(5, 3), normal(5, 3, seed=1))
    frozen = pyggml.Sequential([pyggml.Input((3,)), Residual(3, trainable=False)])
    assert len(frozen.weights) == 4 and not frozen.trainable_weights


def test_weights_that_no_layer_of_the_model_has_are_refused_unless_they_are_frozen():
    hidden = layers.Dense(2)
    outer = [[hidden]]  # neither an attribute nor in a list of one
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Lambda(lambda x: outer[0][0](x))])
    with pytest.raises(ValueError, match=r"'kernel' of shape \(3, 2\).*neither trained nor saved"):
        model.predict(np.ones((1, 3)))
    hidden.trainable = False
    x, (kernel, bias) = normal(4, 3), hidden.get_weights()
    np.testing.assert_allclose(model.predict(x), x @ kernel + bias, rtol=1e-5, atol=1e-6)


def test_custom_losses_and_metrics_are_functions_of_labels_and_predictions():
    def worst(y_true, y_pred):
        return np.abs(y_true - y_pred).max(axis=-1)

    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(2)])
    model.compile("sgd", halved, [worst])
    x, y = normal(9, 3), normal(9, 2)
    e = model.predict(x) - y
    logs = model.evaluate(x, y, batch_size=4, return_dict=True)
    assert logs == {"loss": pytest.approx(0.5 * (e**2).mean(), rel=1e-5),
                    "worst": pytest.approx(np.abs(e).max(axis=-1).mean(), rel=1e-5)}
    w = np.abs(normal(9))
    logs = model.evaluate(x, y, sample_weight=w, return_dict=True)
    assert logs["worst"] == pytest.approx((w @ np.abs(e).max(axis=-1)) / w.sum(), rel=1e-5)


def test_weights_of_branches_are_listed_in_the_order_of_keras():
    # What more calls follow comes first, whichever was made or is used first.
    x = pyggml.Input((4,), name="x")
    short = layers.Dense(4, name="short")(x)
    long = layers.Dense(4, name="second")(layers.Dense(4, name="first")(x))
    model = pyggml.Model(x, layers.Dense(2, name="head")(layers.Add(name="add")([short, long])))
    assert [layer.name for layer in model.layers] == ["x", "first", "short", "second", "add",
                                                      "head"]
    names = [f"{layer}/{kind}" for layer in ("first", "short", "second", "head")
             for kind in ("kernel", "bias")]
    assert list(model.weight_names.values()) == names
    weights = [np.full(w.shape, i) for i, w in enumerate(model.get_weights())]
    model.set_weights(weights)
    assert model.get_layer("first").get_weights()[0][0, 0] == 0
    assert model.get_layer("short").get_weights()[0][0, 0] == 2
    again = pyggml.Model.from_config(model.get_config())
    assert list(again.weight_names.values()) == names


def test_a_shared_layer_is_listed_where_most_calls_follow_it():
    a, b = pyggml.Input((4,), name="a"), pyggml.Input((4,), name="b")
    shared, own = layers.Dense(4, name="shared"), layers.Dense(4, name="own")
    late = shared(own(b))
    early = layers.Dense(4, name="next")(shared(a))
    model = pyggml.Model([a, b], layers.Concatenate(name="cat")([late, early]))
    assert [layer.name for layer in model.layers] == ["a", "b", "own", "shared", "next", "cat"]


def square():
    model = pyggml.Sequential([pyggml.Input((3,)), *[
        pyggml.layers.Dense(3, use_bias=False) for _ in range(3)]])
    return model, model.get_weights()


def test_set_weights_takes_views_of_the_weights_it_sets():
    """In another order, too: none is written to before it is read."""
    model, before = square()
    model.set_weights(model.get_weights(copy=False)[::-1])
    assert [w.tobytes() for w in model.get_weights()] == [w.tobytes() for w in before[::-1]]
    model.set_weights([w.T for w in model.get_weights(copy=False)[::-1]])
    for found, wanted in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, wanted.T)
    first, second, _ = model.layers
    first.set_weights(second.get_weights())
    np.testing.assert_array_equal(first.get_weights()[0], before[1].T)


@pytest.mark.filterwarnings("error")
def test_a_weight_too_large_for_float32_changes_nothing_where_that_is_an_error():
    model, before = square()
    with pytest.raises(RuntimeWarning, match="overflow"):
        model.set_weights([before[0] + 1, before[1] + 1, np.full((3, 3), 1e300)])
    with pytest.raises(RuntimeWarning, match="overflow"):
        model.weights[0].assign(np.full((3, 3), 1e300))
    assert [w.tobytes() for w in model.get_weights()] == [w.tobytes() for w in before]


def test_an_exception_between_any_two_lines_leaves_all_weights_or_none_set():
    model, old = square()
    new = [w + 1 for w in old]
    found = set()

    def check(line):
        found.add(tuple(w.tobytes() for w in model.get_weights()))
        model.set_weights(old)

    interrupt_everywhere(lambda: model.set_weights(new), check)
    assert found <= {tuple(w.tobytes() for w in values) for values in (old, new)}
