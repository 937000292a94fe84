#include "gemm.h"

#include "blas.h"
#include "gemm_table.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"
#include "thread_shim.h"

static int forced = -1;

void pg_gemm_force(int which) { forced = which; }
int pg_have_blas(void) { return pg_blas_available(); }

/* A BLAS wants one stride of each operand to be 1, and the other no smaller than the row. */
static int blas_can(const pg_gemm_args *g) {
    int a = g->a_cs == 1 ? g->a_rs >= g->k : g->a_rs == 1 && g->a_cs >= g->m;
    int b = g->b_cs == 1 ? g->b_rs >= g->n : g->b_rs == 1 && g->b_cs >= g->k;
    return a && b && g->k > 0;
}

static int blas_is_faster(const pg_gemm_args *g) {
    if (!pg_blas_available() || !blas_can(g)) return 0;
    if (forced >= 0) return forced;
    return (double)g->m * (double)g->n * (double)g->k >= PG_GEMM_BLAS_WORK &&
           pg_min(pg_min(g->m, g->n), g->k) >= PG_GEMM_BLAS_SIDE;
}

static void finish_rows(const pg_gemm_args *g, const float *bias, int act) {
    if (bias == NULL && act == PG_ACT_LINEAR) return;
    for (pg_int i = 0; i < g->m; i++) {
        float *c = g->c + i * g->c_rs;
        pg_isa->bias_act(act, g->act_param, g->n, c, bias, NULL, c);
    }
}

int pg_gemm1(const pg_gemm_args *g) {
    if (blas_is_faster(g)) {
        int ta = g->a_cs != 1, tb = g->b_cs != 1;
        pg_blas_sgemm(ta, tb, g->m, g->n, g->k, g->alpha, g->a, ta ? g->a_cs : g->a_rs, g->b,
                      tb ? g->b_cs : g->b_rs, g->beta, g->c, g->c_rs);
        finish_rows(g, g->bias, g->act);
        return PG_OK;
    }
    if (g->act == PG_ACT_LINEAR || g->act == PG_ACT_RELU) return pg_isa->gemm(g);
    pg_gemm_args linear = *g;
    linear.act = PG_ACT_LINEAR;
    int rc = pg_isa->gemm(&linear);
    finish_rows(g, NULL, g->act);
    return rc;
}

/* ---- slices over threads ---- */

typedef struct {
    pg_gemm_args g;
    int pm, pn, pk;   /* the grid of slices */
    float *partial;   /* pk > 1: slices of K beyond the first, [pk - 1][m * n] */
    pg_int stride_a, stride_b, stride_c;
    pg_atomic status;
} job;

#define UNIT_M 4
#define UNIT_N 16
#define PANEL_N 32

static void slice(void *ctx, int part) {
    job *j = ctx;
    pg_gemm_args g = j->g;
    pg_int m0, m1, n0, n1, k0, k1;
    int ik = part % j->pk, in = part / j->pk % j->pn, im = part / j->pk / j->pn;
    pg_part_range(g.m, UNIT_M, j->pm, im, &m0, &m1);
    pg_part_range(g.n, UNIT_N, j->pn, in, &n0, &n1);
    pg_part_range(g.k, UNIT_N, j->pk, ik, &k0, &k1);
    if (m0 >= m1 || n0 >= n1) return;
    g.a += m0 * g.a_rs + k0 * g.a_cs;
    g.b += k0 * g.b_rs + n0 * g.b_cs;
    if (g.bias) g.bias += n0;
    g.m = m1 - m0, g.n = n1 - n0, g.k = k1 - k0;
    if (j->pk > 1) {
        g.bias = NULL, g.act = PG_ACT_LINEAR;
        if (ik > 0) {
            g.c = j->partial + (size_t)(ik - 1) * (size_t)(j->g.m * j->g.n);
            g.c_rs = j->g.n;
            g.beta = 0.0f;
        }
    }
    g.c += m0 * g.c_rs + n0;
    int rc = pg_gemm1(&g);
    if (rc != PG_OK) pg_store(&j->status, rc);
}

