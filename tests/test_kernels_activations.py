from math import erfc

import numpy as np
import pytest

from pyggml import _kernels as K

PARAM = {"leaky_relu": 0.2, "elu": 0.7, "at_least": -1.5, "at_most": 2.5}
SELU = 1.0507009873554805, 1.6732632423543772


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def cdf(x):
    return 0.5 * np.vectorize(erfc)(-x / np.sqrt(2))


def gelu_tanh(x):
    return x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


FORWARD = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0))),
    "selu": lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: x * cdf(x),
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "tanh": np.tanh,
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "exponential": np.exp,
    "at_least": lambda x: np.maximum(x, -1.5),
    "at_most": lambda x: np.minimum(x, 2.5),
}


def slope(act, x):
    """Derivative by central differences in float64, away from kinks."""
    h = 1e-5
    return (FORWARD[act](x + h) - FORWARD[act](x - h)) / (2 * h)


def inputs(n):
    x = np.linspace(-12, 12, n) if n > 1 else np.array([0.3])
    return (x + 0.00123).astype(np.float32)


@pytest.mark.parametrize("n", [1, 3, 7, 17, 33, 1001, 70001])
@pytest.mark.parametrize("act", FORWARD)
def test_forward_and_backward(rng, close, threads, act, n):
    x, p = inputs(n), PARAM.get(act, 0.0)
    x64 = x.astype(np.float64)
    y = np.empty_like(x)
    K.act_forward(act, p, x, y)
    np.testing.assert_allclose(y, FORWARD[act](x64), rtol=1e-5, atol=1e-30)
    dy = rng.normal(size=n).astype(np.float32)
    dx = np.empty_like(x)
    K.act_backward(act, p, dy, x, None, dx)
    want = dy * slope(act, x64)
    # derivatives that cross zero keep the error of their terms
    np.testing.assert_allclose(dx, want, rtol=1e-4, atol=5e-7)
    if K.act_from_y(act):
        K.act_backward(act, p, dy, None, y, dx)
        # what y = f(x) has rounded away cannot be had back
        np.testing.assert_allclose(dx, want, rtol=1e-4, atol=1e-6 * max(1, np.abs(want).max()))
    in_place = x.copy()
    K.act_forward(act, p, in_place, in_place)
    # Of the threads that share the work only those of the pool take denormals for 0.
    np.testing.assert_allclose(in_place, y, rtol=0, atol=1e-37)


def ulps(got, want):
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))


@pytest.mark.parametrize("act, limit", [("exponential", 2), ("tanh", 4), ("sigmoid", 4),
                                        ("softplus", 4), ("elu", 4), ("gelu", 8), ("silu", 5)])
def test_units_in_the_last_place(act, limit):
    x = np.concatenate([np.linspace(-11, 11, 200001), np.geomspace(1e-20, 1, 20001),
                        -np.geomspace(1e-20, 1, 20001)]).astype(np.float32)
    y = np.empty_like(x)
    K.act_forward(act, 1.0, x, y)
    x64 = x.astype(np.float64)
    want = np.where(x64 > 0, x64, np.expm1(x64)) if act == "elu" else FORWARD[act](x64)
    assert ulps(y, want).max() <= limit


@pytest.mark.parametrize("act", FORWARD)
def test_limits(act):
    x = np.array([np.nan, np.inf, -np.inf, 1e4, -1e4, 0.0], np.float32)
    y, dx = np.empty_like(x), np.empty_like(x)
    p = PARAM.get(act, 0.0)
    K.act_forward(act, p, x, y)
    K.act_backward(act, p, np.ones_like(x), x, None, dx)
    with np.errstate(all="ignore"):
        want = FORWARD[act](x.astype(np.float64)).astype(np.float32)
    want[0] = np.nan
    at_minus_inf = {"gelu": 0, "gelu_tanh": 0, "silu": 0, "mish": 0, "hard_swish": 0}
    want[2] = at_minus_inf.get(act, want[2])
    if act == "softsign":
        want[1:3] = 1, -1
    if act == "exponential":
        want[3] = np.inf
    # the largest floats stand for infinity where f(-inf) or f(inf) is a product with it
    got = np.where(np.abs(y) > 2.9e38, np.copysign(np.inf, y), y)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30)
    assert not np.isnan(dx[1:]).any()


