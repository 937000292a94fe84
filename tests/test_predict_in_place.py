"""Whole batches of rows that lie as float32 are predicted and evaluated where they lie."""

import sys

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import layers

# Row shape and the first layer: every kind of kernel that may meet the caller's memory.
FIRST = {
    "dense": ((37,), lambda: layers.Dense(19, "tanh")),
    "dense of one": ((1,), lambda: layers.Dense(3)),
    "wide dense": ((301,), lambda: layers.Dense(130, "relu")),
    "dense on steps": ((5, 7), lambda: layers.Dense(3)),
    "nothing": ((7,), lambda: layers.Activation("linear")),
    "activation": ((19,), lambda: layers.Activation("gelu")),
    "softmax": ((19,), lambda: layers.Activation("softmax")),
    "flatten": ((3, 5), layers.Flatten),
    "reshape": ((3, 5), lambda: layers.Reshape((5, 3))),
    "permute": ((3, 5), lambda: layers.Permute((2, 1))),
    "layer norm": ((19,), layers.LayerNormalization),
    "rms norm": ((19,), layers.RMSNormalization),
    "batch norm": ((3, 5, 5), lambda: layers.BatchNormalization(axis=1)),
    "batch norm last": ((5, 3), lambda: layers.BatchNormalization(axis=-1)),
    "conv1d": ((3, 17), lambda: layers.Conv1D(5, 3)),
    "conv1d last": ((17, 3), lambda: layers.Conv1D(5, 3, data_format="channels_last")),
    "conv2d": ((3, 9, 11), lambda: layers.Conv2D(5, 3, padding="same")),
    "conv2d 1x1": ((3, 9, 11), lambda: layers.Conv2D(5, 1)),
    "conv2d last": ((9, 11, 3), lambda: layers.Conv2D(5, 3, data_format="channels_last")),
    "conv2d strides": ((1, 28, 28), lambda: layers.Conv2D(8, 3, strides=2)),
    "depthwise": ((3, 9, 11), lambda: layers.DepthwiseConv2D(3)),
    "transposed": ((3, 5, 7), lambda: layers.Conv2DTranspose(2, 3, strides=2)),
    "max pool": ((3, 9, 11), lambda: layers.MaxPooling2D(2)),
    "average pool": ((3, 9, 11), lambda: layers.AveragePooling2D(3, padding="same")),
    "global pool": ((3, 9, 11), layers.GlobalAveragePooling2D),
    "padding": ((3, 5, 7), lambda: layers.ZeroPadding2D(1)),
    "upsampling": ((3, 5, 7), lambda: layers.UpSampling2D(2)),
    "rnn": ((5, 3), lambda: layers.SimpleRNN(7)),
    "lstm": ((5, 3), lambda: layers.LSTM(7)),
    "gru": ((5, 3), lambda: layers.GRU(7, return_sequences=True)),
    "both ways": ((5, 3), lambda: layers.Bidirectional(layers.LSTM(3))),
    "lambda": ((19,), lambda: layers.Lambda(lambda t: t * 2.0 + 1.0)),
    "mask": ((6,), layers.PaddingMask),
}


def model_of(name):
    shape, first = FIRST[name]
    pyggml.set_seed(1)
    return pyggml.Sequential([pyggml.Input(shape), first()]), shape


@pytest.mark.parametrize("name", FIRST)
def test_the_same_bits_as_from_a_copy_at_any_address(name, form):
    model, shape = model_of(name)
    x = np.random.default_rng(0).normal(size=(12, *shape)).astype(np.float32)
    model.compile("sgd", "mse")
    wanted = model.predict(x.astype(np.float64), batch_size=4)  # converted, and so copied
    y = np.zeros_like(wanted)
    loss = model.evaluate(x.astype(np.float64), y, batch_size=4)
    memory = np.zeros(4 * x.size + 256, np.uint8)
    for offset in (0, 1, 4, 28, 64):
        skip = (offset - memory.ctypes.data) % 64
        here = memory[skip:skip + 4 * x.size].view(np.float32).reshape(x.shape)
        here[:] = x
        here.flags.writeable = False
        assert model.predict(here, batch_size=4).tobytes() == wanted.tobytes(), offset
        assert model.evaluate(here, y, batch_size=4) == loss, offset
        assert here.tobytes() == x.tobytes()


@pytest.mark.parametrize("batch_size", [None, 1, 7, 64, 100, 300])
def test_every_row_is_predicted_once_whatever_is_left_for_the_last_batches(batch_size, form):
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(2)])
    w, b = (a.astype(np.float64) for a in model.get_weights())
    x = np.random.default_rng(0).normal(size=(1700, 3)).astype(np.float32)
    wanted = x @ w + b
    for n in (1, 2, 31, 33, 63, 64, 65, 71, 99, 127, 128, 129, 175, 255, 257, 511, 512, 513, 1023,
              1100, 1700):
        found = model.predict(x[:n], batch_size=batch_size)
        np.testing.assert_allclose(found, wanted[:n], rtol=1e-5, atol=1e-6)


def test_the_graph_keeps_no_address_of_the_callers_arrays(form):
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Flatten(), layers.Dense(2)])
    x = np.ones((8, 3), np.float32)
    wanted = model.predict(x, batch_size=4)
    y = model.predict(x[:3], batch_size=4)  # too few rows for the graph: copied into its memory
    assert y.tobytes() == wanted[:3].tobytes()
    assert np.all(x == 1)
    assert np.all(model.predict(np.zeros((3, 3), np.float32), batch_size=4) == 0)
    assert np.all(x == 1)


def test_rows_without_weight_are_blanked_in_a_copy(form):
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 3), np.float32)
    x[2] = np.nan
    before = x.tobytes()
    weight = np.ones(8)
    weight[2] = 0
    assert np.isfinite(model.evaluate(x, np.ones(8), sample_weight=weight, batch_size=4))
    assert x.tobytes() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects a page")
def test_nothing_is_read_around_the_rows():
    said = run_child("""
import ctypes, mmap
import numpy as np
from test_predict_in_place import FIRST, model_of
PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 64 * PAGE)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
for page in (0, 63):  # in front of the first row too
    assert libc.mprotect(ctypes.c_void_p(base + page * PAGE), PAGE, 0) == 0
for name in FIRST:
    model, shape = model_of(name)
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    wanted = model.predict(x.astype(np.float64), batch_size=4)
    for at in (PAGE, 63 * PAGE - x.nbytes):
        here = np.frombuffer(memory, np.float32, x.size, at).reshape(x.shape)
        here[:] = x
        print(name, flush=True)
        assert model.predict(here, batch_size=4).tobytes() == wanted.tobytes()
    here = None
""", env={"PYGGML_LOWERING": "1"})
    assert len(set(said.splitlines())) == len(FIRST)
