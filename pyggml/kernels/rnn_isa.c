/* The cells of recurrent layers for one instruction set, one row of the batch at a time.
 *
 * z: the recurrent share of the gates; x: the inputs' share; ws: what backward needs.
 */
#include "isa_kernels.h"
#include "simd_math.h"

#define EACH_VECTOR(i, left) \
    for (pg_int i = 0, left = h; i < h; i += VL, left -= VL)

PG_INLINE vf at(const float *p, pg_int i, pg_int left) { return v_load_upto(p + i, left); }

/* s (1 - s) */
PG_INLINE vf sigmoid_slope(vf s) { return v_mul(s, v_sub(v_set1(1.0f), s)); }
PG_INLINE vf tanh_slope(vf t) { return v_fnma(t, t, v_set1(1.0f)); }

/* ws: i, f, g, o, c, tanh c */
void PG_FN(lstm_cell)(pg_int h, const float *x, const float *z, const float *c_prev, float *ws,
                      float *out) {
    EACH_VECTOR(k, left) {
        vf i = v_sigmoid(v_add(at(x, k, left), at(z, k, left)));
        vf f = v_sigmoid(v_add(at(x, h + k, left), at(z, h + k, left)));
        vf g = v_tanh(v_add(at(x, 2 * h + k, left), at(z, 2 * h + k, left)));
        vf o = v_sigmoid(v_add(at(x, 3 * h + k, left), at(z, 3 * h + k, left)));
        vf c = v_mul(i, g);
        if (c_prev) c = v_fma(f, at(c_prev, k, left), c);
        vf t = v_tanh(c);
        v_store_upto(ws + k, i, left);
        v_store_upto(ws + h + k, f, left);
        v_store_upto(ws + 2 * h + k, g, left);
        v_store_upto(ws + 3 * h + k, o, left);
        v_store_upto(ws + 4 * h + k, c, left);
        v_store_upto(ws + 5 * h + k, t, left);
        v_store_upto(out + k, v_mul(o, t), left);
    }
}

/* dc comes in as the gradient of c from later steps and goes out as that of c_prev. */
void PG_FN(lstm_cell_backward)(pg_int h, const float *ws, const float *c_prev, const float *dh,
                               float *dc, float *dz) {
    EACH_VECTOR(k, left) {
        vf i = at(ws, k, left), f = at(ws, h + k, left), g = at(ws, 2 * h + k, left);
        vf o = at(ws, 3 * h + k, left), t = at(ws, 5 * h + k, left);
        vf d = at(dh, k, left);
        vf e = v_fma(v_mul(d, o), tanh_slope(t), at(dc, k, left));
        vf p = c_prev ? at(c_prev, k, left) : v_zero();
        v_store_upto(dz + k, v_mul(v_mul(e, g), sigmoid_slope(i)), left);
        v_store_upto(dz + h + k, v_mul(v_mul(e, p), sigmoid_slope(f)), left);
        v_store_upto(dz + 2 * h + k, v_mul(v_mul(e, i), tanh_slope(g)), left);
        v_store_upto(dz + 3 * h + k, v_mul(v_mul(d, t), sigmoid_slope(o)), left);
        v_store_upto(dc + k, v_mul(e, f), left);
    }
}

/* ws: z, r, candidate, u with u = u_h h' + rbias (reset_after) or r h'. Step 1 of 2 without
 * reset_after: z, r and r h'. */
void PG_FN(gru_gates)(pg_int h, const float *x, const float *z, const float *h_prev, float *ws) {
    EACH_VECTOR(k, left) {
        vf u = v_sigmoid(v_add(at(x, k, left), at(z, k, left)));
        vf r = v_sigmoid(v_add(at(x, h + k, left), at(z, h + k, left)));
        v_store_upto(ws + k, u, left);
        v_store_upto(ws + h + k, r, left);
        if (h_prev) v_store_upto(ws + 3 * h + k, v_mul(r, at(h_prev, k, left)), left);
    }
}

/* after: z_h is u_h h' and is scaled by r; else it is u_h (r h'). */
void PG_FN(gru_out)(int after, pg_int h, const float *x_h, const float *z_h, const float *rbias,
                    const float *h_prev, float *ws, float *out) {
    EACH_VECTOR(k, left) {
        vf z = at(ws, k, left), a = at(z_h, k, left);
        if (after) {
            if (rbias) a = v_add(a, at(rbias, k, left));
            v_store_upto(ws + 3 * h + k, a, left);
            a = v_mul(a, at(ws, h + k, left));
        }
        vf n = v_tanh(v_add(at(x_h, k, left), a));
        v_store_upto(ws + 2 * h + k, n, left);
        vf p = h_prev ? at(h_prev, k, left) : v_zero();
        v_store_upto(out + k, v_fma(z, v_sub(p, n), n), left);
    }
}

/* dz = gradients of z, r (after only) and candidate before their functions. after: u in ws becomes
 * the gradient of u. dh goes out as its share dh z of the gradient of h'. */
void PG_FN(gru_backward)(int after, pg_int h, float *ws, const float *h_prev, float *dh, float *dz) {
    EACH_VECTOR(k, left) {
        vf z = at(ws, k, left), r = at(ws, h + k, left), n = at(ws, 2 * h + k, left);
        vf d = at(dh, k, left), p = h_prev ? at(h_prev, k, left) : v_zero();
        vf dn = v_mul(v_mul(d, v_sub(v_set1(1.0f), z)), tanh_slope(n));
        v_store_upto(dz + k, v_mul(v_mul(d, v_sub(p, n)), sigmoid_slope(z)), left);
        v_store_upto(dz + 2 * h + k, dn, left);
        if (after) {
            vf u = at(ws, 3 * h + k, left);
            v_store_upto(dz + h + k, v_mul(v_mul(dn, u), sigmoid_slope(r)), left);
            v_store_upto(ws + 3 * h + k, v_mul(dn, r), left);
        }
        v_store_upto(dh + k, v_mul(d, z), left);
    }
}

/* Without reset_after: q is the gradient of r h'. */
void PG_FN(gru_backward_reset)(pg_int h, const float *ws, const float *h_prev, const float *q,
                               float *dh, float *dz) {
    EACH_VECTOR(k, left) {
        vf r = at(ws, h + k, left), g = at(q, k, left);
        vf p = h_prev ? at(h_prev, k, left) : v_zero();
        v_store_upto(dz + h + k, v_mul(v_mul(g, p), sigmoid_slope(r)), left);
        v_store_upto(dh + k, v_fma(g, r, at(dh, k, left)), left);
    }
}

void PG_FN(simple_cell)(pg_int h, const float *x, const float *z, float *out) {
    EACH_VECTOR(k, left)
        v_store_upto(out + k, v_tanh(v_add(at(x, k, left), at(z, k, left))), left);
}

void PG_FN(simple_cell_backward)(pg_int h, const float *out, const float *dh, float *dz) {
    EACH_VECTOR(k, left)
        v_store_upto(dz + k, v_mul(at(dh, k, left), tanh_slope(at(out, k, left))), left);
}
