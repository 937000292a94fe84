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
    pg_int width; /* losses of elements are one long row, whose weights come in rows of so many */
    const float *pred, *target, *weight;
    pg_int w_rs, w_cs;
    float *grad;
    double *sums;
} job;

static double elements(const job *j, pg_int b, pg_int e, const float *w) {
    return pg_isa->loss_elements(j->kind, j->p0, j->p1, e - b, j->pred + b, j->target + b, w,
                                 j->scale, j->grad ? j->grad + b : NULL);
}

/* Weights that do not lie as the elements do are laid so: the sum is formed in the same order
 * whatever the weights, and weights of 1 change no bit of it. */
static PG_NOINLINE double elements_of_rows(const job *j, pg_int b, pg_int e) {
    float w[BLOCK];
    for (pg_int i = b; i < e;) {
        pg_int r = i / j->width, end = pg_min(e, (r + 1) * j->width);
        const float *own = j->weight + r * j->w_rs;
        for (pg_int c = i - r * j->width; i < end; i++, c++) w[i - b] = own[c * j->w_cs];
    }
    return elements(j, b, e, w);
}

static double loss_block(const job *j, pg_int block) {
    pg_int b = block * j->block_rows, e = pg_min(j->rows, b + j->block_rows);
    const float *w = j->weight;
    if (j->kind < PG_LOSS_SOFTMAX_CE)
        return w && j->width ? elements_of_rows(j, b, e) : elements(j, b, e, w ? w + b : NULL);
    double sum = 0.0;
    for (pg_int r = b; r < e; r++) {
        pg_int o = r * j->cols;
        sum += pg_isa->loss_row(j->kind, j->cols, j->pred + o, j->target + o,
                                w ? w[r * j->w_rs] : 1.0f, j->scale, j->grad ? j->grad + o : NULL);
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
    if (kind < PG_LOSS_SOFTMAX_CE) {
        int together = w_rs == cols && (w_cs == 1 || cols == 1);
        j.rows = rows * cols, j.cols = 1, j.width = together ? 0 : cols;
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
