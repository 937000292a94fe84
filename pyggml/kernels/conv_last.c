/* Convolution with channels last inside; see conv_last_isa.c and conv_paths.h. */
#include "conv_last.h"

#include <string.h>

#include "conv_paths.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"

/* A padded image [rows][cols][channels]; the source's first row and column are top and left. */
typedef struct {
    pg_int channels, h, w, top, left, rows, cols, size;
} image;

static image image_of(pg_int channels, pg_int h, pg_int w, pg_int top, pg_int left, pg_int rows,
                      pg_int cols) {
    image m = {channels, h, w, top, left, rows, cols, rows * cols * channels + PG_LAST_SLACK};
    return m;
}

/* The borders of dst are zero already. */
static void fill(const image *m, const float *src, float *dst) {
    pg_int rows = pg_min(m->h, m->rows - m->top), cols = pg_min(m->w, m->cols - m->left);
    if (rows > 0 && cols > 0)
        pg_isa->conv_to_last(m->channels, m->h, m->w, rows, cols, src,
                             dst + (m->top * m->cols + m->left) * m->channels,
                             m->cols * m->channels);
}

/* ---- forward, and the gradient of the data with stride 1 ---- */

typedef struct {
    image m;
    pg_last last;
    pg_int groups, images, splits, src_group, dst_group, packed_group;
    const float *src, *bias;
    float *dst;
    int act, parts;
    float act_param;
    pg_atomic status;
} job;

static void forward_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->images * j->splits, 1, j->parts, part, &b, &e);
    float *scratch = pg_scratch(PG_SCRATCH_CONV, (size_t)j->m.size * sizeof(float));
    if (scratch == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    memset(scratch, 0, (size_t)j->m.size * sizeof(float));
    for (pg_int u = b; u < e; u++) {
        pg_int n = u / j->splits, r0, r1;
        pg_part_range(j->last.oh, 1, (int)j->splits, (int)(u % j->splits), &r0, &r1);
        for (pg_int g = 0; g < j->groups; g++) {
            pg_last f = j->last;
            float *y = j->dst + (n * j->groups + g) * j->dst_group;
            f.packed += g * j->packed_group;
            f.bias = j->bias ? j->bias + g * f.outs : NULL;
            fill(&j->m, j->src + (n * j->groups + g) * j->src_group, scratch);
            pg_isa->conv_last(&f, scratch, r0, r1, y);
            if (j->act != PG_ACT_RELU && j->act != PG_ACT_LINEAR && j->splits == 1)
                pg_isa->act_forward(j->act, j->act_param, j->dst_group, y, y);
        }
    }
}

/* Tables (segments, taps) and packed weights live in the calling thread's scratch. */
static int run(job *j, const pg_conv *c, pg_int in, const float *weights, int backward) {
    const pg_int kk = c->kh * c->kw, k = in * kk, outs = j->last.outs;
    const pg_int step = backward ? (c->ic / c->groups) * kk : kk;  /* of input channels */
    const pg_int row_step = backward ? kk : in * kk;               /* of output channels */
    const size_t ints = (size_t)pg_ceil_div(k + kk, 16) * 16;
    const size_t packed = pg_isa->conv_last_size(outs, k);
    int32_t *tap = pg_scratch(PG_SCRATCH_CONV2,
                              ints * sizeof *tap + (size_t)c->groups * packed * sizeof(float));
    if (tap == NULL) return PG_ENOMEM;
    int32_t *seg = tap + k;
    float *w = (float *)(tap + ints);
    const pg_int dh = c->dh * j->m.cols * in, dw = c->dw * in;
    const int joined = c->dw == 1; /* the columns of a kernel's row adjoin */
    for (pg_int a = 0, p = 0; a < c->kh; a++)
        for (pg_int b = 0; b < c->kw; b++) {
            pg_int at = backward ? kk - 1 - (a * c->kw + b) : a * c->kw + b;
            for (pg_int i = 0; i < in; i++) tap[p++] = (int32_t)(i * step + at);
            if (joined) seg[a] = (int32_t)(a * dh);
            else seg[a * c->kw + b] = (int32_t)(a * dh + b * dw);
        }
    j->last.segs = joined ? c->kh : kk;
    j->last.len = joined ? c->kw * in : in;
    j->last.seg = seg;
    j->last.packed = w;
    j->packed_group = (pg_int)packed;
    for (pg_int g = 0; g < c->groups; g++)
        pg_isa->conv_last_pack(outs, k, weights + g * (c->oc / c->groups) * (c->ic / c->groups) * kk,
                               row_step, tap, w + (size_t)g * packed);
    int threads = pg_conv_threads(c);
    j->groups = c->groups, j->images = c->n;
    j->splits = c->n >= threads ? 1 : pg_min(pg_ceil_div(threads, c->n), j->last.oh);
    j->parts = (int)pg_min(threads, c->n * j->splits);
    pg_parallel(j->parts, forward_part, j);
    int rc = (int)pg_load(&j->status);
    if (rc == PG_OK && j->splits > 1 && j->act != PG_ACT_RELU && j->act != PG_ACT_LINEAR)
        pg_act_forward(j->act, j->act_param, c->n * c->groups * j->dst_group, j->dst, j->dst);
    return rc;
}

