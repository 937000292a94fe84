/* Random numbers by counter for one instruction set. */
#include "dropout.h"
#include "isa_kernels.h"

/* Two rounds of multiply and xor-shift over the counter, each keyed: the finalizer of MurmurHash3
 * (A. Appleby, public domain) with the key added between. */
PG_INLINE vi mix(vi x, vi key0, vi key1) {
    x = vi_xor(x, key0);
    x = vi_xor(x, vi_shr(x, 16));
    x = vi_mul(x, vi_set1((int32_t)0x85ebca6bu));
    x = vi_xor(x, vi_shr(x, 13));
    x = vi_add(x, key1);
    x = vi_mul(x, vi_set1((int32_t)0xc2b2ae35u));
    x = vi_xor(x, vi_shr(x, 16));
    x = vi_mul(x, vi_set1((int32_t)0x27d4eb2fu));
    return vi_xor(x, vi_shr(x, 15));
}

/* what: 0 bits, 1 uniform, 2 mask, 3 dropout of x */
PG_INLINE void loop(const int what, uint32_t key0, uint32_t key1, uint32_t first, float rate,
                    pg_int n, const float *x, float *out) {
    const vi k0 = vi_set1((int32_t)key0), k1 = vi_set1((int32_t)key1);
    const vf scale = v_set1(what == 1 ? 1.0f / 16777216.0f : 1.0f / (1.0f - rate));
    /* Compared as 24-bit numbers, which floats hold exactly. */
    const vf bound = v_set1(rate * 16777216.0f);
    vi index = vi_add(vi_set1((int32_t)first), vi_iota());
    for (pg_int i = 0; i < n; i += VL) {
        vi r = mix(index, k0, k1);
        index = vi_add(index, vi_set1(VL));
        vf y;
        if (what == 0) {
            y = vi_asf(r);
        } else {
            vf u = vi_tof(vi_shr(r, 8));
            if (what == 1) y = v_mul(u, scale);
            else {
                vm keep = v_ge(u, bound);
                y = v_keep(keep, what == 2 ? scale : v_mul(scale, v_load_upto(x + i, n - i)));
            }
        }
        v_store_upto(out + i, y, n - i);
    }
}

void PG_FN(random)(int what, uint32_t key0, uint32_t key1, uint32_t first, float rate, pg_int n,
                   const float *x, float *out) {
    switch (what) {
    case 0: loop(0, key0, key1, first, rate, n, x, out); break;
    case 1: loop(1, key0, key1, first, rate, n, x, out); break;
    case 2: loop(2, key0, key1, first, rate, n, x, out); break;
    default: loop(3, key0, key1, first, rate, n, x, out); break;
    }
}
