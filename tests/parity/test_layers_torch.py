"""Layers of pyggml against PyTorch in double precision: outputs, and gradients of everything.

Weights are drawn here and handed to PyTorch in its own layout; its autograd gives what the
gradients of inputs and weights have to be.
"""

import numpy as np
import pytest
from layer_check import Case, check_gradients, check_outputs, random

from pyggml import layers

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.parity


def double(array, grad=True):
    return torch.tensor(np.asarray(array, np.float64), requires_grad=grad)


def compare(layer, xs, function, call=None, weights=None, zero=()):
    """``function(*inputs, **weights)`` returns the output, or the list of several.

    Gradients of the weights named in ``zero`` are 0 but for rounding, here as there.
    """
    case = Case(layer, xs, call, weights)
    inputs = [double(x) for x in case.xs]
    given = {name: double(w) for name, w in case.weights.items()}
    outputs = function(*inputs, **given)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    check_outputs(case.forward(), [o.detach().numpy() for o in outputs])
    sum((o * double(d, False)).sum()
        for o, d in zip(outputs, case.douts(), strict=True)).backward()

    def gradient(t):
        return np.zeros(t.shape) if t.grad is None else t.grad.numpy()

    expected = {v.name: gradient(given[v.name]) for v in layer.weights if v.trainable}
    expected["xs"] = [gradient(t) for t in inputs]
    found = case.gradients()
    size = max(np.abs(g).max() for g in [*expected["xs"], case.douts()[0]])
    for name in zero:
        assert np.abs(expected.pop(name)).max() < 1e-9
        assert np.abs(found.pop(name)).max() <= 1e-5 * size
    check_gradients(found, expected)
    return case


# ---- dense, embedding, shapes --------------------------------------------------------------

@pytest.mark.parametrize("sizes,units", [((1, 1), 1), ((1, 3), 7), ((9, 7), 17), ((5, 17), 33),
                                         ((2, 33), 3), ((2, 5, 3), 4), ((1, 300, 1), 3)], ids=str)
@pytest.mark.parametrize("use_bias", [True, False])
def test_dense(sizes, units, use_bias):
    compare(layers.Dense(units, use_bias=use_bias), [random(*sizes)],
            lambda x, kernel, bias=None: F.linear(x, kernel.T, bias))


