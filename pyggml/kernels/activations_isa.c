/* Activations for one instruction set. */
#include "isa_kernels.h"
#include "simd_math.h"

#define SELU_SCALE 1.05070098735548049f
#define SELU_ALPHA 1.67326324235437728f
#define GELU_C 0.797884560802865356f /* sqrt(2 / pi) */
#define GELU_A 0.044715f

/* Beyond -104 exp is 0, and inf * 0 must not appear where x is -inf. */
PG_INLINE vf finite_below(vf x) { return v_max(v_set1(-3.0e38f), x); }

/* tanh(softplus(x)) = (e^2 + 2e) / (e^2 + 2e + 2) with e = exp(x) */
PG_INLINE vf tanh_softplus(vf x) {
    vf e = v_exp(v_min(v_set1(20.0f), x));
    vf n = v_mul(e, v_add(e, v_set1(2.0f)));
    return v_div(n, v_add(n, v_set1(2.0f)));
}

/* act is a constant where these are expanded. */
PG_INLINE vf act_vec(const int act, vf p, vf x) {
    const vf zero = v_zero(), one = v_set1(1.0f);
    switch (act) {
    case PG_ACT_RELU: return v_max(zero, x);
    case PG_ACT_RELU6: return v_min(v_set1(6.0f), v_max(zero, x));
    case PG_ACT_LEAKY_RELU: return v_sel(v_gt(x, zero), x, v_mul(p, x));
    case PG_ACT_ELU: return v_sel(v_gt(x, zero), x, v_mul(p, v_expm1(v_min(zero, x))));
    case PG_ACT_SELU:
        return v_mul(v_set1(SELU_SCALE),
                     v_sel(v_gt(x, zero), x, v_mul(v_set1(SELU_ALPHA), v_expm1(v_min(zero, x)))));
    case PG_ACT_GELU: {
        vf cdf, pdf;
        v_normal(x, &cdf, &pdf);
        return v_mul(finite_below(x), cdf);
    }
    case PG_ACT_GELU_TANH: {
        /* 0.5 (1 + tanh u) = sigmoid(2u) */
        vf c = v_min(v_set1(100.0f), v_max(v_set1(-100.0f), x));
        vf u = v_mul(v_mul(v_set1(2.0f * GELU_C), c),
                     v_fma(v_set1(GELU_A), v_mul(c, c), one));
        return v_mul(finite_below(x), v_sigmoid(u));
    }
    case PG_ACT_SILU: return v_mul(finite_below(x), v_sigmoid(x));
    case PG_ACT_SIGMOID: return v_sigmoid(x);
    case PG_ACT_HARD_SIGMOID:
        return v_div(v_min(v_set1(6.0f), v_max(zero, v_add(x, v_set1(3.0f)))), v_set1(6.0f));
    case PG_ACT_HARD_SWISH:
        return v_mul(finite_below(x), v_div(v_min(v_set1(6.0f), v_max(zero, v_add(x, v_set1(3.0f)))),
                                            v_set1(6.0f)));
    case PG_ACT_TANH: return v_tanh(x);
    case PG_ACT_SOFTPLUS: return v_softplus(x);
    case PG_ACT_SOFTSIGN: {
        vf c = v_min(v_set1(3.0e38f), v_max(v_set1(-3.0e38f), x));
        return v_div(c, v_add(one, v_abs(c)));
    }
    case PG_ACT_MISH: return v_mul(finite_below(x), tanh_softplus(x));
    case PG_ACT_EXPONENTIAL: return v_exp(x);
    case PG_ACT_AT_LEAST: return v_max(p, x);
    case PG_ACT_AT_MOST: return v_min(p, x);
    default: return x;
    }
}

