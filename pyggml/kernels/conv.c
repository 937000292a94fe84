#include "conv.h"

#include <string.h>

#include "activations.h"
#include "conv_flat.h"
#include "conv_paths.h"
#include "gemm.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"

/* Multiply-adds below which one thread is faster than several. */
#define PARALLEL 200000.0
/* Bytes of padded images and gradients that one pass of the weight gradient works on. */
#define GROUP_BYTES (256 * 1024)

pg_int pg_conv_out(pg_int size, pg_int k, pg_int stride, pg_int before, pg_int after,
                   pg_int dilation) {
    pg_int span = size + before + after - (k - 1) * dilation - 1;
    return span < 0 ? 0 : span / stride + 1;
}

static int valid(const pg_conv *c) {
    return c->groups > 0 && c->ic % c->groups == 0 && c->oc % c->groups == 0 && c->sh > 0 &&
           c->sw > 0 && c->dh > 0 && c->dw > 0 && c->kh > 0 && c->kw > 0 && c->ph >= 0 && c->pw >= 0;
}

static int empty(const pg_conv *c) {
    return c->n <= 0 || c->ic <= 0 || c->oc <= 0 || c->oh <= 0 || c->ow <= 0;
}

int pg_conv_threads(const pg_conv *c) {
    double work = (double)(c->n * c->oc) * (double)(c->ic / c->groups * c->kh * c->kw) *
                  (double)(c->oh * c->ow);
    return work < PARALLEL ? 1 : pg_get_num_threads();
}

/* ---- padded images ---- */

/* A padded image: with strides, one plane for each phase of rows and columns, so that neighbours in
 * the output are neighbours in memory. */
typedef struct {
    pg_int channels, h, w;       /* of the source */
    pg_int top, left, sh, sw;    /* padding before, strides */
    pg_int rows, cols;           /* of a plane */
    pg_int plane, channel, size; /* floats */
} padded;

static padded pad_shape(pg_int channels, pg_int h, pg_int w, pg_int top, pg_int left, pg_int sh,
                        pg_int sw, pg_int rows, pg_int cols) {
    padded p = {channels, h, w, top, left, sh, sw, pg_ceil_div(rows, sh), pg_ceil_div(cols, sw),
                0, 0, 0};
    p.plane = p.rows * p.cols;
    p.channel = p.plane * sh * sw;
    p.size = p.channel * channels + PG_FLAT_SLACK;
    return p;
}

/* Offset of padded position (r, c) in a channel. */
static pg_int pad_offset(const padded *p, pg_int r, pg_int c) {
    return (r % p->sh * p->sw + c % p->sw) * p->plane + r / p->sh * p->cols + c / p->sw;
}

/* The borders of dst are zero already. */
static void pad_fill(const padded *p, const float *src, float *dst) {
    const pg_int r1 = pg_min(p->h, p->rows * p->sh - p->top);
    const pg_int c1 = pg_min(p->w, p->cols * p->sw - p->left);
    for (pg_int ch = 0; ch < p->channels; ch++) {
        const float *s = src + ch * p->h * p->w;
        float *d = dst + ch * p->channel;
        for (pg_int r = 0; r < r1; r++) {
            if (p->sw == 1) {
                if (c1 > 0)
                    memcpy(d + pad_offset(p, r + p->top, p->left), s + r * p->w,
                           (size_t)c1 * sizeof(float));
                continue;
            }
            for (pg_int a = 0; a < p->sw && a < c1; a++) { /* every sw-th column to its plane */
                float *o = d + pad_offset(p, r + p->top, p->left + a);
                const float *x = s + r * p->w + a;
                for (pg_int c = a; c < c1; c += p->sw, x += p->sw) *o++ = *x;
            }
        }
    }
}

/* ---- forward, and the gradient of the data with stride 1: both a convolution ---- */

typedef struct {
    padded pad;
    pg_flat flat;
    pg_int groups, images, splits;
    pg_int src_image, src_group, dst_image, dst_group, dst_size, packed_group;
    const float *src, *bias;
    float *dst;
    int act, parts;
    float act_param;
    pg_atomic status;
} flat_job;

