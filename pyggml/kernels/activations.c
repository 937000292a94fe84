#include "activations.h"

#include "isa.h"
#include "pool.h"
#include "scratch.h"

/* Elements below which a thread is not worth waking: cheap functions, and those with exp in them. */
#define GRAIN_CHEAP 32768
#define GRAIN_EXP 4096

static pg_int grain(int act) {
    switch (act) {
    case PG_ACT_LINEAR:
    case PG_ACT_RELU:
    case PG_ACT_RELU6:
    case PG_ACT_LEAKY_RELU:
    case PG_ACT_HARD_SIGMOID:
    case PG_ACT_HARD_SWISH:
    case PG_ACT_AT_LEAST:
    case PG_ACT_AT_MOST:
    case PG_ACT_SOFTSIGN: return GRAIN_CHEAP;
    default: return GRAIN_EXP;
    }
}

int pg_act_from_y(int act) {
    switch (act) {
    case PG_ACT_GELU:
    case PG_ACT_GELU_TANH:
    case PG_ACT_SILU:
    case PG_ACT_HARD_SWISH:
    case PG_ACT_AT_LEAST:
    case PG_ACT_AT_MOST:
    case PG_ACT_MISH: return 0;
    default: return 1;
    }
}

typedef struct {
    int act, from_y, parts;
    float param;
    pg_int batch, rows, n, ld;
    const float *x, *bias, *dy;
    float *z, *y;
    float beta;
    float *partial;
} job;

static void forward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    if (b < e) pg_isa->act_forward(j->act, j->param, e - b, j->x + b, j->y + b);
}

void pg_act_forward(int act, float param, pg_int n, const float *x, float *y) {
    job j = {.act = act, .param = param, .n = n, .x = x, .y = y, .parts = pg_parts(n, grain(act))};
    pg_parallel(j.parts, forward_part, &j);
}

static void backward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    if (b < e)
        pg_isa->act_backward(j->act, j->from_y, j->param, e - b, j->dy + b, j->x + b, j->y + b);
}

void pg_act_backward(int act, float param, pg_int n, const float *dy, const float *x,
                     const float *y, float *dx) {
    int from_y = y != NULL && (pg_act_from_y(act) || x == NULL);
    job j = {.act = act, .from_y = from_y, .param = param, .n = n, .dy = dy,
             .x = from_y ? y : x, .y = dx, .parts = pg_parts(n, grain(act))};
    pg_parallel(j.parts, backward_part, &j);
}

static void bias_act_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    for (pg_int r = b; r < e; r++) {
        pg_int o = r * j->n;
        pg_isa->bias_act(j->act, j->param, j->n, j->x + o, j->bias, j->z ? j->z + o : NULL,
                         j->y + o);
    }
}

void pg_bias_act(int act, float param, pg_int rows, pg_int n, const float *x, const float *bias,
                 float *z, float *y) {
    job j = {.act = act, .param = param, .rows = rows, .n = n, .x = x, .bias = bias, .z = z, .y = y,
             .parts = pg_parts(rows, pg_ceil_div(grain(act), pg_max(n, 1)))};
    pg_parallel(j.parts, bias_act_part, &j);
}

static void bias_act_channels_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->batch * j->rows, 1, j->parts, part, &b, &e);
    for (pg_int r = b; r < e; r++) {
        pg_int o = r * j->n;
        pg_isa->const_bias_act(j->act, j->param, j->n, j->x + o, j->bias ? j->bias[r % j->rows] : 0,
                               j->z ? j->z + o : NULL, j->y + o);
    }
}

void pg_bias_act_channels(int act, float param, pg_int batch, pg_int channels, pg_int size,
                          const float *x, const float *bias, float *z, float *y) {
    job j = {.act = act, .param = param, .batch = batch, .rows = channels, .n = size, .x = x,
             .bias = bias, .z = z, .y = y,
             .parts = pg_parts(batch * channels, pg_ceil_div(grain(act), pg_max(size, 1)))};
    pg_parallel(j.parts, bias_act_channels_part, &j);
}

/* ---- sums ---- */

#define SUM_GRAIN 65536 /* elements a thread */

static void sum_columns_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    if (b < e) pg_isa->sum_rows(j->rows, e - b, j->x + b, j->ld, j->beta, j->y + b);
}

static void sum_rows_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    pg_isa->sum_rows(e - b, j->n, j->x + b * j->ld, j->ld, 0.0f, j->partial + (pg_int)part * j->n);
}

