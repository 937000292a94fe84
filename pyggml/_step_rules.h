/* Step rules that ggml does not have, as custom nodes on the CPU, and the clipping of gradients.
 *
 * A step node's sources are the weight, its gradient, the state arrays of the rule in the order
 * given there, and the parameters, of which the first two are the learning rate and the weight
 * decay. Decay is decoupled: the weight is multiplied by 1 - rate * decay before the step. At a
 * rate of 0 the state moves and the weight does not, by a single bit.
 *
 * Each thread takes a range of elements, and no element depends on another, so results do not
 * depend on the number of threads. */

#ifndef PYGGML_STEP_RULES_H
#define PYGGML_STEP_RULES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ggml.h"

static inline float * pg_data(const struct ggml_tensor * t) { return (float *) t->data; }

/* The elements [*begin, *end) of thread ith; ranges begin at multiples of a cache line. */
static void pg_range(const struct ggml_tensor * dst, int ith, int nth, int64_t * begin,
                     int64_t * end) {
    const int64_t n   = ggml_nelements(dst);
    const int64_t per = ((n + nth - 1) / nth + 15) / 16 * 16;
    *begin = per * ith < n ? per * ith : n;
    *end   = *begin + per < n ? *begin + per : n;
}

/* State: velocity. Parameters: momentum, and whether Nesterov's. As in Keras:
 * v = momentum v - rate g; w += v, or with Nesterov w += momentum v - rate g
 * (Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013). */
static void pg_step_momentum(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    float *       w = pg_data(dst->src[0]);
    const float * g = pg_data(dst->src[1]);
    float *       v = pg_data(dst->src[2]);
    const float * p = pg_data(dst->src[3]);
    const float rate = p[0], keep = 1.0f - p[0] * p[1], momentum = p[2];
    const int   nesterov = p[3] != 0.0f;
    int64_t i, end;
    (void) userdata;
    pg_range(dst, ith, nth, &i, &end);
    for (; i < end; ++i) {
        const float move = rate * g[i];
        v[i] = momentum * v[i] - move;
        if (rate != 0.0f) {
            w[i] = w[i] * keep + (nesterov ? momentum * v[i] - move : v[i]);
        }
    }
}

/* State: mean square; with momentum the increment; if centered the mean. Parameters: rho, momentum,
 * epsilon, whether centered. As in Keras:
 * s = rho s + (1 - rho) g^2, a likewise of g; d = s (- a^2) + epsilon;
 * b = momentum b + rate g / sqrt(d); w -= b (Tieleman and Hinton 2012; Graves 2013). */
static void pg_step_rmsprop(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    int next = 2;
    float *       w = pg_data(dst->src[0]);
    const float * g = pg_data(dst->src[1]);
    float *       s = pg_data(dst->src[next++]);
    const struct ggml_tensor * last = dst->src[next];
    const float * p;
    float * b = NULL;
    float * a = NULL;
    float rate, keep, rho, momentum, epsilon;
    int64_t i, end;
    (void) userdata;
    while (next + 1 < GGML_MAX_SRC && dst->src[next + 1] != NULL) {
        last = dst->src[++next];
    }
    p = pg_data(last);
    rate = p[0], keep = 1.0f - p[0] * p[1], rho = p[2], momentum = p[3], epsilon = p[4];
    if (momentum != 0.0f) {
        b = pg_data(dst->src[3]);
    }
    if (p[5] != 0.0f) {
        a = pg_data(dst->src[b != NULL ? 4 : 3]);
    }
    pg_range(dst, ith, nth, &i, &end);
    for (; i < end; ++i) {
        float spread, move;
        s[i] = rho * s[i] + (1.0f - rho) * g[i] * g[i];
        spread = s[i];
        if (a != NULL) {
            a[i] = rho * a[i] + (1.0f - rho) * g[i];
            spread -= a[i] * a[i];
            if (spread < 0.0f) {
                spread = 0.0f; /* by rounding only */
            }
        }
        move = rate * g[i] / sqrtf(spread + epsilon);
        if (b != NULL) {
            move = b[i] = momentum * b[i] + move;
        }
        if (rate != 0.0f) {
            w[i] = w[i] * keep - move;
        }
    }
}

/* State: sum of squares. Parameter: epsilon, with the initial sum in it.
 * s += g^2; w -= rate g / sqrt(s + epsilon) (Duchi et al. 2011; epsilon as in Keras). */
static void pg_step_adagrad(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    float *       w = pg_data(dst->src[0]);
    const float * g = pg_data(dst->src[1]);
    float *       s = pg_data(dst->src[2]);
    const float * p = pg_data(dst->src[3]);
    const float rate = p[0], keep = 1.0f - p[0] * p[1], epsilon = p[2];
    int64_t i, end;
    (void) userdata;
    pg_range(dst, ith, nth, &i, &end);
    for (; i < end; ++i) {
        s[i] += g[i] * g[i];
        if (rate != 0.0f) {
            w[i] = w[i] * keep - rate * g[i] / sqrtf(s[i] + epsilon);
        }
    }
}

/* State: momentum. Parameters: beta_1, beta_2.
 * w -= rate sign(beta_1 m + (1 - beta_1) g); m = beta_2 m + (1 - beta_2) g (Chen et al. 2023). */
static void pg_step_lion(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    float *       w = pg_data(dst->src[0]);
    const float * g = pg_data(dst->src[1]);
    float *       m = pg_data(dst->src[2]);
    const float * p = pg_data(dst->src[3]);
    const float rate = p[0], keep = 1.0f - p[0] * p[1], beta_1 = p[2], beta_2 = p[3];
    int64_t i, end;
    (void) userdata;
    pg_range(dst, ith, nth, &i, &end);
    for (; i < end; ++i) {
        const float c = beta_1 * m[i] + (1.0f - beta_1) * g[i];
        m[i] = beta_2 * m[i] + (1.0f - beta_2) * g[i];
        if (rate != 0.0f) {
            /* c is its own sign where it is 0 or NaN */
            w[i] = w[i] * keep - rate * (c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c);
        }
    }
}

/* The function of a rule, or NULL where there is none. */
static ggml_custom_op_t pg_step_rule(const char * name) {
    static const struct { const char * name; ggml_custom_op_t step; } rules[] = {
        { "momentum", pg_step_momentum },
        { "rmsprop",  pg_step_rmsprop },
        { "adagrad",  pg_step_adagrad },
        { "lion",     pg_step_lion },
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); ++i) {
        if (strcmp(rules[i].name, name) == 0) {
            return rules[i].step;
        }
    }
    return NULL;
}

/* ---- clipping, on the calling thread, so that sums have one order ---- */

static double pg_sum_of_squares(const float * x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        sum += (double) x[i] * x[i];
    }
    return sum;
}

static void pg_multiply(float * x, int64_t n, double factor) {
    for (int64_t i = 0; i < n; ++i) {
        x[i] = (float) (x[i] * factor);
    }
}

static void pg_limit(float * x, int64_t n, float limit) { /* leaves NaN as it is */
    for (int64_t i = 0; i < n; ++i) {
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
    }
}

#endif
