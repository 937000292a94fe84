/* Convolution on a padded image, for one instruction set.
 *
 * Position (r, c) of the output has the flat index q = r * pitch + c, pitch being the width of the
 * padded image. Then tap k of the kernel is the padded image shifted by offset[k], and the
 * convolution is a product of the weights [rows, taps] with a matrix whose row k is
 * image + offset[k]: nothing is copied out. Positions with c beyond the output's width are computed
 * in vain and not stored.
 */
#include "isa_kernels.h"

#include "conv_flat.h"

#define MR PG_MR
#define NR (2 * VL)

/* rows and vecs are constants where this is expanded. */
PG_INLINE void flat_tile(const int rows, const int vecs, pg_int taps, const float *s,
                         const float *image, const int32_t *offset, float *t) {
    vf acc[MR][2];
    PG_UNROLL
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = v_zero();
    for (pg_int k = 0; k < taps; k++) {
        const float *v = image + offset[k];
        vf v0 = v_load(v), v1 = v0;
        if (vecs > 1) v1 = v_load(v + VL);
        PG_UNROLL
        for (int i = 0; i < rows; i++) {
            vf b = v_set1(s[i]);
            acc[i][0] = v_fma(b, v0, acc[i][0]);
            if (vecs > 1) acc[i][1] = v_fma(b, v1, acc[i][1]);
        }
        s += rows;
    }
    PG_UNROLL
    for (int i = 0; i < rows; i++) {
        v_store(t + i * NR, acc[i][0]);
        if (vecs > 1) v_store(t + i * NR + VL, acc[i][1]);
    }
}

typedef void flat_fn(pg_int taps, const float *s, const float *image, const int32_t *offset,
                     float *t);
#define FLAT(r, n)                                                                             \
    static void flat_##r##_##n(pg_int taps, const float *s, const float *image,                \
                               const int32_t *offset, float *t) {                              \
        flat_tile(r, n, taps, s, image, offset, t);                                            \
    }
#define FLATS(r) FLAT(r, 1) FLAT(r, 2)
FLATS(1) FLATS(2) FLATS(3) FLATS(4)
#if PG_MR > 4
FLATS(5) FLATS(6)
#endif
#if PG_MR > 6
FLATS(7) FLATS(8)
#endif
#if PG_MR > 8
FLATS(9) FLATS(10) FLATS(11) FLATS(12) FLATS(13) FLATS(14)
#endif
#define NAMES(r) {flat_##r##_1, flat_##r##_2}
static flat_fn *const flat_tiles[MR][2] = {
    NAMES(1), NAMES(2), NAMES(3), NAMES(4),
#if PG_MR > 4
    NAMES(5), NAMES(6),
#endif
#if PG_MR > 6
    NAMES(7), NAMES(8),
#endif
#if PG_MR > 8
    NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14),
#endif
};

/* One row of weights: eight vectors side by side instead of several rows. */
#define WIDE 8
static void flat_wide(pg_int taps, const float *s, const float *image, const int32_t *offset,
                      float *t) {
    vf acc[WIDE];
    PG_UNROLL
    for (int i = 0; i < WIDE; i++) acc[i] = v_zero();
    for (pg_int k = 0; k < taps; k++) {
        const float *v = image + offset[k];
        vf b = v_set1(s[k]);
        PG_UNROLL
        for (int i = 0; i < WIDE; i++) acc[i] = v_fma(b, v_load(v + i * VL), acc[i]);
    }
    PG_UNROLL
    for (int i = 0; i < WIDE; i++) v_store(t + i * VL, acc[i]);
}

PG_INLINE pg_int row_of(pg_int m, pg_int count, pg_int i) { return m * i / count; }

/* Weights (element [i, k] at s[i * rs + tap[k]]) in panels of rows, [taps][rows]. */
void PG_FN(conv_pack)(pg_int rows, pg_int taps, const float *s, pg_int rs, const int32_t *tap,
                      float *dst) {
    pg_int count = (rows + MR - 1) / MR;
    for (pg_int r = 0; r < count; r++) {
        pg_int b = row_of(rows, count, r), e = row_of(rows, count, r + 1), w = e - b;
        for (pg_int k = 0; k < taps; k++)
            for (pg_int i = b; i < e; i++) dst[b * taps + k * w + i - b] = s[i * rs + tap[k]];
    }
}

/* The cells of t (n wide from flat position q on) that are output positions, to y. */
PG_INLINE void store_cells(const pg_flat *f, const float *t, pg_int q, pg_int n, float bias,
                           float *y) {
    const vf b = v_set1(bias);
    const int relu = f->relu;
    pg_int r = q / f->pitch, c = q - r * f->pitch;
    for (pg_int i = 0; i < n; r++, c = 0) {
        pg_int run = pg_min(f->ow - c, n - i);
        float *d = y + r * f->ow + c;
        for (pg_int k = 0; k < run; k += VL) {
            vf x = v_add(v_load_upto(t + i + k, run - k), b);
            if (relu) x = v_max(v_zero(), x);
            v_store_upto(d + k, x, run - k);
        }
        i += f->pitch - c;
    }
}

