import numpy as np
import pytest

from pyggml import _kernels as K

EPS = 1e-7


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def bce(p, t):
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


def focal(p, t, gamma=2.0, alpha=0.25):
    q = t * (1 - p) + (1 - t) * p
    return (alpha * t + (1 - alpha) * (1 - t)) * q**gamma * bce(p, t)


def clip(p):
    return np.clip(p, EPS, 1 - EPS)


ELEMENTS = {
    "mse": lambda p, t: (p - t) ** 2,
    "mae": lambda p, t: np.abs(p - t),
    "huber": lambda p, t: np.where(np.abs(p - t) <= 0.7, (p - t) ** 2 / 2,
                                   0.7 * (np.abs(p - t) - 0.35)),
    "log_cosh": lambda p, t: np.logaddexp(p - t, t - p) - np.log(2),
    "bce_logits": lambda p, t: np.maximum(p, 0) - p * t + np.log1p(np.exp(-np.abs(p))),
    "bce": lambda p, t: bce(clip(p), t),
    "focal_logits": lambda p, t: focal(sigmoid(p), t),
    "focal": lambda p, t: focal(clip(p), t),
    "hinge": lambda p, t: np.maximum(0, 1 - p * t),
    "squared_hinge": lambda p, t: np.maximum(0, 1 - p * t) ** 2,
    "kl": lambda p, t: np.clip(t, EPS, 1) * np.log(np.clip(t, EPS, 1) / np.clip(p, EPS, 1)),
    "poisson": lambda p, t: p - t * np.log(p + EPS),
}


def cosine(p, t):
    def unit(x):
        return x / np.sqrt(np.maximum((x**2).sum(1, keepdims=True), 1e-12))

    return -(unit(p) * unit(t)).sum(1)


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


ROWS = {
    "softmax_ce": lambda p, t: -(t * log_softmax(p)).sum(1),
    "ce": lambda p, t: -(t * np.log(clip(p / p.sum(1, keepdims=True)))).sum(1),
    "cosine": cosine,
}
OPTIONS = {"huber": {"param0": 0.7}, "focal": {"param0": 2.0, "param1": 0.25},
           "focal_logits": {"param0": 2.0, "param1": 0.25}}


def data(rng, kind, rows, cols):
    p, t = rng.normal(size=(2, rows, cols)) * 2
    if kind == "cosine":
        p += 5 * np.sign(p)  # a gradient that is 0 but for rounding goes with 1 / |p|
    if kind in ("bce", "focal", "kl", "poisson", "ce"):
        p = rng.uniform(0.05, 0.95, size=p.shape)
    if kind in ("bce", "bce_logits", "focal", "focal_logits", "kl", "poisson", "softmax_ce", "ce"):
        t = rng.uniform(size=t.shape)
    if kind in ("hinge", "squared_hinge"):
        t = np.sign(t)
    return p.astype(np.float32), t.astype(np.float32)


def gradient(f, p, t):
    """Central differences in float64, element by element of a row."""
    p, t = p.astype(np.float64), t.astype(np.float64)
    g = np.zeros_like(p)
    h = 1e-6
    for c in range(p.shape[1]):
        up, down = p.copy(), p.copy()
        up[:, c] += h
        down[:, c] -= h
        d = f(up, t) - f(down, t)
        g[:, c] = (d[:, c] if d.ndim == 2 else d) / (2 * h)
    return g


@pytest.mark.parametrize("rows, cols", [(1, 1), (3, 7), (17, 1), (5, 33), (32, 10), (700, 65)])
@pytest.mark.parametrize("kind", [*ELEMENTS, *ROWS])
def test_value_and_gradient(rng, close, threads, kind, rows, cols):
    f = (ELEMENTS | ROWS)[kind]
    p, t = data(rng, kind, rows, cols)
    grad = np.empty_like(p)
    options = OPTIONS.get(kind, {})
    value = K.loss(kind, p, t, scale=0.5, grad=grad, **options)
    with np.errstate(all="ignore"):
        want = 0.5 * f(p.astype(np.float64), t.astype(np.float64)).sum()
    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-6 * rows)
    if (kind, cols) == ("cosine", 1):
        assert np.abs(grad).max() < 1e-6
    else:
        close(grad, 0.5 * gradient(f, p, t), rtol=1e-4)
    assert K.loss(kind, p, t, scale=0.5, **options) == value
    K.set_num_threads(1)
    again = np.empty_like(p)
    assert K.loss(kind, p, t, scale=0.5, grad=again, **options) == value
    assert (again == grad).all()
    K.set_num_threads(threads)


