import numpy as np
import pytest

from pyggml import _kernels as K

EPS = 1e-3


def empty(*shape):
    return np.empty(shape, np.float32)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("rms", [0, 1])
@pytest.mark.parametrize("rows, n", [(1, 1), (3, 7), (17, 33), (5, 129), (400, 64)])
def test_layer_norm(rng, close, threads, rms, affine, rows, n):
    x = (rng.normal(size=(rows, n)) * 3 + 2).astype(np.float32)
    gamma, beta = rng.normal(size=(2, n)).astype(np.float32)
    if not affine:
        gamma = beta = None
    y, mean, rstd = empty(rows, n), empty(rows), empty(rows)
    K.layer_norm(rms, EPS, x, gamma, beta, y, mean, rstd)
    x64 = x.astype(np.float64)
    m = 0 if rms else x64.mean(1, keepdims=True)
    r = 1 / np.sqrt(((x64 - m) ** 2).mean(1, keepdims=True) + EPS)
    h = (x64 - m) * r
    g64 = 1 if gamma is None else gamma.astype(np.float64)
    close(y, h * g64 + (0 if beta is None else beta))
    close(rstd, r[:, 0])
    dy = rng.normal(size=x.shape).astype(np.float32)
    dx, dgamma, dbeta = empty(rows, n), empty(n), empty(n)
    K.layer_norm_backward(rms, dy, x, gamma, mean, rstd, dx, dgamma, dbeta)
    d = dy * g64
    want = r * (d - (0 if rms else d.mean(1, keepdims=True)) - h * (d * h).mean(1, keepdims=True))
    np.testing.assert_allclose(dx, want, rtol=1e-4, atol=1e-5)
    close(dgamma, (dy * h).sum(0), rtol=1e-4)
    close(dbeta, dy.astype(np.float64).sum(0), rtol=1e-4)


@pytest.mark.parametrize("training", [1, 0])
@pytest.mark.parametrize("shape", [(2, 1, 1), (17, 3, 1), (33, 100, 1), (256, 700, 1), (3, 5, 7),
                                   (1, 17, 33), (32, 16, 196)])
def test_batch_norm(rng, close, threads, training, shape):
    # a mean that is large beside the spread
    x = (rng.normal(size=shape) * 2 + 50).astype(np.float32)
    c = shape[1]
    gamma, beta = rng.normal(size=(2, c)).astype(np.float32)
    x64 = x.astype(np.float64)
    mean, var = x64.mean((0, 2)), x64.var((0, 2))
    if not training:
        mean, var = mean + 0.5, var * 1.5
    m32, v32 = mean.astype(np.float32), var.astype(np.float32)
    if training:
        m32, v32 = empty(c), empty(c)
    y = np.empty_like(x)
    K.batch_norm(training, EPS, x, gamma, beta, y, m32, v32)
    close(m32, mean, rtol=1e-6)
    np.testing.assert_allclose(v32, var, rtol=1e-4, atol=1e-6)
    r = 1 / np.sqrt(v32.astype(np.float64) + EPS)[:, None]
    h = (x64 - m32.astype(np.float64)[:, None]) * r
    close(y, h * gamma[:, None] + beta[:, None])
    dy = rng.normal(size=shape).astype(np.float32)
    dx, dgamma, dbeta = np.empty_like(x), empty(c), empty(c)
    K.batch_norm_backward(training, EPS, dy, x, gamma, m32, v32, dx, dgamma, dbeta)
    g = dy * gamma[:, None].astype(np.float64)
    if training:
        g = g - g.mean((0, 2), keepdims=True) - h * (g * h).mean((0, 2), keepdims=True)
    np.testing.assert_allclose(dx, r * g, rtol=1e-4, atol=2e-5 * np.abs(r).max())
    close(dgamma, (dy * h).sum((0, 2)), rtol=1e-4)
    close(dbeta, dy.astype(np.float64).sum((0, 2)), rtol=1e-4)
