"""Functions that are one node with kernels of our own, against float64 references."""

import numpy as np
import pytest
from reference import conv as ref_conv
from reference import norm as ref_norm
from reference import pooling as ref_pooling
from reference import recurrent as ref_recurrent
from reference.gradcheck import normal, relative_error

import pyggml
from pyggml import _fused, _lowering, layers, ops

pytestmark = pytest.mark.skipif(not _lowering.enabled(), reason="needs lowering")


class Variables(layers.Layer):
    """Applies a function to the input and to weights with given values."""

    def __init__(self, function, values):
        super().__init__()
        self.function = function
        self.values = values

    def build(self, input_shape):
        self.arrays = [self.add_weight(f"w{i}", v.shape, "zeros", axes=range(v.ndim))
                       for i, v in enumerate(self.values)]
        for variable, value in zip(self.arrays, self.values, strict=True):
            variable.assign(value)

    def call(self, x):
        tensors = [x.graph.weight(v) for v in self.arrays]
        return self.function(x, tensors)


def check(function, values, reference, seed=0):
    """Compare function(x, [values]) where all values are weights; x is a dummy of one row."""
    inputs = pyggml.Input((1,))

    def row(x, weights):
        found = ops.reshape(function(*weights), (1, -1))
        return ops.broadcast_to(found, (x.shape[0], found.shape[1]))

    layer = Variables(row, values)
    model = pyggml.Model(inputs, layer(inputs))
    model.compile("sgd", lambda y, p: ops.affine(ops.multiply(p, y), float(out.size)))
    doubles = [v.astype(np.float64) for v in values]
    out, backward = reference(*doubles)
    dout = normal(*out.shape, seed=9).astype(np.float32)
    wanted = backward(dout.astype(np.float64))
    x = np.zeros((1, 1), np.float32)
    assert relative_error(model.predict(x).reshape(out.shape), out) < 1e-5
    trainer = pyggml.Trainer(model, 1)
    for _ in range(2):  # the second run finds memory used before
        got = trainer.gradients(x, dout.reshape(1, -1))
        for g, w in zip(got.values(), wanted, strict=True):
            assert relative_error(g, w) < 1e-4


def f32(*shape, seed=0):
    return normal(*shape, seed=seed).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("stride", "dilation", "size"),
                         [(1, 1, 3), (2, 1, 3), (1, 2, 2), (1, 1, 1)])
def test_convolution(threads, stride, dilation, size):
    n, c, h, w, o = 3, 2, 5, 7, 4
    x, kernel, bias = f32(n, c, h, w), f32(size, size, c, o, seed=1), f32(o, seed=2)
    out, _ = ref_conv.conv(x, kernel, bias, strides=stride, dilation_rate=dilation)

    def reference(x, k, b):
        y, back = ref_conv.conv(x, k.transpose(2, 3, 1, 0), b, strides=stride,
                                dilation_rate=dilation)

        def gradients(dout):
            g = back(dout)
            return g["x"], g["kernel"].transpose(3, 2, 0, 1), g["bias"]

        return y, gradients

    before = pyggml.get_num_threads()
    pyggml.set_num_threads(threads)
    try:
        check(lambda x, k, b: _fused.conv2d(x, k, b, (stride,) * 2, (0, 0), (dilation,) * 2,
                                            out.shape[2:]),
              [x, kernel.transpose(3, 2, 0, 1).copy(), bias], reference)
    finally:
        pyggml.set_num_threads(before)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 1), (2, 3)])
def test_pooling(kind, size, stride):
    x = f32(3, 2, 5, 7)
    function = ref_pooling.max_pooling if kind == "max" else ref_pooling.average_pooling
    out, _ = function(x, size, stride)

    def reference(x):
        y, back = function(x, size, stride)
        return y, lambda dout: (back(dout)["x"],)

    check(lambda x: _fused.pool2d(x, kind, (size,) * 2, (stride,) * 2, (0, 0), out.shape[2:]),
          [x], reference)


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("shape", [(1, 3), (5, 33), (2, 3, 17)])
def test_layer_norm(rms, shape):
    x, gamma, beta = f32(*shape), f32(shape[-1], seed=1), f32(shape[-1], seed=2)

    def reference(x, gamma, beta=None):
        if rms:
            y, back = ref_norm.rms_norm(x, gamma, epsilon=1e-3)
        else:
            y, back = ref_norm.layer_norm(x, gamma, beta, epsilon=1e-3)
        return y, lambda dout: list(back(dout).values())

    if rms:
        check(lambda x, g: _fused.layer_norm(x, g, None, 1e-3, True), [x, gamma], reference)
    else:
        check(lambda x, g, b: _fused.layer_norm(x, g, b, 1e-3), [x, gamma, beta], reference)


@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 5), (3, 2, 5, 7)])
def test_batch_norm_by_the_batch(shape):
    c = shape[1]
    x, gamma, beta = f32(*shape), f32(c, seed=1), f32(c, seed=2)

    def reference(x, gamma, beta):
        y, back = ref_norm.batch_norm(x, gamma, beta, np.zeros(c), np.ones(c))

        def gradients(dout):
            g = back(dout)
            return g["x"], g["gamma"], g["beta"]

        return y, gradients

    check(lambda x, g, b: _fused.batch_norm(x, g, b, 1e-3)[0], [x, gamma, beta], reference)