static void flat_part(void *ctx, int part) {
    flat_job *j = ctx;
    pg_int b, e;
    pg_part_range(j->images * j->splits, 1, j->parts, part, &b, &e);
    float *image = pg_scratch(PG_SCRATCH_CONV, (size_t)j->pad.size * sizeof(float));
    if (image == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    memset(image, 0, (size_t)j->pad.size * sizeof(float));
    const pg_int all = (j->flat.oh - 1) * j->flat.pitch + j->flat.ow;
    for (pg_int u = b; u < e; u++) {
        pg_int n = u / j->splits, s = u % j->splits, q0, q1;
        pg_part_range(all, 64, (int)j->splits, (int)s, &q0, &q1);
        for (pg_int g = 0; g < j->groups; g++) {
            pg_flat f = j->flat;
            float *y = j->dst + n * j->dst_image + g * j->dst_group;
            f.packed += g * j->packed_group;
            if (j->bias) f.bias = j->bias + g * f.rows;
            f.relu = j->act == PG_ACT_RELU;
            pad_fill(&j->pad, j->src + n * j->src_image + g * j->src_group, image);
            pg_isa->conv_flat(&f, image, q0, q1, y);
            if (j->act != PG_ACT_RELU && j->act != PG_ACT_LINEAR && j->splits == 1)
                pg_isa->act_forward(j->act, j->act_param, j->dst_group, y, y);
        }
    }
}

static int run_flat(flat_job *j, const pg_conv *c, const int32_t *tap, const float *weights, pg_int row_step,
                    pg_int group_step, pg_int packed_floats, float *packed) {
    j->packed_group = packed_floats;
    for (pg_int g = 0; g < j->groups; g++)
        pg_isa->conv_pack(j->flat.rows, j->flat.taps, weights + g * group_step, row_step, tap,
                          packed + g * packed_floats);
    j->flat.packed = packed;
    int threads = pg_conv_threads(c);
    j->splits = j->images >= threads ? 1 : pg_ceil_div(threads, j->images);
    j->parts = (int)pg_min(threads, j->images * j->splits);
    pg_parallel(j->parts, flat_part, j);
    return (int)pg_load(&j->status);
}

/* Scratch of the calling thread that lives through a region: tables and packed weights. */
static int32_t *tables(pg_int taps, pg_int groups, pg_int rows, int32_t **tap, float **packed) {
    size_t ints = (size_t)pg_ceil_div(2 * taps, 16) * 16;
    int32_t *t = pg_scratch(PG_SCRATCH_CONV2,
                            ints * sizeof *t + (size_t)(groups * rows * taps) * sizeof(float));
    if (t == NULL) return NULL;
    *tap = t + taps;
    *packed = (float *)(t + ints);
    return t;
}

int pg_conv_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                    int act, float act_param, float *y) {
    if (!valid(c)) return PG_EINVAL;
    if (empty(c)) return PG_OK;
    if (pg_conv_is_point(c)) return pg_conv_point_forward(c, x, weights, bias, act, act_param, y);
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, taps = ic * c->kh * c->kw;
    padded p = pad_shape(ic, c->h, c->w, c->ph, c->pw, c->sh, c->sw,
                         (c->oh - 1) * c->sh + (c->kh - 1) * c->dh + 1,
                         (c->ow - 1) * c->sw + (c->kw - 1) * c->dw + 1);
    if (pg_isa->conv_last_better(oc, c->oh * c->ow, (c->oh - 1) * p.cols + c->ow))
        return pg_conv_last_forward(c, x, weights, bias, act, act_param, y);
    int32_t *tap;
    float *packed;
    int32_t *offset = tables(taps, c->groups, oc, &tap, &packed);
    if (offset == NULL) return PG_ENOMEM;
    for (pg_int i = 0, k = 0; i < ic; i++)
        for (pg_int a = 0; a < c->kh; a++)
            for (pg_int b = 0; b < c->kw; b++, k++) {
                offset[k] = (int32_t)(i * p.channel + pad_offset(&p, a * c->dh, b * c->dw));
                tap[k] = (int32_t)k;
            }
    flat_job j = {.pad = p, .groups = c->groups, .images = c->n, .src = x, .bias = bias, .dst = y,
                  .act = act, .act_param = act_param};
    j.src_group = ic * c->h * c->w, j.src_image = c->ic * c->h * c->w;
    j.dst_group = oc * c->oh * c->ow, j.dst_image = c->oc * c->oh * c->ow;
    j.flat = (pg_flat){.rows = oc, .taps = taps, .offset = offset, .pitch = p.cols, .oh = c->oh,
                       .ow = c->ow};
    int rc = run_flat(&j, c, tap, weights, taps, oc * taps, oc * taps, packed);
    if (rc == PG_OK && j.splits > 1 && act != PG_ACT_RELU && act != PG_ACT_LINEAR)
        pg_act_forward(act, act_param, c->n * j.dst_image, y, y);
    return rc;
}

