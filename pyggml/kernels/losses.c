#include "losses.h"

#include "isa.h"
#include "pool.h"
#include "scratch.h"

/* Elements of a block, whose sum is one term of the total. */
#define BLOCK 8192
#define GRAIN 8192

typedef struct {
    int kind, log, parts;
    float p0, p1, scale;
    pg_int rows, cols, block_rows, blocks;
    const float *pred, *target, *weight;
    pg_int w_rs, w_cs;
    float *grad;
    double *sums;
} job;

static double loss_block(const job *j, pg_int block) {
    pg_int b = block * j->block_rows, e = pg_min(j->rows, b + j->block_rows);
    const float *w = j->weight;
    double sum = 0.0;
    if (j->kind < PG_LOSS_SOFTMAX_CE && j->cols == 1) { /* one row of elements */
        return pg_isa->loss_elements(j->kind, j->p0, j->p1, e - b, j->pred + b, j->target + b,
                                     w ? w + b : NULL, 1, j->scale, j->grad ? j->grad + b : NULL);
    }
    for (pg_int r = b; r < e; r++) {
        pg_int o = r * j->cols;
        float *g = j->grad ? j->grad + o : NULL;
        if (j->kind < PG_LOSS_SOFTMAX_CE)
            sum += pg_isa->loss_elements(j->kind, j->p0, j->p1, j->cols, j->pred + o, j->target + o,
                                         w ? w + r * j->w_rs : NULL, (int)j->w_cs, j->scale, g);
        else
            sum += pg_isa->loss_row(j->kind, j->cols, j->pred + o, j->target + o,
                                    w ? w[r * j->w_rs] : 1.0f, j->scale, g);
    }
    return sum;
}

static void loss_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->blocks, 1, j->parts, part, &b, &e);
    for (pg_int i = b; i < e; i++) j->sums[i] = loss_block(j, i);
}

int pg_loss(int kind, float param0, float param1, pg_int rows, pg_int cols, const float *pred,
            const float *target, const float *weight, pg_int w_rs, pg_int w_cs, float scale,
            float *grad, double *loss) {
    if (kind < 0 || kind >= PG_LOSS_COUNT || (weight && kind < PG_LOSS_SOFTMAX_CE && cols > 1 &&
                                              w_cs != 0 && w_cs != 1))
        return PG_EINVAL;
    job j = {.kind = kind, .p0 = param0, .p1 = param1, .scale = scale, .rows = rows, .cols = cols,
             .pred = pred, .target = target, .weight = weight, .w_rs = w_rs, .w_cs = w_cs,
             .grad = grad};
    *loss = 0.0;
    if (rows <= 0 || cols <= 0) return PG_OK;
    /* Elements that lie together, with weights that do too, are one long row. */
    if (kind < PG_LOSS_SOFTMAX_CE &&
        (weight == NULL || (cols == 1 && w_rs == 1) || (w_cs == 1 && w_rs == cols))) {
        j.rows = rows * cols, j.cols = 1, j.w_rs = 1;
    } else if (kind < PG_LOSS_SOFTMAX_CE && cols == 1) { /* a stride of weights: row by row */
        for (pg_int r = 0; r < rows; r++)
            *loss += pg_isa->loss_elements(kind, param0, param1, 1, pred + r, target + r,
                                           weight + r * w_rs, 1, scale, grad ? grad + r : NULL);
        *loss *= (double)scale;
        return PG_OK;
    }
    j.block_rows = pg_max(1, BLOCK / j.cols);
    j.blocks = pg_ceil_div(j.rows, j.block_rows);
    double few[16];
    j.sums = j.blocks <= 16 ? few
                            : pg_scratch(PG_SCRATCH_REDUCE, (size_t)j.blocks * sizeof(double));
    if (j.sums == NULL) return PG_ENOMEM;
    j.parts = (int)pg_min(pg_parts(rows * cols, GRAIN), j.blocks);
    pg_parallel(j.parts, loss_part, &j);
    double sum = 0.0;
    for (pg_int i = 0; i < j.blocks; i++) sum += j.sums[i];
    *loss = sum * (double)scale;
    return PG_OK;
}

/* ---- softmax ---- */

static void softmax_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    for (pg_int r = b; r < e; r++)
        pg_isa->softmax_row(j->log, j->cols, j->pred + r * j->cols, j->grad + r * j->cols);
}

void pg_softmax(int log, pg_int rows, pg_int n, const float *x, float *y) {
    job j = {.log = log, .rows = rows, .cols = n, .pred = x, .grad = y,
             .parts = pg_parts(rows, pg_ceil_div(GRAIN, pg_max(n, 1)))};
    pg_parallel(j.parts, softmax_part, &j);
}

static void softmax_backward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->rows, 1, j->parts, part, &b, &e);
    for (pg_int r = b; r < e; r++) {
        pg_int o = r * j->cols;
        pg_isa->softmax_backward_row(j->log, j->cols, j->pred + o, j->target + o, j->grad + o);
    }
}

void pg_softmax_backward(int log, pg_int rows, pg_int n, const float *dy, const float *y,
                         float *dx) {
    job j = {.log = log, .rows = rows, .cols = n, .pred = dy, .target = y, .grad = dx,
             .parts = pg_parts(rows, pg_ceil_div(GRAIN, pg_max(n, 1)))};
    pg_parallel(j.parts, softmax_backward_part, &j);
}
