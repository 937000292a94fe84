"""Convolutions against the references, at odd sizes and with every argument that counts."""

import numpy as np
import pytest
from layer_check import Case, check, random
from reference import conv

from pyggml import layers

CASES = [
    {"kernel_size": 1},
    {"kernel_size": 3},
    {"kernel_size": (2, 3), "padding": "same"},
    {"kernel_size": (3, 2), "strides": 2, "padding": "same"},
    {"kernel_size": 2, "strides": (2, 3)},
    {"kernel_size": (2, 3), "dilation_rate": 2},
    {"kernel_size": (3, 4), "dilation_rate": (2, 1), "padding": "same"},
    {"kernel_size": 3, "strides": 3, "padding": "same", "use_bias": False},
]
ids = str


def options(case):
    return {k: v for k, v in case.items() if k in ("strides", "dilation_rate", "padding")}


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("rows,channels,filters", [(1, 1, 1), (3, 2, 7)])
def test_conv2d(form, case, rows, channels, filters):
    check(layers.Conv2D(filters, **case), random(rows, channels, 5, 7),
          lambda x, **w: conv.conv(x, **w, **options(case)))


@pytest.mark.parametrize("case", [
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": "same"},
    {"kernel_size": 2, "padding": "causal", "dilation_rate": 3},
    {"kernel_size": 4, "padding": "same", "strides": 2},
    {"kernel_size": 3, "strides": 2},
    {"kernel_size": 3, "padding": "causal", "use_bias": False},
], ids=ids)
@pytest.mark.parametrize("rows,channels,filters,time", [(1, 1, 1, 7), (3, 2, 17, 13)])
def test_conv1d(form, case, rows, channels, filters, time):
    check(layers.Conv1D(filters, **case), random(rows, channels, time),
          lambda x, **w: conv.conv(x, **w, **options(case)))


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("rows,channels,multiplier", [(1, 1, 1), (3, 2, 1), (2, 3, 3)])
def test_depthwise_conv2d(form, case, rows, channels, multiplier):
    check(layers.DepthwiseConv2D(depth_multiplier=multiplier, **case),
          random(rows, channels, 5, 7),
          lambda x, **w: conv.depthwise_conv2d(x, **w, **options(case)))


@pytest.mark.parametrize("case", [
    *CASES,
    {"kernel_size": 2, "strides": 2},
    {"kernel_size": 1, "strides": 3},
    {"kernel_size": 4, "strides": 2, "padding": "same"},
    {"kernel_size": 3, "strides": 2, "output_padding": 1},
    {"kernel_size": 3, "strides": (2, 3), "padding": "same", "output_padding": (0, 2)},
    {"kernel_size": 2, "strides": 5, "padding": "same"},
], ids=ids)
@pytest.mark.parametrize("rows,channels,filters", [(1, 1, 1), (2, 3, 2)])
def test_conv2d_transpose(form, case, rows, channels, filters):
    extra = {k: v for k, v in case.items() if k == "output_padding"}
    check(layers.Conv2DTranspose(filters, **case), random(rows, channels, 5, 4),
          lambda x, **w: conv.conv2d_transpose(x, **w, **options(case), **extra))


@pytest.mark.parametrize("make,shape", [
    (lambda f: layers.Conv2D(3, 3, 2, "same", f, activation="relu"), (2, 4, 5, 7)),
    (lambda f: layers.Conv1D(3, 3, padding="causal", data_format=f), (2, 4, 9)),
    (lambda f: layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, data_format=f),
     (2, 4, 5, 7)),
    (lambda f: layers.Conv2DTranspose(3, 3, 2, data_format=f), (2, 4, 5, 7)),
])
def test_channels_last_gives_the_same(form, make, shape):
    x = random(*shape)
    first = Case(make("channels_first"), [x])
    last = Case(make("channels_last"), [np.moveaxis(x, 1, -1)], weights=first.weights)
    assert np.array_equal(first.forward()[0], np.moveaxis(last.forward()[0], -1, 1))


def test_convolution_of_a_large_image_keeps_its_accuracy():
    check(layers.Conv2D(5, 3, padding="same"), random(2, 3, 33, 17),
          lambda x, **w: conv.conv(x, **w, padding="same"))


def test_a_sequence_of_300_steps():
    check(layers.Conv1D(33, 5, padding="causal", dilation_rate=4), random(2, 3, 300),
          lambda x, **w: conv.conv(x, **w, padding="causal", dilation_rate=4))


def test_extreme_inputs_stay_finite():
    case = Case(layers.Conv2D(3, 3), [random(2, 2, 5, 7, scale=1e4)])
    assert np.isfinite(case.forward()[0]).all()
    assert all(np.isfinite(g).all() for k, g in case.gradients().items() if k != "xs")


def test_two_uses_of_one_convolution_add_their_gradients():
    layer = layers.Conv2D(2, 3, padding="same")
    x = random(2, 2, 5, 7)
    case = Case(layer, [x], call=lambda layer, given: layer(layer(given[0])))
    k, b = case.weights["kernel"], case.weights["bias"]
    one, back_one = conv.conv(x, k, b, padding="same")
    _, back_two = conv.conv(one, k, b, padding="same")
    outer = back_two(case.douts()[0])
    inner = back_one(outer["x"])
    found = case.gradients()
    np.testing.assert_allclose(found["kernel"], outer["kernel"] + inner["kernel"], rtol=1e-4,
                               atol=1e-3)
    np.testing.assert_allclose(found["xs"][0], inner["x"], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("activation", ["softmax", "log_softmax"])
def test_softmax_of_channels_needs_them_last(activation):
    with pytest.raises(ValueError, match=rf"{activation}.*channels_last"):
        layers.Conv2D(3, 1, activation=activation)
    case = Case(layers.Conv2D(3, 1, activation=activation, data_format="channels_last"),
                [random(2, 5, 7, 2)])
    out = case.forward()[0]
    sums = (np.exp(out) if activation == "log_softmax" else out).sum(axis=-1)
    np.testing.assert_allclose(sums, np.ones((2, 5, 7)), rtol=1e-5)