ACTIVATIONS = {
    "linear": lambda x: x, "relu": F.relu, "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "elu": F.elu, "selu": F.selu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "swish": F.silu,
    "sigmoid": torch.sigmoid, "hard_sigmoid": F.hardsigmoid, "hard_swish": F.hardswish,
    "tanh": torch.tanh, "softplus": F.softplus, "softsign": F.softsign, "mish": F.mish,
    "exponential": torch.exp, "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(1, 1), (1, 33), (7, 3), (3, 7, 5), (2, 3, 5, 7)], ids=str)
def test_activation(name, sizes):
    compare(layers.Activation(name), [random(*sizes, scale=2)], ACTIVATIONS[name])


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_activation_of_a_dense_layer(name, use_bias):
    compare(layers.Dense(7, name, use_bias=use_bias), [random(3, 5)],
            lambda x, kernel, bias=None: ACTIVATIONS[name](F.linear(x, kernel.T, bias)))


def test_dropout_in_evaluation():
    case = Case(layers.Dropout(0.5), [random(3, 5)])
    check_outputs(case.forward(), [F.dropout(double(case.xs[0]), 0.5, training=False)
                                   .detach().numpy()])


SHAPES = {
    "flatten": (layers.Flatten, (3, 2, 5, 7), lambda x: x.flatten(1)),
    "reshape": (lambda: layers.Reshape((7, -1)), (2, 5, 7), lambda x: x.reshape(2, 7, 5)),
    "permute": (lambda: layers.Permute((2, 3, 1)), (2, 3, 5, 7), lambda x: x.permute(0, 2, 3, 1)),
    "pad": (lambda: layers.ZeroPadding2D(((1, 2), (0, 3))), (2, 3, 5, 7),
            lambda x: F.pad(x, (0, 3, 1, 2))),
    "nearest": (lambda: layers.UpSampling2D((2, 3)), (2, 3, 5, 7),
                lambda x: F.interpolate(x, scale_factor=(2, 3))),
    "bilinear": (lambda: layers.UpSampling2D((3, 2), interpolation="bilinear"), (2, 3, 5, 7),
                 lambda x: F.interpolate(x, scale_factor=(3, 2), mode="bilinear")),
    "function": (lambda: layers.Lambda(lambda x: x * x), (3, 5), lambda x: x * x),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes(case):
    make, sizes, function = SHAPES[case]
    compare(make(), [random(*sizes)], function)


@pytest.mark.parametrize("sizes,width", [((1, 1), 1), ((3, 7), 5), ((2, 300), 17)], ids=str)
def test_embedding(sizes, width):
    import pyggml

    layer = layers.Embedding(11, width)
    model = pyggml.Sequential([pyggml.Input(sizes[1:], dtype="int32"), layer])
    model.compile("sgd", lambda y, p: y * p)
    ids = np.random.default_rng(3).integers(0, 11, sizes)
    table = double(model.get_weights()[0])
    out = F.embedding(torch.tensor(ids), table)
    assert (model.predict(ids) == out.detach().numpy()).all()
    dout = random(*out.shape)
    (out * double(dout, False)).sum().backward()
    with pyggml.Trainer(model, sizes[0]) as trainer:
        (found,) = trainer.gradients(ids, dout * dout.size).values()
    check_gradients({"xs": [found]}, {"xs": [table.grad.numpy()]})


# ---- convolutions --------------------------------------------------------------------------

def torch_kernel(kernel):
    """(..., in, out) of Keras to [out, in, ...]."""
    n = kernel.ndim
    return kernel.permute(n - 1, n - 2, *range(n - 2))


def same(sizes, kernel, strides, dilation):
    """The padding of "same" for F.pad: last axis first, the larger half after."""
    sides = []
    for n, k, s, d in reversed([*zip(sizes, kernel, strides, dilation, strict=True)]):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        sides += [total // 2, total - total // 2]
    return sides


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


CONVOLUTIONS = [
    {"kernel_size": 1},
    {"kernel_size": (2, 3), "padding": "same"},
    {"kernel_size": (3, 2), "strides": 2, "padding": "same", "activation": "relu"},
    {"kernel_size": 2, "strides": (2, 3), "use_bias": False},
    {"kernel_size": (2, 3), "dilation_rate": 2},
    {"kernel_size": (3, 4), "dilation_rate": (2, 1), "padding": "same", "activation": "tanh"},
]


def spatial(case, x):
    """The input with its padding, and what F.conv2d is to be told."""
    strides, dilation = pair(case.get("strides", 1)), pair(case.get("dilation_rate", 1))
    if case.get("padding") == "same":
        x = F.pad(x, same(x.shape[2:], pair(case["kernel_size"]), strides, dilation))
    return x, {"stride": strides, "dilation": dilation}


def activated(case, x):
    return ACTIVATIONS[case.get("activation", "linear")](x)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("rows,channels,filters", [(1, 1, 1), (3, 3, 7), (2, 17, 33)])
def test_conv2d(case, rows, channels, filters):
    def function(x, kernel, bias=None):
        x, options = spatial(case, x)
        return activated(case, F.conv2d(x, torch_kernel(kernel), bias, **options))

    compare(layers.Conv2D(filters, **case), [random(rows, channels, 5, 7)], function)


def test_conv2d_with_channels_last():
    def function(x, kernel, bias):
        return F.conv2d(x.permute(0, 3, 1, 2), torch_kernel(kernel), bias, 2).permute(0, 2, 3, 1)

    compare(layers.Conv2D(4, 3, 2, data_format="channels_last"), [random(2, 5, 7, 3)], function)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("rows,channels,multiplier", [(1, 1, 1), (3, 7, 1), (2, 3, 3)])
def test_depthwise_conv2d(case, rows, channels, multiplier):
    def function(x, depthwise_kernel, bias=None):
        h, w, c, m = depthwise_kernel.shape
        kernel = depthwise_kernel.permute(2, 3, 0, 1).reshape(c * m, 1, h, w)
        x, options = spatial(case, x)
        return activated(case, F.conv2d(x, kernel, bias, groups=c, **options))

    compare(layers.DepthwiseConv2D(depth_multiplier=multiplier, **case),
            [random(rows, channels, 5, 7)], function)


@pytest.mark.parametrize("case,theirs", [
    ({"kernel_size": 1}, {}),
    ({"kernel_size": (2, 3)}, {}),
    # with gaps between the kernel's places, Keras' output is a multiple of the stride
    ({"kernel_size": (3, 2), "strides": (2, 3), "use_bias": False},
     {"stride": (2, 3), "output_padding": (0, 1)}),
    ({"kernel_size": 3, "padding": "same"}, {"padding": 1}),
    ({"kernel_size": 4, "strides": 2, "padding": "same"}, {"stride": 2, "padding": 1}),
    ({"kernel_size": 3, "strides": 2, "output_padding": 1}, {"stride": 2, "output_padding": 1}),
    ({"kernel_size": 3, "dilation_rate": 2, "activation": "relu"}, {"dilation": 2}),
], ids=str)
@pytest.mark.parametrize("rows,channels,filters", [(1, 1, 1), (2, 3, 7)])
def test_conv2d_transpose(case, theirs, rows, channels, filters):
    def function(x, kernel, bias=None):
        # (h, w, out, in) to [in, out, h, w]
        return activated(case, F.conv_transpose2d(x, torch_kernel(kernel), bias, **theirs))

    compare(layers.Conv2DTranspose(filters, **case), [random(rows, channels, 5, 7)], function)


@pytest.mark.parametrize("case", [
    {"kernel_size": 1}, {"kernel_size": 3, "padding": "same"},
    {"kernel_size": 4, "strides": 3, "padding": "same", "use_bias": False},
    {"kernel_size": 2, "strides": 2}, {"kernel_size": 3, "dilation_rate": 2},
    {"kernel_size": 2, "dilation_rate": 3, "padding": "causal"},
], ids=str)
@pytest.mark.parametrize("rows,channels,filters,time", [(1, 1, 1, 7), (3, 3, 17, 13),
                                                        (2, 1, 3, 300)])
def test_conv1d(case, rows, channels, filters, time):
    k, s, d = (case.get(n, 1) for n in ("kernel_size", "strides", "dilation_rate"))

    def function(x, kernel, bias=None):
        if case.get("padding") == "same":
            x = F.pad(x, same((time,), (k,), (s,), (d,)))
        elif case.get("padding") == "causal":
            x = F.pad(x, ((k - 1) * d, 0))
        return F.conv1d(x, torch_kernel(kernel), bias, s, dilation=d)

    compare(layers.Conv1D(filters, **case), [random(rows, channels, time)], function)


# ---- pooling -------------------------------------------------------------------------------

POOLING = {
    "max": (lambda: layers.MaxPooling2D(2), lambda x: F.max_pool2d(x, 2)),
    "max (2, 3) by 1": (lambda: layers.MaxPooling2D((2, 3), 1),
                        lambda x: F.max_pool2d(x, (2, 3), 1)),
    "max same": (lambda: layers.MaxPooling2D(3, 2, "same"), lambda x: F.max_pool2d(x, 3, 2, 1)),
    "average": (lambda: layers.AveragePooling2D((2, 3)), lambda x: F.avg_pool2d(x, (2, 3))),
    "average 3 by 2": (lambda: layers.AveragePooling2D(3, 2), lambda x: F.avg_pool2d(x, 3, 2)),
    "average same": (lambda: layers.AveragePooling2D(3, 1, "same"),
                     lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)),
    "global max": (layers.GlobalMaxPooling2D, lambda x: x.amax((2, 3))),
    "global average": (layers.GlobalAveragePooling2D, lambda x: x.mean((2, 3))),
}


@pytest.mark.parametrize("name", POOLING)
@pytest.mark.parametrize("rows,channels", [(1, 1), (3, 17)])
def test_pooling2d(name, rows, channels):
    make, function = POOLING[name]
    compare(make(), [random(rows, channels, 5, 7)], function)


@pytest.mark.parametrize("make,function", [
    (lambda: layers.MaxPooling1D(2), lambda x: F.max_pool1d(x, 2)),
    (lambda: layers.MaxPooling1D(3, 1, "same"), lambda x: F.max_pool1d(x, 3, 1, 1)),
    (lambda: layers.AveragePooling1D(3, 2), lambda x: F.avg_pool1d(x, 3, 2)),
    (layers.GlobalMaxPooling1D, lambda x: x.amax(2)),
    (layers.GlobalAveragePooling1D, lambda x: x.mean(2)),
], ids=["max", "max same", "average", "global max", "global average"])
@pytest.mark.parametrize("time", [7, 300])
def test_pooling1d(make, function, time):
    compare(make(), [random(2, 3, time)], function)


# ---- normalisation -------------------------------------------------------------------------

def channels_second(x, axis):
    return x.movedim(axis, 1)


@pytest.mark.parametrize("sizes,axis", [((7, 1), 1), ((33, 3), 1), ((3, 2, 13), 1),
                                        ((2, 3, 5, 7), 1), ((2, 5, 7, 3), -1)], ids=str)
@pytest.mark.parametrize("options", [{}, {"center": False, "scale": False, "epsilon": 1e-5}],
                         ids=str)
def test_batch_norm_in_training_and_its_running_statistics(sizes, axis, options):
    """Ten steps; PyTorch's variance is that of a sample, Keras' that of the batch itself."""
    layer = layers.BatchNormalization(axis, momentum=0.9, **options)
    case = Case(layer, [3 * random(*sizes) + 2])
    epsilon = options.get("epsilon", 1e-3)
    x, given = double(case.xs[0]), {n: double(w) for n, w in case.weights.items()}
    channels = sizes[axis]
    n = x.numel() // channels
    mean, variance = torch.zeros(channels).double(), torch.ones(channels).double()
    biased = torch.ones(channels).double()

    def step():
        return F.batch_norm(channels_second(x, axis), mean, variance, given.get("gamma"),
                            given.get("beta"), True, 0.1, epsilon).movedim(1, axis)

    out = step()
    check_outputs(case.training_outputs(), [out.detach().numpy()])
    (out * double(case.douts()[0], False)).sum().backward()
    expected = {v.name: given[v.name].grad.numpy() for v in layer.weights if v.trainable}
    check_gradients(case.gradients(), expected | {"xs": [x.grad.numpy()]})
    with case.trainer() as trainer:
        for _ in range(10):
            trainer.step(case.zeros, case.douts()[0])
        moved = {v.name: v.numpy() for v in trainer.model().weights}
    for _ in range(9):
        step()
    # what a step adds to the variance, without the correction n / (n - 1)
    biased = 0.9 ** 10 * biased + (variance - 0.9 ** 10) * (n - 1) / n
    check_outputs([moved["moving_mean"], moved["moving_variance"]],
                  [mean.numpy(), biased.numpy()])


@pytest.mark.parametrize("sizes,axis", [((1, 3), 1), ((2, 3, 5, 7), 1), ((2, 5, 3), 2)], ids=str)
def test_batch_norm_in_evaluation(sizes, axis):
    statistics = {"moving_mean": random(3, seed=3), "moving_variance": random(3, seed=4) ** 2 + 0.1}
    case = Case(layers.BatchNormalization(axis), [random(*sizes)], weights=statistics)
    w = {name: double(value, False) for name, value in case.weights.items()}
    want = F.batch_norm(channels_second(double(case.xs[0], False), axis), w["moving_mean"],
                        w["moving_variance"], w["gamma"], w["beta"], eps=1e-3).movedim(1, axis)
    check_outputs(case.forward(), [want.numpy()])


@pytest.mark.parametrize("sizes", [(1, 3), (9, 33), (2, 5, 7), (1, 300, 17)], ids=str)
@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": False, "epsilon": 1e-5}],
                         ids=str)
def test_layer_norm(sizes, options):
    def function(x, gamma=None, beta=None):
        return F.layer_norm(x, sizes[-1:], gamma, beta, options.get("epsilon", 1e-3))

    compare(layers.LayerNormalization(**options), [2 * random(*sizes) + 1], function)


@pytest.mark.parametrize("sizes", [(1, 1), (9, 33), (2, 5, 7)], ids=str)
def test_rms_norm(sizes):
    compare(layers.RMSNormalization(epsilon=1e-3), [random(*sizes)],
            lambda x, scale: F.rms_norm(x, sizes[-1:], scale, 1e-3))


# ---- merging -------------------------------------------------------------------------------

MERGING = {
    "add": (layers.Add, lambda *xs: sum(xs)),
    "subtract": (layers.Subtract, lambda a, b: a - b),
    "multiply": (layers.Multiply, lambda *xs: torch.stack(xs).prod(0)),
    "average": (layers.Average, lambda *xs: torch.stack(xs).mean(0)),
    "maximum": (layers.Maximum, lambda *xs: torch.stack(xs).amax(0)),
    "concatenate": (layers.Concatenate, lambda *xs: torch.cat(xs, -1)),
}


@pytest.mark.parametrize("name", MERGING)
@pytest.mark.parametrize("sizes", [(1, 1), (3, 17), (2, 3, 5, 7)], ids=str)
def test_merging(name, sizes):
    make, function = MERGING[name]
    compare(make(), [random(*sizes, seed=i) for i in range(2 if name == "subtract" else 3)],
            function)


def test_concatenate_along_another_axis():
    compare(layers.Concatenate(1), [random(2, 3, 7), random(2, 5, 7)],
            lambda *xs: torch.cat(xs, 1))


@pytest.mark.parametrize("normalize", [False, True])
def test_dot(normalize):
    def function(a, b):
        if normalize:
            a, b = F.normalize(a, dim=1), F.normalize(b, dim=2)
        return torch.einsum("nij,nki->njk", a, b)

    compare(layers.Dot((1, 2), normalize=normalize), [random(3, 4, 5), random(3, 7, 4)], function)


# ---- recurrent layers ----------------------------------------------------------------------

def last_gate_first(gates, order):
    """Blocks of the last axis in another order."""
    parts = gates.chunk(len(order), -1)
    return torch.cat([parts[i] for i in order], -1)


def recurrent(kind, activation="tanh"):
    """A module's functional form, and what it is to be given of our weights."""
    if kind is layers.SimpleRNN:
        run = torch.rnn_tanh if activation == "tanh" else torch.rnn_relu
        order = (0,)
    elif kind is layers.LSTM:
        run, order = torch.lstm, (0, 1, 2, 3)  # both keep i, f, c, o
    else:
        run, order = torch.gru, (1, 0, 2)  # z, r, h here; r, z, n there

    def parameters(units, kernel, recurrent_kernel, bias=None):
        w, u = (last_gate_first(k, order).T for k in (kernel, recurrent_kernel))
        given = [w, u]
        if bias is not None:
            b = last_gate_first(bias, order)
            given += [b[0], b[1]] if kind is layers.GRU else [b, torch.zeros_like(b)]
        return given

    def function(x, units, hidden, weights, both=None):
        n = 2 if both else 1
        start = [torch.zeros(n, x.shape[0], units).double() for _ in range(2)] \
            if hidden is None else [h[None] for h in hidden]
        start = start if kind is layers.LSTM else start[0]
        given = parameters(units, **weights)
        if both:
            given += parameters(units, **both)
        y, *states = run(x, start, given, "bias" in weights, 1, 0.0, False, both is not None, True)
        return y, [s[0] for s in states]

    return function


KINDS = [layers.SimpleRNN, layers.LSTM, layers.GRU]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes,units", [((1, 1, 1), 1), ((3, 5, 1), 7), ((2, 4, 7), 17),
                                         ((1, 3, 3), 33), ((2, 300, 3), 3)], ids=str)
