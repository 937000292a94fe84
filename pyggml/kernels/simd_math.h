/* exp, log and their relatives on vectors, to a few units in the last place; NaN goes through, and
 * results at +-inf and +-1e4 are those of the limit. Polynomials are minimax fits of our own (in
 * relative error) on the intervals named. Results below 2^-126 may be 0.
 */
#ifndef PG_SIMD_MATH_H
#define PG_SIMD_MATH_H

#include "simd.h"

#define PG_LOG2E 1.44269504088896341f
/* ln 2 in two parts; the first has 15 bits, so that its multiples are exact. */
#define PG_LN2_HI 0.693145751953125f
#define PG_LN2_LO 1.42860682030941723e-6f

/* exp(r) - 1 for |r| <= 0.40 */
PG_INLINE vf v_expm1_near0(vf r) {
    vf q = v_set1(1.993791229e-04f);
    q = v_fma(q, r, v_set1(1.395833213e-03f));
    q = v_fma(q, r, v_set1(8.333227597e-03f));
    q = v_fma(q, r, v_set1(4.166611284e-02f));
    q = v_fma(q, r, v_set1(1.666666716e-01f));
    q = v_fma(q, r, v_set1(0.5f));
    return v_fma(v_mul(r, r), q, r);
}

/* exp(x + tail) for |tail| <= 0.05 and finite */
PG_INLINE vf v_exp2(vf x, vf tail) {
    x = v_min(v_set1(89.0f), v_max(v_set1(-104.0f), x));
    vf n = v_round(v_mul(x, v_set1(PG_LOG2E)));
    vf r = v_fnma(n, v_set1(PG_LN2_HI), x);
    r = v_fnma(n, v_set1(PG_LN2_LO), r);
    r = v_add(r, tail);
    return v_ldexp(v_add(v_set1(1.0f), v_expm1_near0(r)), n);
}

PG_INLINE vf v_exp(vf x) { return v_exp2(x, v_zero()); }

PG_INLINE vf v_expm1(vf x) {
    x = v_min(v_set1(89.0f), v_max(v_set1(-104.0f), x));
    vf n = v_round(v_mul(x, v_set1(PG_LOG2E)));
    vf r = v_fnma(n, v_set1(PG_LN2_HI), x);
    r = v_fnma(n, v_set1(PG_LN2_LO), r);
    vf p = v_expm1_near0(r);
    vf s = v_ldexp(v_set1(1.0f), n);
    /* Beyond 2^127 the sum of the two terms would be inf - inf or early. */
    vf big = v_ldexp(v_add(v_set1(1.0f), p), n);
    vf y = v_add(v_mul(s, p), v_sub(s, v_set1(1.0f)));
    return v_sel(v_gt(n, v_set1(64.0f)), big, y);
}

/* Positive normal x: exponent and log of the mantissa, joined. */
PG_INLINE vf v_log_normal(vf x, vf extra) {
    vi b = v_asi(x);
    /* The exponent relative to sqrt(1/2), so that the mantissa lies in [sqrt(1/2), sqrt(2)). */
    vi e = vi_sar(vi_sub(b, vi_set1(0x3f3504f3)), 23);
    vf f = v_sub(vi_asf(vi_sub(b, vi_shl(e, 23))), v_set1(1.0f));
    vf n = v_add(vi_tof(e), extra);
    vf p = v_set1(-7.859545946e-02f);
    p = v_fma(p, f, v_set1(1.288162172e-01f));
    p = v_fma(p, f, v_set1(-1.312876791e-01f));
    p = v_fma(p, f, v_set1(1.418119669e-01f));
    p = v_fma(p, f, v_set1(-1.662455350e-01f));
    p = v_fma(p, f, v_set1(2.000228614e-01f));
    p = v_fma(p, f, v_set1(-2.500081062e-01f));
    p = v_fma(p, f, v_set1(3.333331645e-01f));
    vf z = v_mul(f, f);
    vf y = v_mul(v_mul(f, z), p);
    y = v_fma(n, v_set1(PG_LN2_LO), y);
    y = v_fnma(v_set1(0.5f), z, y);
    y = v_add(y, f);
    return v_fma(n, v_set1(PG_LN2_HI), y);
}

