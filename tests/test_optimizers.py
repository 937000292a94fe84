"""Step rules against the float64 references, 100 steps each."""

import pickle

import numpy as np
import pytest
from reference.gradcheck import normal, relative_error
from reference.network import MLP
from reference.optimizers import OPTIMIZERS

import pyggml
from pyggml import optimizers

RULES = {
    "sgd": {"lr": 0.05},
    "momentum": {"lr": 0.02, "momentum": 0.9},
    "nesterov": {"lr": 0.02, "momentum": 0.9, "nesterov": True},
    "adam": {"lr": 0.01},
    "adam betas": {"lr": 0.01, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-4},
    "adamw": {"lr": 0.01},
    "rmsprop": {"lr": 0.003},
    "rmsprop momentum": {"lr": 0.003, "momentum": 0.5, "rho": 0.8},
    "rmsprop centered": {"lr": 0.003, "centered": True, "epsilon": 1e-3},
    "rmsprop both": {"lr": 0.003, "centered": True, "momentum": 0.5, "epsilon": 1e-3},
    "adagrad": {"lr": 0.05},
    "adagrad initial": {"lr": 0.05, "initial_accumulator_value": 0.5, "epsilon": 1e-3},
    "lion": {"lr": 0.002},
    # (these betas: no sum whose sign is taken cancels to less than 1e-4 of its terms)
    "lion betas": {"lr": 0.002, "beta_1": 0.75, "beta_2": 0.95},
}
COMMON = {
    "plain": {}, "decay": {"weight_decay": 0.1}, "clipnorm": {"clipnorm": 0.05},
    "clipvalue": {"clipvalue": 0.02},
    "global": {"global_clipnorm": 0.1, "weight_decay": 0.05},
}
SIZES = (5, 17, 3)


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def pair(rule, **common):
    """The same optimizer here and in the reference."""
    name = {"momentum": "sgd", "nesterov": "sgd"}.get(rule, rule.split()[0])
    arguments = RULES[rule] | common
    mine = {"learning_rate": arguments["lr"], **arguments}
    mine.pop("lr")
    return type(optimizers.get(name))(**mine), OPTIMIZERS[name](**arguments)


def network(optimizer, reference, accumulate=1, seed=0):
    """A trainer's model and its reference with the same weights."""
    model = pyggml.Sequential([pyggml.Input((SIZES[0],)), pyggml.layers.Dense(SIZES[1], "tanh"),
                               pyggml.layers.Dense(SIZES[2])])
    weights = [np.float32(0.4 * normal(*w.shape, seed=seed + i))
               for i, w in enumerate(model.get_weights())]
    model.set_weights(weights)
    model.compile(optimizer, "mse")
    return model, MLP(weights, ["tanh", "linear"], "mse", reference or "sgd", accumulate)


BATCHES = [(np.float32(normal(7, SIZES[0], seed=10 + i)), np.float32(normal(7, SIZES[2], seed=i)))
           for i in range(3)]


def run(model, steps, **arguments):
    with pyggml.Trainer(model, batch_size=7, **arguments) as trainer:
        losses = [trainer.step(*BATCHES[i % 3]) for i in range(steps)]
        return losses, trainer.get_weights()


@pytest.mark.parametrize("common", COMMON)
@pytest.mark.parametrize("rule", RULES)
def test_a_hundred_steps_agree_with_the_reference(rule, common):
    optimizer, reference = pair(rule, **COMMON[common])
    model, expected = network(optimizer, reference)
    losses, weights = run(model, 100)
    expected_losses = expected.train(BATCHES, 100)
    assert relative_error(losses, expected_losses) < 1e-5
    for got, want in zip(weights, expected.weights, strict=True):
        assert relative_error(got, want) < 1e-5


@pytest.mark.parametrize("common", ["plain", "global"])
@pytest.mark.parametrize("rule", ["sgd", "nesterov", "adam", "rmsprop both", "adagrad", "lion"])
def test_accumulated_steps_agree_with_the_reference(rule, common):
    optimizer, reference = pair(rule, **COMMON[common])
    model, expected = network(optimizer, reference, accumulate=3)
    _, weights = run(model, 99, nbatch_logical=21)
    expected.train(BATCHES, 99)
    for got, want in zip(weights, expected.weights, strict=True):
        assert relative_error(got, want) < 1e-5


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adamw", "rmsprop", "adagrad", "lion"])
def test_frozen_weights_are_neither_moved_nor_decayed_nor_counted(rule):
    optimizer, reference = pair(rule, weight_decay=0.1, global_clipnorm=0.1)
    model, expected = network(optimizer, reference)
    start = model.get_weights()
    model.layers[0].trainable = False
    _, weights = run(model, 100)
    expected.train(BATCHES, 100, trainable=[False, False, True, True])
    for i, (got, want) in enumerate(zip(weights, expected.weights, strict=True)):
        if i < 2:
            assert got.tobytes() == start[i].tobytes()
        else:
            assert relative_error(got, want) < 1e-5


