"""MultiHeadAttention (Vaswani et al. 2017) with Keras' weight shapes and masks."""

import math

import numpy as np

from .activations import softmax
from .common import drop_none, float64


def attention_mask(
    batch, queries, keys, attention_mask=None, use_causal_mask=False, query_mask=None,
    value_mask=None, key_mask=None,
):  # fmt: skip
    """All masks joined by "and" to booleans [N, Tq, Tk]; True lets a query see a key.

    ``attention_mask`` is [N, Tq, Tk] or [Tq, Tk], the padding masks are [N, Tq] and [N, Tk].
    """
    mask = np.ones((batch, queries, keys), dtype=bool)
    if attention_mask is not None:
        mask &= np.asarray(attention_mask, dtype=bool)
    if use_causal_mask:
        mask &= np.tril(np.ones((queries, keys), dtype=bool))
    if query_mask is not None:
        mask &= np.asarray(query_mask, dtype=bool)[:, :, None]
    for padding in (value_mask, key_mask):
        if padding is not None:
            mask &= np.asarray(padding, dtype=bool)[:, None, :]
    return mask


def _project(x, kernel, bias):
    return np.einsum("btd,dhk->bthk", x, kernel) + (0.0 if bias is None else bias)


def _probabilities(q, k, masks):
    """Attention weights [N, heads, Tq, Tk]; all 0 for a query that may see no key."""
    mask = attention_mask(len(q), q.shape[1], k.shape[1], **masks)[:, None]
    sees = mask.any(axis=-1, keepdims=True)
    scores = np.einsum("bqhk,bvhk->bhqv", q, k) / math.sqrt(q.shape[-1])
    return np.where(sees, softmax(np.where(mask | ~sees, scores, -np.inf)), 0.0)


def multi_head_attention(
    query, value, key=None, *, query_kernel, key_kernel, value_kernel, output_kernel,
    query_bias=None, key_bias=None, value_bias=None, output_bias=None, **masks,
):  # fmt: skip
    """softmax(q k^T / sqrt(key_dim)) v for each head, projected to the output.

    query [N, Tq, D], value and key [N, Tk, D]; without key the value serves for both, and the
    gradient of "value" holds both parts. Query, key and value kernels are (D, heads, dim) with
    biases (heads, dim), the output kernel (heads, value_dim, out) with bias (out,). ``masks`` as in
    ``attention_mask``. A query that may see no key gets attention weights of 0.
    """
    query, value = float64(query), float64(value)
    shared = key is None
    key = value if shared else float64(key)
    wq, wk, wv, wo = map(float64, (query_kernel, key_kernel, value_kernel, output_kernel))
    q, k = _project(query, wq, query_bias), _project(key, wk, key_bias)
    v = _project(value, wv, value_bias)
    probabilities = _probabilities(q, k, masks)
    mixed = np.einsum("bhqv,bvhd->bqhd", probabilities, v)
    out = np.einsum("bqhd,hdo->bqo", mixed, wo) + (0.0 if output_bias is None else output_bias)

    def backward(dout):
        dmixed = np.einsum("bqo,hdo->bqhd", dout, wo)
        dprobabilities = np.einsum("bqhd,bvhd->bhqv", dmixed, v)
        along = np.sum(dprobabilities * probabilities, axis=-1, keepdims=True)
        dscores = probabilities * (dprobabilities - along) / math.sqrt(wq.shape[-1])
        dq = np.einsum("bhqv,bvhk->bqhk", dscores, k)
        dk = np.einsum("bhqv,bqhk->bvhk", dscores, q)
        dv = np.einsum("bhqv,bqhd->bvhd", probabilities, dmixed)
        dkey = np.einsum("bthk,dhk->btd", dk, wk)
        dvalue = np.einsum("bthk,dhk->btd", dv, wv)

        def bias(given, grad, axes=(0, 1)):
            return None if given is None else grad.sum(axis=axes)

        return drop_none(
            {
                "query": np.einsum("bthk,dhk->btd", dq, wq),
                "value": dvalue + dkey if shared else dvalue,
                "key": None if shared else dkey,
                "query_kernel": np.einsum("btd,bthk->dhk", query, dq),
                "key_kernel": np.einsum("btd,bthk->dhk", key, dk),
                "value_kernel": np.einsum("btd,bthk->dhk", value, dv),
                "output_kernel": np.einsum("bqhd,bqo->hdo", mixed, dout),
                "query_bias": bias(query_bias, dq),
                "key_bias": bias(key_bias, dk),
                "value_bias": bias(value_bias, dv),
                "output_bias": bias(output_bias, dout),
            }
        )

    return out, backward


def attention_scores(query, key, query_kernel, key_kernel, query_bias=None, key_bias=None, **masks):
    """The attention weights [N, heads, Tq, Tk] that ``return_attention_scores`` shows."""
    q = _project(float64(query), float64(query_kernel), query_bias)
    k = _project(float64(key), float64(key_kernel), key_bias)
    return _probabilities(q, k, masks)
