/* Convolution in two dimensions: x [n, ic, h, w], weights [oc, ic / groups, kh, kw],
 * y [n, oc, oh, ow]. One dimension is h = kh = oh = 1. Depthwise is groups = ic.
 *
 *   y[o, r, c] = bias[o] + sum over i, a, b of
 *                weights[o, i, a, b] x[i, r sh + a dh - ph, c sw + b dw - pw], 0 outside of x
 *
 * ph and pw are the padding before; that after follows from oh and ow. The transposed convolution is
 * backward_data, its gradients are forward and backward_weight with x and y exchanged.
 */
#ifndef PG_CONV_H
#define PG_CONV_H

#include "common.h"

typedef struct pg_conv {
    pg_int n, ic, h, w, oc, kh, kw, oh, ow;
    pg_int sh, sw, ph, pw, dh, dw; /* stride, padding before, dilation */
    pg_int groups;
} pg_conv;

/* Output size of one dimension, with padding before and after. */
pg_int pg_conv_out(pg_int size, pg_int k, pg_int stride, pg_int before, pg_int after,
                   pg_int dilation);

/* PG_OK, PG_ENOMEM or PG_EINVAL. bias may be NULL; act as in activations.h. */
int pg_conv_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                    int act, float act_param, float *y);
int pg_conv_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx);
int pg_conv_backward_weight(const pg_conv *c, const float *x, const float *dy, float *dweights);

#endif
