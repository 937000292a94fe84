/* Losses and softmax for one instruction set. Formulas: losses.h. */
#include "isa_kernels.h"
#include "losses.h"
#include "simd_math.h"

#define CLIP 1e-7f

typedef struct {
    vf p0, p1;
} params;

/* x^a for x >= 0 */
PG_INLINE vf power(vf x, vf a) {
    return v_exp(v_mul(a, v_log(v_max(v_set1(1e-30f), x))));
}

PG_INLINE vf clip(vf lo, vf hi, vf x) { return v_min(hi, v_max(lo, x)); }

/* t log p, 0 where t is 0 */
PG_INLINE vf t_log(vf t, vf p) {
    return v_sel(v_eq(t, v_zero()), v_zero(), v_mul(t, v_log(p)));
}

/* Binary cross-entropy of logit x. */
PG_INLINE vf bce_logit(vf x, vf t) {
    vf u = v_log1p_unit(v_exp(v_neg(v_abs(x))));
    return v_add(v_fnma(x, t, v_max(v_zero(), x)), u);
}

/* The loss of each element, and its derivative in *d; kind is a constant where this is expanded. */
PG_INLINE vf element(const int kind, const params *c, vf p, vf t, vf *d) {
    const vf zero = v_zero(), one = v_set1(1.0f), two = v_set1(2.0f);
    const vf e = v_sub(p, t);
    switch (kind) {
    case PG_LOSS_MSE: *d = v_mul(two, e); return v_mul(e, e);
    case PG_LOSS_MAE:
        *d = v_sel(v_eq(e, zero), zero, v_sel(v_isnan(e), e, v_copysign(one, e)));
        return v_abs(e);
    case PG_LOSS_HUBER: {
        vf a = v_abs(e), half = v_set1(0.5f);
        vm in = v_le(a, c->p0);
        *d = v_sel(in, e, v_sel(v_isnan(e), e, v_copysign(c->p0, e)));
        return v_sel(in, v_mul(half, v_mul(e, e)), v_mul(c->p0, v_fnma(half, c->p0, a)));
    }
    case PG_LOSS_LOG_COSH: *d = v_tanh(e); return v_log_cosh(e);
    case PG_LOSS_BCE_LOGITS: *d = v_sub(v_sigmoid(p), t); return bce_logit(p, t);
    case PG_LOSS_BCE: {
        /* 1 - p is clipped by itself: 1 - 1e-7 is not a float. */
        vf lo = v_set1(CLIP), hi = v_set1(1.0f - CLIP), q = clip(lo, hi, p);
        vf r = clip(lo, hi, v_sub(one, p));
        vm out = m_or(v_lt(p, lo), v_gt(p, hi));
        *d = v_sel(out, zero, v_div(v_sub(q, t), v_mul(q, r)));
        return v_neg(v_add(t_log(t, q), t_log(v_sub(one, t), r)));
    }
    case PG_LOSS_FOCAL_LOGITS:
    case PG_LOSS_FOCAL: {
        vf s, r, b, db, dp; /* p, 1 - p, cross-entropy, its derivative, dp/dprediction */
        if (kind == PG_LOSS_FOCAL_LOGITS) {
            s = v_sigmoid(p), r = v_sigmoid(v_neg(p));
            b = bce_logit(p, t), db = v_sub(s, t), dp = v_mul(s, r);
        } else {
            vf lo = v_set1(CLIP), hi = v_set1(1.0f - CLIP);
            vm out = m_or(v_lt(p, lo), v_gt(p, hi));
            s = clip(lo, hi, p), r = v_sub(one, s);
            b = v_neg(v_add(t_log(t, s), t_log(v_sub(one, t), r)));
            db = v_sel(out, zero, v_div(v_sub(s, t), v_mul(s, r)));
            dp = v_sel(out, zero, one);
        }
        vf q = v_fma(t, r, v_mul(v_sub(one, t), s)); /* 1 - p_t */
        vf f = power(q, c->p0), df = v_mul(c->p0, power(q, v_sub(c->p0, one)));
        df = v_mul(v_mul(df, v_sub(one, v_mul(two, t))), dp);
        vf balance = v_sel(v_lt(c->p1, zero), one,
                           v_fma(t, c->p1, v_mul(v_sub(one, t), v_sub(one, c->p1))));
        *d = v_mul(balance, v_fma(df, b, v_mul(f, db)));
        return v_mul(balance, v_mul(f, b));
    }
    case PG_LOSS_HINGE:
    case PG_LOSS_SQUARED_HINGE: {
        vf m = v_max(zero, v_fnma(t, p, one));
        vm on = v_gt(m, zero);
        if (kind == PG_LOSS_HINGE) {
            *d = v_keep(on, v_neg(t));
            return m;
        }
        *d = v_mul(v_mul(v_set1(-2.0f), t), m);
        return v_mul(m, m);
    }
    case PG_LOSS_KL: {
        vf lo = v_set1(CLIP), q = clip(lo, one, p), u = clip(lo, one, t);
        vm out = m_or(v_lt(p, lo), v_gt(p, one));
        *d = v_sel(out, zero, v_neg(v_div(u, q)));
        return v_mul(u, v_sub(v_log(u), v_log(q)));
    }
    case PG_LOSS_POISSON: {
        vm out = v_le(p, zero); /* counts as 0 in the logarithm; a NaN does not */
        vf q = v_add(v_sel(out, zero, p), v_set1(CLIP));
        *d = v_sel(out, one, v_sub(one, v_div(t, q)));
        return v_sub(p, t_log(t, q));
    }
    default: *d = zero; return zero;
    }
}

