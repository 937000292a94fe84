"""R15: every layer and activation on offer can be trained.

Documented choice: all of them train; a model without trainable weights says so when the trainer is
made. Children print what they begin, so that one
that is ended by a signal names the case. ``PYGGML_LOWERING`` chooses kernels or ggml's operations.
"""

import itertools

import pytest
from child import run_child

from pyggml import activations, layers, losses, optimizers

PRELUDE = """
import sys, warnings
import numpy as np
import pyggml
from pyggml import layers, losses, optimizers
pyggml.set_num_threads(1)
H = 1e-2


class Twice(layers.Layer):
    def build(self, input_shape):
        self.inner = layers.Dense(input_shape[-1], self.activation)

    def __init__(self, activation, **kwargs):
        super().__init__(**kwargs)
        self.activation = activation

    def call(self, x):
        return self.inner(self.inner(x))


def merged(name):
    def make(x, a):
        left, right = layers.Dense(3, a)(x), layers.Dense(3)(x)
        return getattr(layers, name)()([left, right])
    return make


def flat(make, shape):
    return shape, lambda x, a: layers.Activation(a)(make()(layers.Dense(shape[-1])(x)))


def own(make, shape):
    return shape, lambda x, a: make(a)(x)


def form(activation):
    \"\"\"Activations along the last axis are for channels there; others say no at once.\"\"\"
    last = activation in ("softmax", "log_softmax")
    return {"data_format": "channels_last"} if last else {}


# Layer: shape of a row, and from a symbol and an activation to a symbol. What has no activation of
# its own stands between a Dense layer and an activation.
LAYERS = {
    "Dense": own(lambda a: layers.Dense(3, a), (4,)),
    "Activation": flat(lambda: layers.Activation("linear"), (3,)),
    "Conv1D": own(lambda a: layers.Conv1D(2, 2, activation=a, **form(a)), (2, 4)),
    "Conv2D": own(lambda a: layers.Conv2D(2, 2, padding="same", activation=a, **form(a)),
                  (1, 3, 3)),
    "Conv2DTranspose": own(lambda a: layers.Conv2DTranspose(1, 2, strides=2, activation=a,
                                                            **form(a)), (1, 2, 2)),
    "DepthwiseConv2D": own(lambda a: layers.DepthwiseConv2D(2, activation=a, **form(a)),
                           (2, 3, 3)),
    "SimpleRNN": own(lambda a: layers.SimpleRNN(2, activation=a), (3, 2)),
    "LSTM": own(lambda a: layers.LSTM(2, activation=a), (3, 2)),
    "GRU": own(lambda a: layers.GRU(2, activation=a), (3, 2)),
    "Bidirectional": own(lambda a: layers.Bidirectional(layers.GRU(2, activation=a)), (3, 2)),
    "MultiHeadAttention": ((3, 2), lambda x, a: layers.Activation(a)(
        layers.MultiHeadAttention(1, 2)(x, x))),
    "BatchNormalization": flat(layers.BatchNormalization, (3,)),
    "LayerNormalization": flat(layers.LayerNormalization, (3,)),
    "RMSNormalization": flat(layers.RMSNormalization, (3,)),
    "Dropout": flat(lambda: layers.Dropout(0.0), (3,)),
    "Flatten": flat(layers.Flatten, (2, 3)),
    "Reshape": flat(lambda: layers.Reshape((3, 2)), (2, 3)),
    "Permute": flat(lambda: layers.Permute((2, 1)), (2, 3)),
    "ZeroPadding2D": flat(lambda: layers.ZeroPadding2D(1), (1, 2, 2)),
    "UpSampling2D": flat(lambda: layers.UpSampling2D(2), (1, 2, 2)),
    "MaxPooling1D": flat(lambda: layers.MaxPooling1D(2), (2, 4)),
    "MaxPooling2D": flat(lambda: layers.MaxPooling2D(2), (1, 4, 4)),
    "AveragePooling1D": flat(lambda: layers.AveragePooling1D(2), (2, 4)),
    "AveragePooling2D": flat(lambda: layers.AveragePooling2D(2, padding="same"), (1, 3, 3)),
    "GlobalMaxPooling1D": flat(layers.GlobalMaxPooling1D, (2, 3)),
    "GlobalMaxPooling2D": flat(layers.GlobalMaxPooling2D, (2, 3, 3)),
    "GlobalAveragePooling1D": flat(layers.GlobalAveragePooling1D, (2, 3)),
    "GlobalAveragePooling2D": flat(layers.GlobalAveragePooling2D, (2, 3, 3)),
    "Lambda": flat(lambda: layers.Lambda(lambda x: x * 2.0), (3,)),
    "PaddingMask": ((4,), lambda x, a: layers.Concatenate()(
        [layers.Dense(3, a)(x), layers.PaddingMask()(x)])),
    "Embedding": ((2,), lambda x, a: layers.Activation(a)(layers.Embedding(5, 3)(x))),
    **{name: ((4,), merged(name)) for name in (
        "Add", "Average", "Concatenate", "Maximum", "Multiply", "Subtract")},
    "Dot": ((4,), lambda x, a: layers.Dot(1)([layers.Dense(3, a)(x), layers.Dense(3)(x)])),
    "used twice": own(lambda a: Twice(a), (3,)),
}


def head(loss):
    \"\"\"What makes predictions that the loss is for.\"\"\"
    name = losses.get(loss).name
    if name == "binary_crossentropy" or name == "binary_focal_crossentropy":
        return "sigmoid"
    if "categorical" in name or name == "kl_divergence":
        return "softmax"
    return "softplus" if name == "poisson" else None


def build(layer, activation, loss, optimizer, seed):
    pyggml.set_seed(seed)
    shape, make = LAYERS[layer]
    x = pyggml.Input(shape, dtype="int32" if layer == "Embedding" else "float32")
    out = layers.Flatten()(make(x, activation))
    model = pyggml.Model(x, layers.Dense(3, head(loss))(out))
    model.compile(optimizer, loss)
    rng = np.random.default_rng(seed)
    # Later attempts go further out: where slopes are tiny, float32 drowns the differences.
    for w in [v for v in model.weights if v.trainable]:
        w.assign(w.numpy() + rng.normal(scale=max(0.1, 0.03 * (seed - 36)), size=w.shape))
    n = 4
    xs = (rng.integers(0, 5, (n, *shape)) if layer == "Embedding"
          else rng.normal(scale=0.8, size=(n, *shape)))
    kind = losses.get(loss)
    ys = rng.integers(0, 3, n) if kind.labels == "classes" else rng.uniform(0.1, 0.9, (n, 3))
    if kind.labels == "none":
        ys = None
    elif head(loss) == "softmax" and kind.labels == "dense":
        ys /= ys.sum(axis=1, keepdims=True)
    return model, xs.astype(np.float32), ys


def training_loss(trainer, x, y):
    trainer.set_lr(0.0)  # a step at rate 0 moves nothing
    return trainer.step(x, y)


def differences(trainer, x, y):
    \"\"\"Central differences by element, and whether a kink is near.

    Where there is none, halving the step changes them little, and halves the difference between
    the slopes on the two sides.
    \"\"\"
    found, start = [], training_loss(trainer, x, y)
    for w in trainer.get_weights(copy=False):
        slopes, bends = np.empty((2, *w.shape)), np.empty((2, *w.shape))
        for i in np.ndindex(w.shape):
            kept = w[i]
            for j, h in enumerate((H, H / 2)):
                w[i] = kept + np.float32(h)
                above, up = w[i], training_loss(trainer, x, y)
                w[i] = kept - np.float32(h)
                down = training_loss(trainer, x, y)
                slopes[(j, *i)] = (up - down) / (float(above) - float(w[i]))
                bends[(j, *i)] = abs(up + down - 2 * start) / h
            w[i] = kept
        found.append((slopes, bends))
    return found


def kinked(slopes, bends, scale):
    return (off(*slopes, scale) > 2e-3
            or (bends[1] > 0.75 * bends[0] + 2e-3 * scale).any())


def off(a, b, scale):
    return np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), np.abs(b).max(initial=0),
                                              1e-2 * scale, 1e-3)


def check(layer, activation, loss, optimizer):
    \"\"\"Gradients against central differences, at the first point that lies away from kinks.\"\"\"
    for seed in range(80):
        model, x, y = build(layer, activation, loss, "sgd", seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            trainer = pyggml.Trainer(model, len(x))
        names = [model.weight_names[v] for v in model.program.variables]
        frozen = {n for v, n in model.weight_names.items() if not v.trainable}
        numbers = differences(trainer, x, y)
        scale = max(np.abs(slopes).max(initial=0) for slopes, _ in numbers)
        if any(kinked(*number, scale)
               for name, number in zip(names, numbers) if name not in frozen):
            continue
        gradients = trainer.gradients(x, y)
        for name, ((_, fine), _) in zip(names, numbers):
            if name in frozen:
                continue
            if gradients[name].shape != fine.shape:
                return f"{name}: shape {gradients[name].shape} instead of {fine.shape}"
            if off(gradients[name], fine, scale) > 2e-2:
                return f"{name}: {gradients[name].ravel()} instead of {fine.ravel()}"
        break
    else:
        return "no point away from kinks was found"
    model, x, y = build(layer, activation, loss, optimizer, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        trainer = pyggml.Trainer(model, len(x))
    before = trainer.get_weights()
    losses_seen = [trainer.step(x, y) for _ in range(2)]
    after = trainer.get_weights()
    if not np.isfinite(losses_seen).all() or not all(np.isfinite(w).all() for w in after):
        return f"not finite: {losses_seen}"
    if all(np.array_equal(a, b) for a, b in zip(before, after)):
        return "the step moved nothing"
    out = model.predict(x)  # b: works in any case
    if out.shape != (len(x), 3) or not np.isfinite(out).all():
        return f"predict gave {out}"


for case in CASES:
    print("begin", case, flush=True)
    wrong = check(*case)
    if wrong:
        print("WRONG", case, wrong, flush=True)
print("end")
"""

