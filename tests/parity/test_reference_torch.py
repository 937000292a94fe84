"""The references against PyTorch, wherever both have the same thing (extra ``parity``)."""

import numpy as np
import pytest
from reference import (
    activations,
    attention,
    conv,
    merge,
    metrics,
    norm,
    optimizers,
    pooling,
    recurrent,
    shape,
)
from reference.gradcheck import normal, relative_error
from reference.losses import loss

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.parity
TOLERANCE = 1e-10


def tensors(*arrays):
    return [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]


def compare(result, inputs, output, tolerance=TOLERANCE):
    """``result`` is a reference's (out, backward); ``inputs`` maps its argument names to tensors,
    or to (tensor, function from the tensor's gradient to the reference's layout)."""
    out, backward = result
    assert relative_error(out, output.detach().numpy()) < TOLERANCE
    dout = normal(*out.shape, seed=9)
    grads = backward(dout)
    output.backward(torch.tensor(dout))
    for name, tensor in inputs.items():
        tensor, layout = tensor if isinstance(tensor, tuple) else (tensor, lambda g: g)
        assert relative_error(grads[name], layout(tensor.grad.numpy())) < tolerance, name


ACTIVATIONS = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "tanh": torch.tanh,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "softsign": F.softsign,
    "mish": F.mish,
    "exponential": torch.exp,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    array = np.concatenate([normal(5, 33) * 4, np.linspace(-29.7, 31.2, 33)[None]])
    (x,) = tensors(array)
    # PyTorch's slope of hard_sigmoid is 1/6 in single precision
    tolerance = 1e-7 if name == "hard_sigmoid" else TOLERANCE
    compare(activations.activation_layer(array, name), {"x": x}, ACTIVATIONS[name](x), tolerance)


def probabilities(*size, seed=0):
    return activations.softmax(normal(*size, seed=seed))


def test_losses():
    y, p = normal(7, 3), normal(7, 3, seed=1)
    q, target = probabilities(7, 3, seed=2), probabilities(7, 3, seed=3)
    inner = np.abs(q) * 0.9 + 0.05
    labels = np.arange(7) % 3
    onehot = np.eye(3)[labels]
    t, index = torch.tensor, torch.tensor(labels)
    cases = [
        (loss("mse", y, p), p, lambda x: F.mse_loss(x, t(y))),
        (loss("mae", y, p), p, lambda x: F.l1_loss(x, t(y))),
        (loss("huber", y, p, delta=0.7), p, lambda x: F.huber_loss(x, t(y), delta=0.7)),
        (loss("log_cosh", y, p), p, lambda x: torch.log(torch.cosh(x - t(y))).mean()),
        (loss("hinge", np.sign(y), p), p, lambda x: torch.relu(1 - x * t(np.sign(y))).mean()),
        (
            loss("poisson", np.abs(y), inner),
            inner,
            lambda x: F.poisson_nll_loss(x, t(np.abs(y)), log_input=False, eps=1e-7),
        ),
        (loss("binary_crossentropy", q, inner), inner, lambda x: F.binary_cross_entropy(x, t(q))),
        (
            loss("binary_crossentropy", q, p, from_logits=True),
            p,
            lambda x: F.binary_cross_entropy_with_logits(x, t(q)),
        ),
        (
            loss("categorical_crossentropy", target, p, from_logits=True),
            p,
            lambda x: F.cross_entropy(x, t(target)),
        ),
        (
            loss(
                "sparse_categorical_crossentropy", labels, p, from_logits=True, label_smoothing=0.2
            ),
            p,
            lambda x: F.cross_entropy(x, index, label_smoothing=0.2),
        ),
        (
            loss("kl_divergence", target, q),
            q,
            lambda x: F.kl_div(x.log(), t(target), reduction="batchmean"),
        ),
        (
            loss("cosine_similarity", y, p),
            p,
            lambda x: -F.cosine_similarity(x, t(y), eps=1e-7).mean(),
        ),
        (
            loss("categorical_focal_crossentropy", onehot, p, from_logits=True),
            p,
            lambda x: (
                (-0.25 * (1 - torch.softmax(x, 1)) ** 2 * torch.log_softmax(x, 1) * t(onehot)).sum()
                / 7
            ),
        ),
    ]
    for i, (got, at, function) in enumerate(cases):
        (x,) = tensors(at)
        want = function(x)
        want.backward()
        assert relative_error(got.total, want.item()) < TOLERANCE, i
        assert relative_error(got.grad, x.grad.numpy()) < TOLERANCE, i


