/* Step rules of the optimizers, one pass over weights, gradient and state.
 *
 * In every rule g stands for grad_scale * gradient, limited to [-clip, clip] if clip is not 0, and
 * weight decay is decoupled: w is multiplied by (1 - lr * weight_decay) before the step. At lr 0 the
 * state moves and w does not, by a single bit.
 *
 *   ADAM      m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr (m h1) / (sqrt(v h2) + eps)
 *             with h1 = 1 / (1 - b1^t), h2 = 1 / (1 - b2^t)    (Kingma and Ba 2015; AdamW:
 *             Loshchilov and Hutter 2019); to be computed from the betas that stand here, which
 *             are rounded: 1 - 0.999f is not 0.001 by 1e-5, and only so it cancels
 *   SGD       w -= lr g
 *   MOMENTUM  v = mu v - lr g; w += v; with nesterov: w += mu v - lr g
 *             (Sutskever et al. 2013; as in Keras)
 *   RMSPROP   s += crho (g^2 - s), crho = 1 - rho; d = s + eps, if centered a += crho (g - a) and
 *             d = max(s - a^2, 0) + eps; i = lr g / sqrt(d); with momentum b = mu b + i, i = b;
 *             w -= i        (Tieleman and Hinton 2012; Graves 2013; as in Keras)
 *   ADAGRAD   s += g^2; w -= lr g / sqrt(s + eps); an initial value of s may stand in eps
 *             (Duchi et al. 2011; as in Keras)
 *   LION      w -= lr sign(m + rest1 (g - m)); m += rest2 (g - m), rest = 1 - beta
 *             (Chen et al. 2023)
 */
#ifndef PG_STEPS_H
#define PG_STEPS_H

#include "common.h"

enum {
    PG_STEP_SGD,
    PG_STEP_MOMENTUM,
    PG_STEP_ADAM,
    PG_STEP_RMSPROP,
    PG_STEP_ADAGRAD,
    PG_STEP_LION,
    PG_STEP_COUNT
};

typedef struct pg_step_params {
    int rule;
    int nesterov, centered;
    float lr, beta1, beta2, eps, weight_decay, h1, h2;
    float momentum, crho, rest1, rest2;
    float grad_scale, clip;
} pg_step_params;

/* State arrays of n floats each that a rule needs, in this order:
 * ADAM m, v; MOMENTUM v; RMSPROP s, then b if momentum != 0, then a if centered (each in its own
 * place: s1 = s, s2 = b, s3 = a); ADAGRAD s; LION m. Others may be NULL. */
void pg_step(const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,
             float *s3);
/* On the calling thread only. */
void pg_step1(const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,
              float *s3);

/* Sum of squares in double, in an order that does not depend on the number of threads: the squared
 * norm for clipping. Neither overflows nor underflows for any float. */
double pg_sum_squares(pg_int n, const float *x);

#endif