@pytest.mark.parametrize("rows, n", [(1, 1), (3, 7), (17, 33), (5, 100), (300, 129)])
@pytest.mark.parametrize("act", ["linear", "relu", "silu"])
def test_bias_and_activation(rng, close, threads, act, rows, n):
    x, bias = rng.normal(size=(rows, n)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    z, y = np.empty_like(x), np.empty_like(x)
    K.bias_act(act, 0.0, x, bias, z, y)
    close(z, x.astype(np.float64) + bias)
    close(y, FORWARD[act](x.astype(np.float64) + bias))
    K.bias_act(act, 0.0, x, None, None, y)
    close(y, FORWARD[act](x.astype(np.float64)))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 17, 33), (33, 3, 50), (64, 16, 196)])
def test_channels(rng, close, threads, shape):
    x = rng.normal(size=shape).astype(np.float32)
    bias = rng.normal(size=shape[1]).astype(np.float32)
    z, y = np.empty_like(x), np.empty_like(x)
    K.bias_act_channels("relu", 0.0, x, bias, z, y)
    close(y, np.maximum(x.astype(np.float64) + bias[:, None], 0))
    out = np.ones(shape[1], np.float32)
    K.sum_channels(x, 0.0, out)
    close(out, x.astype(np.float64).sum((0, 2)))


@pytest.mark.parametrize("rows, n", [(1, 1), (3, 7), (17, 33), (128, 10), (5000, 3), (300, 700),
                                     (70000, 2)])
def test_sum_rows(rng, close, threads, rows, n):
    x = rng.normal(size=(rows, n)).astype(np.float32)
    out = np.ones(n, np.float32)
    K.sum_rows(x, 2.0, out)
    close(out, x.astype(np.float64).sum(0) + 2)


def test_elementwise(rng, close, threads):
    for n in (1, 17, 100001):
        a, b = rng.normal(size=(2, n)).astype(np.float32)
        c = np.empty_like(a)
        K.axpby(2.0, a, -3.0, b, c)
        close(c, 2.0 * a.astype(np.float64) - 3.0 * b.astype(np.float64))
        K.mul(a, b, c)
        assert (c == a * b).all()


def test_gelu_tail():
    x = np.array([-5, -8, -10, -12], np.float32)
    y = np.empty_like(x)
    K.act_forward("gelu", 0.0, x, y)
    want = [v * 0.5 * erfc(-v / np.sqrt(2)) for v in x.astype(np.float64)]
    np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.parametrize(("shape", "axes"), [
    ((5, 7), (1, 0)), ((33, 70), (1, 0)), ((3, 300, 17), (0, 2, 1)), ((4, 3, 18, 19), (0, 2, 3, 1)),
    ((4, 18, 19, 3), (0, 3, 1, 2)), ((5, 2, 16, 33), (3, 1, 0, 2)), ((2, 3, 4, 65), (3, 2, 1, 0)),
    ((2, 35, 1, 9), (1, 3, 2, 0)), ((40, 64, 1, 3), (0, 3, 2, 1)), ((1, 6, 50, 1), (0, 3, 2, 1)),
])
def test_permuted_axes_are_copied(rng, threads, shape, axes):
    x = rng.normal(size=shape).astype(np.float32).transpose(axes)
    out = np.full(x.shape, 7, np.float32)
    K.copy_permuted(x, out)
    np.testing.assert_array_equal(out, x)


def test_a_copy_that_turns_no_axes_is_refused(rng):
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    for wrong in (x, x.transpose(1, 0, 2), x[:, :, ::2]):
        out = np.full(wrong.shape, 7, np.float32)
        with pytest.raises(ValueError):
            K.copy_permuted(wrong, out)
        assert (out == 7).all()
