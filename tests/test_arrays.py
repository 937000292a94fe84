"""Rows of arrays of any type, strides, alignment and byte order are read as float32."""

import numpy as np
import pytest
from pyggml._arrays import Rows

DTYPES = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "g",
          ">f4", ">f8", ">f2", ">i2", ">i4", ">i8", ">u2", "<f4"]


def unaligned(array):
    raw = np.empty(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned or array.itemsize == 1
    return view


LAYOUTS = {
    "contiguous": lambda a: a,
    "fortran": np.asfortranarray,
    "rows reversed": lambda a: a[::-1],
    "columns reversed": lambda a: a[:, ::-1],
    "every second column": lambda a: a[:, ::2],
    "every second row": lambda a: a[::2],
    "last axes swapped": lambda a: a.swapaxes(1, 2),
    "first axes swapped": lambda a: a.swapaxes(0, 1),
    "one row repeated": lambda a: np.broadcast_to(a[0], a.shape),
    "one column repeated": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "unaligned": unaligned,
    "one column": lambda a: a[:, :, 0],
    "a vector": lambda a: a[:, 0, 0],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_equal_those_of_astype_float32(dtype, layout):
    values = np.arange(5 * 6 * 4).reshape(5, 6, 4) * 7919 % 251
    array = LAYOUTS[layout](values.astype(dtype))
    np.testing.assert_array_equal(Rows(array).gather(), array.astype(np.float32))
    index = np.arange(len(array))[::-2]
    np.testing.assert_array_equal(Rows(array).gather(index), array[index].astype(np.float32))


def test_large_integers_and_doubles_are_rounded_once():
    values = np.array([[2**53 + 1, 2**62 + 2**38 + 1, -(2**60) - 2**36 - 1]])
    np.testing.assert_array_equal(Rows(values).gather(), values.astype(np.float32))
    values = np.random.default_rng(0).normal(size=(100, 3)) * 1e30
    np.testing.assert_array_equal(Rows(values).gather(), values.astype(np.float32))


def test_special_values_pass():
    values = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e300, 1e-300]])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(Rows(values).gather(), values.astype(np.float32))
    half = np.array([[np.nan, np.inf, 6e-8, 65504]], np.float16)
    np.testing.assert_array_equal(Rows(half).gather(), half.astype(np.float32))


def test_a_memory_map_and_a_subclass_are_read_in_place(tmp_path):
    path = tmp_path / "x.bin"
    np.arange(12, dtype="f8").tofile(path)
    array = np.memmap(path, dtype="f8", mode="r", shape=(3, 4))
    rows = Rows(array)
    assert np.shares_memory(rows.array, array)
    np.testing.assert_array_equal(rows.gather(), array.astype(np.float32))
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(Rows(matrix).gather(), [[1, 2], [3, 4]])


@pytest.mark.parametrize("dtype", ["c8", "c16", "O", "U3", "M8[s]", "m8[s]"])
def test_what_is_no_real_number_is_a_type_error(dtype):
    with pytest.raises(TypeError, match="x must hold real numbers"):
        Rows(np.zeros((2, 2), dtype), "x")


def test_lists_of_unequal_length_are_a_type_error():
    with pytest.raises(TypeError, match="x must be an array"):
        Rows([[1, 2], [3]], "x")


@pytest.mark.parametrize(("index", "error"), [([3], IndexError), ([-1], IndexError),
                                              ([0.5], TypeError)])
def test_rows_that_do_not_exist_are_not_read(index, error):
    with pytest.raises(error, match="index"):
        Rows(np.zeros((3, 2))).gather(np.array(index))
