/* Step rules for one instruction set. Formulas: steps.h. */
#include "isa_kernels.h"

typedef struct {
    vf lr, keep, scale, low, high, b1, c1, b2, c2, eps, h1, h2, mu, crho, rest1, rest2;
} constants;

PG_INLINE constants spread(const pg_step_params *p) {
    constants c;
    c.lr = v_set1(p->lr);
    c.keep = v_set1(1.0f - p->lr * p->weight_decay);
    c.scale = v_set1(p->grad_scale);
    c.high = v_set1(p->clip != 0.0f ? p->clip : INFINITY);
    c.low = v_neg(c.high);
    c.b1 = v_set1(p->beta1), c.c1 = v_set1(1.0f - p->beta1);
    c.b2 = v_set1(p->beta2), c.c2 = v_set1(1.0f - p->beta2);
    c.eps = v_set1(p->eps);
    c.h1 = v_set1(p->h1), c.h2 = v_set1(p->h2);
    c.mu = v_set1(p->momentum);
    c.crho = v_set1(p->crho);
    c.rest1 = v_set1(p->rest1), c.rest2 = v_set1(p->rest2);
    return c;
}

/* Sign with 0 for 0 and NaN for NaN. */
PG_INLINE vf sign(vf x) {
    vf one = v_copysign(v_set1(1.0f), x);
    return v_sel(v_eq(x, v_zero()), v_zero(), v_sel(v_isnan(x), x, one));
}

/* c x + (1 - c) s: with 1 - 0.999 as it is, which 1 less the float 0.999 is not by 1e-5. */
PG_INLINE vf mix(vf s, vf c, vf x) { return v_fma(c, v_sub(x, s), s); }

/* One vector of a rule; rule, flag and buffered are constants where it is expanded. */
PG_INLINE vf step_vec(const int rule, const int flag, const int buffered, const constants *c, vf w,
                      vf g, vf *s1, vf *s2, vf *s3) {
    g = v_max(c->low, v_min(c->high, v_mul(g, c->scale))); /* leaves NaN as it is */
    w = v_mul(w, c->keep);
    switch (rule) {
    case PG_STEP_MOMENTUM: {
        vf lg = v_mul(c->lr, g);
        *s1 = v_fms(c->mu, *s1, lg);
        return v_add(w, flag ? v_fms(c->mu, *s1, lg) : *s1);
    }
    case PG_STEP_ADAM:
        *s1 = v_fma(c->b1, *s1, v_mul(c->c1, g));
        *s2 = v_fma(c->b2, *s2, v_mul(c->c2, v_mul(g, g)));
        return v_fnma(c->lr, v_div(v_mul(*s1, c->h1), v_add(v_sqrt(v_mul(*s2, c->h2)), c->eps)), w);
    case PG_STEP_RMSPROP: {
        *s1 = mix(*s1, c->crho, v_mul(g, g));
        vf d = *s1;
        if (flag) {
            *s3 = mix(*s3, c->crho, g);
            d = v_max(v_zero(), v_fnma(*s3, *s3, d)); /* below 0 by rounding only */
        }
        vf i = v_div(v_mul(c->lr, g), v_sqrt(v_add(d, c->eps)));
        if (buffered) *s2 = i = v_fma(c->mu, *s2, i);
        return v_sub(w, i);
    }
    case PG_STEP_ADAGRAD:
        *s1 = v_fma(g, g, *s1);
        return v_sub(w, v_div(v_mul(c->lr, g), v_sqrt(v_add(*s1, c->eps))));
    case PG_STEP_LION: {
        vf u = sign(mix(*s1, c->rest1, g));
        *s1 = mix(*s1, c->rest2, g);
        return v_fnma(c->lr, u, w);
    }
    default: return v_fnma(c->lr, g, w);
    }
}

PG_INLINE void step_loop(const int rule, const int flag, const int buffered, const int states,
                         const pg_step_params *p, pg_int n, float *w, const float *g, float *s1,
                         float *s2, float *s3) {
    const constants c = spread(p);
    const int has1 = states & 1, has2 = states & 2, has3 = states & 4;
    const int moves = p->lr != 0.0f;
    pg_int i = 0;
    for (; i + VL <= n; i += VL) {
        vf a = v_zero(), b = a, d = a;
        if (has1) a = v_load(s1 + i);
        if (has2) b = v_load(s2 + i);
        if (has3) d = v_load(s3 + i);
        vf x = step_vec(rule, flag, buffered, &c, v_load(w + i), v_load(g + i), &a, &b, &d);
        if (moves) v_store(w + i, x);
        if (has1) v_store(s1 + i, a);
        if (has2) v_store(s2 + i, b);
        if (has3) v_store(s3 + i, d);
    }
    if (i < n) {
        int left = (int)(n - i);
        vf a = v_zero(), b = a, d = a;
        if (has1) a = v_loadn(s1 + i, left);
        if (has2) b = v_loadn(s2 + i, left);
        if (has3) d = v_loadn(s3 + i, left);
        vf x = step_vec(rule, flag, buffered, &c, v_loadn(w + i, left), v_loadn(g + i, left), &a,
                        &b, &d);
        if (moves) v_storen(w + i, x, left);
        if (has1) v_storen(s1 + i, a, left);
        if (has2) v_storen(s2 + i, b, left);
        if (has3) v_storen(s3 + i, d, left);
    }
}

void PG_FN(step)(const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,
                 float *s3) {
#define STEP(rule, flag, buffered, states) \
    step_loop(rule, flag, buffered, states, p, n, w, g, s1, s2, s3)
    switch (p->rule) {
    case PG_STEP_MOMENTUM:
        if (p->nesterov) STEP(PG_STEP_MOMENTUM, 1, 0, 1);
        else STEP(PG_STEP_MOMENTUM, 0, 0, 1);
        break;
    case PG_STEP_ADAM: STEP(PG_STEP_ADAM, 0, 0, 3); break;
    case PG_STEP_RMSPROP:
        if (p->momentum != 0.0f) {
            if (p->centered) STEP(PG_STEP_RMSPROP, 1, 1, 7);
            else STEP(PG_STEP_RMSPROP, 0, 1, 3);
        } else {
            if (p->centered) STEP(PG_STEP_RMSPROP, 1, 0, 5);
            else STEP(PG_STEP_RMSPROP, 0, 0, 1);
        }
        break;
    case PG_STEP_ADAGRAD: STEP(PG_STEP_ADAGRAD, 0, 0, 1); break;
    case PG_STEP_LION: STEP(PG_STEP_LION, 0, 0, 1); break;
    default: STEP(PG_STEP_SGD, 0, 0, 0); break;
    }
#undef STEP
}

double PG_FN(sum_squares)(pg_int n, const float *x) {
    double sum = 0.0, part[32] = {0}; /* as many as keep the adders busy */
    pg_int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int k = 0; k < 32; k++) {
            const double y = x[i + k];
            part[k] += y * y;
        }
    for (; i < n; i++) sum += (double)x[i] * x[i];
    for (int k = 0; k < 32; k++) sum += part[k];
    return sum;
}
