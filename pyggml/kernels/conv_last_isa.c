/* Convolution on a padded image with channels last, for one instruction set.
 *
 * The window of an output position is a few runs of adjacent floats, one for each row of the kernel.
 * Vectors run along the output's channels (the weights are packed so), a tile takes several
 * positions of one output row: no lane works in vain where the channels fill the vectors, whatever
 * the width and the stride.
 */
#include "isa_kernels.h"

#include "conv_last.h"

#define MR PG_MR
#define NR (2 * VL)

/* [channels][h * w] planes, one row of them -> [w][channels]. */
static void row_to_last(pg_int channels, pg_int plane, pg_int w, const float *src, float *dst) {
    for (pg_int c = 0; c < channels; c += VL) {
        int have = (int)pg_min(VL, channels - c);
        for (pg_int x = 0; x < w; x += VL) {
            int m = (int)pg_min(VL, w - x);
#if defined(PG_HAVE_TRANSPOSE)
            vf r[VL];
            for (int i = 0; i < VL; i++)
                r[i] = i < have ? v_load_upto(src + (c + i) * plane + x, m) : v_zero();
            v_transpose(r);
            for (int j = 0; j < m; j++) v_store_upto(dst + (x + j) * channels + c, r[j], have);
#else
            for (int j = 0; j < m; j++)
                for (int i = 0; i < have; i++)
                    dst[(x + j) * channels + c + i] = src[(c + i) * plane + x + j];
#endif
        }
    }
}

/* The first rows x cols of planes [channels][h][w] to dst[row * pitch + col * channels + channel]. */
void PG_FN(conv_to_last)(pg_int channels, pg_int h, pg_int w, pg_int rows, pg_int cols,
                         const float *src, float *dst, pg_int pitch) {
    for (pg_int r = 0; r < rows; r++) {
        if (channels == 1) memcpy(dst + r * pitch, src + r * w, (size_t)cols * sizeof(float));
        else row_to_last(channels, h * w, cols, src + r * w, dst + r * pitch);
    }
}

/* ---- the product ---- */

PG_INLINE void last_tile(const int rows, const int vecs, const pg_last *f, const float *s,
                         const float *v, float *t) {
    vf acc[MR][2];
    const pg_int rs = f->col_step, rs3 = 3 * rs;
    PG_UNROLL
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = v_zero();
    for (pg_int g = 0; g < f->segs; g++) {
        const float *s0 = s + f->seg[g], *s4 = s0 + 4 * rs, *s8 = s0 + 8 * rs, *s12 = s0 + 12 * rs;
        for (pg_int p = 0; p < f->len; p++) {
            vf v0 = v_load(v), v1 = v0;
            if (vecs > 1) v1 = v_load(v + VL);
            PG_UNROLL
            for (int i = 0; i < rows; i++) {
                const float *base = i < 4 ? s0 : i < 8 ? s4 : i < 12 ? s8 : s12;
                const int r = i % 4;
                vf b = v_set1(base[r == 3 ? rs3 : r * rs]);
                acc[i][0] = v_fma(b, v0, acc[i][0]);
                if (vecs > 1) acc[i][1] = v_fma(b, v1, acc[i][1]);
            }
            v += vecs * VL;
            s0++, s4++, s8++, s12++;
        }
    }
    PG_UNROLL
    for (int i = 0; i < rows; i++) {
        v_store(t + i * NR, acc[i][0]);
        if (vecs > 1) v_store(t + i * NR + VL, acc[i][1]);
    }
}

typedef void last_fn(const pg_last *f, const float *s, const float *v, float *t);
#define LAST(r, n)                                                                         \
    static void last_##r##_##n(const pg_last *f, const float *s, const float *v, float *t) { \
        last_tile(r, n, f, s, v, t);                                                       \
    }

/* rows of dy (packed, adjacent) times vectors of the image's channels, over all positions; out
 * [rows][ld] is added to. */
