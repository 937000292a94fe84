"""Freezing: which layers are meant, that they stay, and that the others keep their state."""

import numpy as np
import pytest
from reference.gradcheck import normal, relative_error
from reference.network import MLP
from reference.optimizers import OPTIMIZERS

import pyggml
from pyggml import layers, ops


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


NAMES = ("block1_a", "block1_b", "block10_a", "head")
X, Y = np.float32(normal(8, 3)), np.float32(normal(8, 2, seed=1))


def model_of(kind, optimizer="adam"):
    stack = [layers.Dense(n, "tanh", name=name)
             for n, name in zip((4, 5, 4, 2), NAMES, strict=True)]
    if kind == "sequential":
        model = pyggml.Sequential([pyggml.Input((3,)), *stack])
    else:
        x = y = pyggml.Input((3,))
        for layer in stack:
            y = layer(y)
        model = pyggml.Model(x, y)
    model.compile(optimizer, "mse")
    return model


def frozen(model):
    return [name for name in NAMES if not model.get_layer(name).trainable]


def moved(model, before):
    """Names of the layers in which any bit has changed."""
    after = weights(model)
    return [name for name in NAMES
            if any(a.tobytes() != b.tobytes()
                   for a, b in zip(before[name], after[name], strict=True))]


def weights(model):
    return {name: model.get_layer(name).get_weights() for name in NAMES}


@pytest.mark.parametrize(("kind", "offset"), [("sequential", 0), ("functional", 1)])
def test_ranges_names_and_prefixes(kind, offset):
    for arguments, expected in (
            ({}, NAMES),
            ({"from_": offset + 1, "to": offset + 2}, NAMES[1:3]),
            ({"from_": -2}, NAMES[2:]), ({"to": "block1_b"}, NAMES[:2]),
            ({"from_": "block1_b", "to": -1}, NAMES[1:]),
            ({"layer_names": "head"}, NAMES[3:]),
            ({"layer_names": ["head", "block1_a"]}, (NAMES[0], NAMES[3])),
            ({"prefix": "block1_"}, NAMES[:2]), ({"prefix": "block1"}, NAMES[:3]),
            ({"prefix": "block1_", "layer_names": ["head"]}, (*NAMES[:2], NAMES[3])),
            ({"from_": -1, "prefix": "block10_"}, NAMES[2:])):
        model = model_of(kind)
        model.freeze_weights(**arguments)
        assert frozen(model) == list(expected)
        model.freeze_weights()
        model.unfreeze_weights(**arguments)
        assert frozen(model) == [name for name in NAMES if name not in expected]


@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_wrong_ranges_names_and_prefixes_change_nothing(kind):
    model = model_of(kind)
    for arguments, error, word in (
            ({"from_": 7}, ValueError, "from_"), ({"to": -7}, ValueError, "to"),
            ({"from_": 3, "to": 1}, ValueError, "from_"), ({"from_": 1.5}, TypeError, "from_"),
            ({"from_": "no"}, ValueError, "no"),
            ({"layer_names": ["head", "no"]}, ValueError, "no"),
            ({"layer_names": []}, ValueError, "layer_names"),
            ({"prefix": "block2_"}, ValueError, "block2_"), ({"prefix": 3}, TypeError, "prefix")):
        with pytest.raises(error, match=word):
            model.freeze_weights(**arguments)
        assert frozen(model) == []


@pytest.mark.parametrize("how", ["fit", "trainer"])
@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_frozen_weights_stay_bit_for_bit_while_others_move(kind, how):
    model = model_of(kind, pyggml.optimizers.AdamW(0.01, weight_decay=0.1))
    model.freeze_weights(prefix="block1_")
    before = weights(model)
    if how == "fit":
        model.fit(X, Y, batch_size=4, epochs=3, verbose=0)
    else:
        with pyggml.Trainer(model, batch_size=8) as trainer:
            for _ in range(3):
                trainer.step(X, Y)
            assert moved(model, before) == []
            model = trainer.model()
    assert moved(model, before) == ["block10_a", "head"]