int pg_conv_last_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                         int act, float act_param, float *y) {
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups;
    job j = {.src = x, .dst = y, .bias = bias, .act = act, .act_param = act_param};
    j.m = image_of(ic, c->h, c->w, c->ph, c->pw, (c->oh - 1) * c->sh + (c->kh - 1) * c->dh + 1,
                   (c->ow - 1) * c->sw + (c->kw - 1) * c->dw + 1);
    j.src_group = ic * c->h * c->w, j.dst_group = oc * c->oh * c->ow;
    j.last = (pg_last){.outs = oc, .oh = c->oh, .ow = c->ow, .row_step = c->sh * j.m.cols * ic,
                       .col_step = c->sw * ic, .relu = act == PG_ACT_RELU};
    return run(&j, c, ic, weights, 0);
}

/* Unit strides: the convolution of dy with the kernel turned round. */
int pg_conv_last_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx) {
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups;
    const pg_int top = (c->kh - 1) * c->dh - c->ph, left = (c->kw - 1) * c->dw - c->pw;
    if (top < 0 || left < 0) return PG_EINVAL; /* the caller takes the other way */
    job j = {.dst = dx, .act = PG_ACT_LINEAR};
    j.m = image_of(oc, c->oh, c->ow, top, left, c->h + (c->kh - 1) * c->dh,
                   c->w + (c->kw - 1) * c->dw);
    j.src = dy;
    j.src_group = oc * c->oh * c->ow, j.dst_group = ic * c->h * c->w;
    j.last = (pg_last){.outs = ic, .oh = c->h, .ow = c->w, .row_step = j.m.cols * oc,
                       .col_step = oc};
    return run(&j, c, oc, weights, 1);
}

/* ---- gradient of the weights ---- */

typedef struct {
    const pg_conv *c;
    image m;
    pg_last_dots dots;
    const float *x, *dy;
    float *acc;
    size_t acc_floats; /* of one part, all groups */
    int parts;
    pg_atomic status;
} weight_job;

static void weight_part(void *ctx, int part) {
    weight_job *j = ctx;
    const pg_conv *c = j->c;
    const pg_int ic = j->dots.ins, oc = j->dots.outs, p = c->oh * c->ow;
    pg_int b, e;
    pg_part_range(c->n, 1, j->parts, part, &b, &e);
    float *acc = j->acc + (size_t)part * j->acc_floats;
    memset(acc, 0, j->acc_floats * sizeof(float));
    const pg_int dy_size = pg_ceil_div(oc * p, 16) * 16;
    float *grad = pg_scratch(PG_SCRATCH_CONV, (size_t)(dy_size + j->m.size) * sizeof(float));
    if (grad == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    float *img = grad + dy_size;
    memset(img, 0, (size_t)j->m.size * sizeof(float));
    for (pg_int n = b; n < e; n++)
        for (pg_int g = 0; g < c->groups; g++) {
            fill(&j->m, j->x + (n * c->groups + g) * ic * c->h * c->w, img);
            pg_isa->conv_last_pack_dy(oc, p, j->dy + (n * c->groups + g) * oc * p, grad);
            pg_isa->conv_last_dots(&j->dots, grad, img,
                                   acc + (size_t)g * (j->acc_floats / (size_t)c->groups));
        }
}

int pg_conv_last_backward_weight(const pg_conv *c, const float *x, const float *dy, float *dw) {
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, kk = c->kh * c->kw;
    weight_job j = {.c = c, .x = x, .dy = dy};
    j.m = image_of(ic, c->h, c->w, c->ph, c->pw, (c->oh - 1) * c->sh + (c->kh - 1) * c->dh + 1,
                   (c->ow - 1) * c->sw + (c->kw - 1) * c->dw + 1);
    j.parts = (int)pg_min(pg_conv_threads(c), c->n);
    const size_t one = pg_isa->conv_last_acc(oc, ic, kk), ints = (size_t)pg_ceil_div(kk, 16) * 16;
    j.acc_floats = one * (size_t)c->groups;
    int32_t *tap = pg_scratch(PG_SCRATCH_CONV2, ints * sizeof *tap +
                                                    (size_t)j.parts * j.acc_floats * sizeof(float));
    if (tap == NULL) return PG_ENOMEM;
    for (pg_int a = 0; a < c->kh; a++)
        for (pg_int b = 0; b < c->kw; b++)
            tap[a * c->kw + b] = (int32_t)((a * c->dh * j.m.cols + b * c->dw) * ic);
    j.acc = (float *)(tap + ints);
    j.dots = (pg_last_dots){.outs = oc, .ins = ic, .taps = kk, .tap = tap, .oh = c->oh, .ow = c->ow,
                            .row_step = c->sh * j.m.cols * ic, .col_step = c->sw * ic};
    pg_parallel(j.parts, weight_part, &j);
    for (int s = 0; s < j.parts; s++) /* the parts added in their order */
        for (pg_int g = 0; g < c->groups; g++)
            pg_isa->conv_last_collect(oc, ic, kk, j.acc + (size_t)s * j.acc_floats + (size_t)g * one,
                                      s > 0 ? 1.0f : 0.0f, dw + g * oc * ic * kk);
    return (int)pg_load(&j.status);
}
