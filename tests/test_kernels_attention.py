import numpy as np
import pytest

from pyggml import _kernels as K


@pytest.mark.parametrize("rows, width, n", [(1, 1, 3), (7, 5, 17), (100, 33, 400), (5000, 64, 900)])
def test_embedding(rng, close, threads, rows, width, n):
    table = rng.normal(size=(rows, width)).astype(np.float32)
    ids = rng.integers(0, rows, n).astype(np.int32)
    out = np.empty((n, width), np.float32)
    K.gather_rows(table, ids, out)
    np.testing.assert_array_equal(out, table[ids])
    dy, dtable = rng.normal(size=(n, width)).astype(np.float32), np.empty_like(table)
    K.gather_rows_backward(ids, dy, dtable)
    want = np.zeros((rows, width))
    np.add.at(want, ids, dy.astype(np.float64))
    close(dtable, want, rtol=1e-4)


def test_embedding_checks_ids():
    table, out = np.zeros((3, 2), np.float32), np.zeros((1, 2), np.float32)
    for bad in (-1, 3):
        with pytest.raises(ValueError):
            K.gather_rows(table, np.array([bad], np.int32), out)
        with pytest.raises(ValueError):
            K.gather_rows_backward(np.array([bad], np.int32), out, table)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [None, "keys", "pairs", "one for all"])
@pytest.mark.parametrize("b, heads, tq, tk, d, dv", [
    (1, 1, 1, 1, 1, 1), (2, 3, 7, 7, 5, 3), (2, 4, 17, 33, 8, 19), (3, 2, 64, 64, 16, 16), (1, 2, 131, 150, 4, 6)])
def test_attention(rng, close, threads, b, heads, tq, tk, d, dv, causal, masked):
    q = rng.normal(size=(b, heads, tq, d)).astype(np.float32)
    k = rng.normal(size=(b, heads, tk, d)).astype(np.float32)
    v = rng.normal(size=(b, heads, tk, dv)).astype(np.float32)
    dout = rng.normal(size=(b, heads, tq, dv)).astype(np.float32)
    shape = {None: None, "keys": (b, 1, tk), "pairs": (b, tq, tk), "one for all": (1, tq, tk)}
    sees = None
    if masked:
        sees = (rng.random(shape[masked]) < 0.6).astype(np.float32)
        sees[0, 0] = 0  # a query, or a batch, that sees nothing
    scale = 1 / np.sqrt(d)
    mask = np.ones((b, 1, tq, tk), bool)
    if causal:
        mask &= np.arange(tk) <= np.arange(tq)[:, None] + tk - tq
    if masked:
        mask &= sees[:, None] != 0
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    s = np.where(mask, scale * q64 @ np.swapaxes(k64, 2, 3), -1e300)
    p = np.exp(s - s.max(3, keepdims=True)) * mask
    p /= np.maximum(p.sum(3, keepdims=True), 1e-300)
    out, probs = np.empty_like(dout), np.empty((b, heads, tq, tk), np.float32)
    K.attention_forward(q, k, v, out, probs, scale, causal, sees)
    close(out, p @ v64)
    close(probs, p)
    light = np.empty_like(out)
    K.attention_forward(q, k, v, light, None, scale, causal, sees)
    assert (light == out).all()
    dp = dout @ np.swapaxes(v64, 2, 3)
    ds = p * (dp - (dp * p).sum(3, keepdims=True))
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    K.attention_backward(q, k, v, probs, dout, dq, dk, dv, scale, causal)
    close(dq, scale * ds @ k64, rtol=1e-4)
    close(dk, scale * np.swapaxes(ds, 2, 3) @ q64, rtol=1e-4)
    close(dv, np.swapaxes(p, 2, 3) @ dout, rtol=1e-4)


def test_query_without_keys():
    q = np.ones((1, 1, 2, 3), np.float32)
    out = np.full_like(q, np.nan)
    K.attention_forward(q, q, q, out, None, 1.0, 0, np.zeros((1, 1, 2), np.float32))
    assert (out == 0).all()
