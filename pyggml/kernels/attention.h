/* Scaled dot-product attention: q [batch, heads, tq, d], k and v [batch, heads, tk, d],
 * out = softmax(scale q k^T + mask) v, one head after the other; scores of one head at a time are in
 * memory, unless probs is kept for the backward pass.
 */
#ifndef PG_ATTENTION_H
#define PG_ATTENTION_H

#include "common.h"

typedef struct pg_attention {
    pg_int batch, heads, tq, tk, d;
    /* Distances in floats of batches, heads and rows: any layout with contiguous d. */
    pg_int q_batch, q_head, q_row, kv_batch, kv_head, kv_row, o_batch, o_head, o_row;
    float scale;
    int causal;              /* query i sees keys up to i + tk - tq */
    const int32_t *lengths;  /* [batch] keys that are not padding, or NULL */
} pg_attention;

/* probs [batch, heads, tq, tk] is what backward needs; NULL: not kept. A query that sees no key
 * gives zeros. */
int pg_attention_forward(const pg_attention *a, const float *q, const float *k, const float *v,
                         float *out, float *probs);
/* dq, dk, dv are laid out as q, k, v; dout as out. */
int pg_attention_backward(const pg_attention *a, const float *q, const float *k, const float *v,
                          const float *probs, const float *dout, float *dq, float *dk, float *dv);

#endif