/* The slices of K added in their order, then bias and activation. */
static void add_slices(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->g.m, 1, j->pm, part, &b, &e);
    for (pg_int i = b; i < e; i++) {
        float *c = j->g.c + i * j->g.c_rs;
        for (int s = 1; s < j->pk; s++) {
            const float *p = j->partial + ((size_t)(s - 1) * (size_t)j->g.m + (size_t)i) * (size_t)j->g.n;
            pg_isa->axpby(j->g.n, 1.0f, c, 1.0f, p, c);
        }
        if (j->g.bias || j->g.act != PG_ACT_LINEAR)
            pg_isa->bias_act(j->g.act, j->g.act_param, j->g.n, c, j->g.bias, NULL, c);
    }
}

/* The grid that makes the most even slices with the least reading; K only where the result is too
 * small to be shared out. */
static void choose_grid(job *j, int threads) {
    const pg_gemm_args *g = &j->g;
    double best = -1.0;
    j->pm = j->pn = j->pk = 1;
    if ((double)g->m * (double)g->n <= PG_GEMM_SPLIT_K_MN && g->k >= PG_GEMM_SPLIT_K * threads) {
        j->pk = threads;
        return;
    }
    for (int pm = 1; pm <= threads; pm++) {
        int pn = threads / pm;
        double m = (double)(pg_ceil_div(pg_ceil_div(g->m, UNIT_M), pm) * UNIT_M);
        double n = (double)(pg_ceil_div(pg_ceil_div(g->n, UNIT_N), pn) * UNIT_N);
        double c = m * n + PG_GEMM_GRID_EDGE * (m + n);
        if (best < 0.0 || c < best) best = c, j->pm = pm, j->pn = pn;
    }
}

static int gemm(const pg_gemm_args *g) {
    double work = (double)g->m * (double)g->n * (double)g->k;
    int brief = g->m == 1 && work < PG_GEMM_PARALLEL;
    double least = brief ? PG_GEMM_ROW_PARALLEL : PG_GEMM_PARALLEL;
    int threads = work < least ? 1 : pg_parts((pg_int)(work / least) + 1, 1);
    if (threads == 1) return pg_gemm1(g);
    job j = {.g = *g};
    choose_grid(&j, threads);
    if (j.pk > 1) {
        size_t bytes = (size_t)(j.pk - 1) * (size_t)(g->m * g->n) * sizeof(float);
        j.partial = pg_scratch(PG_SCRATCH_REDUCE, bytes);
        if (j.partial == NULL) return PG_ENOMEM;
    }
    (brief ? pg_parallel_brief : pg_parallel)(j.pm * j.pn * j.pk, slice, &j);
    if (j.pk > 1) {
        j.pm = g->m * g->n * j.pk > 65536 ? threads : 1;
        pg_parallel(j.pm, add_slices, &j);
    }
    return (int)pg_load(&j.status);
}

static pg_gemm_args args_of(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha,
                            const float *a, pg_int lda, const float *b, pg_int ldb, float beta,
                            float *c, pg_int ldc) {
    pg_gemm_args g = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_rs = ldc,
                      .alpha = alpha, .beta = beta, .act = PG_ACT_LINEAR};
    g.a_rs = ta ? 1 : lda, g.a_cs = ta ? lda : 1;
    g.b_rs = tb ? 1 : ldb, g.b_cs = tb ? ldb : 1;
    return g;
}

int pg_gemm(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a, pg_int lda,
            const float *b, pg_int ldb, float beta, float *c, pg_int ldc) {
    pg_gemm_args g = args_of(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return gemm(&g);
}

int pg_gemm_bias_act(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                     pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc,
                     const float *bias, int act, float act_param) {
    pg_gemm_args g = args_of(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    g.bias = bias, g.act = act, g.act_param = act_param;
    return gemm(&g);
}

/* ---- batches ---- */

static void batch_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->pk, 1, j->pm, part, &b, &e);
    for (pg_int i = b; i < e; i++) {
        pg_gemm_args g = j->g;
        g.a += i * j->stride_a, g.b += i * j->stride_b, g.c += i * j->stride_c;
        int rc = pg_gemm1(&g);
        if (rc != PG_OK) pg_store(&j->status, rc);
    }
}

