/* Single-threaded matrix product for one instruction set.
 *
 * C[M,N] = S[M,K] V[K,N]: vectors run along N, each element of S is broadcast. A tile of PG_MR rows
 * and two vectors stays in registers over K. Either operand is read in place where its layout
 * allows and it is used too seldom to be worth packing. Where the product is cheaper the other way
 * round, the caller's A and B change places and tiles are written transposed. The scheme of loops
 * and packed panels is that of Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication" (2008).
 */
#include "isa_kernels.h"

#include "gemm_table.h"
#include "scratch.h"

#define MR PG_MR
#define NR (2 * VL)

/* What happens to a finished tile. */
typedef struct {
    float alpha;
    float beta;        /* 0: C is not read */
    const float *bias; /* along the vectors, or NULL */
    int relu;
    int plain;         /* alpha 1, beta 0, no bias, no relu */
} finish;

PG_INLINE void tile_store(float *c, vf x, pg_int left, const finish *f, const float *bias) {
    if (f->alpha != 1.0f) x = v_mul(x, v_set1(f->alpha));
    if (f->beta != 0.0f) x = v_fma(v_set1(f->beta), v_load_upto(c, left), x);
    if (bias) x = v_add(x, v_load_upto(bias, left));
    if (f->relu) x = v_max(v_zero(), x);
    v_store_upto(c, x, left);
}

/* Elements of S ahead of use that are asked for; the rows of an S in place are as many streams. */
#define AHEAD 64

/* rows and vecs are constants wherever this is expanded, so that acc lives in registers. The rows of
 * S are unit apart (unit_rows) or rs, and then its columns are mostly unit apart. */
PG_INLINE void tile_body(const int rows, const int vecs, const int unit_rows, pg_int k,
                         const float *s, pg_int rs, pg_int cs, const float *v, pg_int v_rs,
                         float *c, pg_int ldc, pg_int cols, const finish *f) {
    vf acc[MR][2];
    PG_UNROLL
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = v_zero();
    const float *s4 = s + 4 * rs, *s8 = s + 8 * rs, *s12 = s + 12 * rs;
    const pg_int rs3 = 3 * rs;
    while (k > 0) {
        pg_int run = k;
        if (!unit_rows) {
            run = pg_min(k, 16);
            if (cs == 1) {
                PG_UNROLL
                for (int i = 0; i < rows; i++) {
                    const float *base = i < 4 ? s : i < 8 ? s4 : i < 12 ? s8 : s12;
                    const int r = i % 4;
                    pg_prefetch(base + AHEAD + (r == 3 ? rs3 : r * rs));
                }
            }
        }
        k -= run;
        do {
            vf v0 = v_load(v), v1 = v0;
            if (vecs > 1) v1 = v_load(v + VL);
            PG_UNROLL
            for (int i = 0; i < rows; i++) {
                vf b;
                if (unit_rows) {
                    b = v_set1(s[i]);
                } else { /* four rows to a base pointer: x86 has no address with more terms */
                    const float *base = i < 4 ? s : i < 8 ? s4 : i < 12 ? s8 : s12;
                    const int r = i % 4;
                    b = v_set1(base[r == 3 ? rs3 : r * rs]);
                }
                acc[i][0] = v_fma(b, v0, acc[i][0]);
                if (vecs > 1) acc[i][1] = v_fma(b, v1, acc[i][1]);
            }
            v += v_rs;
            s += cs;
            if (!unit_rows) s4 += cs, s8 += cs, s12 += cs;
        } while (--run > 0);
    }
    if (f->plain && cols == vecs * VL) {
        PG_UNROLL
        for (int i = 0; i < rows; i++) {
            v_store(c, acc[i][0]);
            if (vecs > 1) v_store(c + VL, acc[i][1]);
            c += ldc;
        }
        return;
    }
    PG_UNROLL
    for (int i = 0; i < rows; i++) {
        tile_store(c, acc[i][0], cols, f, f->bias);
        if (vecs > 1) tile_store(c + VL, acc[i][1], cols - VL, f, f->bias ? f->bias + VL : NULL);
        c += ldc;
    }
}