@pytest.mark.parametrize("how", [
    {}, {"return_sequences": True}, {"go_backwards": True, "return_sequences": True},
    {"use_bias": False},
], ids=str)
def test_recurrent_layers(kind, sizes, units, how):
    run = recurrent(kind)

    def function(x, **weights):
        if how.get("go_backwards"):
            x = x.flip(1)
        y, _ = run(x, units, None, weights)
        return y if how.get("return_sequences") else y[:, -1]

    compare(kind(units, **how), [random(*sizes)], function)


def test_simple_rnn_with_relu():
    run = recurrent(layers.SimpleRNN, "relu")
    compare(layers.SimpleRNN(3, "relu"), [random(2, 4, 5)],
            lambda x, **weights: run(x, 3, None, weights)[0][:, -1])


@pytest.mark.parametrize("kind", KINDS)
def test_initial_and_final_states(kind):
    layer = kind(3, return_state=True, return_sequences=True)
    run = recurrent(kind)

    def function(x, *hidden, **weights):
        y, states = run(x, 3, hidden, weights)
        return [y, *states]

    xs = [random(2, 4, 5), *(random(2, 3, seed=i) for i in range(layer.n_states))]
    compare(layer, xs, function, lambda layer, given: layer(given[0], initial_state=given[1:]))