def keras_kernel(g):
    """[out, in, h, w] to (h, w, in, out)."""
    return g.transpose(2, 3, 1, 0)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("strides", "dilation"), [(1, 1), ((2, 3), 1), (1, 2)])
def test_conv2d(padding, strides, dilation):
    x, w, b = normal(2, 3, 5, 7), normal(4, 3, 2, 3), normal(4)
    tx, tw, tb = tensors(x, w, b)
    sides = [(0, 0), (0, 0)]
    if padding == "same":
        s = (strides, strides) if isinstance(strides, int) else strides
        sides = conv.spatial_padding((5, 7), (2, 3), s, (dilation, dilation), "same")
    padded = F.pad(tx, (*sides[1], *sides[0]))
    want = F.conv2d(padded, tw, tb, stride=strides, dilation=dilation)
    got = conv.conv(x, keras_kernel(w), b, strides, dilation, padding)
    compare(got, {"x": tx, "kernel": (tw, keras_kernel), "bias": tb}, want)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_same_padding_is_torchs_without_strides():
    for k, d in [(2, 1), (3, 2), (4, 1), (2, 3)]:
        x, w = normal(1, 2, 9), normal(3, 2, k)
        tx, tw = tensors(x, w)
        got = conv.conv(x, w.transpose(2, 1, 0), dilation_rate=d, padding="same")
        compare(got, {"x": tx}, F.conv1d(tx, tw, padding="same", dilation=d))


def test_conv1d_causal():
    x, w = normal(2, 3, 9), normal(4, 3, 3)
    tx, tw = tensors(x, w)
    got = conv.conv(x, w.transpose(2, 1, 0), dilation_rate=2, padding="causal")
    kernel = (tw, lambda g: g.transpose(2, 1, 0))
    compare(got, {"x": tx, "kernel": kernel}, F.conv1d(F.pad(tx, (4, 0)), tw, dilation=2))


def test_depthwise_and_transpose():
    x, w, b = normal(2, 3, 5, 7), normal(6, 1, 2, 3), normal(6)
    tx, tw, tb = tensors(x, w, b)

    def layout(g):  # [c * m, 1, h, w] to (h, w, c, m)
        return g.reshape(3, 2, 2, 3).transpose(2, 3, 0, 1)

    got = conv.depthwise_conv2d(x, layout(w), b, strides=2)
    want = F.conv2d(tx, tw, tb, stride=2, groups=3)
    compare(got, {"x": tx, "depthwise_kernel": (tw, layout), "bias": tb}, want)

    wide = normal(3, 4, 4, 4)  # [in, out, h, w]
    tx, tw = tensors(x, wide)
    got = conv.conv2d_transpose(x, keras_kernel(wide), strides=2, padding="same")
    want = F.conv_transpose2d(tx, tw, stride=2, padding=1)
    compare(got, {"x": tx, "kernel": (tw, keras_kernel)}, want)
    w = normal(3, 4, 3, 3)
    for options, torch_options in [
        ({}, {}),
        ({"strides": 2}, {}),
        ({"strides": 2, "output_padding": 1}, {"output_padding": 1}),
        ({"padding": "same"}, {"padding": 1}),
        ({"dilation_rate": 2}, {"dilation": 2}),
    ]:
        tx, tw = tensors(x, w)
        got = conv.conv2d_transpose(x, keras_kernel(w), **options)
        stride = options.get("strides", 1)
        want = F.conv_transpose2d(tx, tw, stride=stride, **torch_options)
        compare(got, {"x": tx, "kernel": (tw, keras_kernel)}, want)


