/* Pooling of one plane, for one instruction set: plain loops for the compiler to vectorise. */
#include "isa_kernels.h"

/* The greater of a and b; NaN if one is. */
PG_INLINE float greater(float a, float b) { return (a >= b) | (a != a) ? a : b; }

/* Window of output r: [*b, *e) of size. */
PG_INLINE void window(pg_int r, pg_int stride, pg_int pad, pg_int k, pg_int size, pg_int *b,
                      pg_int *e) {
    pg_int s = r * stride - pad;
    *b = pg_max(0, s);
    *e = pg_min(size, s + k);
}

static int two_by_two(const pg_pool2d *p) {
    return p->kh == 2 && p->kw == 2 && p->sh == 2 && p->sw == 2 && p->ph == 0 && p->pw == 0 &&
           p->h >= 2 * p->oh && p->w >= 2 * p->ow;
}

void PG_FN(max_pool)(const pg_pool2d *p, const float *x, float *y) {
    if (two_by_two(p)) {
        for (pg_int r = 0; r < p->oh; r++) {
            const float *PG_RESTRICT a = x + 2 * r * p->w, *PG_RESTRICT b = a + p->w;
            float *PG_RESTRICT o = y + r * p->ow;
            for (pg_int c = 0; c < p->ow; c++)
                o[c] = greater(greater(a[2 * c], a[2 * c + 1]), greater(b[2 * c], b[2 * c + 1]));
        }
        return;
    }
    for (pg_int r = 0; r < p->oh; r++) {
        pg_int r0, r1, c0, c1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        for (pg_int c = 0; c < p->ow; c++) {
            window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
            float m = -INFINITY;
            for (pg_int i = r0; i < r1; i++)
                for (pg_int k = c0; k < c1; k++) m = greater(m, x[i * p->w + k]);
            y[r * p->ow + c] = m;
        }
    }
}

void PG_FN(max_pool_backward)(const pg_pool2d *p, const float *x, const float *dy, float *dx) {
    if (two_by_two(p)) {
        if (p->w > 2 * p->ow || p->h > 2 * p->oh)
            memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
        for (pg_int r = 0; r < p->oh; r++) {
            const float *PG_RESTRICT a = x + 2 * r * p->w, *PG_RESTRICT b = a + p->w;
            const float *PG_RESTRICT g = dy + r * p->ow;
            float *PG_RESTRICT da = dx + 2 * r * p->w, *PG_RESTRICT db = da + p->w;
            for (pg_int c = 0; c < p->ow; c++) {
                float x0 = a[2 * c], x1 = a[2 * c + 1], x2 = b[2 * c], x3 = b[2 * c + 1];
                float m0 = greater(x0, x1), m1 = greater(x2, x3), d = g[c];
                int top = (m0 >= m1) | (m0 != m0), l0 = (x0 >= x1) | (x0 != x0);
                int l1 = (x2 >= x3) | (x2 != x2);
                da[2 * c] = top & l0 ? d : 0.0f;
                da[2 * c + 1] = top & (l0 ^ 1) ? d : 0.0f;
                db[2 * c] = (top ^ 1) & l1 ? d : 0.0f;
                db[2 * c + 1] = (top ^ 1) & (l1 ^ 1) ? d : 0.0f;
            }
        }
        return;
    }
    memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
    for (pg_int r = 0; r < p->oh; r++) {
        pg_int r0, r1, c0, c1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        for (pg_int c = 0; c < p->ow; c++) {
            window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
            if (r0 >= r1 || c0 >= c1) continue;
            pg_int at = r0 * p->w + c0;
            for (pg_int i = r0; i < r1; i++)
                for (pg_int k = c0; k < c1; k++) {
                    float v = x[i * p->w + k];
                    if (v > x[at] || (v != v && x[at] == x[at])) at = i * p->w + k;
                }
            dx[at] += dy[r * p->ow + c];
        }
    }
}

PG_INLINE float share(const pg_pool2d *p, pg_int cells) {
    if (p->count_padding) cells = p->kh * p->kw;
    return cells > 0 ? 1.0f / (float)cells : 0.0f;
}

void PG_FN(avg_pool)(const pg_pool2d *p, const float *x, float *y) {
    for (pg_int r = 0; r < p->oh; r++) {
        pg_int r0, r1, c0, c1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        for (pg_int c = 0; c < p->ow; c++) {
            window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
            float s = 0.0f;
            for (pg_int i = r0; i < r1; i++)
                for (pg_int k = c0; k < c1; k++) s += x[i * p->w + k];
            y[r * p->ow + c] = s * share(p, pg_max(0, r1 - r0) * pg_max(0, c1 - c0));
        }
    }
}

void PG_FN(avg_pool_backward)(const pg_pool2d *p, const float *dy, float *dx) {
    memset(dx, 0, (size_t)(p->h * p->w) * sizeof(float));
    for (pg_int r = 0; r < p->oh; r++) {
        pg_int r0, r1, c0, c1;
        window(r, p->sh, p->ph, p->kh, p->h, &r0, &r1);
        for (pg_int c = 0; c < p->ow; c++) {
            window(c, p->sw, p->pw, p->kw, p->w, &c0, &c1);
            float g = dy[r * p->ow + c] * share(p, pg_max(0, r1 - r0) * pg_max(0, c1 - c0));
            for (pg_int i = r0; i < r1; i++)
                for (pg_int k = c0; k < c1; k++) dx[i * p->w + k] += g;
        }
    }
}