@pytest.mark.parametrize("kind", ["lstm", "gru", "simple"])
@pytest.mark.parametrize(("n", "t", "h"), [(1, 1, 1), (3, 5, 7), (2, 40, 17)])
def test_recurrent_layers(kind, n, t, h):
    gates = {"lstm": 4, "gru": 3, "simple": 1}[kind]
    xw, kernel = f32(n, t, gates * h), 0.3 * f32(gates * h, h, seed=1)
    h0 = f32(n, h, seed=2)
    eye = np.eye(gates * h)

    def reference(xw, kernel, h0, last=None):
        if kind == "lstm":
            (y, _), back = ref_recurrent.lstm(xw, eye, kernel.T, initial_state=[h0, last],
                                              return_sequences=True)
        elif kind == "gru":
            (y, _), back = ref_recurrent.gru(xw, eye, kernel.T, bias=np.stack(
                [np.zeros(3 * h), np.r_[np.zeros(2 * h), last]]), initial_state=[h0],
                return_sequences=True)
        else:
            (y, _), back = ref_recurrent.simple_rnn(xw, eye, kernel.T, initial_state=[h0],
                                                    return_sequences=True)

        def gradients(dout):
            g = back(dout)
            states = g["initial_state"]
            if kind == "lstm":
                return g["x"], g["recurrent_kernel"].T, states[0], states[1]
            state = states[0] if isinstance(states, (list, tuple)) else states
            if kind == "gru":
                return g["x"], g["recurrent_kernel"].T, state, g["bias"][1, 2 * h:]
            return g["x"], g["recurrent_kernel"].T, state

        return y, gradients

    if kind == "lstm":
        check(lambda a, k, s, c: _fused.rnn("lstm", a, k, None, s, c)[0],
              [xw, kernel, h0, f32(n, h, seed=3)], reference)
    elif kind == "gru":
        check(lambda a, k, s, b: _fused.rnn("gru", a, k, b, s, None)[0],
              [xw, kernel, h0, f32(h, seed=3)], reference)
    else:
        check(lambda a, k, s: _fused.rnn("simple", a, k, None, s, None)[0], [xw, kernel, h0],
              reference)


def test_embedding():
    table = f32(11, 3)
    ids = np.array([[0, 10, 3, 3], [7, 0, 0, 1]])
    inputs = pyggml.Input((4,), dtype="int32")

    class Lookup(layers.Layer):
        def build(self, input_shape):
            self.table = self.add_weight("table", (11, 3), "zeros", axes=(0, 1))
            self.table.assign(table)

        def call(self, x):
            return _fused.gather(x.graph.weight(self.table), x)

    model = pyggml.Model(inputs, Lookup()(inputs))
    model.compile("sgd", "mse")
    np.testing.assert_array_equal(model.predict(ids), table[ids])
    y = f32(2, 4, 3, seed=5)
    (got,) = pyggml.Trainer(model, 2).gradients(ids, y).values()
    wanted = np.zeros((11, 3))
    np.add.at(wanted, ids, 2 * (table[ids].astype(np.float64) - y) / y.size)
    assert relative_error(got, wanted) < 1e-4


def test_a_function_without_gradient_may_stand_in_a_training_graph():
    from child import run_child

    assert run_child("""
        import numpy as np, pyggml
        from pyggml import layers
        model = pyggml.Sequential([
            pyggml.Input((2, 9)), layers.Conv1D(3, 3, trainable=False),
            layers.LSTM(4, trainable=False, return_sequences=True), layers.LayerNormalization(
                trainable=False), layers.Flatten(), layers.Dense(2)])
        model.compile("sgd", "mse")
        trainer = pyggml.Trainer(model, 5)
        x, y = np.ones((5, 2, 9)), np.ones((5, 2))
        first = trainer.step(x, y)
        print(trainer.step(x, y) < first)
    """) == "True\n"


def attention_reference(heads, scale, sees):
    """softmax(scale q k.T) v of the keys that are seen, head by head."""

    def call(q, k, v):
        def split(x):
            return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

        def join(x):
            return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

        a, b, c = split(q), split(k), split(v)
        p = np.exp(scale * a @ b.swapaxes(2, 3)) * sees[:, None]
        p = p / np.maximum(p.sum(-1, keepdims=True), 1e-300)

        def backward(dout):
            g = split(dout)
            dp = g @ c.swapaxes(2, 3)
            ds = scale * p * (dp - (dp * p).sum(-1, keepdims=True))
            return join(ds @ b), join(ds.swapaxes(2, 3) @ a), join(p.swapaxes(2, 3) @ g)

        return join(p @ c), backward

    return call


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [None, (2, 1, 7), (1, 5, 7), (2, 5, 7)], ids=str)
def test_attention(masked, causal):
    mask = None
    sees = np.ones((2, 5, 7))
    if masked:
        mask = (normal(*masked, seed=4) > -0.5).astype(np.float32)
        mask[0, 0] = 0  # a query, or all of a batch, that sees nothing
        sees = sees * mask
    if causal:
        sees = np.tril(sees)

    def function(q, k, v):
        given = None if mask is None else ops.constant(q, mask)
        return _fused.attention(q, k, v, given, 2, 0.7, causal)

    check(function, [f32(2, 5, 6), f32(2, 7, 6, seed=1), f32(2, 7, 4, seed=2)],
          attention_reference(2, 0.7, sees))


def test_attention_without_a_gradient_for_queries_is_composed():
    x = pyggml.Input((5, 4))
    layer = layers.MultiHeadAttention(2, 3)
    model = pyggml.Model(x, layer(x, x))
    layer.query_kernel.trainable = layer.query_bias.trainable = False
    model.compile("sgd", "mse")
    before = _lowering.rewritten()
    with pyggml.Trainer(model, 3) as trainer:
        trainer.step(f32(3, 5, 4), f32(3, 5, 4, seed=1))
        moved = trainer.get_weights()
    assert _lowering.rewritten() != before
    for name, old, new in zip(model.weight_names.values(), model.get_weights(), moved,
                              strict=True):
        if "key_bias" not in name:  # whose gradient is rounding alone
            assert (old == new).all() == ("query" in name), name
