"""Layers with several inputs, and those that only move elements, against the references."""

import numpy as np
import pytest
from layer_check import Case, check, check_gradients, check_outputs, random
from reference import merge, shape

from pyggml import layers, ops

SAME = ((3, 5, 7), (3, 5, 7))
WIDE = ((3, 5, 7), (3, 1, 7))


def compare(layer, xs, reference):
    case = Case(layer, xs)
    out, backward = reference([np.asarray(x, np.float64) for x in xs])
    check_outputs(case.forward(), [out])
    check_gradients(case.gradients(), backward(case.douts()[0]))


@pytest.mark.parametrize("name", ["Add", "Subtract", "Multiply", "Average", "Maximum"])
@pytest.mark.parametrize("sizes", [SAME, WIDE, WIDE[::-1], ((1, 1), (1, 1))], ids=str)
def test_elementwise_of_two(name, sizes):
    xs = [random(*s, seed=i) for i, s in enumerate(sizes)]
    compare(getattr(layers, name)(), xs, getattr(merge, name.lower()))


@pytest.mark.parametrize("name", ["Add", "Multiply", "Average", "Maximum"])
def test_elementwise_of_four(name):
    xs = [random(3, 7, seed=i) for i in range(4)]
    compare(getattr(layers, name)(), xs, getattr(merge, name.lower()))


def test_of_equal_maxima_the_first_gets_the_gradient():
    x = random(3, 7)
    compare(layers.Maximum(), [x, x.copy(), x.copy()], merge.maximum)


def test_maximum_is_exact_where_inputs_differ_in_size():
    a, b = np.full((1, 1), -1e4, np.float32), np.full((1, 1), 1.2345e-3, np.float32)
    assert np.array_equal(Case(layers.Maximum(), [a, b]).forward()[0], b)


@pytest.mark.parametrize("axis,sizes", [
    (-1, ((3, 1), (3, 7), (3, 17))), (1, ((2, 3, 5), (2, 1, 5))), (2, ((1, 3, 2, 5), (1, 3, 4, 5))),
], ids=str)
def test_concatenate(axis, sizes):
    xs = [random(*s, seed=i) for i, s in enumerate(sizes)]
    compare(layers.Concatenate(axis), xs, lambda xs: merge.concatenate(xs, axis))


@pytest.mark.parametrize("axes,sizes", [
    (1, ((3, 7), (3, 7))), (-1, ((3, 1), (3, 1))), (2, ((2, 3, 5), (2, 4, 5))),
    ((1, 2), ((2, 5, 3), (2, 4, 5))), ((1, 1), ((2, 5, 3), (2, 5))),
    ((3, 1), ((2, 3, 2, 5), (2, 5))),
], ids=str)
@pytest.mark.parametrize("normalize", [False, True])
def test_dot(axes, sizes, normalize):
    xs = [random(*s, seed=i) for i, s in enumerate(sizes)]
    compare(layers.Dot(axes, normalize), xs, lambda xs: merge.dot(xs, axes, normalize))


def test_cosine_of_a_zero_vector_is_zero_with_finite_gradients():
    compare(layers.Dot(1, normalize=True), [np.zeros((2, 5), np.float32), random(2, 5)],
            lambda xs: merge.dot(xs, 1, True))


@pytest.mark.parametrize("target", [(15,), (5, 3), (-1,), (3, -1), (1, 3, 5)], ids=str)
def test_reshape(target):
    check(layers.Reshape(target), random(3, 5, 3), lambda x: shape.reshape(x, target))


@pytest.mark.parametrize("dims,sizes", [
    ((1,), (3, 5)), ((2, 1), (1, 5, 7)), ((3, 1, 2), (2, 3, 5, 4)), ((2, 3, 1), (2, 3, 5, 1)),
], ids=str)
def test_permute(dims, sizes):
    check(layers.Permute(dims), random(*sizes), lambda x: shape.permute(x, dims))


def test_two_permutations_in_a_row_have_a_gradient():
    """The gradient of one is not contiguous, which the copy before it cannot take."""
    case = Case(layers.Lambda(lambda x: ops.transpose(ops.transpose(x, (0, 2, 1)), (0, 2, 1))),
                [random(2, 3, 5)])
    assert np.allclose(case.gradients()["xs"][0], case.douts()[0])


def test_lambda_applies_a_function_with_arguments():
    layer = layers.Lambda(lambda x, power: ops.multiply(ops.square(x), power), {"power": 3.0})
    check(layer, random(3, 5), lambda x: (3 * x**2, lambda d: {"x": 6 * x * d}))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_flip_and_slices_have_gradients(axis):
    def call(x):
        if x.shape[axis] == 1:  # graphs of one row are made to look at
            return x
        parts = ops.split(ops.flip(x, axis), [1, x.shape[axis] - 1], axis)
        return ops.concatenate([parts[1], ops.affine(parts[0], 2.0)], axis)

    def reference(x):
        y = np.flip(x, axis)
        first, others = np.split(y, [1], axis)

        def backward(dout):
            d_others, d_first = np.split(dout, [x.shape[axis] - 1], axis)
            return {"x": np.flip(np.concatenate([2 * d_first, d_others], axis), axis)}

        return np.concatenate([others, 2 * first], axis), backward

    check(layers.Lambda(call), random(3, 2, 4, 5), reference)
