#include "norm.h"

#include <math.h>
#include <string.h>

#include "isa.h"
#include "pool.h"
#include "scratch.h"

#define GRAIN 8192 /* elements a thread */

typedef struct {
    int rms, training, parts;
    pg_int rows, n, channels, size;
    float eps;
    const float *x, *dy, *gamma, *beta, *mean_in, *rstd_in;
    float *y, *dx, *mean, *rstd, *dgamma, *dbeta, *partial;
} job;

static float at(const float *p, pg_int i, float otherwise) { return p ? p[i] : otherwise; }

/* ---- rows ---- */

static void rows_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    for (pg_int r = b; r < e; r++)
        pg_isa->norm_row(j->rms, j->n, j->eps, j->x + r * j->n, j->gamma, j->beta, j->y + r * j->n,
                         j->mean ? j->mean + r : NULL, j->rstd ? j->rstd + r : NULL);
}

void pg_layer_norm(int rms, pg_int rows, pg_int n, float eps, const float *x, const float *gamma,
                   const float *beta, float *y, float *mean, float *rstd) {
    job j = {.rms = rms, .rows = rows, .n = n, .eps = eps, .x = x, .gamma = gamma, .beta = beta,
             .y = y, .mean = mean, .rstd = rstd,
             .parts = pg_parts(rows, pg_ceil_div(GRAIN, pg_max(n, 1)))};
    pg_parallel(j.parts, rows_part, &j);
}

static void rows_backward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    float *dg = j->dgamma ? j->partial + (pg_int)part * 2 * j->n : NULL;
    float *db = j->dbeta ? j->partial + ((pg_int)part * 2 + 1) * j->n : NULL;
    if (dg) memset(dg, 0, (size_t)j->n * sizeof(float));
    if (db) memset(db, 0, (size_t)j->n * sizeof(float));
    for (pg_int r = b; r < e; r++) {
        pg_int o = r * j->n;
        pg_isa->norm_backward_row(j->rms, j->n, j->dy + o, j->x + o, j->gamma,
                                  j->rms ? 0.0f : j->mean_in[r], j->rstd_in[r],
                                  j->dx ? j->dx + o : NULL, dg, db);
    }
}

int pg_layer_norm_backward(int rms, pg_int rows, pg_int n, const float *dy, const float *x,
                           const float *gamma, const float *mean, const float *rstd, float *dx,
                           float *dgamma, float *dbeta) {
    job j = {.rms = rms, .rows = rows, .n = n, .dy = dy, .x = x, .gamma = gamma, .mean_in = mean,
             .rstd_in = rstd, .dx = dx, .dgamma = dgamma, .dbeta = dbeta,
             .parts = pg_parts(rows, pg_ceil_div(GRAIN, pg_max(n, 1)))};
    if (dgamma || dbeta) {
        j.partial = pg_scratch(PG_SCRATCH_REDUCE, (size_t)(2 * j.parts * n) * sizeof(float));
        if (j.partial == NULL) return PG_ENOMEM;
    }
    pg_parallel(j.parts, rows_backward_part, &j);
    if (dgamma) pg_isa->sum_rows(j.parts, n, j.partial, 2 * n, 0.0f, dgamma);
    if (dbeta) pg_isa->sum_rows(j.parts, n, j.partial + n, 2 * n, 0.0f, dbeta);
    return PG_OK;
}

/* ---- channels of [batch, channels, size] ---- */

static void channels_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e, step = j->channels * j->size;
    pg_part_range(j->channels, 1, j->parts, part, &b, &e);
    for (pg_int c = b; c < e; c++) {
        const float *x = j->x + c * j->size;
        if (j->training) {
            double count = (double)j->rows * (double)j->size, s = 0.0;
            for (pg_int i = 0; i < j->rows; i++) s += pg_isa->sum(j->size, x + i * step);
            float m = (float)(s / count);
            s = 0.0;
            for (pg_int i = 0; i < j->rows; i++) s += pg_isa->sum_sq_dev(j->size, x + i * step, m);
            j->mean[c] = m;
            j->rstd[c] = (float)(s / count); /* the variance */
        }
        float a = at(j->gamma, c, 1.0f) * (float)(1.0 / sqrt((double)j->rstd[c] + (double)j->eps));
        for (pg_int i = 0; i < j->rows; i++)
            pg_isa->affine(j->size, x + i * step, j->mean[c], a, at(j->beta, c, 0.0f),
                           j->y + i * step + c * j->size);
    }
}