int pg_gemm_batched(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                    pg_int lda, pg_int stride_a, const float *b, pg_int ldb, pg_int stride_b,
                    float beta, float *c, pg_int ldc, pg_int stride_c, pg_int batch) {
    pg_gemm_args g = args_of(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    double work = (double)m * (double)n * (double)k;
    int threads = pg_get_num_threads();
    if (batch < threads) { /* too few to share out: each product by all threads */
        for (pg_int i = 0; i < batch; i++) {
            pg_gemm_args one = g;
            one.a += i * stride_a, one.b += i * stride_b, one.c += i * stride_c;
            int rc = gemm(&one);
            if (rc != PG_OK) return rc;
        }
        return PG_OK;
    }
    job j = {.g = g, .stride_a = stride_a, .stride_b = stride_b, .stride_c = stride_c};
    j.pk = (int)batch;
    j.pm = work * (double)batch < PG_GEMM_PARALLEL ? 1 : threads;
    pg_parallel(j.pm, batch_part, &j);
    return (int)pg_load(&j.status);
}

/* ---- gradient and step in one ---- */

typedef struct {
    pg_gemm_args g;
    float *packed;
    const pg_step_params *p;
    float *w, *s1, *s2, *s3;
    int parts;
    pg_atomic status;
} step_job;

/* Panels of the largest unit that there is, so that they are whole for every instruction set. */
static void gemm_pack_part(void *ctx, int part) {
    step_job *j = ctx;
    pg_int b, e;
    pg_part_range(j->g.n, PANEL_N, j->parts, part, &b, &e);
    if (b < e)
        pg_isa->gemm_pack(j->g.b + b * j->g.b_cs, j->g.b_rs, j->g.b_cs, j->g.k, e - b,
                          j->packed + b * j->g.k);
}

static void gemm_step_part(void *ctx, int part) {
    step_job *j = ctx;
    pg_int b, e, o;
    pg_part_range(j->g.m, 1, j->parts, part, &b, &e);
    if (b == e) return;
    pg_gemm_args g = j->g;
    g.m = e - b, g.a += b * g.a_rs, o = b * g.n;
    int rc = pg_isa->gemm_step(&g, j->packed, j->p, j->w + o, j->s1 ? j->s1 + o : NULL,
                               j->s2 ? j->s2 + o : NULL, j->s3 ? j->s3 + o : NULL);
    if (rc != PG_OK) pg_store(&j->status, rc);
}

int pg_gemm_step(int ta, int tb, pg_int m, pg_int n, pg_int k, const float *a, pg_int lda,
                 const float *b, pg_int ldb, const pg_step_params *p, float *w, float *s1, float *s2,
                 float *s3) {
    if (m <= 0 || n <= 0) return PG_OK;
    step_job j = {.g = args_of(ta, tb, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, NULL, n),
                  .p = p, .w = w, .s1 = s1, .s2 = s2, .s3 = s3};
    float *packed = pg_scratch(PG_SCRATCH_ROWS, pg_isa->gemm_packed_size(k, n) * sizeof(float));
    if (packed == NULL) return PG_ENOMEM;
    j.packed = packed;
    j.parts = (double)n * (double)k < PG_GEMM_PARALLEL_PACK ? 1 : pg_parts(n, PANEL_N);
    pg_parallel(j.parts, gemm_pack_part, &j);
    double work = (double)m * (double)n * ((double)k + 16.0);
    j.parts = work < PG_GEMM_PARALLEL ? 1 : pg_parts(m, 4);
    pg_parallel(j.parts, gemm_step_part, &j);
    return (int)pg_load(&j.status);
}
