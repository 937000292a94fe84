"""Layers of pyggml against Keras: the same weights give the same outputs and training steps."""

import numpy as np
import pytest
from keras_pair import close, fit, keras, pair
from layer_check import random

import pyggml
from pyggml import ops

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("default")]
last = {"data_format": "channels_last"}
MASK = np.float32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0]])


def one(name, **arguments):
    return lambda library, x: getattr(library.layers, name)(**arguments)(x)


def check(make, *shapes, inputs=None, train=True):
    """Compare outputs, and losses and weights of two epochs."""
    models = pair(make, list(shapes))
    xs = inputs or [random(4, *shape, seed=9) for shape in shapes]
    xs = xs[0] if len(xs) == 1 else list(xs)
    theirs = models[0](xs if isinstance(xs, list) else [xs])
    found = models[1].predict(xs)
    close(theirs, found)
    if train:
        found = found if isinstance(found, list) else [found]
        y = [random(*out.shape, seed=5) for out in found]
        fit(models, xs, y[0] if len(y) == 1 else y)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("size", "stride"), [(7, 2), (8, 2), (8, 3)])
def test_convolutions(size, padding, stride):
    how = {"strides": stride, "padding": padding, **last}
    shape = (size, size - 2, 3)
    train = size == 7 and padding == "same"
    check(one("Conv2D", filters=4, kernel_size=(3, 2), **how), shape, train=train)
    check(one("DepthwiseConv2D", kernel_size=2, depth_multiplier=2, **how), shape, train=False)
    check(one("Conv2DTranspose", filters=2, kernel_size=(2, 3), **how), shape, train=train)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_dilated_and_causal_convolutions(padding):
    check(one("Conv2D", filters=4, kernel_size=3, dilation_rate=(1, 2), padding=padding, **last),
          (7, 8, 3), train=False)
    check(one("Conv2DTranspose", filters=4, kernel_size=3, dilation_rate=2, padding=padding,
              **last), (5, 6, 3), train=False)
    check(one("Conv2DTranspose", filters=4, kernel_size=4, strides=3, output_padding=1,
              padding=padding, **last), (5, 6, 3), train=False)
    check(one("Conv1D", filters=4, kernel_size=3, dilation_rate=2, padding="causal", **last),
          (9, 3))


@pytest.mark.parametrize("kind", ["Max", "Average"])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [None, 2])
def test_pooling(kind, padding, stride):
    how = {"strides": stride, "padding": padding, **last}
    check(one(f"{kind}Pooling2D", pool_size=(3, 2), **how), (7, 8, 3), train=False)
    check(one(f"{kind}Pooling1D", pool_size=3, **how), (8, 3), train=False)
    check(one(f"Global{kind}Pooling2D", keepdims=stride == 2, **last), (7, 8, 3), train=False)


@pytest.mark.parametrize("kind", ["SimpleRNN", "LSTM", "GRU"])
@pytest.mark.parametrize("how", [
    {}, {"return_sequences": True, "go_backwards": True}], ids=str)
def test_recurrent_layers(kind, how):
    check(one(kind, units=3, **how), (5, 2), train=kind == "GRU" and not how)


def test_a_gru_that_resets_before_and_final_states():
    check(one("GRU", units=3, reset_after=False), (5, 2), train=False)
    check(one("LSTM", units=3, return_state=True), (5, 2), train=False)


@pytest.mark.parametrize(("kind", "mode"), [
    ("SimpleRNN", "concat"), ("GRU", "ave"), ("LSTM", "sum"), ("LSTM", "mul")])
def test_bidirectional_sequences(kind, mode):
    def make(library, x, *mask):
        layer = getattr(library.layers, kind)(3, return_sequences=True)
        layer = library.layers.Bidirectional(layer, merge_mode=mode)
        return layer(x, mask=as_mask(library, *mask)) if mask else layer(x)

    check(make, (5, 2), train=False)
    check(make, (5, 2), (5,), inputs=[random(4, 5, 2), MASK], train=False)


