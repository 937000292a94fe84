"""Weights: memory, layout, views, copies."""

import copy
import gc
import pickle

import numpy as np
import pytest

from pyggml import Variable


def filled(shape, **kwargs):
    variable = Variable(shape, **kwargs)
    variable.assign(np.arange(variable.size).reshape(shape))
    return variable


def test_a_new_variable_is_zero():
    assert not Variable((3, 4)).numpy().any()


@pytest.mark.parametrize("axes", [None, (1, 0)])
def test_users_see_their_order_of_axes_whatever_lies_in_memory(axes):
    variable = filled((2, 3), axes=axes)
    np.testing.assert_array_equal(variable.numpy(), [[0, 1, 2], [3, 4, 5]])
    view = variable.numpy(copy=False)
    memory = view if axes is None else view.T
    assert memory.flags.c_contiguous


def test_an_image_kernel_lies_as_out_in_height_width():
    variable = filled((2, 3, 4, 5), axes=(3, 2, 0, 1))
    view = variable.numpy(copy=False)
    assert view.shape == (2, 3, 4, 5)
    assert view.transpose(3, 2, 0, 1).flags.c_contiguous


def test_a_view_writes_through_and_keeps_the_memory_alive():
    variable = filled((4,))
    view = variable.numpy(copy=False)
    view[0] = 7
    assert variable.numpy()[0] == 7
    del variable
    gc.collect()
    np.testing.assert_array_equal(view, [7, 1, 2, 3])


def test_a_copy_is_independent():
    variable = filled((4,))
    variable.numpy()[:] = 9
    np.testing.assert_array_equal(variable.numpy(), [0, 1, 2, 3])


@pytest.mark.parametrize("value", [np.zeros(5), np.zeros((4, 1)), 0.0])
def test_nothing_is_broadcast_into_a_variable(value):
    variable = filled((4,))
    with pytest.raises(ValueError, match=r"has shape \(4,\), got"):
        variable.assign(value)
    np.testing.assert_array_equal(variable.numpy(), [0, 1, 2, 3])


@pytest.mark.parametrize("value", [np.zeros(4, complex), np.array(["a"] * 4), [None] * 4])
def test_only_real_numbers_are_assigned(value):
    with pytest.raises(TypeError, match="takes real numbers"):
        Variable((4,)).assign(value)


@pytest.mark.parametrize("make", [copy.deepcopy, Variable.clone,
                                  lambda v: pickle.loads(pickle.dumps(v))])
def test_copies_have_the_values_and_memory_of_their_own(make):
    variable = filled((2, 3), name="kernel", axes=(1, 0), decay=False)
    other = make(variable)
    assert (other.name, other.shape, other.axes, other.decay) == ("kernel", (2, 3), (1, 0), False)
    np.testing.assert_array_equal(other.numpy(), variable.numpy())
    other.numpy(copy=False)[:] = 0
    assert variable.numpy().any()


@pytest.mark.parametrize(("shape", "error"), [
    ((0,), ValueError), ((2, -1), ValueError), ((1,) * 5, ValueError),
    ((1 << 40, 1 << 40), MemoryError)])
def test_impossible_shapes_are_refused(shape, error):
    with pytest.raises(error, match="variable"):
        Variable(shape)


def test_axes_must_be_an_order_of_the_axes():
    with pytest.raises(ValueError, match="axes must be an order"):
        Variable((2, 3), axes=(0, 0))