/* dx[i, r, c] = sum over o, a, b of weights[o, i, a, b] dy[o, r + ph - a dh, c + pw - b dw]. */
static int backward_data_unit_stride(const pg_conv *c, const float *dy, const float *weights,
                                     float *dx) {
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, kk = c->kh * c->kw, taps = oc * kk;
    const pg_int top = pg_max(0, (c->kh - 1) * c->dh - c->ph);
    const pg_int left = pg_max(0, (c->kw - 1) * c->dw - c->pw);
    padded p = pad_shape(oc, c->oh, c->ow, top, left, 1, 1, c->h + c->ph + top, c->w + c->pw + left);
    if (pg_isa->conv_last_better(ic, c->h * c->w, (c->h - 1) * p.cols + c->w)) {
        int rc = pg_conv_last_backward_data(c, dy, weights, dx);
        if (rc != PG_EINVAL) return rc;
    }
    int32_t *tap;
    float *packed;
    int32_t *offset = tables(taps, c->groups, ic, &tap, &packed);
    if (offset == NULL) return PG_ENOMEM;
    for (pg_int o = 0, k = 0; o < oc; o++)
        for (pg_int a = 0; a < c->kh; a++)
            for (pg_int b = 0; b < c->kw; b++, k++) {
                offset[k] = (int32_t)(o * p.channel + pad_offset(&p, c->ph + top - a * c->dh,
                                                                 c->pw + left - b * c->dw));
                tap[k] = (int32_t)((o * ic * c->kh + a) * c->kw + b);
            }
    flat_job j = {.pad = p, .groups = c->groups, .images = c->n, .src = dy, .dst = dx,
                  .act = PG_ACT_LINEAR};
    j.src_group = oc * c->oh * c->ow, j.src_image = c->oc * c->oh * c->ow;
    j.dst_group = ic * c->h * c->w, j.dst_image = c->ic * c->h * c->w;
    j.flat = (pg_flat){.rows = ic, .taps = taps, .offset = offset, .pitch = p.cols, .oh = c->h,
                       .ow = c->w};
    return run_flat(&j, c, tap, weights, kk, oc * ic * kk, ic * taps, packed);
}

/* ---- gradient of the data with strides: columns = weights' dy, then added where they belong ---- */

typedef struct {
    const pg_conv *c;
    const float *dy, *weights;
    float *dx;
    int parts;
    pg_atomic status;
} data_job;

static void add_columns(const pg_conv *c, pg_int ic, const float *cols, float *dx) {
    for (pg_int i = 0; i < ic; i++)
        for (pg_int a = 0; a < c->kh; a++)
            for (pg_int b = 0; b < c->kw; b++, cols += c->oh * c->ow)
                for (pg_int r = 0; r < c->oh; r++) {
                    pg_int y = r * c->sh + a * c->dh - c->ph, x0 = b * c->dw - c->pw;
                    if (y < 0 || y >= c->h) continue;
                    float *d = dx + (i * c->h + y) * c->w;
                    const float *s = cols + r * c->ow;
                    pg_int lo = x0 < 0 ? pg_ceil_div(-x0, c->sw) : 0;
                    pg_int hi = c->w > x0 ? pg_min(c->ow, (c->w - 1 - x0) / c->sw + 1) : 0;
                    for (pg_int q = lo; q < hi; q++) d[q * c->sw + x0] += s[q];
                }
}

