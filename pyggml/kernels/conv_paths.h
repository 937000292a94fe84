/* The ways of computing a convolution, between which conv.c chooses. */
#ifndef PG_CONV_PATHS_H
#define PG_CONV_PATHS_H

#include "activations.h"
#include "conv.h"
#include "thread_shim.h"

/* Threads that a convolution is worth. */
int pg_conv_threads(const pg_conv *c);

/* Channels last (conv_last.c); arguments checked, sizes positive. backward_data: unit strides only, and
 * PG_EINVAL, with nothing done, where the padding is wider than the kernel's reach. */
int pg_conv_last_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                         int act, float act_param, float *y);
int pg_conv_last_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx);
int pg_conv_last_backward_weight(const pg_conv *c, const float *x, const float *dy, float *dw);

/* 1 x 1 kernels (conv_point.c); arguments checked, sizes positive. */
int pg_conv_is_point(const pg_conv *c); /* and large enough to be worth it */
int pg_conv_point_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                          int act, float act_param, float *y);
int pg_conv_point_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx);
int pg_conv_point_backward_weight(const pg_conv *c, const float *x, const float *dy, float *dw);

#endif