PG_INLINE double element_loop(const int kind, float p0, float p1, pg_int n, const float *pred,
                              const float *target, const float *w, float scale, float *grad) {
    /* A 1 that the compiler does not know: it would leave out the product, contract the sum with
     * the last product of the loss instead, and round otherwise than with weights of 1. */
    static const volatile float unit = 1.0f;
    const params c = {v_set1(p0), v_set1(p1)};
    const vf s = v_set1(scale), one = v_set1(unit);
    double sum = 0.0;
    for (pg_int i0 = 0; i0 < n; i0 += 16 * VL) { /* short runs in float, their sums in double */
        pg_int e = pg_min(n, i0 + 16 * VL);
        vf acc = v_zero();
        for (pg_int i = i0; i < e; i += VL) {
            pg_int left = e - i;
            vf d, wt = w ? v_load_upto(w + i, left) : one;
            vf l = element(kind, &c, v_load_upto(pred + i, left), v_load_upto(target + i, left), &d);
            vm on = w ? v_ne(wt, v_zero()) : v_first(VL);
            if (left < VL) on = m_and(on, v_first((int)left)); /* lanes that are not there */
            acc = v_add(acc, v_keep(on, v_mul(wt, l)));
            if (grad) v_store_upto(grad + i, v_keep(on, v_mul(v_mul(s, wt), d)), left);
        }
        sum += v_hsumd(acc);
    }
    return sum;
}

#define EACH_LOSS(M)                                                                         \
    M(PG_LOSS_MSE) M(PG_LOSS_MAE) M(PG_LOSS_HUBER) M(PG_LOSS_LOG_COSH) M(PG_LOSS_BCE_LOGITS) \
    M(PG_LOSS_BCE) M(PG_LOSS_FOCAL_LOGITS) M(PG_LOSS_FOCAL) M(PG_LOSS_HINGE)                 \
    M(PG_LOSS_SQUARED_HINGE) M(PG_LOSS_KL) M(PG_LOSS_POISSON)

double PG_FN(loss_elements)(int kind, float p0, float p1, pg_int n, const float *pred,
                            const float *target, const float *w, float scale, float *grad) {
    switch (kind) {
#define CASE(k) case k: return element_loop(k, p0, p1, n, pred, target, w, scale, grad);
        EACH_LOSS(CASE)
#undef CASE
    default: return 0.0;
    }
}