@pytest.mark.parametrize("rows, cols", [(3, 7), (17, 1), (40, 33)])
@pytest.mark.parametrize("kind", [*ELEMENTS, *ROWS])
def test_weights(rng, close, threads, kind, rows, cols):
    f = (ELEMENTS | ROWS)[kind]
    p, t = data(rng, kind, rows, cols)
    options = OPTIONS.get(kind, {})
    w = rng.uniform(0.5, 2, size=rows).astype(np.float32)
    w[1] = 0
    w_wide = np.repeat(w[:, None], cols, 1) * (1 if kind in ROWS else rng.uniform(0.5, 2, cols))
    w_wide = np.ascontiguousarray(w_wide, np.float32)
    p[1] = np.nan  # weight 0: not there
    with np.errstate(all="ignore"):
        values = f(p.astype(np.float64), t.astype(np.float64))
        grads = gradient(f, p, t)
    for weight, w_rs, w_cs, full in ((w, 1, 0, np.repeat(w[:, None], cols, 1)),
                                     (w_wide, cols, 1, w_wide)):
        if kind in ROWS and w_cs == 1:
            continue
        grad = np.empty_like(p)
        value = K.loss(kind, p, t, weight, w_rs, w_cs, grad=grad, **options)
        by = full if values.ndim == 2 else full[:, 0]
        np.testing.assert_allclose(value, np.where(by == 0, 0, by * values).sum(), rtol=1e-5,
                                   atol=1e-5)
        if (kind, cols) == ("cosine", 1):
            assert np.abs(grad).max() < 1e-6
        else:
            close(grad, np.where(full == 0, 0, full * grads), rtol=1e-4)
        assert (grad[1] == 0).all()


@pytest.mark.parametrize("rows, cols", [(5, 3), (40, 33), (3, 9000), (700, 65), (300, 1)])
@pytest.mark.parametrize("kind", [*ELEMENTS, *ROWS])
def test_no_bit_depends_on_how_weights_lie_and_ones_are_as_none(rng, threads, kind, rows, cols):
    p, t = data(rng, kind, rows, cols)

    def found(weight, w_rs, w_cs):
        grad = np.empty_like(p)
        value = K.loss(kind, p, t, weight, w_rs, w_cs, grad=grad, **OPTIONS.get(kind, {}))
        return value, grad.tobytes()

    def ways(w):
        yield w, 1, 0
        yield np.repeat(w, 3), 3, 0
        if kind in ELEMENTS:
            yield np.repeat(w, cols), cols, 1
            yield np.repeat(w, cols + 2), cols + 2, 1

    plain = found(None, 0, 0)
    for way in ways(np.ones(rows, np.float32)):
        assert found(*way) == plain
    w = rng.uniform(0.5, 2, size=rows).astype(np.float32)
    w[rows // 2] = 0
    weighted = found(w, 1, 0)
    assert weighted[0] != plain[0] or cols == 1
    for way in ways(w):
        assert found(*way) == weighted


@pytest.mark.parametrize("kind", ["mse", "mae", "huber", "log_cosh", "bce_logits", "focal_logits",
                                  "softmax_ce", "poisson", "bce"])
def test_extremes(kind):
    p = np.array([[1e4, -1e4, 0.0, 30.0]], np.float32)
    t = np.array([[1.0, 0.0, 0.0, 1.0]], np.float32)
    if kind in ("poisson", "bce"):
        p = np.array([[0.0, 1.0, 1e4, 0.5]], np.float32)
    grad = np.empty_like(p)
    value = K.loss(kind, p, t, grad=grad, **OPTIONS.get(kind, {}))
    assert np.isfinite(value)
    assert np.isfinite(grad).all()
    p[0, 2] = np.nan
    assert np.isnan(K.loss(kind, p, t, grad=grad, **OPTIONS.get(kind, {}))) or kind == "poisson"
    assert np.isnan(grad[0, 2])


@pytest.mark.parametrize("log", [0, 1])
@pytest.mark.parametrize("rows, n", [(1, 1), (3, 7), (17, 33), (32, 10), (900, 100)])
def test_softmax(rng, close, threads, log, rows, n):
    x = (rng.normal(size=(rows, n)) * 5).astype(np.float32)
    y, dx = np.empty_like(x), np.empty_like(x)
    K.softmax(log, x, y)
    want = log_softmax(x.astype(np.float64))
    want = want if log else np.exp(want)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6 if log else 0)
    dy = rng.normal(size=x.shape).astype(np.float32)
    K.softmax_backward(log, dy, y, dx)
    if log:
        back = dy - np.exp(want) * dy.astype(np.float64).sum(1, keepdims=True)
    else:
        back = want * (dy - (dy * want).sum(1, keepdims=True))
    close(dx, back, rtol=1e-4)
    K.softmax(log, x, x)
    assert (x == y).all()


def test_softmax_extremes():
    x = np.array([[1e4, -1e4, 0], [-np.inf, 0, 0], [np.nan, 0, 0]], np.float32)
    y = np.empty_like(x)
    K.softmax(0, x, y)
    np.testing.assert_allclose(y[:2], [[1, 0, 0], [0, 0.5, 0.5]])
    assert np.isnan(y[2]).all()
