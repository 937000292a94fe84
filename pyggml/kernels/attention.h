/* Scaled dot-product attention: q [batch, heads, tq, d], k [batch, heads, tk, d], v [batch, heads, tk,
 * dv], out = softmax(scale q k^T + mask) v, one head after the other; scores of one head at a time are
 * in memory, unless probs is kept for the backward pass.
 */
#ifndef PG_ATTENTION_H
#define PG_ATTENTION_H

#include "common.h"

typedef struct pg_attention {
    pg_int batch, heads, tq, tk, d, dv;
    /* Distances in floats of batches, heads and rows: any layout with contiguous d. */
    pg_int q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
    pg_int o_batch, o_head, o_row;
    float scale;
    int causal;  /* query i sees keys up to i + past */
    pg_int past;
    /* Queries see the keys where this is not 0, or NULL; distances of batches and queries, 0 where
     * all are the same. */
    const float *sees;
    pg_int sees_batch, sees_row;
} pg_attention;

/* probs [batch, heads, tq, tk] is what backward needs; NULL: not kept. A query that sees no key
 * gives zeros. */
int pg_attention_forward(const pg_attention *a, const float *q, const float *k, const float *v,
                         float *out, float *probs);
/* dq, dk, dv are laid out as q, k, v; dout as out. */
int pg_attention_backward(const pg_attention *a, const float *q, const float *k, const float *v,
                          const float *probs, const float *dout, float *dq, float *dk, float *dv);

#endif
