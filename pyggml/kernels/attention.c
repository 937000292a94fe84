#include "attention.h"

#include <string.h>

#include "gemm.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"
#include "thread_shim.h"

#define PARALLEL 200000.0 /* multiply-adds */

typedef struct {
    const pg_attention *a;
    const float *q, *k, *v, *dout, *probs_in;
    float *out, *probs, *dq, *dk, *dv;
    int parts;
    pg_atomic status;
} job;

/* Keys that query i sees, before padding. */
static pg_int visible(const pg_attention *a, pg_int i) {
    return a->causal ? pg_max(0, pg_min(a->tk, i + a->past + 1)) : a->tk;
}

/* Scores of query i become weights, in their place. */
static void weigh(const pg_attention *a, pg_int n, pg_int i, float *r) {
    pg_int seen = visible(a, i);
    if (a->sees && seen > 0) {
        const float *m = a->sees + n * a->sees_batch + i * a->sees_row;
        int any = 0;
        for (pg_int j = 0; j < seen; j++) { /* a score that no exponential survives */
            r[j] = m[j] != 0.0f ? r[j] : -3e38f;
            any |= m[j] != 0.0f;
        }
        if (any) {
            pg_isa->softmax_row(0, seen, r, r);
            for (pg_int j = 0; j < seen; j++) r[j] = m[j] != 0.0f ? r[j] : 0.0f;
        } else seen = 0;
    } else if (seen > 0) pg_isa->softmax_row(0, seen, r, r);
    memset(r + seen, 0, (size_t)(a->tk - seen) * sizeof(float));
}

static int product(pg_int m, pg_int n, pg_int k, float alpha, const float *a, pg_int a_rs,
                   pg_int a_cs, const float *b, pg_int b_rs, pg_int b_cs, float *c, pg_int c_rs) {
    pg_gemm_args g = {.m = m, .n = n, .k = k, .a = a, .a_rs = a_rs, .a_cs = a_cs, .b = b,
                      .b_rs = b_rs, .b_cs = b_cs, .c = c, .c_rs = c_rs, .alpha = alpha};
    return pg_gemm1(&g);
}

static void forward_part(void *ctx, int part) {
    job *j = ctx;
    const pg_attention *a = j->a;
    pg_int b, e, size = a->tq * a->tk;
    pg_part_range(a->batch * a->heads, 1, j->parts, part, &b, &e);
    float *own = j->probs ? NULL : pg_scratch(PG_SCRATCH_ROWS, (size_t)size * sizeof(float));
    int rc = j->probs || own ? PG_OK : PG_ENOMEM;
    for (pg_int u = b; u < e && rc == PG_OK; u++) {
        pg_int n = u / a->heads, h = u % a->heads;
        const float *q = j->q + n * a->q_batch + h * a->q_head;
        const float *k = j->k + n * a->k_batch + h * a->k_head;
        const float *v = j->v + n * a->v_batch + h * a->v_head;
        float *o = j->out + n * a->o_batch + h * a->o_head;
        float *s = j->probs ? j->probs + u * size : own;
        rc = product(a->tq, a->tk, a->d, a->scale, q, a->q_row, 1, k, 1, a->k_row, s, a->tk);
        for (pg_int i = 0; i < a->tq; i++) weigh(a, n, i, s + i * a->tk);
        if (rc == PG_OK)
            rc = product(a->tq, a->dv, a->tk, 1.0f, s, a->tk, 1, v, a->v_row, 1, o, a->o_row);
    }
    if (rc != PG_OK) pg_store(&j->status, rc);
}

static int parts_of(const pg_attention *a) {
    double work = (double)(a->batch * a->heads) * (double)(a->tq * a->tk) *
                  (double)(a->d + a->dv);
    return work < PARALLEL ? 1 : pg_parts(a->batch * a->heads, 1);
}

int pg_attention_forward(const pg_attention *a, const float *q, const float *k, const float *v,
                         float *out, float *probs) {
    job j = {.a = a, .q = q, .k = k, .v = v, .out = out, .probs = probs, .parts = parts_of(a)};
    pg_parallel(j.parts, forward_part, &j);
    return (int)pg_load(&j.status);
}

/* dv = p^T do; dp = do v^T; ds = p (dp - sum dp p); dq = scale ds k; dk = scale ds^T q. */
static void backward_part(void *ctx, int part) {
    job *j = ctx;
    const pg_attention *a = j->a;
    pg_int b, e, size = a->tq * a->tk;
    pg_part_range(a->batch * a->heads, 1, j->parts, part, &b, &e);
    float *ds = pg_scratch(PG_SCRATCH_ROWS, (size_t)size * sizeof(float));
    int rc = ds ? PG_OK : PG_ENOMEM;
    for (pg_int u = b; u < e && rc == PG_OK; u++) {
        pg_int n = u / a->heads, h = u % a->heads;
        pg_int qo = n * a->q_batch + h * a->q_head, ko = n * a->k_batch + h * a->k_head;
        pg_int vo = n * a->v_batch + h * a->v_head;
        const float *p = j->probs_in + u * size, *g = j->dout + n * a->o_batch + h * a->o_head;
        rc = product(a->tk, a->dv, a->tq, 1.0f, p, 1, a->tk, g, a->o_row, 1, j->dv + vo, a->v_row);
        if (rc == PG_OK)
            rc = product(a->tq, a->tk, a->dv, 1.0f, g, a->o_row, 1, j->v + vo, 1, a->v_row, ds,
                         a->tk);
        if (rc != PG_OK) break;
        for (pg_int i = 0; i < a->tq; i++) {
            pg_int seen = visible(a, i);
            float *r = ds + i * a->tk;
            if (seen > 0) pg_isa->softmax_backward_row(0, seen, r, p + i * a->tk, r);
            memset(r + seen, 0, (size_t)(a->tk - seen) * sizeof(float));
        }
        rc = product(a->tq, a->d, a->tk, a->scale, ds, a->tk, 1, j->k + ko, a->k_row, 1, j->dq + qo,
                     a->q_row);
        if (rc == PG_OK)
            rc = product(a->tk, a->d, a->tq, a->scale, ds, 1, a->tk, j->q + qo, a->q_row, 1,
                         j->dk + ko, a->k_row);
    }
    if (rc != PG_OK) pg_store(&j->status, rc);
}

int pg_attention_backward(const pg_attention *a, const float *q, const float *k, const float *v,
                          const float *probs, const float *dout, float *dq, float *dk, float *dv) {
    job j = {.a = a, .q = q, .k = k, .v = v, .probs_in = probs, .dout = dout, .dq = dq, .dk = dk,
             .dv = dv, .parts = parts_of(a)};
    pg_parallel(j.parts, backward_part, &j);
    return (int)pg_load(&j.status);
}
