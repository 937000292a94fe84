/* Normalizations for one instruction set. */
#include "isa_kernels.h"
#include "norm.h"

/* Sum of (x - c)^2 in double. */
double PG_FN(sum_sq_dev)(pg_int n, const float *x, float c) {
    const vf vc = v_set1(c);
    double sum = 0.0;
    for (pg_int i0 = 0; i0 < n; i0 += 64 * VL) { /* short runs in float, their sums in double */
        pg_int e = pg_min(n, i0 + 64 * VL), i = i0;
        vf a = v_zero(), b = a;
        for (; i + 2 * VL <= e; i += 2 * VL) {
            vf p = v_sub(v_load(x + i), vc), q = v_sub(v_load(x + i + VL), vc);
            a = v_fma(p, p, a), b = v_fma(q, q, b);
        }
        for (; i < e; i += VL) {
            vf p = v_sub(v_load_upto(x + i, e - i), vc);
            if (e - i < VL) p = v_keep(v_first((int)(e - i)), p);
            a = v_fma(p, p, a);
        }
        sum += v_hsumd(v_add(a, b));
    }
    return sum;
}

/* *s1 = sum dy, *s2 = sum dy (x - c) */
void PG_FN(sum_dy_dev)(pg_int n, const float *dy, const float *x, float c, double *s1, double *s2) {
    const vf vc = v_set1(c);
    double a = 0.0, b = 0.0;
    for (pg_int i0 = 0; i0 < n; i0 += 64 * VL) {
        pg_int e = pg_min(n, i0 + 64 * VL);
        vf p = v_zero(), q = p;
        for (pg_int i = i0; i < e; i += VL) {
            vf d = v_load_upto(dy + i, e - i);
            p = v_add(p, d);
            q = v_fma(d, v_sub(v_load_upto(x + i, e - i), vc), q);
        }
        a += v_hsumd(p), b += v_hsumd(q);
    }
    *s1 = a, *s2 = b;
}

/* y = (x - c) a + b */
void PG_FN(affine)(pg_int n, const float *x, float c, float a, float b, float *y) {
    const vf vc = v_set1(c), va = v_set1(a), vb = v_set1(b);
    for (pg_int i = 0; i < n; i += VL)
        v_store_upto(y + i, v_fma(v_sub(v_load_upto(x + i, n - i), vc), va, vb), n - i);
}

/* dx = dy a + (x - c) b + d */
void PG_FN(affine_backward)(pg_int n, const float *dy, const float *x, float c, float a, float b,
                            float d, float *dx) {
    const vf vc = v_set1(c), va = v_set1(a), vb = v_set1(b), vd = v_set1(d);
    for (pg_int i = 0; i < n; i += VL) {
        vf t = v_fma(v_sub(v_load_upto(x + i, n - i), vc), vb, vd);
        v_store_upto(dx + i, v_fma(v_load_upto(dy + i, n - i), va, t), n - i);
    }
}

void PG_FN(norm_row)(int rms, pg_int n, float eps, const float *x, const float *gamma,
                     const float *beta, float *y, float *mean, float *rstd) {
    float m = 0.0f;
    if (!rms) {
        vf a = v_zero(), b = a;
        pg_int i = 0;
        for (; i + 2 * VL <= n; i += 2 * VL)
            a = v_add(a, v_load(x + i)), b = v_add(b, v_load(x + i + VL));
        for (; i < n; i += VL) a = v_add(a, v_load_upto(x + i, n - i));
        m = (float)(v_hsumd(v_add(a, b)) / (double)n);
    }
    double var = PG_FN(sum_sq_dev)(n, x, m) / (double)n;
    float r = (float)(1.0 / sqrt(var + (double)eps));
    const vf vm_ = v_set1(m), vr = v_set1(r);
    for (pg_int i = 0; i < n; i += VL) {
        vf h = v_mul(v_sub(v_load_upto(x + i, n - i), vm_), vr);
        if (gamma) h = v_mul(h, v_load_upto(gamma + i, n - i));
        if (beta) h = v_add(h, v_load_upto(beta + i, n - i));
        v_store_upto(y + i, h, n - i);
    }
    if (mean) *mean = m;
    if (rstd) *rstd = r;
}