@pytest.mark.parametrize("kind", KINDS)
def test_bidirectional(kind):
    layer = layers.Bidirectional(kind(3, return_sequences=True))
    case = Case(layer, [random(2, 5, 4)])
    half = len(layer.weights) // 2
    sides = [{v.name: double(v.numpy()) for v in part}
             for part in (layer.weights[:half], layer.weights[half:])]
    x = double(case.xs[0])
    y, _ = recurrent(kind)(x, 3, None, *sides)
    check_outputs(case.forward(), [y.detach().numpy()])
    dout = case.douts()[0]
    (y * double(dout, False)).sum().backward()
    with case.trainer() as trainer:
        found = trainer.gradients(case.zeros, dout)
    wanted = [t.grad.numpy() for side in sides for t in side.values()]
    names = [case.model.weight_names[v] for v in layer.weights]
    check_gradients({"xs": [found[n] * dout.size for n in (f"given_0_{layer.name}/offset",
                                                           *names)]},
                    {"xs": [x.grad.numpy(), *wanted]})


# ---- attention -----------------------------------------------------------------------------

@pytest.mark.parametrize("heads,key_dim,rows,times", [(1, 1, 1, (1, 1)), (3, 7, 2, (5, 4)),
                                                      (2, 3, 1, (17, 33)), (2, 2, 1, (300, 300))])
