import numpy as np
import pytest

from pyggml import _kernels as K

GATES = {"lstm": 4, "gru": 3, "simple": 1}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def forward(kind, after, xw, u, rbias, h0, c0, reverse):
    """Keras' formulas in float64; returns the sequence of h and the last c."""
    n, t, _ = xw.shape
    h, c = h0.copy(), c0.copy()
    k = h.shape[1]
    out = np.zeros((n, t, k))
    for i in range(t)[::-1] if reverse else range(t):
        x = xw[:, i]
        if kind == "lstm":
            z = x + h @ u.T
            a, f, g, o = z[:, :k], z[:, k:2 * k], z[:, 2 * k:3 * k], z[:, 3 * k:]
            c = sigmoid(f) * c + sigmoid(a) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif kind == "gru":
            zr = sigmoid(x[:, :2 * k] + h @ u[:2 * k].T)
            z, r = zr[:, :k], zr[:, k:]
            inner = r * (h @ u[2 * k:].T + rbias) if after else (r * h) @ u[2 * k:].T
            h = z * h + (1 - z) * np.tanh(x[:, 2 * k:] + inner)
        else:
            h = np.tanh(x + h @ u.T)
        out[:, i] = h
    return out, c


def numeric(f, x, rng, directions=4):
    """Directional derivatives of f at x: pairs of direction and slope."""
    for _ in range(directions):
        d = rng.normal(size=x.shape)
        e = 1e-6
        yield d, (f(x + e * d) - f(x - e * d)) / (2 * e)


CASES = [("lstm", 1), ("gru", 1), ("gru", 0), ("simple", 1)]


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("kind, after", CASES)
@pytest.mark.parametrize("n, t, k", [(1, 1, 1), (3, 5, 7), (2, 4, 17), (9, 3, 33), (33, 6, 16)])
def test_rnn(rng, close, threads, kind, after, n, t, k, reverse):
    g = GATES[kind]
    xw = rng.normal(size=(n, t, g * k)).astype(np.float32)
    u = (rng.normal(size=(g * k, k)) / np.sqrt(k)).astype(np.float32)
    rbias = rng.normal(size=k).astype(np.float32) if kind == "gru" and after else None
    h0, c0 = rng.normal(size=(2, n, k)).astype(np.float32)
    hseq, c_last = np.empty((n, t, k), np.float32), np.empty((n, k), np.float32)
    ws = np.empty(K.rnn_workspace(kind, hseq.shape), np.float32)
    options = {"reset_after": after, "reverse": reverse}
    K.rnn_forward(kind, xw, u, rbias, h0, c0, hseq, c_last, ws, **options)

    wide = {"xw": xw, "u": u, "h0": h0, "c0": c0}
    wide = {name: a.astype(np.float64) for name, a in wide.items()}
    wide["rbias"] = np.zeros(k) if rbias is None else rbias.astype(np.float64)
    want, want_c = forward(kind, after, reverse=reverse, **wide)
    close(hseq, want, rtol=2e-5)
    if kind == "lstm":
        close(c_last, want_c, rtol=2e-5)
    light = np.empty_like(hseq)
    K.rnn_forward(kind, xw, u, rbias, h0, c0, light, None, None, **options)
    assert (light == hseq).all()

    a, b, d = rng.normal(size=(n, t, k)), rng.normal(size=(n, k)), rng.normal(size=(n, k))
    last = 0 if reverse else t - 1

    def objective(**changed):
        h, c = forward(kind, after, reverse=reverse, **(wide | changed))
        return (a * h).sum() + (b * h[:, last]).sum() + (d * c).sum() * (kind == "lstm")

    dxw, du = np.empty_like(xw), np.empty_like(u)
    dh0, dc0 = np.empty_like(h0), np.empty_like(c0)
    drbias = np.empty(k, np.float32) if rbias is not None else None
    f32 = [v.astype(np.float32) for v in (a, b, d)]
    K.rnn_backward(kind, u, h0, c0, hseq, ws, f32[0], f32[1], f32[2] if kind == "lstm" else None,
                   dxw, du, drbias, dh0, dc0, **options)
    grads = {"xw": dxw, "u": du, "h0": dh0}
    if kind == "lstm":
        grads["c0"] = dc0
    if rbias is not None:
        grads["rbias"] = drbias
    for name, grad in grads.items():
        for direction, slope in numeric(lambda v, s=name: objective(**{s: v}), wide[name], rng):
            size = np.abs(grad * direction).sum() + 1e-3
            assert abs((grad * direction).sum() - slope) < 1e-4 * size, name


@pytest.mark.parametrize("kind, after", CASES)
def test_no_initial_state(rng, threads, kind, after):
    n, t, k, g = 4, 3, 5, GATES[kind]
    xw = rng.normal(size=(n, t, g * k)).astype(np.float32)
    u = rng.normal(size=(g * k, k)).astype(np.float32)
    zero, dh = np.zeros((n, k), np.float32), rng.normal(size=(n, t, k)).astype(np.float32)
    results = []
    for state in (None, zero):
        hseq = np.empty((n, t, k), np.float32)
        ws = np.empty(K.rnn_workspace(kind, hseq.shape), np.float32)
        dxw, du = np.empty_like(xw), np.empty_like(u)
        K.rnn_forward(kind, xw, u, None, state, state, hseq, None, ws, reset_after=after)
        K.rnn_backward(kind, u, state, state, hseq, ws, dh, None, None, dxw, du, None, None, None,
                       reset_after=after)
        results.append((hseq, dxw, du))
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


def test_saturated_gates_are_finite():
    xw = np.tile(np.array([1e4, -1e4, 1e4, -1e4], np.float32), (2, 3, 1))
    u = np.full((4, 1), 1e4, np.float32)
    hseq = np.empty((2, 3, 1), np.float32)
    ws = np.empty(K.rnn_workspace("lstm", hseq.shape), np.float32)
    K.rnn_forward("lstm", xw, u, None, None, None, hseq, None, ws)
    dxw = np.empty_like(xw)
    K.rnn_backward("lstm", u, None, None, hseq, ws, np.ones_like(hseq), None, None, dxw, None, None,
                   None, None)
    assert np.isfinite(hseq).all() and np.isfinite(dxw).all()
