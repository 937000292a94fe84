/* Pooling in two dimensions: x [planes, h, w], y [planes, oh, ow], planes = batch * channels.
 *
 * Windows begin at r * sh - ph, c * sw - pw and are cut at the edges of x. The maximum of an empty
 * window is -inf. NaN in a window is its maximum.
 */
#ifndef PG_POOLING_H
#define PG_POOLING_H

#include "common.h"

typedef struct pg_pool2d {
    pg_int planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw;
    int count_padding; /* average: divide by kh * kw, not by the cells that are inside of x */
} pg_pool2d;

/* All return PG_OK, or PG_ENOMEM. */
int pg_max_pool_forward(const pg_pool2d *p, const float *x, float *y);
/* The gradient goes to the first maximum of each window. */
int pg_max_pool_backward(const pg_pool2d *p, const float *x, const float *dy, float *dx);
int pg_avg_pool_forward(const pg_pool2d *p, const float *x, float *y);
int pg_avg_pool_backward(const pg_pool2d *p, const float *dy, float *dx);

/* ---- between pooling.c and pooling_isa.c ---- */

#define PG_POOL_SLACK 16 /* no vector is longer */

/* Halves both sides, with nothing in two windows. */
PG_INLINE int pg_pool_halves(const pg_pool2d *p) {
    return p->kh == 2 && p->kw == 2 && p->sh == 2 && p->sw == 2 && p->ph == 0 && p->pw == 0 &&
           p->h >= 2 * p->oh && p->w >= 2 * p->ow;
}

/* Whether windows are taken one at a time, by vectors along their rows: long or few ones. Others
 * are taken a vector of neighbours at a time. */
PG_INLINE int pg_pool_single(const pg_pool2d *p) {
    return p->kw >= 16 || p->ow <= 2 || p->h > INT32_MAX / pg_max(p->w + p->kw, 1);
}

/* A row of x as neighbours want it: the first cells of all windows lie side by side, then the
 * second cells and so on, as far as the stride goes; each is followed by what the later cells
 * of the last windows need. */
PG_INLINE pg_int pg_pool_phases(const pg_pool2d *p) { return pg_min(p->sw, p->kw); }
PG_INLINE pg_int pg_pool_pitch(const pg_pool2d *p) {
    return p->ow + (p->kw - 1) / p->sw + PG_POOL_SLACK;
}

/* Floats of work that a plane needs: rows so laid, one of x and two of y. */
PG_INLINE pg_int pg_pool_work(const pg_pool2d *p, pg_int rows) {
    return rows * pg_pool_phases(p) * pg_pool_pitch(p) + p->w + 2 * p->ow + 3 * PG_POOL_SLACK;
}

#endif
