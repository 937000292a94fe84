/* Layer, RMS and batch normalization, forward and backward. gamma and beta may be NULL (1 and 0).
 *
 * x^ = (x - mean) / sqrt(var + eps), y = gamma x^ + beta; var is the mean squared deviation. RMS: the
 * mean is not taken off and var is the mean square.
 */
#ifndef PG_NORM_H
#define PG_NORM_H

#include "common.h"

/* Over the last dimension of [rows, n]. mean and rstd ([rows], for the backward pass) may be NULL;
 * mean is not used with rms. */
void pg_layer_norm(int rms, pg_int rows, pg_int n, float eps, const float *x, const float *gamma,
                   const float *beta, float *y, float *mean, float *rstd);
/* dx, dgamma, dbeta may each be NULL. */
int pg_layer_norm_backward(int rms, pg_int rows, pg_int n, const float *dy, const float *x,
                           const float *gamma, const float *mean, const float *rstd, float *dx,
                           float *dgamma, float *dbeta);

/* Over batch and size of [batch, channels, size] (size 1: [rows, channels]). Training: the statistics
 * are computed and left in mean and var [channels]. Otherwise mean and var are given. */
void pg_batch_norm(int training, pg_int batch, pg_int channels, pg_int size, float eps,
                   const float *x, const float *gamma, const float *beta, float *y, float *mean,
                   float *var);
/* training: mean and var are functions of x; else they are constants. dx, dgamma, dbeta may be NULL. */
int pg_batch_norm_backward(int training, pg_int batch, pg_int channels, pg_int size, float eps,
                           const float *dy, const float *x, const float *gamma, const float *mean,
                           const float *var, float *dx, float *dgamma, float *dbeta);

#endif