/* f'(x) */
PG_INLINE vf slope_x(const int act, vf p, vf x) {
    const vf zero = v_zero(), one = v_set1(1.0f), six = v_set1(6.0f);
    switch (act) {
    case PG_ACT_RELU: return v_sel(v_gt(x, zero), one, zero);
    case PG_ACT_RELU6: return v_sel(m_and(v_gt(x, zero), v_lt(x, six)), one, zero);
    case PG_ACT_LEAKY_RELU: return v_sel(v_gt(x, zero), one, p);
    case PG_ACT_ELU: return v_sel(v_gt(x, zero), one, v_mul(p, v_exp(x)));
    case PG_ACT_SELU:
        return v_sel(v_gt(x, zero), v_set1(SELU_SCALE),
                     v_mul(v_set1(SELU_SCALE * SELU_ALPHA), v_exp(x)));
    case PG_ACT_GELU: {
        vf cdf, pdf;
        v_normal(x, &cdf, &pdf);
        vf c = v_min(v_set1(100.0f), v_max(v_set1(-100.0f), x));
        return v_fma(c, pdf, cdf);
    }
    case PG_ACT_GELU_TANH: {
        vf c = v_min(v_set1(100.0f), v_max(v_set1(-100.0f), x)), z = v_mul(c, c);
        vf u = v_mul(v_mul(v_set1(2.0f * GELU_C), c), v_fma(v_set1(GELU_A), z, one));
        vf du = v_mul(v_set1(2.0f * GELU_C), v_fma(v_set1(3.0f * GELU_A), z, one));
        vf s = v_sigmoid(u), r = v_sigmoid(v_neg(u));
        return v_fma(v_mul(v_mul(c, s), r), du, s);
    }
    case PG_ACT_SILU: {
        vf s = v_sigmoid(x), r = v_sigmoid(v_neg(x));
        vf c = v_min(v_set1(200.0f), v_max(v_set1(-200.0f), x));
        return v_fma(v_mul(c, s), r, s);
    }
    case PG_ACT_SIGMOID: return v_mul(v_sigmoid(x), v_sigmoid(v_neg(x)));
    case PG_ACT_HARD_SIGMOID:
        return v_sel(m_and(v_gt(x, v_set1(-3.0f)), v_lt(x, v_set1(3.0f))), v_set1(1.0f / 6.0f),
                     zero);
    case PG_ACT_HARD_SWISH: {
        vf mid = v_div(v_fma(v_set1(2.0f), x, v_set1(3.0f)), six);
        return v_sel(v_le(x, v_set1(-3.0f)), zero, v_sel(v_ge(x, v_set1(3.0f)), one, mid));
    }
    case PG_ACT_TANH: {
        /* 1 - tanh^2 = 4 e / (1 + e)^2 with e = exp(-2|x|): no cancellation */
        vf e = v_exp(v_mul(v_set1(-2.0f), v_abs(x))), q = v_add(one, e);
        return v_div(v_mul(v_set1(4.0f), e), v_mul(q, q));
    }
    case PG_ACT_SOFTPLUS: return v_sigmoid(x);
    case PG_ACT_SOFTSIGN: {
        vf q = v_div(one, v_add(one, v_abs(x)));
        return v_mul(q, q);
    }
    case PG_ACT_MISH: {
        /* t + x s (1 - t^2), s = sigmoid(x), 1 - t^2 = 4 (n + 1) / (n + 2)^2 */
        vf c = v_min(v_set1(20.0f), x), e = v_exp(c);
        vf n = v_mul(e, v_add(e, v_set1(2.0f))), n2 = v_add(n, v_set1(2.0f));
        vf t = v_div(n, n2);
        vf d = v_div(v_mul(v_set1(4.0f), v_add(n, one)), v_mul(n2, n2));
        vf b = v_max(v_set1(-200.0f), c);
        return v_fma(v_mul(b, v_sigmoid(x)), d, t);
    }
    case PG_ACT_EXPONENTIAL: return v_exp(x);
    case PG_ACT_AT_LEAST: return v_sel(v_ge(x, p), one, zero);
    case PG_ACT_AT_MOST: return v_sel(v_le(x, p), one, zero);
    default: return one;
    }
}

/* f'(x) from y = f(x) */
PG_INLINE vf slope_y(const int act, vf p, vf y) {
    const vf zero = v_zero(), one = v_set1(1.0f);
    switch (act) {
    case PG_ACT_RELU:
    case PG_ACT_RELU6:
    case PG_ACT_LEAKY_RELU: return slope_x(act, p, y);
    case PG_ACT_ELU: return v_sel(v_gt(y, zero), one, v_add(y, p));
    case PG_ACT_SELU:
        return v_sel(v_gt(y, zero), v_set1(SELU_SCALE), v_add(y, v_set1(SELU_SCALE * SELU_ALPHA)));
    case PG_ACT_SIGMOID: return v_mul(y, v_sub(one, y));
    case PG_ACT_HARD_SIGMOID:
        return v_sel(m_and(v_gt(y, zero), v_lt(y, one)), v_set1(1.0f / 6.0f), zero);
    case PG_ACT_TANH: return v_mul(v_sub(one, y), v_add(one, y));
    case PG_ACT_SOFTPLUS: return v_neg(v_expm1(v_neg(y)));
    case PG_ACT_SOFTSIGN: {
        vf q = v_sub(one, v_abs(y));
        return v_mul(q, q);
    }
    case PG_ACT_EXPONENTIAL: return y;
    default: return one;
    }
}