NAMES = {
    "layer": [*sorted(set(layers.__all__) - {"Input", "InputLayer", "Layer"}), "used twice"],
    "activation": sorted(activations._functions),
    "loss": sorted(losses._classes),
    "optimizer": sorted(optimizers._classes),
}


def run(cases, lowering, timeout=600):
    out = run_child(f"CASES = {cases!r}\n" + PRELUDE, timeout=timeout,
                    env={"PYGGML_LOWERING": lowering})
    lines = out.splitlines()
    assert lines[-1] == "end", lines[-1]
    assert [line for line in lines if line.startswith("WRONG")] == []
    assert sum(line.startswith("begin") for line in lines) == len(cases)


def pairs(first, second, third, fourth):
    """Every pair of the first two, with the others in turn."""
    turn = itertools.count()
    for a, b in itertools.product(first, second):
        i = next(turn)
        yield a, b, third[i % len(third)], fourth[i % len(fourth)]


@pytest.mark.parametrize("lowering", ["1", "0"], ids=["kernels", "composed"])
def test_r15a_layers_by_losses(lowering):
    """Every layer with every loss; activations and optimizers in turn."""
    cases = [(a, c, b, d) for a, b, c, d in pairs(
        NAMES["layer"], NAMES["loss"], NAMES["activation"], NAMES["optimizer"])]
    every = 6 if lowering == "1" else 12
    run(cases[::every], lowering)