@pytest.mark.parametrize("rule", ["sgd", "nesterov", "adam", "rmsprop", "adagrad", "lion"])
@pytest.mark.parametrize("clip", [{}, {"clipnorm": 0.05}])
def test_decay_of_biases_can_be_left_out(rule, clip):
    optimizer, reference = pair(rule, weight_decay=0.3, **clip)
    optimizer = type(optimizer)(**(optimizer.get_config() | {"decay_biases": False}))
    model, expected = network(optimizer, reference)
    _, weights = run(model, 100)
    expected.train(BATCHES, 100, decayed=[True, False, True, False])
    for got, want in zip(weights, expected.weights, strict=True):
        assert relative_error(got, want) < 1e-5


def test_a_weight_that_asks_for_no_decay_has_none():
    class Product(pyggml.layers.Layer):
        def build(self, input_shape):
            self.a = self.add_weight("a", (3, 1), "ones", decay=False)
            self.b = self.add_weight("b", (3, 1), "ones")

        def call(self, x):
            both = pyggml.ops.add(pyggml.ops.linear(x, self.a), pyggml.ops.linear(x, self.b))
            return pyggml.ops.affine(both, 0.0)

    model = pyggml.Sequential([pyggml.Input((3,)), Product()])
    model.compile(optimizers.SGD(0.5, weight_decay=0.5), "mse")
    with pyggml.Trainer(model, batch_size=2) as trainer:
        trainer.step(np.ones((2, 3)), np.zeros((2, 1)))
        a, b = trainer.get_weights()
    assert (a == 1).all() and (b == 0.75).all()


@pytest.mark.parametrize("clip", [{}, {"clipvalue": 0.01}])
@pytest.mark.parametrize("rule", RULES)
def test_rate_zero_changes_no_bit(rule, clip):
    optimizer, _ = pair(rule, weight_decay=0.1, **clip)
    model, _ = network(optimizer, None)
    with pyggml.Trainer(model, batch_size=7) as trainer:
        for i in range(3):  # so that momentum would carry on
            trainer.step(*BATCHES[i])
        before = [w.tobytes() for w in trainer.get_weights()]
        trainer.set_lr(0)
        for i in range(3):
            trainer.step(*BATCHES[i])
        assert [w.tobytes() for w in trainer.get_weights()] == before
        trainer.set_lr(1e-3)
        trainer.step(*BATCHES[0])
        assert [w.tobytes() for w in trainer.get_weights()] != before


