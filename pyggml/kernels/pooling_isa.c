/* Pooling of one plane, for one instruction set. */
#include "isa_kernels.h"

/* ---- words ---- */

/* Whether a is kept beside a later b: it is as great, or NaN. */
PG_INLINE vm wins(vf a, vf b) { return m_or(v_ge(a, b), v_isnan(a)); }
PG_INLINE vf greater(vf a, vf b) { return v_sel(wins(a, b), a, b); }
PG_INLINE float greater1(float a, float b) { return ((a >= b) | (a != a)) ? a : b; }

PG_INLINE vf lowest(void) { return v_set1(-INFINITY); }

/* Lanes beyond left are fill. */
PG_INLINE vf load_or(const float *p, pg_int left, vf fill) {
    return left >= VL ? v_load(p) : v_sel(v_first((int)left), v_loadn(p, (int)left), fill);
}

/* Every second one of 2 left floats. */
PG_INLINE void load_pairs(const float *p, pg_int left, vf *even, vf *odd) {
    vf lo, hi;
    if (left >= VL) {
        lo = v_load(p), hi = v_load(p + VL);
    } else {
        lo = v_load_upto(p, 2 * left);
        hi = 2 * left > VL ? v_loadn(p + VL, (int)(2 * left - VL)) : v_zero();
    }
    *even = v_even(lo, hi), *odd = v_odd(lo, hi);
}

PG_INLINE void store_pairs(float *p, pg_int left, vf even, vf odd) {
    vf lo = v_zip_lo(even, odd), hi = v_zip_hi(even, odd);
    if (left >= VL) {
        v_store(p, lo), v_store(p + VL, hi);
    } else {
        v_store_upto(p, lo, 2 * left);
        if (2 * left > VL) v_storen(p + VL, hi, (int)(2 * left - VL));
    }
}

/* The vector that begins at i, or earlier so that it is whole: what is done twice is the same. */
PG_INLINE pg_int whole(pg_int i, pg_int n) { return i + VL > n && n >= VL ? n - VL : i; }

/* Window of output r: [*b, *e) of size; empty where *b >= *e. */
PG_INLINE void window(pg_int r, pg_int stride, pg_int pad, pg_int k, pg_int size, pg_int *b,
                      pg_int *e) {
    pg_int s = r * stride - pad;
    *b = pg_max(0, s);
    *e = pg_min(size, s + k);
}

PG_INLINE float share(const pg_pool2d *p, pg_int cells) {
    if (p->count_padding) cells = p->kh * p->kw;
    return cells > 0 ? 1.0f / (float)cells : 0.0f;
}

/* ---- 2 x 2 ---- */

/* what: 0 the maxima, 1 the means. */
PG_INLINE void halve(const pg_pool2d *p, const int what, const float *x, float *y) {
    for (pg_int r = 0; r < p->oh; r++) {
        const float *a = x + 2 * r * p->w, *b = a + p->w;
        for (pg_int i = 0; i < p->ow; i += VL) {
            vf x0, x1, x2, x3;
            pg_int c = whole(i, p->ow), left = p->ow - c;
            load_pairs(a + 2 * c, left, &x0, &x1);
            load_pairs(b + 2 * c, left, &x2, &x3);
            const vf of = what == 0 ? greater(greater(x0, x1), greater(x2, x3))
                                    : v_mul(v_add(v_add(x0, x1), v_add(x2, x3)), v_set1(0.25f));
            v_store_upto(y + r * p->ow + c, of, left);
        }
    }
}

PG_INLINE void halve_backward(const pg_pool2d *p, const int what, const float *x, const float *dy,
                              float *dx) {
    if (p->w > 2 * p->ow || p->h > 2 * p->oh)
        memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
    for (pg_int r = 0; r < p->oh; r++) {
        const float *a = what == 0 ? x + 2 * r * p->w : NULL, *b = what == 0 ? a + p->w : NULL;
        float *da = dx + 2 * r * p->w, *db = da + p->w;
        for (pg_int i = 0; i < p->ow; i += VL) {
            vf x0, x1, x2, x3;
            pg_int c = whole(i, p->ow), left = p->ow - c;
            vf d = v_load_upto(dy + r * p->ow + c, left);
            if (what == 1) {
                d = v_mul(d, v_set1(0.25f));
                store_pairs(da + 2 * c, left, d, d);
                store_pairs(db + 2 * c, left, d, d);
                continue;
            }
            load_pairs(a + 2 * c, left, &x0, &x1);
            load_pairs(b + 2 * c, left, &x2, &x3);
            vm l0 = wins(x0, x1), l1 = wins(x2, x3);
            vm top = wins(v_sel(l0, x0, x1), v_sel(l1, x2, x3));
            vf d0 = v_keep(top, d), d1 = v_keep(m_not(top), d);
            store_pairs(da + 2 * c, left, v_keep(l0, d0), v_keep(m_not(l0), d0));
            store_pairs(db + 2 * c, left, v_keep(l1, d1), v_keep(m_not(l1), d1));
        }
    }
}

