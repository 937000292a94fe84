#include "attention.h"

#include <string.h>

#include "gemm.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"
#include "thread_shim.h"

#define PARALLEL 200000.0 /* multiply-adds */
/* Queries at a time: their scores stay in the cache, and keys that none of them sees are left out. */
#define QUERIES 64

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
                   pg_int a_cs, const float *b, pg_int b_rs, pg_int b_cs, float beta, float *c,
                   pg_int c_rs) {
    pg_gemm_args g = {.m = m, .n = n, .k = k, .a = a, .a_rs = a_rs, .a_cs = a_cs, .b = b,
                      .b_rs = b_rs, .b_cs = b_cs, .c = c, .c_rs = c_rs, .alpha = alpha,
                      .beta = beta};
    return pg_gemm1(&g);
}

/* One head. s: room for the scores of QUERIES queries, or of all of them if they are kept. */
static int forward_head(const pg_attention *a, pg_int n, const float *q, const float *k,
                        const float *v, float *o, float *s, int kept) {
    for (pg_int i0 = 0; i0 < a->tq; i0 += QUERIES) {
        const pg_int rows = pg_min(QUERIES, a->tq - i0), keys = visible(a, i0 + rows - 1);
        float *r = kept ? s + i0 * a->tk : s;
        int rc = product(rows, keys, a->d, a->scale, q + i0 * a->q_row, a->q_row, 1, k, 1, a->k_row,
                         0.0f, r, a->tk);
        for (pg_int i = 0; i < rows; i++) weigh(a, n, i0 + i, r + i * a->tk);
        if (rc == PG_OK) /* no keys: zeros */
            rc = product(rows, a->dv, keys, 1.0f, r, a->tk, 1, v, a->v_row, 1, 0.0f,
                         o + i0 * a->o_row, a->o_row);
        if (rc != PG_OK) return rc;
    }
    return PG_OK;
}

static void forward_part(void *ctx, int part) {
    job *j = ctx;
    const pg_attention *a = j->a;
    pg_int b, e, size = a->tq * a->tk;
    pg_part_range(a->batch * a->heads, 1, j->parts, part, &b, &e);
    float *own = j->probs ? NULL : pg_scratch(PG_SCRATCH_ROWS, (size_t)(QUERIES * a->tk) * sizeof(float));
    int rc = j->probs || own ? PG_OK : PG_ENOMEM;
    for (pg_int u = b; u < e && rc == PG_OK; u++) {
        pg_int n = u / a->heads, h = u % a->heads;
        rc = forward_head(a, n, j->q + n * a->q_batch + h * a->q_head,
                          j->k + n * a->k_batch + h * a->k_head,
                          j->v + n * a->v_batch + h * a->v_head,
                          j->out + n * a->o_batch + h * a->o_head, own ? own : j->probs + u * size,
                          own == NULL);
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

static void clear(float *x, pg_int rows, pg_int n, pg_int ld) {
    for (pg_int i = 0; i < rows; i++) memset(x + i * ld, 0, (size_t)n * sizeof(float));
}

/* dv = p^T do; dp = do v^T; ds = p (dp - sum dp p); dq = scale ds k; dk = scale ds^T q. */
static int backward_head(const pg_attention *a, const float *q, const float *k, const float *v,
                         const float *p, const float *g, float *ds, float *dq, float *dk, float *dv) {
    clear(dk, a->tk, a->d, a->k_row);
    clear(dv, a->tk, a->dv, a->v_row);
    for (pg_int i0 = 0; i0 < a->tq; i0 += QUERIES) {
        const pg_int rows = pg_min(QUERIES, a->tq - i0), keys = visible(a, i0 + rows - 1);
        const float *pr = p + i0 * a->tk, *gr = g + i0 * a->o_row;
        int rc = product(keys, a->dv, rows, 1.0f, pr, 1, a->tk, gr, a->o_row, 1, 1.0f, dv, a->v_row);
        if (rc == PG_OK)
            rc = product(rows, keys, a->dv, 1.0f, gr, a->o_row, 1, v, 1, a->v_row, 0.0f, ds, a->tk);
        if (rc != PG_OK) return rc;
        for (pg_int i = 0; i < rows; i++) {
            pg_int seen = visible(a, i0 + i);
            float *r = ds + i * a->tk;
            if (seen > 0) pg_isa->softmax_backward_row(0, seen, r, pr + i * a->tk, r);
            memset(r + seen, 0, (size_t)(a->tk - seen) * sizeof(float));
        }
        rc = product(rows, a->d, keys, a->scale, ds, a->tk, 1, k, a->k_row, 1, 0.0f,
                     dq + i0 * a->q_row, a->q_row);
        if (rc == PG_OK)
            rc = product(keys, a->d, rows, a->scale, ds, 1, a->tk, q + i0 * a->q_row, a->q_row, 1,
                         1.0f, dk, a->k_row);
        if (rc != PG_OK) return rc;
    }
    return PG_OK;
}

static void backward_part(void *ctx, int part) {
    job *j = ctx;
    const pg_attention *a = j->a;
    pg_int b, e, size = a->tq * a->tk;
    pg_part_range(a->batch * a->heads, 1, j->parts, part, &b, &e);
    float *ds = pg_scratch(PG_SCRATCH_ROWS, (size_t)(QUERIES * a->tk) * sizeof(float));
    int rc = ds ? PG_OK : PG_ENOMEM;
    for (pg_int u = b; u < e && rc == PG_OK; u++) {
        pg_int n = u / a->heads, h = u % a->heads;
        pg_int qo = n * a->q_batch + h * a->q_head, ko = n * a->k_batch + h * a->k_head;
        pg_int vo = n * a->v_batch + h * a->v_head;
        rc = backward_head(a, j->q + qo, j->k + ko, j->v + vo, j->probs_in + u * size,
                           j->dout + n * a->o_batch + h * a->o_head, ds, j->dq + qo, j->dk + ko,
                           j->dv + vo);
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