/* ---- rows ---- */

PG_INLINE float row_max(pg_int n, const float *x) {
    const vf low = v_set1(-INFINITY);
    vf m = low;
    for (pg_int i = 0; i < n; i += VL) {
        pg_int left = n - i;
        vf v = v_load_upto(x + i, left);
        if (left < VL) v = v_sel(v_first((int)left), v, low);
        m = v_max(m, v);
    }
    float t[VL], r = -INFINITY;
    v_store(t, m);
    for (int i = 0; i < VL; i++) r = t[i] > r ? t[i] : r;
    return r;
}

/* y = exp(x - m), sum of y returned; y may be NULL */
PG_INLINE float exp_row(pg_int n, const float *x, float m, float *y) {
    const vf vm_ = v_set1(m);
    vf acc = v_zero();
    for (pg_int i = 0; i < n; i += VL) {
        pg_int left = n - i;
        vf e = v_exp(v_sub(v_load_upto(x + i, left), vm_));
        if (left < VL) e = v_keep(v_first((int)left), e);
        acc = v_add(acc, e);
        if (y) v_store_upto(y + i, e, left);
    }
    return v_hsum(acc);
}

PG_INLINE float scalar_log(float x) {
    float t[VL];
    v_store(t, v_log(v_set1(x)));
    return t[0];
}

void PG_FN(softmax_row)(int log, pg_int n, const float *x, float *y) {
    float m = row_max(n, x);
    if (log) {
        float lse = scalar_log(exp_row(n, x, m, NULL));
        const vf a = v_set1(m), b = v_set1(lse);
        for (pg_int i = 0; i < n; i += VL)
            v_store_upto(y + i, v_sub(v_sub(v_load_upto(x + i, n - i), a), b), n - i);
    } else {
        const vf s = v_set1(1.0f / exp_row(n, x, m, y));
        for (pg_int i = 0; i < n; i += VL)
            v_store_upto(y + i, v_mul(v_load_upto(y + i, n - i), s), n - i);
    }
}

void PG_FN(softmax_backward_row)(int log, pg_int n, const float *dy, const float *y, float *dx) {
    vf acc = v_zero();
    for (pg_int i = 0; i < n; i += VL) {
        vf d = v_load_upto(dy + i, n - i);
        acc = log ? v_add(acc, d) : v_fma(d, v_load_upto(y + i, n - i), acc);
    }
    const vf s = v_set1(v_hsum(acc));
    for (pg_int i = 0; i < n; i += VL) {
        vf d = v_load_upto(dy + i, n - i), v = v_load_upto(y + i, n - i);
        v = log ? v_fnma(v_exp(v), s, d) : v_mul(v, v_sub(d, s));
        v_store_upto(dx + i, v, n - i);
    }
}

/* -sum t log softmax(x) = sum t (lse - x); gradient softmax(x) sum t - t */
static double softmax_ce_row(pg_int n, const float *x, const float *t, float ws, float *grad,
                             float weight) {
    float m = row_max(n, x), s = exp_row(n, x, m, NULL), lse = scalar_log(s);
    const vf vmax = v_set1(m), vlse = v_set1(lse), zero = v_zero();
    vf acc = zero, total = zero;
    for (pg_int i = 0; i < n; i += VL) {
        vf ti = v_load_upto(t + i, n - i);
        vf l = v_sub(vlse, v_sub(v_load_upto(x + i, n - i), vmax));
        acc = v_add(acc, v_sel(v_eq(ti, zero), zero, v_mul(ti, l)));
        total = v_add(total, ti);
    }
    if (s != s) acc = v_set1(s); /* NaN or +inf among the logits */
    if (grad) {
        const vf f = v_set1(v_hsum(total) / s), w = v_set1(ws);
        for (pg_int i = 0; i < n; i += VL) {
            vf ti = v_load_upto(t + i, n - i);
            vf q = v_exp(v_sub(v_load_upto(x + i, n - i), vmax));
            v_store_upto(grad + i, v_mul(w, v_fms(f, q, ti)), n - i);
        }
    }
    return (double)weight * v_hsumd(acc);
}