/* ---- one window at a time ---- */

/* The window [r0, r1) x [c0, c1) as rows of n floats; whole rows of x are one. */
typedef struct {
    const float *x;
    pg_int rows, n;
} cut;

PG_INLINE cut cut_of(const pg_pool2d *p, const float *x, pg_int r0, pg_int r1, pg_int c0,
                     pg_int c1) {
    cut w = {x + r0 * p->w + c0, r1 - r0, c1 - c0};
    if (w.rows > 0 && w.n == p->w) w.n *= w.rows, w.rows = 1;
    return w;
}

static float max_of(const pg_pool2d *p, cut w) {
    vf m = lowest();
    float lanes[VL], top = -INFINITY;
    for (pg_int i = 0; i < w.rows; i++)
        for (pg_int k = 0; k < w.n; k += VL)
            m = greater(m, load_or(w.x + i * p->w + k, w.n - k, lowest()));
    v_store(lanes, m);
    for (int i = 0; i < VL; i++) top = greater1(top, lanes[i]);
    return top;
}

static float sum_of(const pg_pool2d *p, cut w) {
    vf s = v_zero();
    for (pg_int i = 0; i < w.rows; i++)
        for (pg_int k = 0; k < w.n; k += VL)
            s = v_add(s, v_load_upto(w.x + i * p->w + k, w.n - k));
    return v_hsum(s);
}

/* Where the first maximum of a window lies. */
static pg_int first_max(const pg_pool2d *p, cut w) {
    const float m = max_of(p, w);
    for (pg_int i = 0; i < w.rows; i++)
        for (pg_int k = 0; k < w.n; k++) {
            const float v = w.x[i * p->w + k];
            if (v == m || (v != v && m != m)) return i * p->w + k;
        }
    return 0;
}

static void single(const pg_pool2d *p, int what, const float *x, float *y) {
    for (pg_int r = 0; r < p->oh; r++) {
        pg_int r0, r1, c0, c1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        for (pg_int c = 0; c < p->ow; c++) {
            window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
            const cut w = cut_of(p, x, r0, r1, c0, c1);
            const pg_int cells = pg_max(0, r1 - r0) * pg_max(0, c1 - c0);
            y[r * p->ow + c] = what == 0 ? max_of(p, w) : sum_of(p, w) * share(p, cells);
        }
    }
}

static void single_backward(const pg_pool2d *p, int what, const float *x, const float *dy,
                            float *dx) {
    memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
    for (pg_int r = 0; r < p->oh; r++) {
        pg_int r0, r1, c0, c1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        for (pg_int c = 0; c < p->ow; c++) {
            window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
            if (r0 >= r1 || c0 >= c1) continue;
            const float d = dy[r * p->ow + c];
            if (what == 0) {
                dx[r0 * p->w + c0 + first_max(p, cut_of(p, x, r0, r1, c0, c1))] += d;
                continue;
            }
            const float g = d * share(p, (r1 - r0) * (c1 - c0));
            for (pg_int i = r0; i < r1; i++)
                for (pg_int k = c0; k < c1; k++) dx[i * p->w + k] += g;
        }
    }
}

/* ---- a vector of neighbours at a time ---- */

/* Cells of phase f that lie in x: [*b, *e), the first of them at column *col. */
PG_INLINE void phase_range(const pg_pool2d *p, pg_int f, pg_int pitch, pg_int *b, pg_int *e,
                           pg_int *col) {
    const pg_int before = p->pw - f; /* columns to the left of x */
    *b = before > 0 ? pg_ceil_div(before, p->sw) : 0;
    *b = pg_min(*b, pitch);
    *col = *b * p->sw - before;
    *e = *col < p->w ? pg_min(pitch, *b + pg_ceil_div(p->w - *col, p->sw)) : *b;
}