PG_INLINE void dots_tile(const int rows, const int vecs, const pg_last_dots *f, const float *s,
                         const float *x, float *out, pg_int ld) {
    vf acc[MR][2];
    PG_UNROLL
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = v_zero();
    for (pg_int r = 0; r < f->oh; r++) {
        const float *v = x + r * f->row_step;
        for (pg_int c = 0; c < f->ow; c++) {
            vf v0 = v_load(v), v1 = v0;
            if (vecs > 1) v1 = v_load(v + VL);
            PG_UNROLL
            for (int i = 0; i < rows; i++) {
                vf b = v_set1(s[i]);
                acc[i][0] = v_fma(b, v0, acc[i][0]);
                if (vecs > 1) acc[i][1] = v_fma(b, v1, acc[i][1]);
            }
            v += f->col_step;
            s += rows;
        }
    }
    PG_UNROLL
    for (int i = 0; i < rows; i++) {
        float *o = out + i * ld;
        v_store(o, v_add(v_load(o), acc[i][0]));
        if (vecs > 1) v_store(o + VL, v_add(v_load(o + VL), acc[i][1]));
    }
}

typedef void dots_fn(const pg_last_dots *f, const float *s, const float *x, float *out, pg_int ld);
#define DOTS(r, n)                                                                               \
    static void dots_##r##_##n(const pg_last_dots *f, const float *s, const float *x, float *out, \
                               pg_int ld) {                                                      \
        dots_tile(r, n, f, s, x, out, ld);                                                       \
    }

#define TILES(r) LAST(r, 1) LAST(r, 2) DOTS(r, 1) DOTS(r, 2)
TILES(1) TILES(2) TILES(3) TILES(4)
#if PG_MR > 4
TILES(5) TILES(6)
#endif
#if PG_MR > 6
TILES(7) TILES(8)
#endif
#if PG_MR > 8
TILES(9) TILES(10) TILES(11) TILES(12) TILES(13) TILES(14)
#endif

#define LAST_NAMES(r) {last_##r##_1, last_##r##_2}
#define DOTS_NAMES(r) {dots_##r##_1, dots_##r##_2}
#if PG_MR == 14
#define EACH(M) M(1), M(2), M(3), M(4), M(5), M(6), M(7), M(8), M(9), M(10), M(11), M(12), M(13), M(14)
#elif PG_MR == 8
#define EACH(M) M(1), M(2), M(3), M(4), M(5), M(6), M(7), M(8)
#elif PG_MR == 6
#define EACH(M) M(1), M(2), M(3), M(4), M(5), M(6)
#else
#define EACH(M) M(1), M(2), M(3), M(4)
#endif
static last_fn *const last_tiles[MR][2] = {EACH(LAST_NAMES)};
static dots_fn *const dots_tiles[MR][2] = {EACH(DOTS_NAMES)};

PG_INLINE pg_int row_of(pg_int m, pg_int count, pg_int i) { return m * i / count; }

/* ---- forward ---- */

size_t PG_FN(conv_last_size)(pg_int outs, pg_int k) {
    return (size_t)((outs + VL - 1) / VL * VL * k);
}

/* Weights (element [o, k] at w[o * rs + tap[k]]) -> panels of two vectors of outputs (the last of one
 * where that is enough), [k][width], missing outputs 0. */
void PG_FN(conv_last_pack)(pg_int outs, pg_int k, const float *w, pg_int rs, const int32_t *tap,
                           float *dst) {
    for (pg_int o = 0; o < outs; o += NR) {
        int n = (int)pg_min(NR, outs - o), width = n > VL ? NR : VL;
        for (pg_int p = 0; p < k; p++, dst += width) {
            const float *s = w + o * rs + tap[p];
            for (int j = 0; j < n; j++) dst[j] = s[j * rs];
            for (int j = n; j < width; j++) dst[j] = 0.0f;
        }
    }
}

/* t[rows positions][NR outputs] -> y[output][position], with bias and relu. */
PG_INLINE void store_positions(const pg_last *f, const float *t, int rows, pg_int o, int n, float *y,
                               pg_int plane) {
#if defined(PG_HAVE_TRANSPOSE)
    for (int i0 = 0; i0 < rows; i0 += VL) {
        int w = (int)pg_min(rows - i0, VL);
        for (int j0 = 0; j0 < n; j0 += VL) {
            vf r[VL];
            for (int i = 0; i < VL; i++) r[i] = i < w ? v_load(t + (i0 + i) * NR + j0) : v_zero();
            v_transpose(r);
            int m = (int)pg_min(n - j0, VL);
            for (int j = 0; j < m; j++) {
                vf x = r[j];
                if (f->bias) x = v_add(x, v_set1(f->bias[o + j0 + j]));
                if (f->relu) x = v_max(v_zero(), x);
                v_store_upto(y + (o + j0 + j) * plane + i0, x, w);
            }
        }
    }
#else
    for (int j = 0; j < n; j++)
        for (int i = 0; i < rows; i++) {
            float x = t[i * NR + j] + (f->bias ? f->bias[o + j] : 0.0f);
            y[(o + j) * plane + i] = f->relu && x < 0.0f ? 0.0f : x;
        }
#endif
}