PG_INLINE void forward_loop(const int act, float param, pg_int n, const float *x, float *y) {
    const vf p = v_set1(param);
    pg_int i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, act_vec(act, p, v_load(x + i)));
    if (i < n) v_storen(y + i, act_vec(act, p, v_loadn(x + i, (int)(n - i))), (int)(n - i));
}

PG_INLINE void backward_loop(const int act, const int from_y, float param, pg_int n,
                             const float *dy, const float *s, float *dx) {
    const vf p = v_set1(param);
    const int gate = act == PG_ACT_RELU || act == PG_ACT_RELU6;
    pg_int i = 0;
    for (; i < n; i += VL) {
        vf d = v_load_upto(dy + i, n - i), v = v_load_upto(s + i, n - i);
        /* A closed gate gives 0 whatever comes in. */
        if (gate) {
            vm open = v_gt(v, v_zero());
            if (act == PG_ACT_RELU6) open = m_and(open, v_lt(v, v_set1(6.0f)));
            d = v_keep(open, d);
        } else {
            d = v_mul(d, from_y ? slope_y(act, p, v) : slope_x(act, p, v));
        }
        v_store_upto(dx + i, d, n - i);
    }
}

PG_INLINE void bias_loop(const int act, float param, pg_int n, const float *x, const float *bias,
                         float *z, float *y) {
    const vf p = v_set1(param);
    for (pg_int i = 0; i < n; i += VL) {
        vf v = v_load_upto(x + i, n - i);
        if (bias) v = v_add(v, v_load_upto(bias + i, n - i));
        if (z) v_store_upto(z + i, v, n - i);
        v_store_upto(y + i, act_vec(act, p, v), n - i);
    }
}

PG_INLINE void const_bias_loop(const int act, float param, pg_int n, const float *x, float bias,
                               float *z, float *y) {
    const vf p = v_set1(param), b = v_set1(bias);
    for (pg_int i = 0; i < n; i += VL) {
        vf v = v_add(v_load_upto(x + i, n - i), b);
        if (z) v_store_upto(z + i, v, n - i);
        v_store_upto(y + i, act_vec(act, p, v), n - i);
    }
}

#define EACH_ACT(M)                                                                            \
    M(PG_ACT_RELU) M(PG_ACT_RELU6) M(PG_ACT_LEAKY_RELU) M(PG_ACT_ELU) M(PG_ACT_SELU)           \
    M(PG_ACT_GELU) M(PG_ACT_GELU_TANH) M(PG_ACT_SILU) M(PG_ACT_SIGMOID) M(PG_ACT_HARD_SIGMOID) \
    M(PG_ACT_HARD_SWISH) M(PG_ACT_TANH) M(PG_ACT_SOFTPLUS) M(PG_ACT_SOFTSIGN) M(PG_ACT_MISH)   \
    M(PG_ACT_EXPONENTIAL) M(PG_ACT_AT_LEAST) M(PG_ACT_AT_MOST) M(PG_ACT_LINEAR)

void PG_FN(act_forward)(int act, float param, pg_int n, const float *x, float *y) {
    switch (act) {
#define CASE(a) case a: forward_loop(a, param, n, x, y); break;
        EACH_ACT(CASE)
#undef CASE
    default: break;
    }
}

void PG_FN(act_backward)(int act, int from_y, float param, pg_int n, const float *dy,
                         const float *s, float *dx) {
    switch (act) {
#define CASE(a)                                                 \
    case a:                                                     \
        if (from_y) backward_loop(a, 1, param, n, dy, s, dx);   \
        else backward_loop(a, 0, param, n, dy, s, dx);          \
        break;
        EACH_ACT(CASE)
#undef CASE
    default: break;
    }
}

void PG_FN(bias_act)(int act, float param, pg_int n, const float *x, const float *bias, float *z,
                     float *y) {
    switch (act) {
#define CASE(a) case a: bias_loop(a, param, n, x, bias, z, y); break;
        EACH_ACT(CASE)
#undef CASE
    default: break;
    }
}

void PG_FN(const_bias_act)(int act, float param, pg_int n, const float *x, float bias, float *z,
                           float *y) {
    switch (act) {
#define CASE(a) case a: const_bias_loop(a, param, n, x, bias, z, y); break;
        EACH_ACT(CASE)
#undef CASE
    default: break;
    }
}