def as_mask(library, mask):
    return library.ops.cast(mask, "bool") if library.__name__ == "keras" else mask


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    def make(library, x):
        return library.layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=causal)

    check(make, (5, 4), train=causal)


@pytest.mark.parametrize("name", ["value_mask", "key_mask", "attention_mask"])
def test_attention_with_masks(name):
    def make(library, x, mask):
        mask = as_mask(library, mask)
        return library.layers.MultiHeadAttention(2, 3)(x, x, **{name: mask})

    mask = np.float32(random(4, 5, 5) > 0) if name == "attention_mask" else MASK.copy()
    mask[..., 1] = 1
    check(make, (5, 4), mask.shape[1:], inputs=[random(4, 5, 4), mask], train=False)


@pytest.mark.parametrize("axis", [-1, 1, (1, 2)])
def test_layer_normalization(axis):
    check(one("LayerNormalization", axis=axis), (4, 3))


@pytest.mark.parametrize(("axis", "momentum"), [(1, 0.99), (-1, 0.5)])
def test_batch_normalization_and_its_moving_statistics(axis, momentum):
    check(one("BatchNormalization", axis=axis, momentum=momentum), (4, 3))


@pytest.mark.parametrize("kind", ["Add", "Multiply", "Average", "Maximum", "Subtract"])
def test_merging_repeats_sizes_of_1(kind):
    def make(library, a, b):
        return getattr(library.layers, kind)()([a, b])

    for shapes in ([(3, 4), (3, 4)], [(3, 1), (1, 4)], [(1, 4), (3, 4)]):
        check(make, *shapes, train=False)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("shapes", "axes"), [
    ([(4,), (4,)], 1), ([(3, 4), (5, 4)], 2), ([(3, 4), (4, 5)], (2, 1)), ([(3, 4), (4,)], (2, 1))])
def test_dot(shapes, axes, normalize):
    def make(library, a, b):
        return library.layers.Dot(axes=axes, normalize=normalize)([a, b])

    check(make, *shapes, train=False)


def test_order_of_elements_in_flatten_reshape_and_permute():
    def make(library, x):
        x = library.layers.Reshape((4, -1))(library.layers.Permute((2, 1))(x))
        return library.layers.Dense(2)(library.layers.Flatten()(x))

    check(make, (6, 4))
    for interpolation in ("nearest", "bilinear"):
        check(one("UpSampling2D", size=(2, 3), interpolation=interpolation, **last), (3, 4, 2),
              train=False)
    check(one("ZeroPadding2D", padding=((1, 0), (2, 3)), **last), (3, 4, 2), train=False)


def branched(library, seed):
    """A model of layers that take each what any layer before them gives."""
    rng = np.random.default_rng(seed)
    inputs = [library.Input((4,), name=f"in{i}") for i in range(2)]
    shared = library.layers.Dense(4, name="shared")
    found = list(inputs)
    for i in range(6):
        source, other = (found[n] for n in rng.integers(len(found), size=2))
        kind = rng.integers(4)
        if kind == 0:
            found.append(library.layers.Add(name=f"add{i}")([source, other]))
        else:
            layer = shared if kind == 1 else library.layers.Dense(4, name=f"dense{i}")
            found.append(layer(source))
    joined = library.layers.Concatenate(name="joined")(found)
    return library.Model(inputs, [joined, library.layers.Dense(2, name="head")(found[3])])


@pytest.mark.parametrize("seed", range(20))
def test_order_of_weights_of_branched_models(seed):
    theirs, ours = branched(keras, seed), branched(pyggml, seed)
    names = [variable.path for variable in theirs.weights]
    assert list(ours.weight_names.values()) == names


def test_activations():
    names = [name for name in pyggml.activations._functions if hasattr(keras.activations, name)]
    assert len(names) > 15
    x = random(20, 6, scale=3.0)
    for name in names:
        found = ops.evaluate(getattr(pyggml.activations, name), x)
        close(getattr(keras.activations, name)(x), found)