PG_INLINE vf v_log(vf x) {
    vm tiny = v_lt(x, v_set1(1.17549435e-38f));
    vf y = v_log_normal(v_sel(tiny, v_mul(x, v_set1(8388608.0f)), x),
                        v_sel(tiny, v_set1(-23.0f), v_zero()));
    y = v_sel(v_eq(x, v_zero()), v_set1(-INFINITY), y);
    y = v_sel(v_lt(x, v_zero()), v_set1(NAN), y);
    y = v_sel(v_eq(x, v_set1(INFINITY)), x, y);
    return v_sel(v_isnan(x), x, y);
}

/* log(1 + u) for u in [0, 1] or NaN */
PG_INLINE vf v_log1p_unit(vf u) {
    vf w = v_add(v_set1(1.0f), u);
    vf lost = v_sub(u, v_sub(w, v_set1(1.0f)));
    vf y = v_add(v_log_normal(w, v_zero()), v_div(lost, w));
    return v_sel(v_isnan(u), u, y);
}

PG_INLINE vf v_sigmoid(vf x) {
    return v_div(v_set1(1.0f), v_add(v_set1(1.0f), v_exp(v_neg(x))));
}

PG_INLINE vf v_tanh(vf x) {
    vf a = v_abs(x), z = v_mul(x, x);
    vf p = v_set1(-5.717036780e-03f);
    p = v_fma(p, z, v_set1(2.065057866e-02f));
    p = v_fma(p, z, v_set1(-5.374349654e-02f));
    p = v_fma(p, z, v_set1(1.333149076e-01f));
    p = v_fma(p, z, v_set1(-3.333328366e-01f));
    vf small = v_fma(v_mul(x, z), p, x);
    vf e = v_exp(v_add(a, a));
    vf big = v_sub(v_set1(1.0f), v_div(v_set1(2.0f), v_add(e, v_set1(1.0f))));
    return v_sel(v_lt(a, v_set1(0.625f)), small, v_copysign(big, x));
}

/* log(1 + exp(x)) */
PG_INLINE vf v_softplus(vf x) {
    vf u = v_exp(v_neg(v_abs(x)));
    return v_add(v_max(v_zero(), x), v_log1p_unit(u));
}

/* The normal distribution: *cdf = Phi(x), *pdf = its density. The tail is exp(-x^2/2) times a
 * polynomial in 1 / (1 + 0.35 |x|), and x^2 is taken in two parts: relative accuracy in the tail. */
PG_INLINE void v_normal(vf x, vf *cdf, vf *pdf) {
    vf t = v_min(v_set1(14.5f), v_abs(x));
    vf th = vi_asf(vi_and(v_asi(t), vi_set1((int32_t)0xfffff000u)));
    vf tl = v_sub(t, th);
    vf half = v_set1(-0.5f);
    vf e = v_exp2(v_mul(half, v_mul(th, th)), v_mul(half, v_mul(tl, v_add(t, th))));
    vf u = v_div(v_set1(1.0f), v_fma(v_set1(0.35f), t, v_set1(1.0f)));
    vf p = v_set1(-2.915802971e-02f);
    p = v_fma(p, u, v_set1(1.440316141e-01f));
    p = v_fma(p, u, v_set1(-2.558403909e-01f));
    p = v_fma(p, u, v_set1(1.593212485e-01f));
    p = v_fma(p, u, v_set1(-2.321339399e-02f));
    p = v_fma(p, u, v_set1(1.055529267e-01f));
    p = v_fma(p, u, v_set1(1.198211834e-01f));
    p = v_fma(p, u, v_set1(1.398635358e-01f));
    p = v_fma(p, u, v_set1(1.396213025e-01f));
    vf tail = v_mul(v_mul(p, u), e);
    vf y = v_sel(v_lt(x, v_zero()), tail, v_sub(v_set1(1.0f), tail));
    *cdf = v_sel(v_isnan(x), x, y);
    *pdf = v_sel(v_isnan(x), x, v_mul(v_set1(0.398942280401432678f), e));
}

/* log cosh x */
PG_INLINE vf v_log_cosh(vf x) {
    vf a = v_abs(x), z = v_mul(x, x);
    vf p = v_set1(1.784950611e-03f);
    p = v_fma(p, z, v_set1(-6.662349217e-03f));
    p = v_fma(p, z, v_set1(2.221494913e-02f));
    p = v_fma(p, z, v_set1(-8.333311230e-02f));
    p = v_fma(p, z, v_set1(0.5f));
    vf big = v_sub(v_add(a, v_log1p_unit(v_exp(v_mul(v_set1(-2.0f), a)))),
                   v_set1(0.693147180559945309f));
    return v_sel(v_lt(a, v_set1(0.5f)), v_mul(z, p), big);
}

#endif