static double ce_row(pg_int n, const float *p, const float *t, float ws, float *grad,
                     float weight) {
    const vf zero = v_zero(), lo = v_set1(CLIP), hi = v_set1(1.0f - CLIP);
    vf sum = zero, acc = zero, inside = zero;
    for (pg_int i = 0; i < n; i += VL) sum = v_add(sum, v_load_upto(p + i, n - i));
    const float total = v_hsum(sum);
    const vf inv = v_set1(1.0f / total);
    for (pg_int i = 0; i < n; i += VL) {
        vf ti = v_load_upto(t + i, n - i), q = v_mul(v_load_upto(p + i, n - i), inv);
        vm out = m_or(v_lt(q, lo), v_gt(q, hi));
        acc = v_sub(acc, t_log(ti, clip(lo, hi, q)));
        inside = v_add(inside, v_sel(out, zero, ti));
    }
    if (grad) {
        const vf all = v_set1(v_hsum(inside)), w = v_set1(ws);
        for (pg_int i = 0; i < n; i += VL) {
            vf ti = v_load_upto(t + i, n - i), q = v_mul(v_load_upto(p + i, n - i), inv);
            vm out = m_or(v_lt(q, lo), v_gt(q, hi));
            vf own = v_sel(out, zero, v_div(ti, q));
            v_store_upto(grad + i, v_mul(w, v_mul(inv, v_sub(all, own))), n - i);
        }
    }
    /* No probabilities: without this, clipping would make a number of infinities. */
    if (total == 0.0f || !isfinite(total)) return NAN;
    return (double)weight * v_hsumd(acc);
}

static double cosine_row(pg_int n, const float *p, const float *t, float ws, float *grad,
                         float weight) {
    vf pp = v_zero(), tt = pp, pt = pp;
    for (pg_int i = 0; i < n; i += VL) {
        vf a = v_load_upto(p + i, n - i), b = v_load_upto(t + i, n - i);
        pp = v_fma(a, a, pp), tt = v_fma(b, b, tt), pt = v_fma(a, b, pt);
    }
    double np = v_hsumd(pp), nt = v_hsumd(tt);
    int tiny = np < 1e-12; /* then the prediction's norm is a constant */
    double ip = 1.0 / sqrt(tiny ? 1e-12 : np), it = 1.0 / sqrt(nt < 1e-12 ? 1e-12 : nt);
    double cosine = v_hsumd(pt) * ip * it;
    if (grad) {
        const vf a = v_set1((float)(-ws * ip * it));
        const vf b = v_set1(tiny ? 0.0f : (float)(ws * cosine * ip * ip));
        for (pg_int i = 0; i < n; i += VL) {
            vf x = v_load_upto(p + i, n - i), y = v_load_upto(t + i, n - i);
            v_store_upto(grad + i, v_fma(a, y, v_mul(b, x)), n - i);
        }
    }
    return -(double)weight * cosine;
}

double PG_FN(loss_row)(int kind, pg_int n, const float *pred, const float *target, float weight,
                       float scale, float *grad) {
    if (weight == 0.0f) {
        if (grad) memset(grad, 0, (size_t)n * sizeof(float));
        return 0.0;
    }
    switch (kind) {
    case PG_LOSS_SOFTMAX_CE:
        return softmax_ce_row(n, pred, target, scale * weight, grad, weight);
    case PG_LOSS_CE: return ce_row(n, pred, target, scale * weight, grad, weight);
    case PG_LOSS_COSINE: return cosine_row(n, pred, target, scale * weight, grad, weight);
    default: return 0.0;
    }
}