@pytest.mark.parametrize("how", ["plain", "causal", "padding", "both"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_multi_head_attention(heads, key_dim, rows, times, how, use_bias):
    """Against torch.nn.functional.multi_head_attention_forward, what MultiheadAttention runs."""
    width, (queries, keys) = heads * key_dim, times
    if how in ("causal", "both") and queries != keys:
        keys = queries
    visible = np.ones((queries, keys), bool)
    if how in ("padding", "both"):
        visible[:, -max(1, keys // 3):] = keys == 1
    options = {"use_causal_mask": how in ("causal", "both")}
    if how in ("padding", "both"):
        options["attention_mask"] = visible
    seen = visible & np.tri(queries, keys, dtype=bool) if options["use_causal_mask"] else visible
    layer = layers.MultiHeadAttention(heads, key_dim, use_bias=use_bias)

    def function(q, v, **w):
        matrices = [w[f"{n}_kernel"].reshape(width, width).T for n in ("query", "key", "value")]
        bias = torch.cat([w[f"{n}_bias"].flatten() for n in ("query", "key", "value")]) \
            if use_bias else None
        out, _ = F.multi_head_attention_forward(
            q.transpose(0, 1), v.transpose(0, 1), v.transpose(0, 1), width, heads,
            torch.cat(matrices), bias, None, None, False, 0.0,
            w["output_kernel"].reshape(width, width).T, w.get("output_bias"),
            need_weights=False, attn_mask=torch.tensor(~seen))
        return out.transpose(0, 1)

    compare(layer, [random(rows, queries, width), random(rows, keys, width, seed=1)], function,
            lambda layer, given: layer(*given, **options),
            zero=("key_bias",) if use_bias else ())