static void lay(const pg_pool2d *p, const float *x, float fill, float *dst) {
    const pg_int pitch = pg_pool_pitch(p), phases = pg_pool_phases(p);
    for (pg_int f = 0; f < phases; f++, dst += pitch) {
        pg_int b, e, col, i = 0;
        phase_range(p, f, pitch, &b, &e, &col);
        const float *s = x + col;
        float *d = dst + b;
        const pg_int n = e - b;
        for (pg_int j = 0; j < b; j++) dst[j] = fill;
        if (p->sw == 1) {
            for (; i < n; i += VL) v_store_upto(d + i, v_load_upto(s + i, n - i), n - i);
        } else if (p->sw == 2) {
            for (; i + VL < n; i += VL) /* the last pair may have no second */
                v_store(d + i, v_even(v_load(s + 2 * i), v_load(s + 2 * i + VL)));
        }
        for (; i < n; i++) d[i] = s[p->sw * i];
        for (pg_int j = e; j < pitch; j++) dst[j] = fill;
    }
}

/* The reverse: what phases hold of a row of x. */
static void collect(const pg_pool2d *p, const float *src, float *x) {
    const pg_int pitch = pg_pool_pitch(p), phases = pg_pool_phases(p);
    if (phases == 2 && p->sw == 2 && p->pw == 0) {
        const pg_int n = pg_min(pitch, p->w / 2);
        for (pg_int i = 0; i < n; i += VL)
            store_pairs(x + 2 * i, n - i, v_load_upto(src + i, n - i),
                        v_load_upto(src + pitch + i, n - i));
        if (n < pitch && 2 * n < p->w) x[2 * n] = src[n];
        for (pg_int j = 2 * pitch; j < p->w; j++) x[j] = 0.0f;
        return;
    }
    memset(x, 0, (size_t)p->w * sizeof(float));
    for (pg_int f = 0; f < phases; f++, src += pitch) {
        pg_int b, e, col;
        phase_range(p, f, pitch, &b, &e, &col);
        for (pg_int i = b; i < e; i++) x[col + (i - b) * p->sw] = src[i];
    }
}

/* Walks over the cells of a window: where in a row so laid the next cell of all windows lies. */
typedef struct {
    pg_int at, phase, shift;
} walk;

PG_INLINE void next_cell(const pg_pool2d *p, pg_int pitch, walk *s) {
    if (++s->phase == p->sw) s->phase = 0, s->shift++;
    s->at = s->phase * pitch + s->shift;
}

/* Maximum or sum of rows [0, rows) of x, column by column. */
static const float *over_rows(const pg_pool2d *p, int what, pg_int rows, const float *x,
                              float *out) {
    if (rows == 1) return x;
    for (pg_int i = 0; i < p->w; i += VL) {
        const pg_int c = whole(i, p->w), left = p->w - c;
        vf s = v_load_upto(x + c, left);
        for (pg_int k = 1; k < rows; k++) {
            const vf v = v_load_upto(x + k * p->w + c, left);
            s = what == 0 ? greater(s, v) : v_add(s, v);
        }
        v_store_upto(out + c, s, left);
    }
    return out;
}

/* What each window of a row has to be multiplied by. */
static void shares_of(const pg_pool2d *p, pg_int rows, float *out) {
    for (pg_int c = 0; c < p->ow; c++) {
        pg_int c0, c1;
        window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
        out[c] = share(p, rows * pg_max(0, c1 - c0));
    }
}

PG_INLINE void neighbours(const pg_pool2d *p, const int what, float *work, const float *x,
                          float *y) {
    const pg_int pitch = pg_pool_pitch(p);
    float *laid = work, *row = laid + pg_pool_phases(p) * pitch, *shares = row + p->w;
    pg_int known = -1;
    for (pg_int r = 0; r < p->oh; r++, y += p->ow) {
        pg_int r0, r1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        if (r0 >= r1) {
            for (pg_int c = 0; c < p->ow; c++) y[c] = what == 0 ? -INFINITY : 0.0f;
            continue;
        }
        lay(p, over_rows(p, what, r1 - r0, x + r0 * p->w, row), what == 0 ? -INFINITY : 0.0f, laid);
        if (what == 1 && known != r1 - r0) shares_of(p, known = r1 - r0, shares);
        for (pg_int c = 0; c < p->ow; c += VL) {
            vf s = v_load(laid + c);
            walk at = {0, 0, 0};
            for (pg_int k = 1; k < p->kw; k++) {
                next_cell(p, pitch, &at);
                const vf v = v_load(laid + at.at + c);
                s = what == 0 ? greater(s, v) : v_add(s, v);
            }
            if (what == 1) s = v_mul(s, v_load_upto(shares + c, p->ow - c));
            v_store_upto(y + c, s, p->ow - c);
        }
    }
}

