"""Pooling, padding and upsampling against the references."""

import numpy as np
import pytest
from layer_check import Case, check, random
from reference import pooling, shape

from pyggml import layers

WINDOWS = [
    {},
    {"pool_size": 3, "strides": 1},
    {"pool_size": 3, "strides": 2, "padding": "same"},
    {"pool_size": 2, "strides": 1, "padding": "same"},
    {"pool_size": 4, "padding": "same"},
    {"pool_size": 1, "strides": 2},
]
WINDOWS_2D = [*WINDOWS, {"pool_size": (2, 3), "strides": (3, 1), "padding": "same"},
              {"pool_size": (5, 7)}]
KINDS = [(layers.MaxPooling2D, layers.MaxPooling1D, pooling.max_pooling),
         (layers.AveragePooling2D, layers.AveragePooling1D, pooling.average_pooling)]


@pytest.mark.parametrize("two,one,reference", KINDS, ids=["max", "average"])
@pytest.mark.parametrize("case", WINDOWS_2D, ids=str)
@pytest.mark.parametrize("rows,channels", [(1, 1), (3, 2)])
def test_pooling_2d(form, two, one, reference, case, rows, channels):
    check(two(**case), random(rows, channels, 5, 7), lambda x: reference(x, **case))


@pytest.mark.parametrize("two,one,reference", KINDS, ids=["max", "average"])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_pooling_1d(form, two, one, reference, case):
    check(one(**case), random(3, 2, 13), lambda x: reference(x, **case))


@pytest.mark.parametrize("two,one,reference", KINDS, ids=["max", "average"])
def test_of_equal_elements_the_first_gets_the_gradient(form, two, one, reference):
    x = np.repeat(np.arange(4, dtype=np.float32), 9).reshape(1, 1, 6, 6) // 2
    check(two(3, 2, "same"), x, lambda x: reference(x, 3, 2, "same"))


def test_padding_of_max_pooling_does_not_win_over_negative_inputs():
    case = Case(layers.MaxPooling2D(3, 2, "same"), [random(2, 2, 4, 6) - 1e4])
    assert (case.forward()[0] < 0).all()


@pytest.mark.parametrize("layer,reference", [
    (layers.GlobalMaxPooling2D, pooling.global_max_pooling),
    (layers.GlobalAveragePooling2D, pooling.global_average_pooling),
    (layers.GlobalMaxPooling1D, pooling.global_max_pooling),
    (layers.GlobalAveragePooling1D, pooling.global_average_pooling),
], ids=["max2d", "average2d", "max1d", "average1d"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_global_pooling(form, layer, reference, keepdims):
    sizes = (3, 2, 5, 7) if layer.rank == 2 else (3, 2, 17)
    check(layer(keepdims=keepdims), random(*sizes), lambda x: reference(x, keepdims))


@pytest.mark.parametrize("padding", [0, 2, (1, 3), ((0, 2), (1, 0))], ids=str)
def test_zero_padding(padding):
    check(layers.ZeroPadding2D(padding), random(2, 3, 5, 7),
          lambda x: shape.zero_padding2d(x, padding))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", [1, 2, (3, 2), (1, 4)], ids=str)
def test_upsampling(size, interpolation):
    check(layers.UpSampling2D(size, interpolation=interpolation), random(2, 3, 5, 7),
          lambda x: shape.upsampling2d(x, size, interpolation))


@pytest.mark.parametrize("make,sizes", [
    (lambda f: layers.MaxPooling2D(2, 2, "same", f), (2, 3, 5, 7)),
    (lambda f: layers.AveragePooling1D(3, 2, "same", f), (2, 3, 9)),
    (lambda f: layers.GlobalMaxPooling2D(f, keepdims=True), (2, 3, 5, 7)),
    (lambda f: layers.GlobalAveragePooling1D(f), (2, 3, 9)),
    (lambda f: layers.ZeroPadding2D(((1, 0), (2, 3)), f), (2, 3, 5, 7)),
    (lambda f: layers.UpSampling2D((2, 3), f, "bilinear"), (2, 3, 5, 7)),
])
def test_channels_last_gives_the_same(form, make, sizes):
    x = random(*sizes)
    first = Case(make("channels_first"), [x]).forward()[0]
    last = Case(make("channels_last"), [np.moveaxis(x, 1, -1)]).forward()[0]
    assert np.array_equal(first, np.moveaxis(last, -1, 1) if last.ndim > 2 else last)