@pytest.mark.parametrize("lowering", ["1", "0"], ids=["kernels", "composed"])
def test_r15a_activations_by_losses(lowering):
    cases = [("Dense", a, b, d) for a, b, _, d in pairs(
        NAMES["activation"], NAMES["loss"], [""], NAMES["optimizer"])]
    run(cases[::3 if lowering == "1" else 6], lowering)


@pytest.mark.slow
@pytest.mark.parametrize("lowering", ["1", "0"], ids=["kernels", "composed"])
@pytest.mark.parametrize("layer", NAMES["layer"])
def test_r15a_everything_with_everything(layer, lowering):
    """Optimizers go in turn: the gradient does not depend on them."""
    run([(layer, a, b, d) for a, b, _, d in pairs(
        NAMES["activation"], NAMES["loss"], [""], NAMES["optimizer"])], lowering, timeout=3000)


@pytest.mark.slow
def test_r15a_losses_by_optimizers():
    run([("Dense", "tanh", a, b) for a, b in itertools.product(NAMES["loss"],
                                                               NAMES["optimizer"])], "1")


def test_r15b_what_cannot_be_trained_says_so_at_once_and_predicts():
    assert run_child("""
        import numpy as np, pyggml
        from pyggml import layers
        x = np.ones((2, 4), np.float32)
        model = pyggml.Sequential([pyggml.Input((4,)), layers.Flatten()])
        model.compile("sgd", "mse")
        for call in (lambda: pyggml.Trainer(model, 2), lambda: model.fit(x, x, verbose=0)):
            try:
                call()
            except ValueError as error:
                assert "no trainable weights" in str(error), error
            else:
                raise AssertionError("no error")
        assert model.predict(x).shape == (2, 4)
        print("done")
    """) == "done\n"


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("lowering", ["1", "0"], ids=["kernels", "composed"])
def test_r15a_a_network_too_deep_for_ggml_opt_is_trained(lowering, optimizer):
    assert run_child(f"""
        import numpy as np, pyggml
        from pyggml import layers
        pyggml.set_num_threads(1)
        x = np.ones((2, 4), np.float32)
        model = pyggml.Sequential([pyggml.Input((4,)), *[
            layers.Dense(4, kernel_initializer="zeros", bias_initializer="ones")
            for _ in range(1500)]])
        model.compile({optimizer!r}, "mse")
        with pyggml.Trainer(model, 2) as trainer:
            first = trainer.step(x, 2 * x)  # only the last layer has a gradient
            print(first, trainer.step(x, 2 * x) < first)
    """, env={"PYGGML_LOWERING": lowering}) == "1.0 True\n"
