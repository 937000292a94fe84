/* Activations, forward and backward, and the bias that goes with them.
 *
 * Forward: y = f(x). Backward: dx = dy f'(x), from x, or from y = f(x) where that determines it
 * (pg_act_from_y). x and y may be the same array, dx may be dy.
 */
#ifndef PG_ACTIVATIONS_H
#define PG_ACTIVATIONS_H

#include "common.h"

enum {
    PG_ACT_LINEAR,
    PG_ACT_RELU,
    PG_ACT_RELU6,
    PG_ACT_LEAKY_RELU,   /* param: slope below 0 */
    PG_ACT_ELU,          /* param: alpha */
    PG_ACT_SELU,
    PG_ACT_GELU,         /* x Phi(x) */
    PG_ACT_GELU_TANH,    /* the tanh approximation of it */
    PG_ACT_SILU,
    PG_ACT_SIGMOID,
    PG_ACT_HARD_SIGMOID, /* relu6(x + 3) / 6 */
    PG_ACT_HARD_SWISH,
    PG_ACT_TANH,
    PG_ACT_SOFTPLUS,
    PG_ACT_SOFTSIGN,
    PG_ACT_MISH,
    PG_ACT_EXPONENTIAL,
    PG_ACT_AT_LEAST,     /* max(x, param) */
    PG_ACT_AT_MOST,      /* min(x, param) */
    PG_ACT_COUNT
};

/* 1 if the derivative can be had from y; for LEAKY_RELU and ELU with a positive param. */
int pg_act_from_y(int act);

void pg_act_forward(int act, float param, pg_int n, const float *x, float *y);
/* Give x or y (the other NULL; x is taken if both are given and y is not enough). */
void pg_act_backward(int act, float param, pg_int n, const float *dy, const float *x,
                     const float *y, float *dx);

/* y = f(x + bias): rows of n with bias along them. bias may be NULL. If z is not NULL it gets
 * x + bias. */
void pg_bias_act(int act, float param, pg_int rows, pg_int n, const float *x, const float *bias,
                 float *z, float *y);
/* The same for [batch, channels, size] with a bias per channel. */
void pg_bias_act_channels(int act, float param, pg_int batch, pg_int channels, pg_int size,
                          const float *x, const float *bias, float *z, float *y);

/* Bias gradients: sums over the rows of [rows, n], or over batch and size of
 * [batch, channels, size]. out = sums + beta * out. */
int pg_sum_rows(pg_int rows, pg_int n, const float *x, pg_int ld, float beta, float *out);
int pg_sum_channels(pg_int batch, pg_int channels, pg_int size, const float *x, float beta,
                    float *out);

/* Elementwise c = alpha * a + beta * b (either may be c), and c = a * b. */
void pg_axpby(pg_int n, float alpha, const float *a, float beta, const float *b, float *c);
void pg_mul(pg_int n, const float *a, const float *b, float *c);

/* dst, dense with its first axis innermost, from elements that lie s[i] apart along axis i. The
 * first axis of more than one element must not be adjacent in src, another must: else PG_EINVAL. */
int pg_copy_permuted(const pg_int n[4], const pg_int s[4], const float *src, float *dst);

#endif