def test_freezing_between_fits_takes_effect_and_keeps_the_state_of_the_others():
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(4, "tanh", name="a"),
                               layers.Dense(2, name="b")])
    model.compile(pyggml.optimizers.Adam(0.01), "mse")
    reference = MLP(model.get_weights(), ["tanh", "linear"], "mse", OPTIMIZERS["adam"](0.01))

    def fit(n):
        model.fit(X, Y, batch_size=8, epochs=n, shuffle=False, verbose=0)

    fit(5)
    reference.train([(X, Y)], 5)
    model.freeze_weights(layer_names="a")
    still = model.get_layer("a").get_weights()
    fit(5)
    reference.train([(X, Y)], 5, trainable=[False, False, True, True])
    assert all(a.tobytes() == b.tobytes()
               for a, b in zip(still, model.get_layer("a").get_weights(), strict=True))
    model.unfreeze_weights()
    fit(5)
    reference.train([(X, Y)], 5)
    for got, want in zip(model.get_weights(), reference.weights, strict=True):
        assert relative_error(got, want) < 1e-5


def test_a_model_with_nothing_to_train_is_refused_and_can_be_thawed():
    model = model_of("sequential")
    model.fit(X, Y, verbose=0)
    model.freeze_weights()
    with pytest.raises(ValueError, match="no trainable weights"):
        model.fit(X, Y, verbose=0)
    model.unfreeze_weights(layer_names="head")
    before = weights(model)
    model.fit(X, Y, verbose=0)
    assert moved(model, before) == ["head"]


def test_layers_inside_nested_models_are_found_by_name_and_prefix():
    inner = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(4, name="enc_1"),
                               layers.Dense(4, name="enc_2")], name="encoder")
    model = pyggml.Sequential([pyggml.Input((3,)), inner, layers.Dense(2, name="head")])
    model.compile("sgd", "mse")
    model.freeze_weights(layer_names="enc_2")
    assert [v.trainable for v in model.weights] == [True, True, False, False, True, True]
    model.freeze_weights(prefix="enc")
    assert [v.trainable for v in model.weights] == [False] * 4 + [True] * 2
    model.unfreeze_weights(layer_names="encoder")
    assert all(v.trainable for v in model.weights)
    model.freeze_weights(0, 0)
    before = model.get_weights()
    model.fit(X, Y, verbose=0)
    same = [a.tobytes() == b.tobytes() for a, b in zip(before, model.get_weights(), strict=True)]
    assert same == [True] * 4 + [False] * 2


def test_freezing_survives_copy_and_is_counted():
    model = model_of("functional")
    model.freeze_weights(prefix="block1")
    assert frozen(model.copy()) == list(NAMES[:3])
    lines = []
    model.summary(lines.append)
    assert lines[-1].endswith(f"trainable {4 * 2 + 2}, frozen {model.count_params() - 10}")


class Standardize(layers.Layer):
    """Stands in for batch normalization: doubles in training unless its statistics are frozen."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.freeze_stats = False

    def call(self, x, training=False):
        return ops.affine(x, 2.0) if training and not self.freeze_stats else x


def test_frozen_statistics_take_effect_at_the_next_fit():
    inner = pyggml.Sequential([pyggml.Input((3,)), Standardize(name="bn_inside")], name="inner")
    model = pyggml.Sequential([pyggml.Input((3,)), inner, layers.Dense(2, name="dense"),
                               Standardize(name="bn_last")])
    model.compile(pyggml.optimizers.SGD(0.0), "mse")
    p = model.predict(X)

    def fit():
        return model.fit(X, Y, batch_size=8, verbose=0).history["loss"][0]

    for names, factor in (([], 4), (["bn_inside"], 2), (["bn_inside", "bn_last"], 1)):
        model.unfreeze_bn_stats()
        if names:
            model.freeze_bn_stats(layer_names=names)
        assert fit() == pytest.approx(((factor * p - Y) ** 2).mean(), rel=1e-5)
    model.unfreeze_bn_stats(prefix="bn_i")
    assert fit() == pytest.approx(((2 * p - Y) ** 2).mean(), rel=1e-5)
    model.freeze_bn_stats("inner", "inner")
    assert fit() == pytest.approx(((p - Y) ** 2).mean(), rel=1e-5)
    for arguments in ({"layer_names": "dense"}, {"layer_names": "no"}, {"prefix": "x"}):
        with pytest.raises(ValueError):
            model.freeze_bn_stats(**arguments)
    with pytest.raises(ValueError, match="batch normalization"):
        model_of("sequential").freeze_bn_stats()