static void neighbours_max_backward(const pg_pool2d *p, float *work, const float *x,
                                    const float *dy, float *dx) {
    const pg_int pitch = pg_pool_pitch(p), size = pg_pool_phases(p) * pitch;
    float *found = work + p->h * size;
    /* Windows that are not empty. */
    const pg_int begin = pg_min(p->ow, pg_max(0, (p->pw - p->kw) / p->sw + (p->pw >= p->kw)));
    const pg_int end = pg_min(p->ow, (p->w + p->pw - 1) / p->sw + 1);
    memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
    for (pg_int i = 0; i < p->h; i++) lay(p, x + i * p->w, -INFINITY, work + i * size);
    for (pg_int r = 0; r < p->oh; r++, dy += p->ow) {
        pg_int r0, r1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        if (r0 >= r1) continue;
        for (pg_int c = 0; c < p->ow; c += VL) {
            /* The window's first column, and the first that is inside: the maximum if all are
             * -inf. */
            const vi col = vi_add(vi_mul(vi_add(vi_iota(), vi_set1((int32_t)c)),
                                         vi_set1((int32_t)p->sw)), vi_set1((int32_t)-p->pw));
            const vi inside = v_asi(v_keep(v_ge(vi_tof(col), v_zero()), vi_asf(col)));
            vf best = lowest(), at = vi_asf(vi_add(inside, vi_set1((int32_t)(r0 * p->w))));
            for (pg_int i = r0; i < r1; i++) {
                walk s = {0, 0, 0};
                for (pg_int k = 0; k < p->kw; k++) {
                    const vf v = v_load(work + i * size + s.at + c);
                    const vm keep = wins(best, v);
                    best = v_sel(keep, best, v);
                    at = v_sel(keep, at, vi_asf(vi_add(col, vi_set1((int32_t)(i * p->w + k)))));
                    next_cell(p, pitch, &s);
                }
            }
            v_store(found + c, at);
        }
        for (pg_int c = begin; c < end; c++) {
            int32_t to;
            memcpy(&to, found + c, sizeof to);
            dx[to] += dy[c];
        }
    }
}

static void neighbours_avg_backward(const pg_pool2d *p, float *work, const float *dy, float *dx) {
    const pg_int pitch = pg_pool_pitch(p), size = pg_pool_phases(p) * pitch;
    float *laid = work, *row = laid + size, *shares = row + p->w;
    pg_int known = -1;
    memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
    for (pg_int r = 0; r < p->oh; r++, dy += p->ow) {
        pg_int r0, r1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        if (r0 >= r1) continue;
        if (known != r1 - r0) shares_of(p, known = r1 - r0, shares);
        memset(laid, 0, (size_t)size * sizeof(float));
        for (pg_int c = 0; c < p->ow; c += VL) {
            const pg_int left = p->ow - c;
            const vf g = v_mul(v_load_upto(dy + c, left), v_load_upto(shares + c, left));
            walk s = {0, 0, 0};
            for (pg_int k = 0; k < p->kw; k++) {
                float *to = laid + s.at + c;
                v_store(to, v_add(v_load(to), g));
                next_cell(p, pitch, &s);
            }
        }
        collect(p, laid, row);
        for (pg_int i = r0; i < r1; i++)
            for (pg_int c = 0; c < p->w; c += VL) {
                float *to = dx + i * p->w + c;
                v_store_upto(to, v_add(v_load_upto(to, p->w - c), v_load_upto(row + c, p->w - c)),
                             p->w - c);
            }
    }
}

/* ---- what pooling.c calls ---- */

void PG_FN(max_pool)(const pg_pool2d *p, float *work, const float *x, float *y) {
    if (pg_pool_halves(p)) halve(p, 0, x, y);
    else if (pg_pool_single(p)) single(p, 0, x, y);
    else neighbours(p, 0, work, x, y);
}

void PG_FN(max_pool_backward)(const pg_pool2d *p, float *work, const float *x, const float *dy,
                              float *dx) {
    if (pg_pool_halves(p)) halve_backward(p, 0, x, dy, dx);
    else if (pg_pool_single(p)) single_backward(p, 0, x, dy, dx);
    else neighbours_max_backward(p, work, x, dy, dx);
}

void PG_FN(avg_pool)(const pg_pool2d *p, float *work, const float *x, float *y) {
    if (pg_pool_halves(p)) halve(p, 1, x, y);
    else if (pg_pool_single(p)) single(p, 1, x, y);
    else neighbours(p, 1, work, x, y);
}

void PG_FN(avg_pool_backward)(const pg_pool2d *p, float *work, const float *dy, float *dx) {
    if (pg_pool_halves(p)) halve_backward(p, 1, NULL, dy, dx);
    else if (pg_pool_single(p)) single_backward(p, 1, NULL, dy, dx);
    else neighbours_avg_backward(p, work, dy, dx);
}
