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

void pg_max_pool_forward(const pg_pool2d *p, const float *x, float *y);
/* The gradient goes to the first maximum of each window. */
void pg_max_pool_backward(const pg_pool2d *p, const float *x, const float *dy, float *dx);
void pg_avg_pool_forward(const pg_pool2d *p, const float *x, float *y);
void pg_avg_pool_backward(const pg_pool2d *p, const float *dy, float *dx);

#endif