/* dgamma and dbeta are added to. */
void PG_FN(norm_backward_row)(int rms, pg_int n, const float *dy, const float *x,
                              const float *gamma, float mean, float rstd, float *dx, float *dgamma,
                              float *dbeta) {
    const vf vm_ = v_set1(rms ? 0.0f : mean), vr = v_set1(rstd);
    vf s1 = v_zero(), s2 = s1;
    for (pg_int i = 0; i < n; i += VL) {
        pg_int left = n - i;
        vf d = v_load_upto(dy + i, left);
        vf h = v_mul(v_sub(v_load_upto(x + i, left), vm_), vr);
        if (dgamma) v_store_upto(dgamma + i, v_fma(d, h, v_load_upto(dgamma + i, left)), left);
        if (dbeta) v_store_upto(dbeta + i, v_add(d, v_load_upto(dbeta + i, left)), left);
        if (gamma) d = v_mul(d, v_load_upto(gamma + i, left));
        s1 = v_add(s1, d); /* lanes that are not there have dy = 0 */
        s2 = v_fma(d, h, s2);
    }
    if (dx == NULL) return;
    const float inv = 1.0f / (float)n;
    const vf a = v_set1(rms ? 0.0f : (float)v_hsumd(s1) * inv), b = v_set1((float)v_hsumd(s2) * inv);
    for (pg_int i = 0; i < n; i += VL) {
        pg_int left = n - i;
        vf d = v_load_upto(dy + i, left);
        vf h = v_mul(v_sub(v_load_upto(x + i, left), vm_), vr);
        if (gamma) d = v_mul(d, v_load_upto(gamma + i, left));
        v_store_upto(dx + i, v_mul(vr, v_fnma(h, b, v_sub(d, a))), left);
    }
}

/* ---- batch normalization of [rows, n], column by column ---- */

/* out = sums over rows of (x - c)^2 */
void PG_FN(columns_sq_dev)(pg_int rows, pg_int n, const float *x, pg_int ld, const float *c,
                           float *out) {
    for (pg_int j = 0; j < n; j += VL) {
        pg_int left = n - j;
        vf vc = v_load_upto(c + j, left), total = v_zero();
        for (pg_int i0 = 0; i0 < rows; i0 += 128) {
            vf a = v_zero();
            for (pg_int i = i0; i < pg_min(rows, i0 + 128); i++) {
                vf d = v_sub(v_load_upto(x + i * ld + j, left), vc);
                a = v_fma(d, d, a);
            }
            total = v_add(total, a);
        }
        v_store_upto(out + j, total, left);
    }
}

/* s1 = sums of dy, s2 = sums of dy (x - c) */
void PG_FN(columns_dy_dev)(pg_int rows, pg_int n, const float *dy, const float *x, pg_int ld,
                           const float *c, float *s1, float *s2) {
    for (pg_int j = 0; j < n; j += VL) {
        pg_int left = n - j;
        vf vc = v_load_upto(c + j, left), t1 = v_zero(), t2 = t1;
        for (pg_int i0 = 0; i0 < rows; i0 += 128) {
            vf a = v_zero(), b = a;
            for (pg_int i = i0; i < pg_min(rows, i0 + 128); i++) {
                vf d = v_load_upto(dy + i * ld + j, left);
                a = v_add(a, d);
                b = v_fma(d, v_sub(v_load_upto(x + i * ld + j, left), vc), b);
            }
            t1 = v_add(t1, a), t2 = v_add(t2, b);
        }
        v_store_upto(s1 + j, t1, left);
        v_store_upto(s2 + j, t2, left);
    }
}

/* y = (x - c) a + b with a, b, c along the columns */
void PG_FN(columns_affine)(pg_int rows, pg_int n, const float *x, pg_int ld, const float *c,
                           const float *a, const float *b, float *y) {
    for (pg_int i = 0; i < rows; i++)
        for (pg_int j = 0; j < n; j += VL) {
            pg_int left = n - j, o = i * ld + j;
            vf t = v_sub(v_load_upto(x + o, left), v_load_upto(c + j, left));
            v_store_upto(y + o, v_fma(t, v_load_upto(a + j, left), v_load_upto(b + j, left)), left);
        }
}

/* dx = dy a + (x - c) b + d */
void PG_FN(columns_affine_backward)(pg_int rows, pg_int n, const float *dy, const float *x,
                                    pg_int ld, const float *c, const float *a, const float *b,
                                    const float *d, float *dx) {
    for (pg_int i = 0; i < rows; i++)
        for (pg_int j = 0; j < n; j += VL) {
            pg_int left = n - j, o = i * ld + j;
            vf t = v_sub(v_load_upto(x + o, left), v_load_upto(c + j, left));
            t = v_fma(t, v_load_upto(b + j, left), v_load_upto(d + j, left));
            t = v_fma(v_load_upto(dy + o, left), v_load_upto(a + j, left), t);
            v_store_upto(dx + o, t, left);
        }
}
