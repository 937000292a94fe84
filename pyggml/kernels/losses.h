/* Losses of predictions and targets, value and gradient in one pass, and softmax over rows.
 *
 *   loss = scale * sum over elements (or rows) of weight * l
 *   grad = scale * weight * dl/dprediction, if grad is not NULL (it may be the predictions' array)
 *
 * The weight of element [r, c] is weight[r * w_rs + c * w_cs] (w_cs 0: one for a row; losses of
 * rows use column 0 only); weight may be NULL. Weight 0 removes an element for good, NaN or not. The
 * sum is formed in double, block by block: it does not depend on the number of threads, nor on how
 * weights lie in memory, and weights of 1 give the bits of no weights.
 */
#ifndef PG_LOSSES_H
#define PG_LOSSES_H

#include "common.h"

enum {
    /* of elements; p the prediction, t the target, e = p - t */
    PG_LOSS_MSE,          /* e^2 */
    PG_LOSS_MAE,          /* |e| */
    PG_LOSS_HUBER,        /* param0 = delta: e^2 / 2, or delta (|e| - delta / 2) beyond delta */
    PG_LOSS_LOG_COSH,     /* log cosh e */
    PG_LOSS_BCE_LOGITS,   /* binary cross-entropy of sigmoid(p) */
    PG_LOSS_BCE,          /* of p, clipped to [1e-7, 1 - 1e-7] */
    PG_LOSS_FOCAL_LOGITS, /* param0 = gamma, param1 = alpha (< 0: no balancing): balance *
                             (1 - p_t)^gamma * binary cross-entropy (Lin et al. 2017, as in Keras) */
    PG_LOSS_FOCAL,
    PG_LOSS_HINGE,         /* max(0, 1 - t p), t = -1 or 1 */
    PG_LOSS_SQUARED_HINGE, /* its square */
    PG_LOSS_KL,            /* t log(t / p), both clipped to [1e-7, 1] */
    PG_LOSS_POISSON,       /* p - t log(max(p, 0) + 1e-7) */
    /* of rows */
    PG_LOSS_SOFTMAX_CE, /* -sum t log softmax(p); t need not sum to 1 */
    PG_LOSS_CE,         /* -sum t log q, q = p / sum p clipped to [1e-7, 1 - 1e-7] */
    PG_LOSS_COSINE,     /* -cos(p, t), squared norms not below 1e-12 */
    PG_LOSS_COUNT
};

int pg_loss(int kind, float param0, float param1, pg_int rows, pg_int cols, const float *pred,
            const float *target, const float *weight, pg_int w_rs, pg_int w_cs, float scale,
            float *grad, double *loss);

/* Rows of n. y = softmax(x) or its log; backward from y: dx = y (dy - sum dy y), and for the log
 * dx = dy - exp(y) sum dy. In place where the arrays are the same. */
void pg_softmax(int log, pg_int rows, pg_int n, const float *x, float *y);
void pg_softmax_backward(int log, pg_int rows, pg_int n, const float *dy, const float *y, float *dx);

#endif