static void channels_backward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e, step = j->channels * j->size;
    pg_part_range(j->channels, 1, j->parts, part, &b, &e);
    for (pg_int c = b; c < e; c++) {
        const float *x = j->x + c * j->size, *dy = j->dy + c * j->size;
        float m = j->mean_in[c];
        double r = 1.0 / sqrt((double)j->rstd_in[c] + (double)j->eps), s1 = 0.0, s2 = 0.0;
        for (pg_int i = 0; i < j->rows; i++) {
            double t1, t2;
            pg_isa->sum_dy_dev(j->size, dy + i * step, x + i * step, m, &t1, &t2);
            s1 += t1, s2 += t2;
        }
        if (j->dgamma) j->dgamma[c] = (float)(s2 * r);
        if (j->dbeta) j->dbeta[c] = (float)s1;
        if (j->dx == NULL) continue;
        double count = (double)j->rows * (double)j->size, g = at(j->gamma, c, 1.0f) * r;
        double k1 = j->training ? -g * s1 / count : 0.0;
        double k2 = j->training ? -g * s2 * r * r / count : 0.0;
        for (pg_int i = 0; i < j->rows; i++)
            pg_isa->affine_backward(j->size, dy + i * step, x + i * step, m, (float)g, (float)k2,
                                    (float)k1, j->dx + i * step + c * j->size);
    }
}

/* ---- columns of [rows, channels] ---- */

#define COLUMNS 256 /* of a block */

static void columns_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->channels, 16, j->parts, part, &b, &e);
    for (pg_int c0 = b; c0 < e; c0 += COLUMNS) {
        pg_int n = pg_min(COLUMNS, e - c0);
        float a[COLUMNS], s[COLUMNS];
        float *mean = j->mean + c0, *var = j->rstd + c0;
        if (j->training) {
            pg_isa->sum_rows(j->rows, n, j->x + c0, j->channels, 0.0f, mean);
            for (pg_int i = 0; i < n; i++) mean[i] /= (float)j->rows;
            pg_isa->columns_sq_dev(j->rows, n, j->x + c0, j->channels, mean, var);
            for (pg_int i = 0; i < n; i++) var[i] /= (float)j->rows;
        }
        for (pg_int i = 0; i < n; i++) {
            a[i] = at(j->gamma, c0 + i, 1.0f) *
                   (float)(1.0 / sqrt((double)var[i] + (double)j->eps));
            s[i] = at(j->beta, c0 + i, 0.0f);
        }
        pg_isa->columns_affine(j->rows, n, j->x + c0, j->channels, mean, a, s, j->y + c0);
    }
}

static void columns_backward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->channels, 16, j->parts, part, &b, &e);
    for (pg_int c0 = b; c0 < e; c0 += COLUMNS) {
        pg_int n = pg_min(COLUMNS, e - c0);
        float s1[COLUMNS], s2[COLUMNS], a[COLUMNS];
        const float *mean = j->mean_in + c0;
        pg_isa->columns_dy_dev(j->rows, n, j->dy + c0, j->x + c0, j->channels, mean, s1, s2);
        for (pg_int i = 0; i < n; i++) {
            double r = 1.0 / sqrt((double)j->rstd_in[c0 + i] + (double)j->eps);
            double g = at(j->gamma, c0 + i, 1.0f) * r;
            if (j->dgamma) j->dgamma[c0 + i] = (float)(s2[i] * r);
            if (j->dbeta) j->dbeta[c0 + i] = s1[i];
            a[i] = (float)g;
            s1[i] = j->training ? (float)(-g * s1[i] / (double)j->rows) : 0.0f;
            s2[i] = j->training ? (float)(-g * s2[i] * r * r / (double)j->rows) : 0.0f;
        }
        if (j->dx)
            pg_isa->columns_affine_backward(j->rows, n, j->dy + c0, j->x + c0, j->channels, mean, a,
                                            s2, s1, j->dx + c0);
    }
}

static int channel_parts(const job *j) {
    pg_int units = j->size > 1 ? j->channels : pg_ceil_div(j->channels, 16);
    pg_int work = j->rows * j->size * (j->size > 1 ? 1 : 16);
    return pg_parts(units, pg_ceil_div(GRAIN, pg_max(work, 1)));
}

void pg_batch_norm(int training, pg_int batch, pg_int channels, pg_int size, float eps,
                   const float *x, const float *gamma, const float *beta, float *y, float *mean,
                   float *var) {
    job j = {.training = training, .rows = batch, .channels = channels, .size = size, .eps = eps,
             .x = x, .gamma = gamma, .beta = beta, .y = y, .mean = mean, .rstd = var};
    j.parts = channel_parts(&j);
    pg_parallel(j.parts, size > 1 ? channels_part : columns_part, &j);
}

int pg_batch_norm_backward(int training, pg_int batch, pg_int channels, pg_int size, float eps,
                           const float *dy, const float *x, const float *gamma, const float *mean,
                           const float *var, float *dx, float *dgamma, float *dbeta) {
    job j = {.training = training, .rows = batch, .channels = channels, .size = size, .eps = eps,
             .dy = dy, .x = x, .gamma = gamma, .mean_in = mean, .rstd_in = var, .dx = dx,
             .dgamma = dgamma, .dbeta = dbeta};
    j.parts = channel_parts(&j);
    pg_parallel(j.parts, size > 1 ? channels_backward_part : columns_backward_part, &j);
    return PG_OK;
}