def test_pooling_and_upsampling():
    x = normal(2, 3, 5, 7)
    for result, function in [
        (pooling.max_pooling(x, (2, 3), 2), lambda t: F.max_pool2d(t, (2, 3), 2)),
        (pooling.average_pooling(x, 3, 2), lambda t: F.avg_pool2d(t, 3, 2)),
        (
            pooling.average_pooling(x, 3, 1, "same"),
            lambda t: F.avg_pool2d(t, 3, 1, 1, count_include_pad=False),
        ),
        (pooling.max_pooling(x, 3, 2, "same"), lambda t: F.max_pool2d(t, 3, 2, 1)),
        (pooling.global_max_pooling(x), lambda t: t.amax((2, 3))),
        (pooling.global_average_pooling(x), lambda t: t.mean((2, 3))),
        (shape.upsampling2d(x, (2, 3)), lambda t: F.interpolate(t, scale_factor=(2, 3))),
        (
            shape.upsampling2d(x, (2, 3), "bilinear"),
            lambda t: F.interpolate(t, scale_factor=(2, 3), mode="bilinear"),
        ),
        (shape.zero_padding2d(x, ((1, 2), (0, 3))), lambda t: F.pad(t, (0, 3, 1, 2))),
    ]:
        (t,) = tensors(x)
        compare(result, {"x": t}, function(t))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training):
    x, g, b = normal(4, 3, 5, 2), normal(3), normal(3, seed=1)
    mean, variance = normal(3, seed=2), normal(3, seed=3) ** 2
    tx, tg, tb = tensors(x, g, b)
    want = F.batch_norm(
        tx, torch.tensor(mean), torch.tensor(variance), tg, tb, training=training, eps=1e-3
    )
    got = norm.batch_norm(x, g, b, mean, variance, training=training)
    compare(got, {"x": tx, "gamma": tg, "beta": tb}, want)


def test_layer_and_rms_norm():
    x, g, b = normal(4, 3, 5), normal(3, 5), normal(3, 5, seed=1)
    tx, tg, tb = tensors(x, g, b)
    got = norm.layer_norm(x, g, b, axis=(1, 2))
    compare(got, {"x": tx, "gamma": tg, "beta": tb}, F.layer_norm(tx, (3, 5), tg, tb, 1e-3))
    x, g = normal(4, 3), normal(3)
    tx, tg = tensors(x, g)
    compare(norm.rms_norm(x, g), {"x": tx, "scale": tg}, F.rms_norm(tx, (3,), tg, 1e-6))


def gate_order(array, order):
    """Blocks of the last axis in another order."""
    blocks = np.split(array, len(order), axis=-1)
    return np.concatenate([blocks[i] for i in order], axis=-1)


