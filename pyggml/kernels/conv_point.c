/* Convolution with 1 x 1 kernels, unit strides and no padding: products of the weights with each
 * image as it lies in memory. See conv_paths.h. */
#include <string.h>

#include "conv_paths.h"
#include "gemm.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"

/* Images with fewer positions leave too little to do for weights that are packed anew for each. */
#define POSITIONS 16
#define WEIGHTS_PER_POSITION 2048

int pg_conv_is_point(const pg_conv *c) {
    const pg_int p = c->oh * c->ow;
    if (p < POSITIONS || c->oc / c->groups * (c->ic / c->groups) > WEIGHTS_PER_POSITION * p) return 0;
    return c->kh == 1 && c->kw == 1 && c->sh == 1 && c->sw == 1 && c->ph == 0 && c->pw == 0 &&
           c->oh == c->h && c->ow == c->w;
}

typedef struct {
    const pg_conv *c;
    const float *x, *weights, *bias, *dy;
    float *out;
    int backward, act, splits, parts;
    float act_param;
    pg_atomic status;
} job;

/* y = W x of columns [p0, p1) of one image's group, or dx = W^T dy. */
static int product(const job *j, pg_int u, pg_int p0, pg_int p1) {
    const pg_conv *c = j->c;
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, p = c->oh * c->ow;
    const pg_int in = j->backward ? oc : ic, out = j->backward ? ic : oc, g = u % c->groups;
    float *y = j->out + u * out * p + p0;
    pg_gemm_args a = {.m = out, .n = p1 - p0, .k = in, .a = j->weights + g * oc * ic,
                      .a_rs = j->backward ? 1 : ic, .a_cs = j->backward ? ic : 1,
                      .b = j->x + u * in * p + p0, .b_rs = p, .b_cs = 1, .c = y, .c_rs = p,
                      .alpha = 1.0f};
    int rc = pg_gemm1(&a);
    if (rc != PG_OK || (j->bias == NULL && j->act == PG_ACT_LINEAR)) return rc;
    for (pg_int o = 0; o < out; o++)
        pg_isa->const_bias_act(j->act, j->act_param, p1 - p0, y + o * p,
                               j->bias ? j->bias[g * out + o] : 0.0f, NULL, y + o * p);
    return rc;
}

static void point_part(void *ctx, int part) {
    job *j = ctx;
    const pg_conv *c = j->c;
    pg_int b, e, p0, p1;
    pg_part_range(c->n * c->groups * j->splits, 1, j->parts, part, &b, &e);
    for (pg_int u = b; u < e; u++) {
        pg_part_range(c->oh * c->ow, 64, j->splits, (int)(u % j->splits), &p0, &p1);
        int rc = p0 < p1 ? product(j, u / j->splits, p0, p1) : PG_OK;
        if (rc != PG_OK) pg_store(&j->status, rc);
    }
}

static int run(job *j) {
    const pg_int units = j->c->n * j->c->groups;
    const int threads = pg_conv_threads(j->c);
    j->splits = units >= threads ? 1 : (int)pg_ceil_div(threads, units);
    j->parts = (int)pg_min(threads, units * j->splits);
    pg_parallel(j->parts, point_part, j);
    return (int)pg_load(&j->status);
}

int pg_conv_point_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                          int act, float act_param, float *y) {
    job j = {.c = c, .x = x, .weights = weights, .bias = bias, .out = y, .act = act,
             .act_param = act_param};
    return run(&j);
}

int pg_conv_point_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx) {
    job j = {.c = c, .x = dy, .weights = weights, .out = dx, .backward = 1, .act = PG_ACT_LINEAR};
    return run(&j);
}

/* ---- gradient of the weights: the sum over images of dy x^T ---- */

static void weight_part(void *ctx, int part) {
    job *j = ctx;
    const pg_conv *c = j->c;
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, p = c->oh * c->ow;
    float *out = j->out + (pg_int)part * c->oc * ic;
    pg_int b, e;
    pg_part_range(c->n, 1, j->parts, part, &b, &e);
    for (pg_int n = b; n < e; n++)
        for (pg_int g = 0; g < c->groups; g++) {
            const pg_int u = n * c->groups + g;
            pg_gemm_args a = {.m = oc, .n = ic, .k = p, .a = j->dy + u * oc * p, .a_rs = p,
                              .a_cs = 1, .b = j->x + u * ic * p, .b_rs = 1, .b_cs = p,
                              .c = out + g * oc * ic, .c_rs = ic, .alpha = 1.0f,
                              .beta = n > b ? 1.0f : 0.0f};
            int rc = pg_gemm1(&a);
            if (rc != PG_OK) pg_store(&j->status, rc);
        }
}

int pg_conv_point_backward_weight(const pg_conv *c, const float *x, const float *dy, float *dw) {
    const pg_int size = c->oc * (c->ic / c->groups);
    job j = {.c = c, .x = x, .dy = dy, .out = dw};
    j.parts = (int)pg_min(pg_conv_threads(c), c->n);
    if (j.parts > 1) {
        j.out = pg_scratch(PG_SCRATCH_CONV2, (size_t)(j.parts * size) * sizeof(float));
        if (j.out == NULL) return PG_ENOMEM;
    }
    pg_parallel(j.parts, weight_part, &j);
    if (j.parts > 1) { /* the shares added in their order */
        pg_isa->axpby(size, 1.0f, j.out, 1.0f, j.out + size, dw);
        for (int s = 2; s < j.parts; s++)
            pg_isa->axpby(size, 1.0f, dw, 1.0f, j.out + (pg_int)s * size, dw);
    }
    return (int)pg_load(&j.status);
}