typedef void tile_fn(pg_int k, const float *s, pg_int rs, pg_int cs, const float *v, pg_int v_rs,
                     float *c, pg_int ldc, pg_int cols, const finish *f);

#define TILE(r, n, u)                                                                            \
    static void tile_##r##_##n##_##u(pg_int k, const float *s, pg_int rs, pg_int cs,             \
                                     const float *v, pg_int v_rs, float *c, pg_int ldc,          \
                                     pg_int cols, const finish *f) {                             \
        tile_body(r, n, u, k, s, rs, cs, v, v_rs, c, ldc, cols, f);                              \
    }
#define TILES(r) TILE(r, 1, 0) TILE(r, 1, 1) TILE(r, 2, 0) TILE(r, 2, 1)
#define NAMES(r) {{tile_##r##_1_0, tile_##r##_1_1}, {tile_##r##_2_0, tile_##r##_2_1}}
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

/* [rows - 1][vectors - 1][rows of S adjacent] */
static tile_fn *const tiles[MR][2][2] = {
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

PG_INLINE void tile(int rows, pg_int k, const float *s, pg_int rs, pg_int cs, const float *v,
                    pg_int v_rs, float *c, pg_int ldc, pg_int cols, const finish *f) {
    tiles[rows - 1][cols > VL][rs == 1](k, s, rs, cs, v, v_rs, c, ldc, cols, f);
}

/* ---- packing ---- */

/* n <= VL vectors of VL along their own axis -> VL rows of width n, ld apart. */
PG_INLINE void transpose_store(const float *src, pg_int src_ld, int n, pg_int along, float *dst,
                               pg_int ld, int width) {
#if defined(PG_HAVE_TRANSPOSE)
    vf r[VL];
    for (int i = 0; i < VL; i++)
        r[i] = i < n ? v_load_upto(src + i * src_ld, along) : v_zero();
    v_transpose(r);
    int m = (int)pg_min(along, VL);
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

/* t[rows][NR] added into C transposed: C[j, i], j < cols. */
static void store_transposed(const float *t, int rows, int cols, float *c, pg_int ldc,
                             const finish *f) {
#if defined(PG_HAVE_TRANSPOSE)
    for (int i0 = 0; i0 < rows; i0 += VL) {
        int w = (int)pg_min(rows - i0, VL);
        for (int j0 = 0; j0 < cols; j0 += VL) {
            vf r[VL];
            PG_UNROLL
            for (int i = 0; i < VL; i++) r[i] = i < w ? v_load(t + (i0 + i) * NR + j0) : v_zero();
            v_transpose(r);
            int m = (int)pg_min(cols - j0, VL);
            for (int j = 0; j < m; j++)
                tile_store(c + (j0 + j) * ldc + i0, r[j], w, f, f->bias ? f->bias + i0 : NULL);
        }
    }
#else
    for (int j = 0; j < cols; j++)
        for (int i = 0; i < rows; i++) {
            float x = t[i * NR + j] * f->alpha;
            if (f->beta != 0.0f) x += f->beta * c[j * ldc + i];
            if (f->bias) x += f->bias[i];
            if (f->relu) x = x < 0.0f ? 0.0f : x;
            c[j * ldc + i] = x;
        }
#endif
}

/* ---- the loops ---- */

/* One orientation of the product: which operand lies along the vectors. */
typedef struct {
    pg_int m, n, k;
    const float *s, *v;
    pg_int s_rs, s_cs, v_rs, v_cs;
    int transposed; /* C is the transpose of what is computed */
} oriented;

static oriented orient(const pg_gemm_args *g, int transposed) {
    oriented o;
    o.transposed = transposed;
    o.k = g->k;
    if (transposed) {
        o.m = g->n, o.n = g->m;
        o.s = g->b, o.s_rs = g->b_cs, o.s_cs = g->b_rs;
        o.v = g->a, o.v_rs = g->a_cs, o.v_cs = g->a_rs;
    } else {
        o.m = g->m, o.n = g->n;
        o.s = g->a, o.s_rs = g->a_rs, o.s_cs = g->a_cs;
        o.v = g->b, o.v_rs = g->b_rs, o.v_cs = g->b_cs;
    }
    return o;
}

/* Whether V is read where it lies. Not if several tiles of rows use it and it is large, or its rows
 * lie a multiple of a power of two apart, which share a few sets of the caches. */
static int v_in_place(const oriented *o) {
    int far = o->k > 16 && (o->v_rs % 512 == 0 || o->k * o->n > PG_GEMM_NEAR);
    return o->v_cs == 1 && o->m <= (far ? 1 : PG_GEMM_V_IN_PLACE_TILES) * MR;
}

/* In vector instructions, roughly: multiply-adds, packing, writing tiles transposed. */
static pg_int cost(const oriented *o) {
    pg_int vectors = (o->n + VL - 1) / VL, c = o->m * vectors * o->k;
    if (!v_in_place(o)) c += (o->v_cs == 1 ? 2 : 6) * vectors * o->k;
    if (o->n > NR && o->s_rs != 1) c += 6 * ((o->m + VL - 1) / VL) * o->k;
    if (o->transposed) c += 6 * o->m * vectors;
    /* A tile's rows of a large S lie in k lines of memory far from each other. */
    if (o->s_rs == 1 && o->m * o->k > PG_GEMM_NEAR) c += 12 * ((o->m + MR - 1) / MR) * o->k;
    return c;
}

typedef struct {
    pg_int mc, nc, kc;
    int panels;   /* one block of rows: V is packed panel by panel, just before use */
} blocking;

static blocking choose_blocks(const oriented *o, int direct_v) {
    blocking b;
    pg_int most = PG_GEMM_KC;
    pg_int mc = PG_GEMM_MC / MR * MR;
    int one_block = o->m <= mc;
    b.panels = one_block && (o->v_cs != 1 || direct_v);
    /* Long rows of V are walked along, some at a time: better than down one panel of them. */
    if (o->v_cs == 1 && one_block && o->n > 2 * NR)
        most = direct_v ? PG_GEMM_KC_IN_PLACE : PG_GEMM_KC_ROWS;
    b.kc = o->k;
    if (o->k > most) b.kc = pg_ceil_div(o->k, pg_ceil_div(o->k, most));
    b.nc = pg_min(o->n, PG_GEMM_NC / NR * NR);
    if (b.panels) b.nc = o->n;
    if (one_block) {
        b.mc = pg_ceil_div(o->m, MR) * MR;
    } else {
        b.mc = pg_ceil_div(pg_ceil_div(o->m, pg_ceil_div(o->m, mc)), MR) * MR;
    }
    return b;
}

/* First row of tile i of count tiles over m rows: as equal as can be. */
PG_INLINE pg_int row_of(pg_int m, pg_int count, pg_int i) { return m * i / count; }

/* What one block of rows and columns needs. */
typedef struct {
    const pg_gemm_args *g;
    const oriented *o;
    pg_int i0, j0, mb, nb, kb, count;
    const float *s, *v;  /* in place */
    float *ps, *pv, *t;  /* packed, or NULL; a tile */
    int direct_v;
    finish f;
    const float *bias;
} block;

PG_INLINE void block_tile(const block *b, pg_int r, pg_int j, const float *vp, pg_int v_rs) {
    const oriented *o = b->o;
    const pg_gemm_args *g = b->g;
    pg_int i = row_of(b->mb, b->count, r), cols = pg_min(NR, b->nb - j);
    int rows = (int)(row_of(b->mb, b->count, r + 1) - i);
    const float *sp;
    pg_int s_rs = 1, s_cs = rows;
    if (b->ps) sp = b->ps + i * b->kb;
    else sp = b->s + i * o->s_rs, s_rs = o->s_rs, s_cs = o->s_cs;
    finish f = b->f;
    if (o->transposed) {
        const finish plain = {1.0f, 0.0f, NULL, 0, 1};
        tile(rows, b->kb, sp, s_rs, s_cs, vp, v_rs, b->t, NR, cols > VL ? NR : VL, &plain);
        f.bias = b->bias ? b->bias + b->i0 + i : NULL;
        store_transposed(b->t, rows, (int)cols, g->c + (b->j0 + j) * g->c_rs + b->i0 + i, g->c_rs,
                         &f);
    } else {
        f.bias = b->bias ? b->bias + b->j0 + j : NULL;
        tile(rows, b->kb, sp, s_rs, s_cs, vp, v_rs, g->c + (b->i0 + i) * g->c_rs + b->j0 + j,
             g->c_rs, cols, &f);
    }
}

/* The panel of V at column j: in place, or packed in the block, or packed now. */
PG_INLINE const float *panel(const block *b, pg_int j, int now, pg_int *v_rs) {
    const oriented *o = b->o;
    int w = (int)pg_min(NR, b->nb - j), width = w > VL ? NR : VL;
    if (b->direct_v && w == NR) {
        *v_rs = o->v_rs;
        return b->v + j;
    }
    *v_rs = width;
    if (!now && !b->direct_v) return b->pv + j / NR * panel_stride(b->kb);
    if (now) pack(b->v + j * o->v_cs, o->v_rs, o->v_cs, b->kb, w, width, b->pv);
    return b->pv;
}

static int run(const pg_gemm_args *g, const oriented *o) {
    int direct_v = v_in_place(o);
    blocking bl = choose_blocks(o, direct_v);
    pg_int np_all = (o->n + NR - 1) / NR;
    /* S in place if it would be read only once or twice. */
    int pack_s = np_all > (o->s_rs == 1 ? 3 : 1);
    int panels = bl.panels;
    PG_ALIGN64 float t[(MR + VL - 1) / VL * VL * NR];
    block b = {.g = g, .o = o, .direct_v = direct_v, .t = t};
    if (!direct_v || o->n % NR) {
        pg_int count = panels ? 1 : pg_ceil_div(bl.nc, NR);
        b.pv = pg_scratch(PG_SCRATCH_PACK_B, (size_t)(count * panel_stride(bl.kc)) * sizeof(float));
        if (b.pv == NULL) return PG_ENOMEM;
    }
    if (pack_s) {
        b.ps = pg_scratch(PG_SCRATCH_PACK_A, (size_t)((bl.mc + MR) * bl.kc + VL) * sizeof(float));
        if (b.ps == NULL) return PG_ENOMEM;
    }
    for (b.j0 = 0; b.j0 < o->n; b.j0 += bl.nc) {
        b.nb = pg_min(bl.nc, o->n - b.j0);
        for (pg_int p0 = 0; p0 < o->k; p0 += bl.kc) {
            b.kb = pg_min(bl.kc, o->k - p0);
            int last_k = p0 + b.kb == o->k;
            b.bias = last_k ? g->bias : NULL;
            b.f.alpha = g->alpha, b.f.beta = p0 == 0 ? g->beta : 1.0f;
            b.f.relu = last_k && g->act == PG_ACT_RELU;
            b.f.plain = g->alpha == 1.0f && b.f.beta == 0.0f && !b.bias && !b.f.relu;
            b.v = o->v + p0 * o->v_rs + b.j0 * o->v_cs;
            if (!panels && o->v_cs == 1)
                pack_rows(b.v, o->v_rs, b.kb, b.nb, b.pv);
            else if (!panels)
                for (pg_int j = 0; j < b.nb; j += NR) {
                    int w = (int)pg_min(NR, b.nb - j);
                    pack(b.v + j * o->v_cs, o->v_rs, o->v_cs, b.kb, w, w > VL ? NR : VL,
                         b.pv + j / NR * panel_stride(b.kb));
                }
            for (b.i0 = 0; b.i0 < o->m; b.i0 += bl.mc) {
                b.mb = pg_min(bl.mc, o->m - b.i0), b.count = (b.mb + MR - 1) / MR;
                b.s = o->s + b.i0 * o->s_rs + p0 * o->s_cs;
                if (pack_s)
                    for (pg_int r = 0; r < b.count; r++) {
                        pg_int i = row_of(b.mb, b.count, r);
                        int w = (int)(row_of(b.mb, b.count, r + 1) - i);
                        pack(b.s + i * o->s_rs, o->s_cs, o->s_rs, b.kb, w, w, b.ps + i * b.kb);
                    }
                pg_int v_rs;
                /* With a short K all of V's block stays in the cache: go along the rows of C. */
                if (!panels && b.kb * b.nb <= PG_GEMM_ROWS_OUTER) {
                    for (pg_int r = 0; r < b.count; r++)
                        for (pg_int j = 0; j < b.nb; j += NR) {
                            const float *vp = panel(&b, j, 0, &v_rs);
                            block_tile(&b, r, j, vp, v_rs);
                        }
                } else {
                    for (pg_int j = 0; j < b.nb; j += NR) {
                        const float *vp = panel(&b, j, panels, &v_rs);
                        for (pg_int r = 0; r < b.count; r++) block_tile(&b, r, j, vp, v_rs);
                    }
                }
            }
        }
    }
    return PG_OK;
}

/* ---- both operands contiguous along K, and few rows: dot products ---- */

PG_INLINE void dots(const int rows, const int cols, const pg_gemm_args *g, pg_int i, pg_int j) {
    vf acc[4][4];
    const float *a = g->a + i * g->a_rs, *b = g->b + j * g->b_cs;
    PG_UNROLL
    for (int r = 0; r < rows; r++)
        PG_UNROLL
        for (int c = 0; c < cols; c++) acc[r][c] = v_zero();
    for (pg_int p = 0; p < g->k; p += VL) {
        pg_int left = g->k - p;
        vf x[4];
        PG_UNROLL
        for (int r = 0; r < rows; r++) x[r] = v_load_upto(a + r * g->a_rs + p, left);
        PG_UNROLL
        for (int c = 0; c < cols; c++) {
            vf y = v_load_upto(b + c * g->b_cs + p, left);
            PG_UNROLL
            for (int r = 0; r < rows; r++) acc[r][c] = v_fma(x[r], y, acc[r][c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            float *d = g->c + (i + r) * g->c_rs + j + c;
            float y = g->alpha * v_hsum(acc[r][c]);
            if (g->beta != 0.0f) y += g->beta * *d;
            if (g->bias) y += g->bias[j + c];
            if (g->act == PG_ACT_RELU) y = y < 0.0f ? 0.0f : y;
            *d = y;
        }
}

PG_INLINE void dots_rows(const int rows, const pg_gemm_args *g, pg_int i) {
    pg_int j = 0;
    for (; j + 4 <= g->n; j += 4) dots(rows, 4, g, i, j);
    for (; j < g->n; j++) dots(rows, 1, g, i, j);
}

static void all_dots(const pg_gemm_args *g) {
    pg_int i = 0;
    for (; i + 4 <= g->m; i += 4) dots_rows(4, g, i);
    switch (g->m - i) {
    case 3: dots_rows(3, g, i); break;
    case 2: dots_rows(2, g, i); break;
    case 1: dots_rows(1, g, i); break;
    default: break;
    }
}

/* ---- one row times a row-major matrix ---- */

/* Eight rows of B at a time, along them: C is read and written once for each eight. */
static void row_times_rows(const pg_gemm_args *g) {
    float *c = g->c;
    const float alpha = g->alpha;
    for (pg_int j = 0; j < g->n; j += VL) {
        vf y = v_zero();
        if (g->beta != 0.0f) y = v_mul(v_set1(g->beta), v_load_upto(c + j, g->n - j));
        if (g->bias) y = v_add(y, v_load_upto(g->bias + j, g->n - j));
        v_store_upto(c + j, y, g->n - j);
    }
    for (pg_int p = 0; p < g->k; p += 8) {
        const int rows = (int)pg_min(8, g->k - p);
        vf x[8];
        const float *b[8];
        for (int r = 0; r < 8; r++) {
            x[r] = r < rows ? v_set1(alpha * g->a[(p + r) * g->a_cs]) : v_zero();
            b[r] = g->b + (p + (r < rows ? r : 0)) * g->b_rs;
        }
        const int relu = g->act == PG_ACT_RELU && p + 8 >= g->k;
        for (pg_int j = 0; j < g->n; j += VL) {
            pg_int left = g->n - j;
            vf y = v_load_upto(c + j, left), z = v_zero();
            for (int r = 0; r < 8; r += 2) {
                if (r < rows) y = v_fma(x[r], v_load_upto(b[r] + j, left), y);
                if (r + 1 < rows) z = v_fma(x[r + 1], v_load_upto(b[r + 1] + j, left), z);
            }
            y = v_add(y, z);
            if (relu) y = v_max(v_zero(), y);
            v_store_upto(c + j, y, left);
        }
    }
}

static void scale_c(const pg_gemm_args *g) {
    for (pg_int i = 0; i < g->m; i++)
        for (pg_int j = 0; j < g->n; j++) {
            float *d = g->c + i * g->c_rs + j;
            float y = g->beta == 0.0f ? 0.0f : g->beta * *d;
            if (g->bias) y += g->bias[j];
            if (g->act == PG_ACT_RELU) y = y < 0.0f ? 0.0f : y;
            *d = y;
        }
}

/* act: linear or relu. */
int PG_FN(gemm)(const pg_gemm_args *g) {
    if (g->m <= 0 || g->n <= 0) return PG_OK;
    if (g->k <= 0) {
        scale_c(g);
        return PG_OK;
    }
    if (g->a_cs == 1 && g->b_rs == 1 && pg_min(g->m, g->n) <= PG_GEMM_DOT_ROWS * VL / 16) {
        all_dots(g);
        return PG_OK;
    }
    if (g->m == 1 && g->b_cs == 1 && g->k >= 16) {
        row_times_rows(g);
        return PG_OK;
    }
    oriented n = orient(g, 0), t = orient(g, 1);
    return cost(&t) < cost(&n) ? run(g, &t) : run(g, &n);
}

/* ---- a right-hand operand packed once and used many times ---- */

size_t PG_FN(gemm_packed_size)(pg_int k, pg_int n) {
    return (size_t)(pg_ceil_div(n, NR) * NR * k);
}

void PG_FN(gemm_pack)(const float *b, pg_int rs, pg_int cs, pg_int k, pg_int n, float *dst) {
    for (pg_int j = 0; j < n; j += NR) {
        int w = (int)pg_min(NR, n - j);
        pack(b + j * cs, rs, cs, k, w, w > VL ? NR : VL, dst + j * k);
    }
}

/* C = A B + beta C with B packed by gemm_pack; rows of A contiguous, lda apart. */
void PG_FN(gemm_packed)(pg_int m, pg_int n, pg_int k, const float *a, pg_int lda,
                        const float *packed, float beta, float *c, pg_int ldc) {
    const finish f = {1.0f, beta, NULL, 0, beta == 0.0f};
    pg_int count = pg_ceil_div(m, MR);
    for (pg_int j = 0; j < n; j += NR) {
        pg_int cols = pg_min(NR, n - j);
        for (pg_int r = 0; r < count; r++) {
            pg_int i = row_of(m, count, r);
            int rows = (int)(row_of(m, count, r + 1) - i);
            tile(rows, k, a + i * lda, lda, 1, packed + j * k, cols > VL ? NR : VL, c + i * ldc + j,
                 ldc, cols, &f);
        }
    }
}