@pytest.mark.parametrize(
    ("layer", "module", "gates", "order"),
    [
        (recurrent.simple_rnn, torch.nn.RNN, 1, [0]),
        (recurrent.lstm, torch.nn.LSTM, 4, [0, 1, 2, 3]),  # both i, f, cell, o
        (recurrent.gru, torch.nn.GRU, 3, [1, 0, 2]),  # PyTorch: r, z, h
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_recurrent(layer, module, gates, order, both):
    def read(p):
        """PyTorch's gate order and (out, in) kernels to Keras'."""
        return gate_order(p.T, order)

    net = module(2, 3, batch_first=True, bidirectional=both).double()
    given, wanted = [], []
    for end in ("", "_reverse") if both else ("",):
        w, u, b, c = (
            getattr(net, name + end)
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        )
        bias = [read(v.detach().numpy()) for v in (b, c)]
        given.append(
            {
                "kernel": read(w.detach().numpy()),
                "recurrent_kernel": read(u.detach().numpy()),
                "bias": np.stack(bias) if layer is recurrent.gru else bias[0] + bias[1],
            }
        )
        wanted.append((w, u, b, c))
    x = normal(2, 6, 2)
    (tx,) = tensors(x)
    want, _ = net(tx)
    if both:
        (got, _), backward = recurrent.bidirectional(x, *given, layer=layer, return_sequences=True)
    else:
        (got, _), backward = layer(x, **given[0], return_sequences=True)
    assert relative_error(got, want.detach().numpy()) < TOLERANCE
    dout = normal(*got.shape, seed=9)
    want.backward(torch.tensor(dout))
    grads = backward(dout)
    assert relative_error(grads["x"], tx.grad.numpy()) < TOLERANCE
    sides = [grads["forward_weights"], grads["backward_weights"]] if both else [grads]
    for side, (w, u, b, c) in zip(sides, wanted, strict=True):
        assert relative_error(side["kernel"], read(w.grad.numpy())) < TOLERANCE
        assert relative_error(side["recurrent_kernel"], read(u.grad.numpy())) < TOLERANCE
        bias = read(b.grad.numpy())
        bias = np.stack([bias, read(c.grad.numpy())]) if layer is recurrent.gru else bias
        assert relative_error(side["bias"], bias) < TOLERANCE


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    heads, dim, key_dim = 2, 6, 3
    q, v = normal(2, 5, dim), normal(2, 5, dim, seed=1)
    kernels = [normal(dim, heads, key_dim, seed=i) for i in range(3)]
    out, bias = normal(heads, key_dim, dim), normal(dim)
    tq, tv, *tk, to, tb = tensors(q, v, *kernels, out, bias)
    a, b, c = (torch.einsum("ntd,dhk->nhtk", x, k) for x, k in zip((tq, tv, tv), tk, strict=True))
    mixed = F.scaled_dot_product_attention(a, b, c, is_causal=causal)
    want = torch.einsum("nhtk,hko->nto", mixed, to) + tb
    got = attention.multi_head_attention(
        q, v, query_kernel=kernels[0], key_kernel=kernels[1], value_kernel=kernels[2],
        output_kernel=out, output_bias=bias, use_causal_mask=causal,
    )  # fmt: skip
    names = {"query": tq, "value": tv, "output_kernel": to, "output_bias": tb}
    names |= dict(zip(("query_kernel", "key_kernel", "value_kernel"), tk, strict=True))
    compare(got, names, want)


def test_dot():
    a, b = normal(3, 4, 5), normal(3, 4, 2)
    ta, tb = tensors(a, b)
    out, backward = merge.dot([a, b], axes=1, normalize=True)
    want = torch.einsum("nij,nik->njk", F.normalize(ta, dim=1), F.normalize(tb, dim=1))
    dout = normal(*out.shape)
    want.backward(torch.tensor(dout))
    assert relative_error(out, want.detach().numpy()) < TOLERANCE
    for got, t in zip(backward(dout)["xs"], (ta, tb), strict=True):
        assert relative_error(got, t.grad.numpy()) < TOLERANCE


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: optimizers.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (lambda: optimizers.SGD(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, 0.9)),
        (
            lambda: optimizers.SGD(0.1, 0.9, nesterov=True),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True),
        ),
        (lambda: optimizers.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
        (
            lambda: optimizers.AdamW(0.01, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
        ),
        (
            lambda: optimizers.RMSprop(epsilon=1e-30, lr=0.01, momentum=0.5),
            lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9, eps=1e-15, momentum=0.5),
        ),
        (
            lambda: optimizers.RMSprop(epsilon=1e-30, lr=0.01, centered=True),
            lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9, eps=1e-15, centered=True),
        ),
        (
            lambda: optimizers.Adagrad(epsilon=1e-30, lr=0.01),
            lambda p: torch.optim.Adagrad(p, 0.01, initial_accumulator_value=0.1, eps=1e-15),
        ),
    ],
)
def test_optimizer(ours, theirs):
    # Keras has epsilon inside the root of RMSprop and Adagrad, PyTorch outside: negligible here
    weights = [normal(4, 3), normal(3)]
    params = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    mine, other = ours(), theirs(params)
    for step in range(100):
        grads = [normal(*w.shape, seed=step) for w in weights]
        weights = mine.step(weights, grads)
        for p, g in zip(params, grads, strict=True):
            p.grad = torch.tensor(g)
        other.step()
    for w, p in zip(weights, params, strict=True):
        assert relative_error(w, p.detach().numpy()) < TOLERANCE


def test_clipping():
    grads = [normal(4, 3), normal(3)]
    params = [torch.nn.Parameter(torch.tensor(g)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.tensor(g)
    torch.nn.utils.clip_grad_norm_(params, 0.5)
    for got, p in zip(optimizers.clip_gradients(grads, global_clipnorm=0.5), params, strict=True):
        assert relative_error(got, p.grad.numpy()) < 1e-5  # PyTorch adds 1e-6 to the norm


def test_metrics_against_sklearn():
    sk = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    y, p, w = rng.integers(0, 2, 80), rng.integers(0, 9, 80) / 9, rng.random(80)
    guess = p > 0.5
    real = normal(80)
    for got, want in [
        (metrics.auc(y, p, w), sk.roc_auc_score(y, p, sample_weight=w)),
        (metrics.precision(y, p, w), sk.precision_score(y, guess, sample_weight=w)),
        (metrics.recall(y, p, w), sk.recall_score(y, guess, sample_weight=w)),
        (metrics.f1(y, p, w), sk.f1_score(y, guess, sample_weight=w)),
        (metrics.r2(real, p, w), sk.r2_score(real, p, sample_weight=w)),
        (metrics.mse(real, p, w), sk.mean_squared_error(real, p, sample_weight=w)),
        (metrics.mae(real, p, w), sk.mean_absolute_error(real, p, sample_weight=w)),
        (metrics.binary_accuracy(y, p, w), sk.accuracy_score(y, guess, sample_weight=w)),
    ]:
        assert got == pytest.approx(want, rel=1e-12)
