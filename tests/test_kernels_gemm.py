import time

import numpy as np
import pytest

from pyggml import _kernels as K

SHAPES = [
    (1, 1, 1), (1, 7, 3), (3, 1, 17), (2, 33, 5), (7, 7, 7), (4, 16, 9), (17, 33, 65),
    (32, 10, 128), (32, 128, 10), (31, 100, 64), (64, 4, 32), (1, 128, 784), (1, 784, 128),
    (5, 65, 200), (32, 128, 784), (128, 784, 32), (129, 257, 33), (170, 1030, 40), (47, 1100, 130),
    (300, 70, 500), (45, 45, 1000), (13, 600, 600), (200, 512, 512),
]


def operands(rng, ta, tb, m, n, k):
    a = rng.normal(size=(k, m) if ta else (m, k)).astype(np.float32)
    b = rng.normal(size=(n, k) if tb else (k, n)).astype(np.float32)
    exact = (a.T if ta else a).astype(np.float64) @ (b.T if tb else b).astype(np.float64)
    return a, b, exact


@pytest.mark.parametrize("ta, tb", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_gemm(rng, close, threads, ta, tb, m, n, k):
    a, b, exact = operands(rng, ta, tb, m, n, k)
    c = np.full((m, n), np.nan, np.float32)
    K.gemm(ta, tb, 1.0, a, b, 0.0, c)  # beta 0: what was there does not matter
    close(c, exact)
    before = rng.normal(size=(m, n)).astype(np.float32)
    c = before.copy()
    K.gemm(ta, tb, -0.5, a, b, 2.0, c)
    close(c, -0.5 * exact + 2.0 * before)
    again = before.copy()
    K.gemm(ta, tb, -0.5, a, b, 2.0, again)
    assert (again == c).all()


@pytest.mark.parametrize("act", ["linear", "relu", "tanh", "gelu"])
@pytest.mark.parametrize("tb", [0, 1])
@pytest.mark.parametrize("m, n, k", [(1, 9, 40), (3, 5, 7), (33, 70, 33), (32, 128, 784),
                                     (30, 30, 2000)])
def test_bias_and_activation(rng, close, threads, m, n, k, tb, act):
    a, b, exact = operands(rng, 0, tb, m, n, k)
    a /= np.float32(2.0 ** np.round(np.log2(k) / 2))  # to the size that activations see
    exact = a.astype(np.float64) @ (b.T if tb else b).astype(np.float64)
    bias = rng.normal(size=n).astype(np.float32)
    c = np.empty((m, n), np.float32)
    K.gemm(0, tb, 1.0, a, b, 0.0, c, bias=bias, act=act)
    y = exact + bias
    if act == "relu":
        y = np.maximum(y, 0)
    elif act == "tanh":
        y = np.tanh(y)
    elif act == "gelu":
        from math import erf

        y = y * 0.5 * (1 + np.vectorize(erf)(y / np.sqrt(2)))
    close(c, y)


def test_k_zero():
    c = np.full((3, 5), 2.0, np.float32)
    K.gemm(0, 0, 1.0, np.empty((3, 0), np.float32), np.empty((0, 5), np.float32), 0.5, c, lda=1,
           ldb=5)
    assert (c == 1.0).all()


def test_strides_and_addresses(rng, close, threads):
    """Blocks of larger arrays, at any address, give the same bits as whole aligned ones."""
    m, n, k = 37, 70, 45
    a, b, exact = operands(rng, 0, 1, m, n, k)
    want = np.empty((m, n), np.float32)
    K.gemm(0, 1, 1.0, a, b, 0.0, want)
    for shift in range(1, 5):
        def moved(x, shift=shift):
            flat = np.empty(x.size + 16, np.float32)[shift:shift + x.size]
            flat[:] = x.ravel()
            return flat.reshape(x.shape)

        c = moved(np.zeros((m, n), np.float32))
        K.gemm(0, 1, 1.0, moved(a), moved(b), 0.0, c)
        assert (c == want).all()
    wide = np.zeros((m, k + 5), np.float32)
    wide[:, :k] = a
    c = np.zeros((m, n), np.float32)
    K.gemm(0, 1, 1.0, wide, b, 0.0, c, lda=k + 5, k=k)
    close(c, exact)


def test_not_finite(rng):
    a, b, _ = operands(rng, 0, 0, 20, 40, 30)
    a[3, 4] = np.nan
    b[5, 7] = np.inf
    c = np.empty((20, 40), np.float32)
    K.gemm(0, 0, 1.0, a, b, 0.0, c, act="relu", bias=np.zeros(40, np.float32))
    assert np.isnan(c[3]).all()
    assert not np.isnan(np.delete(c, 3, 0)[:, np.arange(40) != 7]).any()
    with np.errstate(invalid="ignore"):
        want = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)[:, 7]
    np.testing.assert_array_equal(np.isinf(c[:, 7]), np.isinf(want))


@pytest.mark.parametrize("batch, m, n, k", [(1, 5, 6, 7), (2, 100, 90, 80), (7, 9, 33, 17),
                                            (12, 64, 64, 32)])
def test_batched(rng, close, threads, batch, m, n, k):
    a = rng.normal(size=(batch, k, m)).astype(np.float32)
    b = rng.normal(size=(1, n, k)).astype(np.float32)
    c = np.empty((batch, m, n), np.float32)
    K.gemm_batched(1, 1, 1.0, a, b, 0.0, c)
    close(c, np.swapaxes(a, 1, 2).astype(np.float64) @ np.swapaxes(b, 1, 2).astype(np.float64))


@pytest.mark.parametrize("m, n, k", [(3, 5, 7), (33, 17, 8), (50, 1100, 32), (40, 512, 64)])
def test_gradient_and_step_in_one(rng, close, threads, m, n, k):
    a, b, grad = operands(rng, 1, 0, m, n, k)
    w, s1, s2 = rng.normal(size=(3, m, n)).astype(np.float32)
    s2 = np.abs(s2)
    options = {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1, "h1": 1.5, "h2": 2.0,
               "grad_scale": 0.5}
    w2, t1, t2 = w.copy(), s1.copy(), s2.copy()
    K.step("adam", w2, grad.astype(np.float32), t1, t2, **options)
    K.gemm_step("adam", 1, 0, a, b, w, s1, s2, **options)
    close(w, w2)
    close(s1, t1)
    close(s2, t2)


@pytest.mark.parametrize("tb", [0, 1])
def test_a_product_of_one_row_has_the_same_bits_however_closely_calls_follow(rng, threads, tb):
    """Workers take part only when they are awake; the parts are the same."""
    a, b, exact = operands(rng, 0, tb, 1, 130, 790)
    found = []
    for pause in [1e-3] * 3 + [0] * 300 + [1e-3] * 3:
        time.sleep(pause)
        c = np.empty((1, 130), np.float32)
        K.gemm(0, tb, 1.0, a, b, 0.0, c)
        found.append(c)
    assert (np.array(found) == found[0]).all()
    np.testing.assert_allclose(found[0], exact, rtol=1e-5, atol=1e-4)
