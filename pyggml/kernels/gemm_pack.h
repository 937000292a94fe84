/* Packing of operands for the matrix products of one instruction set. */
#ifndef PG_GEMM_PACK_H
#define PG_GEMM_PACK_H

#include "simd.h"

#define MR PG_MR    /* rows of a tile */
#define NR (2 * VL) /* columns of a tile */

/* Where a packed row is no wider than a vector, whole vectors are stored: what is too much is
 * overwritten by the next row, and behind the last row there is room. */

/* n <= VL vectors of VL along their own axis -> VL rows of width n, ld apart. */
PG_INLINE void transpose_store(const float *src, pg_int src_ld, int n, pg_int along, float *dst,
                               pg_int ld, int width) {
#if defined(PG_HAVE_TRANSPOSE)
    vf r[VL];
    for (int i = 0; i < VL; i++)
        r[i] = i < n ? v_load_upto(src + i * src_ld, along) : v_zero();
    v_transpose(r);
    int m = (int)pg_min(along, VL);
    if (ld <= VL)
        for (int j = 0; j < m; j++) v_store(dst + j * ld, r[j]);
    else
        for (int j = 0; j < m; j++) v_storen(dst + j * ld, r[j], width);
#else
    int m = (int)pg_min(along, VL);
    for (int j = 0; j < m; j++)
        for (int i = 0; i < width; i++) dst[j * ld + i] = i < n ? src[i * src_ld + j] : 0.0f;
#endif
}

/* x[k, n] -> panel [k][width], n <= width; columns beyond n are zero. */
static void pack(const float *x, pg_int rs, pg_int cs, pg_int k, int n, int width, float *dst) {
    if (cs == 1 && n == width && width == NR) {
        for (pg_int p = 0; p < k; p++) {
            v_store(dst + p * NR, v_load(x + p * rs));
            v_store(dst + p * NR + VL, v_load(x + p * rs + VL));
        }
    } else if (cs == 1 && width <= VL) {
        for (pg_int p = 0; p < k; p++) v_store(dst + p * width, v_load_upto(x + p * rs, n));
    } else if (cs == 1) {
        for (pg_int p = 0; p < k; p++)
            for (int j = 0; j < width; j += VL) {
                vf r = n > j ? v_load_upto(x + p * rs + j, n - j) : v_zero();
                v_store_upto(dst + p * width + j, r, width - j);
            }
    } else if (rs == 1) {
        for (int j = 0; j < width; j += VL) {
            int have = (int)pg_max(0, pg_min(n - j, VL)), w = (int)pg_min(width - j, VL);
            for (pg_int p = 0; p < k; p += VL)
                transpose_store(x + j * cs + p, cs, have, k - p, dst + p * width + j, width, w);
        }
    } else {
        for (pg_int p = 0; p < k; p++)
            for (int j = 0; j < width; j++) dst[p * width + j] = j < n ? x[p * rs + j * cs] : 0.0f;
    }
}

/* Distance of the panels of a block: not a power of two, whose multiples share a cache set. */
PG_INLINE pg_int panel_stride(pg_int k) { return NR * (k + (k % 2 == 0)); }

/* Row-major x[k, n] -> panels [k][NR], the last one narrower if it can. Read along the rows, which
 * is the order that memory likes. */
static void pack_rows(const float *x, pg_int rs, pg_int k, pg_int n, float *dst) {
    const pg_int full = n / NR * NR, step = panel_stride(k);
    pg_int p = 0;
    for (; p + 4 <= k; p += 4) {
        const float *r = x + p * rs;
        float *d = dst + p * NR;
        for (pg_int j = 0; j < full; j += NR, d += step)
            for (int q = 0; q < 4; q++) {
                v_store(d + q * NR, v_load(r + q * rs + j));
                v_store(d + q * NR + VL, v_load(r + q * rs + j + VL));
            }
    }
    for (; p < k; p++)
        for (pg_int j = 0; j < full; j += NR) {
            v_store(dst + j / NR * step + p * NR, v_load(x + p * rs + j));
            v_store(dst + j / NR * step + p * NR + VL, v_load(x + p * rs + j + VL));
        }
    if (full < n) {
        int w = (int)(n - full);
        pack(x + full, rs, 1, k, w, w > VL ? NR : VL, dst + full / NR * step);
    }
}

#endif