/* y [outs][oh * ow] for output rows [r0, r1). */
void PG_FN(conv_last)(const pg_last *f, const float *image, pg_int r0, pg_int r1, float *y) {
    PG_ALIGN64 float t[(MR + VL - 1) / VL * VL * NR];
    const pg_int count = (f->ow + MR - 1) / MR, plane = f->oh * f->ow, k = f->segs * f->len;
    const float *v = f->packed;
    for (pg_int o = 0; o < f->outs; o += NR) {
        int n = (int)pg_min(NR, f->outs - o), width = n > VL ? NR : VL;
        for (pg_int r = r0; r < r1; r++)
            for (pg_int c = 0; c < count; c++) {
                pg_int b = row_of(f->ow, count, c);
                int rows = (int)(row_of(f->ow, count, c + 1) - b);
                last_tiles[rows - 1][n > VL](f, image + r * f->row_step + b * f->col_step, v, t);
                store_positions(f, t, rows, o, n, y + r * f->ow + b, plane);
            }
        v += width * k;
    }
}

/* ---- gradient of the weights ---- */

/* dy [outs][positions] -> panels of rows of outputs, [position][rows], as conv_last_dots reads it. */
void PG_FN(conv_last_pack_dy)(pg_int outs, pg_int positions, const float *dy, float *dst) {
    const pg_int count = (outs + MR - 1) / MR;
    for (pg_int c = 0; c < count; c++) {
        pg_int b = row_of(outs, count, c), w = row_of(outs, count, c + 1) - b;
        row_to_last(w, positions, positions, dy + b * positions, dst + b * positions);
    }
}

/* acc [taps][outs][ld] += the products of one image; ld is the ins rounded up to vectors. */
void PG_FN(conv_last_dots)(const pg_last_dots *f, const float *dy, const float *image, float *acc) {
    const pg_int count = (f->outs + MR - 1) / MR, ld = (f->ins + VL - 1) / VL * VL;
    for (pg_int c = 0; c < count; c++) {
        pg_int b = row_of(f->outs, count, c), w = row_of(f->outs, count, c + 1) - b;
        for (pg_int k = 0; k < f->taps; k++)
            for (pg_int i = 0; i < f->ins; i += NR)
                dots_tiles[w - 1][f->ins - i > VL](f, dy + b * f->oh * f->ow, image + f->tap[k] + i,
                                                   acc + (k * f->outs + b) * ld + i, ld);
    }
}

/* Floats of acc; 0 if the channels leave too many lanes idle. */
size_t PG_FN(conv_last_acc)(pg_int outs, pg_int ins, pg_int taps) {
    pg_int ld = (ins + VL - 1) / VL * VL;
    return 4 * ins < 3 * ld ? 0 : (size_t)(taps * outs * ld);
}

/* Whether vectors along outs channels are used better than along flat positions, of which a share of
 * used / all matters. */
int PG_FN(conv_last_better)(pg_int outs, pg_int used, pg_int all) {
    double lanes = (double)outs / (double)((outs + VL - 1) / VL * VL);
    double flat = (double)used / (double)(pg_ceil_div(all, NR) * NR);
    return lanes >= flat - 0.05;
}

/* dw[o][i][k] = acc[k][o][i] + beta dw */
void PG_FN(conv_last_collect)(pg_int outs, pg_int ins, pg_int taps, const float *acc, float beta,
                              float *dw) {
    const pg_int ld = (ins + VL - 1) / VL * VL;
    for (pg_int o = 0; o < outs; o++)
        for (pg_int k = 0; k < taps; k++) {
            const float *s = acc + (k * outs + o) * ld;
            float *d = dw + o * ins * taps + k;
            if (beta == 0.0f)
                for (pg_int i = 0; i < ins; i++) d[i * taps] = s[i];
            else
                for (pg_int i = 0; i < ins; i++) d[i * taps] += s[i];
        }
}
