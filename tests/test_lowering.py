"""Every rule of lowering: training with it and without it ends at the same weights."""

import numpy as np
import pytest
from child import run_child
from reference.gradcheck import normal, relative_error

import pyggml
from pyggml import _lowering, layers, ops, optimizers

L = layers
STEPS = 6


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n} threads")
def number_of_threads(request):
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(request.param)
    yield request.param
    pyggml.set_num_threads(before)


@pytest.fixture(autouse=True)
def all_rules_after():
    kept = _lowering.enabled()
    yield
    _lowering.set_enabled(kept)


def f32(*shape, seed=0):
    return normal(*shape, seed=seed).astype(np.float32)


def scaled(shape, seed):
    """Weights that leave the size of what passes through them as it is."""
    return f32(*shape, seed=seed) / np.float32(np.sqrt(np.prod(shape[:-1])))


def sequential(shape, *stack, loss="mse", optimizer=None, batch=7, classes=None, ids=None):
    """How to train: a model, its optimizer and batches of odd sizes."""

    def make():
        model = pyggml.Sequential([pyggml.Input(shape, **({"dtype": "int32"} if ids else {})),
                                   *[layer() for layer in stack]])
        weights = [w if (w == w.flat[0]).all() and w.ndim == 1 else scaled(w.shape, i)
                   for i, w in enumerate(model.get_weights())]
        model.set_weights(weights)
        model.compile(optimizer() if optimizer else optimizers.SGD(0.01, momentum=0.9), loss)
        return model

    def data(model, i):
        if ids:
            x = np.random.default_rng(i).integers(0, ids, (batch, *shape)).astype(np.int32)
        else:
            x = f32(batch, *shape, seed=20 + i)
        if classes:
            return x, np.random.default_rng(i).integers(0, classes, batch)
        return x, f32(batch, *model.output_shape[1:], seed=50 + i)

    return make, data, batch


def flat(**options):
    return sequential((17,), lambda: L.Dense(33, "tanh"), lambda: L.Dense(5), **options)


def images(*stack, shape=(3, 9, 11), **options):
    return sequential(shape, *stack, L.Flatten, lambda: L.Dense(3), **options)


def functional(build, *shapes, batch=5):
    """A functional model of one output and its inputs."""

    def make():
        inputs = [pyggml.Input(shape) for shape in shapes]
        model = pyggml.Model(inputs, build(*inputs))
        model.set_weights([f32(*w.shape, seed=i) / 2 for i, w in enumerate(model.get_weights())])
        model.compile(optimizers.SGD(0.02, momentum=0.9), "mse")
        return model

    def data(model, i):
        xs = [f32(batch, *shape, seed=20 + 10 * j + i) for j, shape in enumerate(shapes)]
        if len(xs) > 1:
            xs[1] = (xs[1] > -0.5).astype(np.float32)
        return (xs if len(xs) > 1 else xs[0]), f32(batch, *model.output_shape[1:], seed=50 + i)

    return make, data, batch


def large(optimizer):
    return sequential((1031,), lambda: L.Dense(1021), optimizer=optimizer, batch=3)


def attended(causal):
    def build(x, mask):
        h = L.MultiHeadAttention(3, 5, value_dim=4)(x, x, use_causal_mask=causal, key_mask=mask)
        return L.Dense(2)(h)

    return functional(build, (11, 6), (11,))


class Positions(L.Layer):
    """Adds a trained vector to each place of a sequence."""

    def build(self, input_shape):
        self.places = self.add_weight("places", input_shape[1:],
                                      pyggml.initializers.get("glorot_uniform"))

    def call(self, x):
        return ops.add(x, self.places)


def residual(x):
    return L.Dense(2)(L.Add()([x, L.Dense(5, "tanh")(x)]))