static void data_part(void *ctx, int part) {
    data_job *j = ctx;
    const pg_conv *c = j->c;
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, taps = ic * c->kh * c->kw;
    const pg_int p = c->oh * c->ow;
    pg_int b, e;
    pg_part_range(c->n * c->groups, 1, j->parts, part, &b, &e);
    float *cols = pg_scratch(PG_SCRATCH_CONV, (size_t)(taps * p) * sizeof(float));
    if (cols == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    for (pg_int u = b; u < e; u++) {
        pg_int g = u % c->groups;
        float *dx = j->dx + u * ic * c->h * c->w; /* groups of an image lie one after the other */
        pg_gemm_args a = {.m = taps, .n = p, .k = oc, .a = j->weights + g * oc * taps, .a_rs = 1,
                          .a_cs = taps, .b = j->dy + u * oc * p, .b_rs = p, .b_cs = 1, .c = cols,
                          .c_rs = p, .alpha = 1.0f};
        int rc = pg_gemm1(&a);
        if (rc != PG_OK) pg_store(&j->status, rc);
        memset(dx, 0, (size_t)(ic * c->h * c->w) * sizeof(float));
        add_columns(c, ic, cols, dx);
    }
}

int pg_conv_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx) {
    if (!valid(c)) return PG_EINVAL;
    if (empty(c)) {
        if (c->n > 0 && c->ic > 0 && c->h > 0 && c->w > 0)
            memset(dx, 0, (size_t)(c->n * c->ic * c->h * c->w) * sizeof(float));
        return PG_OK;
    }
    if (pg_conv_is_point(c)) return pg_conv_point_backward_data(c, dy, weights, dx);
    if (c->sh == 1 && c->sw == 1) return backward_data_unit_stride(c, dy, weights, dx);
    data_job j = {.c = c, .dy = dy, .weights = weights, .dx = dx};
    j.parts = (int)pg_min(pg_conv_threads(c), c->n * c->groups);
    pg_parallel(j.parts, data_part, &j);
    return (int)pg_load(&j.status);
}

/* ---- gradient of the weights ---- */

typedef struct {
    const pg_conv *c;
    padded pad;
    const int32_t *offset;
    const float *x, *dy;
    float *partial; /* [image parts][oc, taps] */
    int parts, splits;
    pg_atomic status;
} weight_job;

/* dy of one image in the pitch of the padded image; the gaps are zero already. */
static void spread_rows(const pg_conv *c, pg_int rows, pg_int pitch, pg_int ld, const float *dy,
                        float *dst) {
    for (pg_int o = 0; o < rows; o++)
        for (pg_int r = 0; r < c->oh; r++)
            memcpy(dst + o * ld + r * pitch, dy + (o * c->oh + r) * c->ow,
                   (size_t)c->ow * sizeof(float));
}