int pg_sum_rows(pg_int rows, pg_int n, const float *x, pg_int ld, float beta, float *out) {
    job j = {.rows = rows, .n = n, .x = x, .ld = ld, .beta = beta, .y = out,
             .parts = pg_parts(rows * n, SUM_GRAIN)};
    if (j.parts == 1 || n >= 64 * j.parts) {
        pg_parallel(j.parts, sum_columns_part, &j);
        return PG_OK;
    }
    j.parts = (int)pg_min(j.parts, rows);
    j.partial = pg_scratch(PG_SCRATCH_REDUCE, (size_t)(j.parts * n) * sizeof(float));
    if (j.partial == NULL) return PG_ENOMEM;
    pg_parallel(j.parts, sum_rows_part, &j);
    pg_isa->sum_rows(j.parts, n, j.partial, n, beta, out);
    return PG_OK;
}

static void sum_channels_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    for (pg_int c = b; c < e; c++) {
        double s = 0.0;
        for (pg_int i = 0; i < j->batch; i++)
            s += pg_isa->sum(j->n, j->x + (i * j->rows + c) * j->n);
        j->y[c] = (float)(s + (j->beta == 0.0f ? 0.0 : (double)j->beta * (double)j->y[c]));
    }
}

int pg_sum_channels(pg_int batch, pg_int channels, pg_int size, const float *x, float beta,
                    float *out) {
    if (size == 1) return pg_sum_rows(batch, channels, x, channels, beta, out);
    job j = {.batch = batch, .rows = channels, .n = size, .x = x, .beta = beta, .y = out};
    j.parts = pg_parts(channels, pg_ceil_div(SUM_GRAIN, pg_max(batch * size, 1)));
    pg_parallel(j.parts, sum_channels_part, &j);
    return PG_OK;
}

/* ---- elementwise ---- */

typedef struct {
    pg_int n;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int parts;
} pair_job;

static void axpby_part(void *ctx, int part) {
    pair_job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    if (b < e) pg_isa->axpby(e - b, j->alpha, j->a + b, j->beta, j->b + b, j->c + b);
}

void pg_axpby(pg_int n, float alpha, const float *a, float beta, const float *b, float *c) {
    pair_job j = {n, alpha, beta, a, b, c, pg_parts(n, GRAIN_CHEAP)};
    pg_parallel(j.parts, axpby_part, &j);
}

/* ---- copies ---- */

typedef struct {
    const float *src;
    float *dst;
    pg_int n[4], s[4], d[4]; /* elements, strides of source and destination */
    int along;               /* the axis whose elements are adjacent in the source */
    int outer[2], parts;
} copy_job;

static void copy_part(void *ctx, int part) {
    copy_job *j = ctx;
    const int k = j->along, p = j->outer[0], q = j->outer[1];
    pg_int b, e;
    pg_part_range(j->n[p] * j->n[q], 1, j->parts, part, &b, &e);
    for (pg_int i = b; i < e; i++) {
        const pg_int u = i % j->n[p], v = i / j->n[p];
        const float *src = j->src + u * j->s[p] + v * j->s[q];
        float *dst = j->dst + u * j->d[p] + v * j->d[q];
        pg_isa->transpose(j->n[0], j->n[k], src, j->s[0], dst, j->d[k]);
    }
}

int pg_copy_permuted(const pg_int n[4], const pg_int s[4], const float *src, float *dst) {
    copy_job j = {.src = src, .dst = dst};
    int m = 0;
    pg_int d = 1;
    for (int i = 0; i < 4; i++) {
        if (n[i] == 1) continue;
        /* Axes that lie in the source as they shall are one. */
        if (m > 0 && s[i] == j.n[m - 1] * j.s[m - 1]) j.n[m - 1] *= n[i];
        else j.n[m] = n[i], j.s[m] = s[i], j.d[m] = d, m++;
        d *= n[i];
    }
    for (int i = m; i < 4; i++) j.n[i] = 1, j.s[i] = j.d[i] = 0;
    for (j.along = 1; j.along < m && j.s[j.along] != 1; j.along++) {}
    if (j.along >= m || j.s[0] == 1) return PG_EINVAL;
    for (int i = 1, o = 0; i < 4; i++)
        if (i != j.along) j.outer[o++] = i;
    j.parts = pg_parts(j.n[j.outer[0]] * j.n[j.outer[1]],
                       pg_ceil_div(GRAIN_CHEAP, j.n[0] * j.n[j.along]));
    pg_parallel(j.parts, copy_part, &j);
    return PG_OK;
}

static void mul_part(void *ctx, int part) {
    pair_job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    if (b < e) pg_isa->mul(e - b, j->a + b, j->b + b, j->c + b);
}

void pg_mul(pg_int n, const float *a, const float *b, float *c) {
    pair_job j = {n, 1.0f, 1.0f, a, b, c, pg_parts(n, GRAIN_CHEAP)};
    pg_parallel(j.parts, mul_part, &j);
}