/* y[rows][oh * ow] for flat positions [q0, q1). */
void PG_FN(conv_flat)(const pg_flat *f, const float *image, pg_int q0, pg_int q1, float *y) {
    PG_ALIGN64 float t[MR * NR > WIDE * VL ? MR * NR : WIDE * VL];
    const pg_int size = f->oh * f->ow;
    if (f->rows == 1) {
        for (pg_int q = q0; q < q1; q += WIDE * VL) {
            flat_wide(f->taps, f->packed, image + q, f->offset, t);
            store_cells(f, t, q, pg_min(WIDE * VL, q1 - q), f->bias ? f->bias[0] : 0.0f, y);
        }
        return;
    }
    const pg_int count = (f->rows + MR - 1) / MR;
    for (pg_int q = q0; q < q1; q += NR) {
        pg_int n = pg_min(NR, q1 - q);
        for (pg_int p = 0; p < count; p++) {
            pg_int b = row_of(f->rows, count, p), e = row_of(f->rows, count, p + 1);
            flat_tiles[e - b - 1][n > VL](f->taps, f->packed + b * f->taps, image + q, f->offset, t);
            for (pg_int i = b; i < e; i++)
                store_cells(f, t + (i - b) * NR, q, n, f->bias ? f->bias[i] : 0.0f, y + i * size);
        }
    }
}

/* ---- gradient of the weights: products of rows along the flat positions ---- */

#if VL == 16
#define DR 4
#define DC 6
#elif VL == 8
#define DR 3
#define DC 4
#else
#define DR 2
#define DC 4
#endif

PG_INLINE void dot_tile(const int rows, const int cols, pg_int images, pg_int n, const float *dy,
                        pg_int dy_ld, pg_int dy_step, const float *x, pg_int x_step,
                        const int32_t *offset, float *out, pg_int ld) {
    vf acc[DR][DC];
    PG_UNROLL
    for (int i = 0; i < rows; i++)
        PG_UNROLL
        for (int k = 0; k < cols; k++) acc[i][k] = v_zero();
    for (pg_int m = 0; m < images; m++) {
        const float *g = dy + m * dy_step, *s = x + m * x_step;
        for (pg_int q = 0; q < n; q += VL) {
            vf d[DR];
            PG_UNROLL
            for (int i = 0; i < rows; i++) d[i] = v_load(g + i * dy_ld + q);
            PG_UNROLL
            for (int k = 0; k < cols; k++) {
                vf v = v_load(s + offset[k] + q);
                PG_UNROLL
                for (int i = 0; i < rows; i++) acc[i][k] = v_fma(d[i], v, acc[i][k]);
            }
        }
    }
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < cols; k++) out[i * ld + k] += v_hsum(acc[i][k]);
}

typedef void dot_fn(pg_int images, pg_int n, const float *dy, pg_int dy_ld, pg_int dy_step,
                    const float *x, pg_int x_step, const int32_t *offset, float *out, pg_int ld);
#define DOT(r, c)                                                                               \
    static void dot_##r##_##c(pg_int images, pg_int n, const float *dy, pg_int dy_ld,           \
                              pg_int dy_step, const float *x, pg_int x_step,                    \
                              const int32_t *offset, float *out, pg_int ld) {                   \
        dot_tile(r, c, images, n, dy, dy_ld, dy_step, x, x_step, offset, out, ld);              \
    }
#if DC == 6
#define DOTS(r) DOT(r, 1) DOT(r, 2) DOT(r, 3) DOT(r, 4) DOT(r, 5) DOT(r, 6)
#define DOT_NAMES(r) {dot_##r##_1, dot_##r##_2, dot_##r##_3, dot_##r##_4, dot_##r##_5, dot_##r##_6}
#else
#define DOTS(r) DOT(r, 1) DOT(r, 2) DOT(r, 3) DOT(r, 4)
#define DOT_NAMES(r) {dot_##r##_1, dot_##r##_2, dot_##r##_3, dot_##r##_4}
#endif
DOTS(1) DOTS(2)
#if DR > 2
DOTS(3)
#endif
#if DR > 3
DOTS(4)
#endif
static dot_fn *const dot_tiles[DR][DC] = {
    DOT_NAMES(1), DOT_NAMES(2),
#if DR > 2
    DOT_NAMES(3),
#endif
#if DR > 3
    DOT_NAMES(4),
#endif
};

/* out[rows, taps] += sum over images and q of dy[row][q] image[offset[tap] + q]; dy is in the padded
 * image's pitch with zeros in the gaps, n a multiple of VL. */
void PG_FN(conv_dots)(pg_int rows, pg_int taps, pg_int images, pg_int n, const float *dy,
                      pg_int dy_ld, pg_int dy_step, const float *x, pg_int x_step,
                      const int32_t *offset, float *out) {
    const pg_int nr = (rows + DR - 1) / DR, nc = (taps + DC - 1) / DC;
    for (pg_int r = 0; r < nr; r++) {
        pg_int i = row_of(rows, nr, r), h = row_of(rows, nr, r + 1) - i;
        for (pg_int c = 0; c < nc; c++) {
            pg_int k = row_of(taps, nc, c), w = row_of(taps, nc, c + 1) - k;
            dot_tiles[h - 1][w - 1](images, n, dy + i * dy_ld, dy_ld, dy_step, x, x_step, offset + k,
                                    out + i * taps + k, taps);
        }
    }
}