/* out[n] = column sums of x[rows, n] + beta * out; four columns of vectors at a time. Long columns
 * are summed in pieces of 128 rows, so that the error does not grow with the batch. */
void PG_FN(sum_rows)(pg_int rows, pg_int n, const float *x, pg_int ld, float beta, float *out) {
    for (pg_int j = 0; j < n; j += 4 * VL) {
        vf total[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (pg_int i0 = 0; i0 < rows; i0 += 128) {
            pg_int i1 = pg_min(rows, i0 + 128);
            vf a = v_zero(), b = a, c = a, d = a;
            if (j + 4 * VL <= n) {
                for (pg_int i = i0; i < i1; i++) {
                    const float *r = x + i * ld + j;
                    a = v_add(a, v_load(r)), b = v_add(b, v_load(r + VL));
                    c = v_add(c, v_load(r + 2 * VL)), d = v_add(d, v_load(r + 3 * VL));
                }
            } else {
                for (pg_int i = i0; i < i1; i++) {
                    const float *r = x + i * ld + j;
                    a = v_add(a, v_load_upto(r, n - j));
                    if (j + VL < n) b = v_add(b, v_load_upto(r + VL, n - j - VL));
                    if (j + 2 * VL < n) c = v_add(c, v_load_upto(r + 2 * VL, n - j - 2 * VL));
                    if (j + 3 * VL < n) d = v_add(d, v_load_upto(r + 3 * VL, n - j - 3 * VL));
                }
            }
            total[0] = v_add(total[0], a), total[1] = v_add(total[1], b);
            total[2] = v_add(total[2], c), total[3] = v_add(total[3], d);
        }
        for (int q = 0; q < 4 && j + q * VL < n; q++) {
            pg_int o = j + q * VL;
            vf t = total[q];
            if (beta != 0.0f) t = v_fma(v_set1(beta), v_load_upto(out + o, n - o), t);
            v_store_upto(out + o, t, n - o);
        }
    }
}

double PG_FN(sum)(pg_int n, const float *x) {
    double sum = 0.0;
    for (pg_int i = 0; i < n; i += 64 * VL) { /* short runs in float, their sums in double */
        vf a = v_zero(), b = a, c = a, d = a;
        pg_int e = pg_min(n, i + 64 * VL), k = i;
        for (; k + 4 * VL <= e; k += 4 * VL) {
            a = v_add(a, v_load(x + k)), b = v_add(b, v_load(x + k + VL));
            c = v_add(c, v_load(x + k + 2 * VL)), d = v_add(d, v_load(x + k + 3 * VL));
        }
        for (; k < e; k += VL) a = v_add(a, v_load_upto(x + k, e - k));
        sum += v_hsumd(v_add(v_add(a, b), v_add(c, d)));
    }
    return sum;
}

void PG_FN(axpby)(pg_int n, float alpha, const float *a, float beta, const float *b, float *c) {
    const vf p = v_set1(alpha), q = v_set1(beta);
    for (pg_int i = 0; i < n; i += VL) {
        vf x = v_load_upto(a + i, n - i), y = v_load_upto(b + i, n - i);
        v_store_upto(c + i, v_fma(p, x, v_mul(q, y)), n - i);
    }
}

/* dst[c * dst_ld + r] = src[r * ld + c] */
void PG_FN(transpose)(pg_int rows, pg_int cols, const float *src, pg_int ld, float *dst,
                      pg_int dst_ld) {
    for (pg_int r = 0; r < rows; r += VL)
        for (pg_int c = 0; c < cols; c += VL) {
            const int h = (int)pg_min(VL, rows - r), w = (int)pg_min(VL, cols - c);
#if defined(PG_HAVE_TRANSPOSE)
            vf t[VL];
            for (int i = 0; i < VL; i++)
                t[i] = i < h ? v_load_upto(src + (r + i) * ld + c, w) : v_zero();
            v_transpose(t);
            for (int k = 0; k < w; k++) v_store_upto(dst + (c + k) * dst_ld + r, t[k], h);
#else
            for (int k = 0; k < w; k++)
                for (int i = 0; i < h; i++) dst[(c + k) * dst_ld + r + i] = src[(r + i) * ld + c + k];
#endif
        }
}

void PG_FN(mul)(pg_int n, const float *a, const float *b, float *c) {
    for (pg_int i = 0; i < n; i += VL)
        v_store_upto(c + i, v_mul(v_load_upto(a + i, n - i), v_load_upto(b + i, n - i)), n - i);
}