static void weight_part(void *ctx, int part) {
    weight_job *j = ctx;
    const pg_conv *c = j->c;
    const pg_int ic = c->ic / c->groups, oc = c->oc / c->groups, taps = ic * c->kh * c->kw;
    const pg_int ld = pg_ceil_div((c->oh - 1) * j->pad.cols + c->ow, 16) * 16;
    int split = part % j->splits, share = part / j->splits;
    pg_int b, e, o0, o1;
    pg_part_range(c->n, 1, j->parts, share, &b, &e);
    pg_part_range(oc, 4, j->splits, split, &o0, &o1);
    const pg_int rows = o1 - o0;
    float *out = j->partial + (pg_int)share * c->oc * taps;
    for (pg_int g = 0; g < c->groups; g++)
        memset(out + (g * oc + o0) * taps, 0, (size_t)(rows * taps) * sizeof(float));
    if (rows == 0 || b >= e) return;
    /* So many images at a time that they stay in the cache: fewer sums across vectors. */
    pg_int each = (j->pad.size + rows * ld) * (pg_int)sizeof(float);
    pg_int group = pg_max(1, pg_min(e - b, GROUP_BYTES / each));
    float *images = pg_scratch(PG_SCRATCH_CONV, (size_t)(group * each));
    if (images == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    memset(images, 0, (size_t)(group * each));
    float *grads = images + group * j->pad.size;
    for (pg_int n = b; n < e; n += group) {
        pg_int m = pg_min(group, e - n);
        for (pg_int g = 0; g < c->groups; g++) {
            for (pg_int i = 0; i < m; i++) {
                pad_fill(&j->pad, j->x + ((n + i) * c->ic + g * ic) * c->h * c->w,
                         images + i * j->pad.size);
                spread_rows(c, rows, j->pad.cols, ld,
                            j->dy + ((n + i) * c->oc + g * oc + o0) * c->oh * c->ow,
                            grads + i * rows * ld);
            }
            pg_isa->conv_dots(rows, taps, m, ld, grads, ld, rows * ld, images, j->pad.size,
                              j->offset, out + (g * oc + o0) * taps);
        }
    }
}

int pg_conv_backward_weight(const pg_conv *c, const float *x, const float *dy, float *dweights) {
    if (!valid(c)) return PG_EINVAL;
    const pg_int ic = c->ic / c->groups, taps = ic * c->kh * c->kw;
    if (empty(c)) {
        if (c->oc > 0) memset(dweights, 0, (size_t)(c->oc * taps) * sizeof(float));
        return PG_OK;
    }
    if (pg_conv_is_point(c)) return pg_conv_point_backward_weight(c, x, dy, dweights);
    if (pg_isa->conv_last_acc(c->oc / c->groups, ic, c->kh * c->kw) > 0)
        return pg_conv_last_backward_weight(c, x, dy, dweights);
    padded p = pad_shape(ic, c->h, c->w, c->ph, c->pw, c->sh, c->sw,
                         (c->oh - 1) * c->sh + (c->kh - 1) * c->dh + 1,
                         (c->ow - 1) * c->sw + (c->kw - 1) * c->dw + 1);
    int threads = pg_conv_threads(c);
    weight_job j = {.c = c, .pad = p, .x = x, .dy = dy};
    j.parts = (int)pg_min(threads, c->n);
    j.splits = (int)pg_max(1, pg_min(threads / j.parts, pg_ceil_div(c->oc / c->groups, 4)));
    size_t floats = (size_t)j.parts * (size_t)(c->oc * taps);
    size_t ints = (size_t)pg_ceil_div(taps, 16) * 16;
    int32_t *offset = pg_scratch(PG_SCRATCH_CONV2, ints * sizeof *offset + floats * sizeof(float));
    if (offset == NULL) return PG_ENOMEM;
    for (pg_int i = 0, k = 0; i < ic; i++)
        for (pg_int a = 0; a < c->kh; a++)
            for (pg_int b = 0; b < c->kw; b++, k++)
                offset[k] = (int32_t)(i * p.channel + pad_offset(&p, a * c->dh, b * c->dw));
    j.offset = offset;
    j.partial = j.parts == 1 ? dweights : (float *)(offset + ints);
    pg_parallel(j.parts * j.splits, weight_part, &j);
    if (j.parts > 1) { /* the shares added in their order */
        pg_int n = c->oc * taps;
        pg_isa->axpby(n, 1.0f, j.partial, 1.0f, j.partial + n, dweights);
        for (int s = 2; s < j.parts; s++)
            pg_isa->axpby(n, 1.0f, dweights, 1.0f, j.partial + (pg_int)s * n, dweights);
    }
    return (int)pg_load(&j.status);
}