CASES = {
    "matmul": [flat(), sequential((5, 17), lambda: L.Dense(9), lambda: L.Dense(3))],
    "fuse": [
        sequential((17,), lambda: L.Dense(33, "relu"), lambda: L.Dense(5, "gelu")),
        sequential((4, 17), lambda: L.Dense(9, "sigmoid"), lambda: L.Dense(3)),
        images(lambda: L.Conv2D(5, 3, activation="relu"),
               lambda: L.Conv2D(4, 1, activation="tanh")),
        images(lambda: L.Conv2D(5, 3, activation="relu", use_bias=False)),
        images(lambda: L.DepthwiseConv2D(3, activation="elu")),
        sequential((3, 13), lambda: L.Conv1D(5, 3, activation="relu"), L.Flatten),
    ],
    "step": [flat(optimizer=lambda: optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.1)),
             flat(optimizer=lambda: optimizers.SGD(0.1, weight_decay=0.1))],
    "bias": [flat(), sequential((5, 17), lambda: L.Dense(9, "relu"), lambda: L.Dense(3))],
    "update": [large(lambda: optimizers.AdamW(0.01, epsilon=1e-2, weight_decay=0.1)),
               large(lambda: optimizers.SGD(0.1)),
               large(lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True)),
               large(lambda: optimizers.RMSprop(0.01, epsilon=1e-2, centered=True, momentum=0.5)),
               large(lambda: optimizers.RMSprop(0.01, epsilon=1e-2, centered=True)),
               large(lambda: optimizers.Adagrad(0.01)),
               large(lambda: optimizers.SGD(0.1, clipvalue=0.01))],
    "softmax": [sequential((17,), lambda: L.Dense(5, "softmax"))],
    "activation": [sequential((17,), lambda a=a: L.Dense(33), lambda a=a: L.Activation(a),
                              lambda: L.Dense(3))
                   for a in ("relu", "tanh", "gelu", "elu", "silu", "softplus", "mish")],
    "dropout": [sequential((17,), lambda: L.Dropout(0.3), lambda: L.Dense(9),
                           lambda: L.Dropout(0.5), lambda: L.Dense(3))],
    "loss": [flat(loss=loss) for loss in ("mse", "mae", "huber", "log_cosh")] + [
        sequential((17,), lambda: L.Dense(5, "softmax"), loss="sparse_categorical_crossentropy",
                   classes=5)],
    "conv": [
        images(lambda: L.Conv2D(5, 3), lambda: L.Conv2D(4, 3, padding="same", strides=2)),
        images(lambda: L.Conv2D(5, 1)),
        images(lambda: L.DepthwiseConv2D(3, depth_multiplier=2)),
        sequential((3, 13), lambda: L.Conv1D(5, 3, dilation_rate=2), L.Flatten),
    ],
    "pool": [images(lambda: L.Conv2D(5, 3), lambda: L.MaxPooling2D(2)),
             images(lambda: L.Conv2D(5, 3), lambda: L.AveragePooling2D(3, padding="same"))],
    "gather": [sequential((6,), lambda: L.Embedding(11, 5), L.Flatten, lambda: L.Dense(3), ids=11)],
    "layer_norm": [sequential((17,), lambda: L.Dense(9), L.LayerNormalization, lambda: L.Dense(3)),
                   sequential((17,), lambda: L.Dense(9), L.RMSNormalization, lambda: L.Dense(3))],
    "batch_norm": [
        sequential((17,), lambda: L.Dense(9, use_bias=False),
                   lambda: L.BatchNormalization(momentum=0.9), lambda: L.Dense(3)),
        images(lambda: L.Conv2D(5, 3, use_bias=False), lambda: L.BatchNormalization(momentum=0.9))],
    "rnn": [sequential((5, 4), lambda: L.LSTM(7), lambda: L.Dense(3)),
            sequential((5, 4), lambda: L.GRU(7, return_sequences=True), L.Flatten,
                       lambda: L.Dense(3)),
            sequential((5, 4), lambda: L.SimpleRNN(7), lambda: L.Dense(3)),
            # The nodes of the step are custom ones too, with user data of another kind.
            sequential((5, 4), lambda: L.GRU(7), lambda: L.Dense(3), optimizer=lambda:
                       optimizers.Adam(0.01, epsilon=1e-2, global_clipnorm=0.1))],
    "attention": [attended(False), attended(True)],
    "add": [functional(residual, (6, 5)), sequential((5, 4), lambda: L.GRU(7), lambda: L.Dense(3)),
            sequential((6, 5), Positions, lambda: L.Dense(3))],
    "copy": [sequential((5, 19), lambda: L.Permute((2, 1)), lambda: L.Dense(3)),
             images(lambda: L.Conv2D(5, 3, data_format="channels_last"),
                    lambda: L.MaxPooling2D(2, data_format="channels_last"), shape=(9, 11, 3))],
}


def test_every_rule_has_a_case():
    assert set(CASES) == set(_lowering.RULES)


def train(case, setting):
    """Losses and weights of some steps; how many nodes became kernels, how many were left out."""
    make, data, batch = case
    _lowering.configure(setting)
    before = np.array(_lowering.rewritten())
    model = make()
    with pyggml.Trainer(model, batch_size=batch) as trainer:
        trainer._reseed(5)
        losses = [trainer.step(*data(model, i)) for i in range(STEPS)]
        return losses, trainer.get_weights(), tuple(_lowering.rewritten() - before)


@pytest.mark.parametrize(("rule", "case"), [
    pytest.param(rule, case, id=f"{rule} {i}")
    for rule, cases in CASES.items() for i, case in enumerate(cases)])
def test_training_with_and_without_a_rule_is_the_same(number_of_threads, rule, case):
    losses, weights, count = train(case, "1")
    other_losses, other_weights, other_count = train(case, f"-{rule}")
    assert count != other_count, "the case does not need the rule"
    assert relative_error(losses, other_losses) < 1e-5
    for i, (got, want) in enumerate(zip(weights, other_weights, strict=True)):
        assert relative_error(got, want) < 1e-5, i


@pytest.mark.parametrize("rule", CASES)
def test_training_with_kernels_and_by_ggml_alone_is_the_same(rule):
    losses, weights, count = train(CASES[rule][0], "1")
    other_losses, other_weights, none = train(CASES[rule][0], "0")
    assert count[0] > 0 and none == (0, 0)
    assert relative_error(losses, other_losses) < 1e-5
    for i, (got, want) in enumerate(zip(weights, other_weights, strict=True)):
        assert relative_error(got, want) < 1e-5, i


@pytest.mark.parametrize("setting", ["2", "conv", "-convolution", "-conv,pool", "-"])
def test_an_unknown_setting_is_refused_with_the_rules(setting):
    with pytest.raises(ValueError, match=r"PYGGML_LOWERING must be 0, 1 or rules .* batch_norm"):
        _lowering.configure(setting)


def test_the_environment_says_what_is_lowered():
    code = """
from pyggml import _lowering
print(_lowering.enabled(), _lowering.on("conv"), _lowering.on("pool"))
"""
    for setting, wanted in (("0", "False False False"), ("-conv, -loss", "True False True")):
        assert wanted in run_child(code, env={"PYGGML_LOWERING": setting})