@pytest.mark.parametrize("clip", ["plain", "global"])
@pytest.mark.parametrize("rule", ["momentum", "adam", "rmsprop both", "adagrad", "lion"])
def test_steps_do_not_depend_on_the_number_of_threads(rule, clip):
    found = []
    for threads in (1, 2, 3):
        pyggml.set_num_threads(threads)
        optimizer, _ = pair(rule, **COMMON[clip])
        model, _ = network(optimizer, None)
        with pyggml.Trainer(model, batch_size=7) as trainer:
            # one step: sums in the forward pass may depend on the number of threads later on
            trainer.step(*BATCHES[0])
            found.append(b"".join(w.tobytes() for w in trainer.get_weights()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("rule", RULES)
def test_the_same_run_twice_is_the_same_bit_for_bit(rule):
    first, second = (run(network(pair(rule)[0], None)[0], 20) for _ in range(2))
    assert first[0] == second[0]
    assert [w.tobytes() for w in first[1]] == [w.tobytes() for w in second[1]]


def test_clipping_that_does_not_bite_changes_next_to_nothing():
    plain = run(network(pair("adam")[0], None)[0], 20)[1]
    for limit in ("clipnorm", "clipvalue", "global_clipnorm"):
        clipped = run(network(pair("adam", **{limit: 1e6})[0], None)[0], 20)[1]
        for a, b in zip(plain, clipped, strict=True):
            assert relative_error(a, b) < 1e-6


def test_clipping_in_fit_counts_the_short_last_batch_by_its_rows():
    # w = 0, x = 1: gradients are -2 mean(y); batches of 3 rows and 1 row, each clipped to 1
    model = pyggml.Sequential([pyggml.Input((1,)), pyggml.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])
    model.compile(optimizers.SGD(0.1, clipnorm=1.0), "mse")
    model.fit(np.ones((4, 1)), np.array([0.1, 0.2, 0.3, 30.0]), batch_size=3, shuffle=False,
              verbose=0)
    assert model.get_weights()[0][0, 0] == pytest.approx(0.1 * 2 * 0.2 + 0.1 * 1.0, rel=1e-5)


def test_a_large_gradient_is_clipped_whose_square_is_no_float():
    model = pyggml.Sequential([pyggml.Input((1,)), pyggml.layers.Dense(1, use_bias=False)])
    for limit in ("clipnorm", "global_clipnorm"):
        model.set_weights([np.zeros((1, 1))])
        model.compile(optimizers.SGD(1.0, **{limit: 0.5}), "mae")
        with pyggml.Trainer(model, batch_size=2) as trainer:
            trainer.step(np.full((2, 1), 1e30), np.full((2, 1), -1.0))
            np.testing.assert_allclose(trainer.get_weights()[0], [[-0.5]], rtol=1e-6)


def test_a_limit_that_is_changed_holds_from_the_next_step_on():
    # w = 0, x = 1, mae: the gradient is -1 until clipped
    model = pyggml.Sequential([pyggml.Input((1,)), pyggml.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])
    model.compile(optimizers.SGD(1.0), "mae")
    optimizer = model.compiled.optimizer
    moved = []
    for clipvalue in (None, 0.25, 0.5, None):
        optimizer.clipvalue = clipvalue
        before = model.get_weights()[0][0, 0]
        model.fit(np.ones((2, 1)), np.full((2, 1), 100.0), batch_size=2, verbose=0)
        moved.append(model.get_weights()[0][0, 0] - before)
    assert moved == [1, 0.25, 0.5, 1]


@pytest.mark.parametrize("common", COMMON)
@pytest.mark.parametrize("rule", ["nesterov", "adam", "rmsprop both", "lion"])
def test_every_way_to_step_is_the_same(rule, common):
    x = np.concatenate([x for x, _ in BATCHES])
    y = np.concatenate([y for _, y in BATCHES])
    rows = np.arange(21).reshape(3, 7)
    losses, expected = run(network(pair(rule, **COMMON[common])[0], None)[0], 6)

    model, _ = network(pair(rule, **COMMON[common])[0], None)
    with pyggml.Trainer(model, batch_size=7) as trainer:
        many = trainer.step_many(x, y, np.concatenate([rows, rows]))
        assert many.tolist() == losses
        assert [w.tobytes() for w in trainer.get_weights()] == [w.tobytes() for w in expected]

    with pyggml.Trainer(model, batch_size=7) as trainer:
        for i in range(6):
            trainer.apply_gradients(trainer.gradients(*BATCHES[i % 3]))
        for got, want in zip(trainer.get_weights(), expected, strict=True):
            assert relative_error(got, want) < 1e-6

    model.fit(x, y, batch_size=7, epochs=2, shuffle=False, verbose=0)
    for got, want in zip(model.get_weights(), expected, strict=True):
        assert relative_error(got, want) < 1e-6


@pytest.mark.parametrize("rule", RULES)
def test_config_and_pickle_give_the_same_optimizer(rule):
    optimizer, _ = pair(rule, weight_decay=0.1, clipnorm=1.0)
    config = optimizer.get_config()
    assert type(optimizer)(**config).get_config() == config
    assert type(optimizer).from_config(config).get_config() == config
    assert pickle.loads(pickle.dumps(optimizer)).get_config() == config


def test_defaults():
    for name in ("adam", "adamw"):
        optimizer = optimizers.get(name)
        assert (optimizer.learning_rate, optimizer.beta_1, optimizer.beta_2, optimizer.epsilon,
                optimizer.weight_decay) == (1e-3, 0.9, 0.999, 1e-8, 0)
    assert optimizers.get("sgd").learning_rate == 1e-3
    assert repr(optimizers.SGD(0.1)) == ("SGD(learning_rate=0.1, weight_decay=0.0, momentum=0.0, "
                                         "nesterov=False)")


@pytest.mark.parametrize(("cls", "arguments", "name"), [
    (optimizers.SGD, {"learning_rate": -1}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": np.nan}, "learning_rate"),
    (optimizers.SGD, {"momentum": 1.0}, "momentum"),
    (optimizers.SGD, {"nesterov": True}, "momentum"),
    (optimizers.Adam, {"beta_1": 1.0}, "beta_1"),
    (optimizers.Adam, {"weight_decay": 1.5}, "weight_decay"),
    (optimizers.RMSprop, {"rho": -0.1}, "rho"),
    (optimizers.Adagrad, {"epsilon": np.inf}, "epsilon"),
    (optimizers.Lion, {"clipnorm": 0}, "clipnorm"),
    (optimizers.Lion, {"clipvalue": -1.0}, "clipvalue"),
    (optimizers.Adam, {"clipnorm": 1.0, "global_clipnorm": 1.0}, "at most one"),
])
def test_wrong_arguments_are_refused_by_name(cls, arguments, name):
    with pytest.raises(ValueError, match=name):
        cls(**arguments)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"adagrad.*rmsprop"):
        optimizers.get("adadelta")
    with pytest.raises(TypeError, match="optimizer"):
        optimizers.get(1e-3)


# Betas whose distance to 1 in single precision is off by more than 3e-7.
NEAR_ONE = {
    "adam": {"lr": 1e-3}, "adam slow": {"lr": 1e-3, "beta_1": 0.99, "beta_2": 0.99999},
    "rmsprop": {"lr": 1e-3, "rho": 0.999}, "rmsprop centered": {
        "lr": 1e-3, "rho": 0.999, "centered": True, "momentum": 0.5},
    "lion": {"lr": 1e-3, "beta_1": 0.999, "beta_2": 0.9999},
}


def one_layer(rule, n):
    """An optimizer's model of n weights at 0 without bias, and the reference."""
    arguments = dict(NEAR_ONE[rule])
    reference = OPTIMIZERS[rule.split()[0]](**arguments)
    arguments["learning_rate"] = arguments.pop("lr")
    model = pyggml.Sequential([pyggml.Input((n,)), pyggml.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((n, 1))])
    model.compile(type(optimizers.get(rule.split()[0]))(**arguments), "mse")
    return model, reference


@pytest.mark.parametrize("rule", NEAR_ONE)
def test_the_first_step_is_exact_where_1_minus_beta_is_small(form, rule):
    model, reference = one_layer(rule, 1)
    with pyggml.Trainer(model, batch_size=1) as trainer:
        trainer.step(np.ones((1, 1)), np.full((1, 1), 0.5))
        [got] = trainer.get_weights()
    [want] = reference.step([np.zeros((1, 1))], [np.full((1, 1), -1.0)])
    np.testing.assert_allclose(got, want, rtol=3e-7)


# (Lion's steps are all of one size, and so is what the weight loses by rounding.)
@pytest.mark.parametrize("rule", ["adam", "rmsprop", "rmsprop centered"])
def test_a_thousand_steps_are_neither_too_long_nor_too_short(form, rule):
    model, reference = one_layer(rule, 64)
    inputs = np.float32(np.abs(normal(1000, 1, 64, seed=3)) + 0.5)
    y = np.full((1, 1), 100.0)
    want = [np.zeros((64, 1))]
    with pyggml.Trainer(model, batch_size=1) as trainer:
        for x in inputs:
            [g] = trainer.gradients(x, y).values()
            trainer.step(x, y)
            want = reference.step(want, [g])
        [got] = trainer.get_weights()
    # The mean over the weights: what rounding adds goes to both sides.
    assert abs(np.mean(got / want[0]) - 1) < 1e-6
    assert relative_error(got, want[0]) < 5e-6


@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_a_beta_that_single_precision_takes_for_1_is_refused(rule):
    with pytest.raises(ValueError, match=r"beta_2 must be below 1 in single precision"):
        type(optimizers.get(rule))(beta_2=1 - 1e-9)


def test_a_weight_decay_that_is_set_later_counts_from_the_next_step():
    x, y = np.float64([[1, 2], [3, 4]]), np.float64([1, 2])
    model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    model.compile(optimizers.SGD(0.01, weight_decay=0.1), "mse")
    w, b = [np.float64(v) for v in model.get_weights()]
    for decay in (0.1, 0.5, 0.0):
        model.optimizer.weight_decay = decay
        error = (x @ w)[:, 0] + b - y
        w = w * (1 - 0.01 * decay) - 0.01 * (2 * x.T @ error / 2)[:, None]
        b = b * (1 - 0.01 * decay) - 0.01 * 2 * error.sum() / 2
        model.fit(x, y, verbose=0)
        assert model.get_weights()[0] == pytest.approx(w, rel=1e-5)
    model.optimizer.weight_decay = 2
    with pytest.raises(ValueError, match="weight_decay must be in"):
        model.fit(x, y, verbose=0)
    assert model.get_weights()[0] == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize(("optimizer", "name", "value"), [
    (optimizers.SGD(), "momentum", 0.9), (optimizers.SGD(momentum=0.9), "momentum", 0),
    (optimizers.RMSprop(), "centered", True), (optimizers.RMSprop(), "momentum", 0.5),
    (optimizers.Adam(), "decay_biases", False),
])
def test_what_the_state_depends_on_cannot_be_changed_afterwards(optimizer, name, value):
    before = optimizer.get_config()
    with pytest.raises(ValueError, match=f"{name} cannot be changed"):
        setattr(optimizer, name, value)
    assert optimizer.get_config() == before


def test_a_momentum_may_be_changed_to_another():
    model = pyggml.Sequential([pyggml.Input((1,)), pyggml.layers.Dense(1, use_bias=False)])
    model.compile(optimizers.SGD(0.1, momentum=0.9), "mse")
    model.set_weights([np.zeros((1, 1))])
    w = v = 0.0
    for momentum in (0.9, 0.5):
        model.optimizer.momentum = momentum
        v = momentum * v - 0.1 * 2 * (w - 1)
        w += v
        model.fit(np.ones((2, 1)), np.ones(2), verbose=0)
        assert model.get_weights()[0].item() == pytest.approx(w, rel=1e-6)


@pytest.mark.parametrize(("make", "name"), [
    (lambda v: optimizers.Adam(v), "learning_rate"),
    (lambda v: optimizers.Adam(beta_1=v), "beta_1"),
    (lambda v: optimizers.SGD(weight_decay=v), "weight_decay"),
    (lambda v: optimizers.SGD(clipnorm=v), "clipnorm"),
    (lambda v: pyggml.schedules.StepDecay(gamma=v), "gamma"),
    (lambda v: pyggml.schedules.OneCycle(1.0, pct_start=v), "pct_start"),
    (lambda v: pyggml.schedules.CosineDecay(t_mult=v), "t_mult"),
    (lambda v: pyggml.schedules.StepDecay(initial_learning_rate=v), "initial_learning_rate"),
    (lambda v: pyggml.callbacks.ReduceLROnPlateau(factor=v), "factor"),
    (lambda v: pyggml.callbacks.ReduceLROnPlateau(min_lr=v), "min_lr"),
    (lambda v: pyggml.callbacks.EarlyStopping(min_delta=v), "min_delta"),
    (lambda v: pyggml.callbacks.EarlyStopping(baseline=v), "baseline"),
    (lambda v: pyggml.losses.Huber(delta=v), "delta"),
    (lambda v: pyggml.losses.CategoricalCrossentropy(label_smoothing=v), "label_smoothing"),
    (lambda v: pyggml.metrics.Precision(threshold=v), "threshold"),
    (lambda v: pyggml.metrics.BinaryAccuracy(threshold=v), "threshold"),
    (lambda v: one_weight().fit([[1.0]] * 4, [1.0] * 4, validation_split=v), "validation_split"),
    (lambda v: pyggml.Trainer(one_weight(), 1).update_target(one_weight(), v), "tau"),
    (lambda v: one_weight(loss_weights=[v]), "loss_weights"),
])
@pytest.mark.parametrize("value", ["0.5", True, [0.1, 0.2]])
def test_what_is_no_number_is_refused_by_name(make, name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number, got"):
        make(value)


def one_weight(**options):
    model = pyggml.Sequential([pyggml.Input((1,)), pyggml.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


def test_positions_mean_what_they_mean_in_keras_or_are_refused():
    adamw = optimizers.AdamW(1e-3, 0.01, 0.8, 0.9, 1e-6)
    assert (adamw.weight_decay, adamw.beta_1, adamw.beta_2, adamw.epsilon) == (0.01, 0.8, 0.9, 1e-6)
    with pytest.raises(TypeError, match="positional"):  # there: amsgrad
        optimizers.Adam(1e-3, 0.9, 0.999, 1e-7, 0)
    with pytest.raises(TypeError, match="positional"):  # there: ignore_class
        pyggml.losses.SparseCategoricalCrossentropy(True, 0)
    with pytest.raises(TypeError, match="name must be a string, got 200"):  # there: num_thresholds
        pyggml.metrics.AUC(200)
