/* Short vectors of float and int32 for the instruction set this file is compiled for.
 *
 * One source, several instruction sets: AVX-512, AVX2+FMA, SSE2, the vector extensions of GCC and
 * Clang (arm64 and others), or plain scalars. VL is the number of lanes.
 *
 * v_min(a, b) is a < b ? a : b and v_max(a, b) is a > b ? a : b, in every set: where an operand is
 * NaN the result is b. So v_max(zero, x) hands a NaN in x on, v_max(x, zero) does not.
 */
#ifndef PG_SIMD_H
#define PG_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common.h"

#if defined(PG_SIMD_SCALAR)
#include "simd_scalar.h"
#elif defined(PG_SIMD_VEXT)
#include "simd_vext.h"
#elif defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && \
    defined(__AVX512VL__)
#include "simd_avx512.h"
#elif defined(__AVX2__) && (defined(__FMA__) || defined(_MSC_VER))
#include "simd_avx2.h"
#elif defined(__SSE2__) || defined(_M_X64)
#include "simd_sse2.h"
#elif defined(__GNUC__)
#include "simd_vext.h"
#else
#include "simd_scalar.h"
#endif

PG_INLINE void pg_prefetch(const void *p) {
#if defined(__GNUC__)
    __builtin_prefetch(p);
#else
    (void)p;
#endif
}

/* min(n - i, VL) lanes from p on; lanes beyond are zero. */
PG_INLINE vf v_load_upto(const float *p, ptrdiff_t left) {
    return left >= VL ? v_load(p) : v_loadn(p, (int)left);
}
PG_INLINE void v_store_upto(float *p, vf v, ptrdiff_t left) {
    if (left >= VL) v_store(p, v);
    else v_storen(p, v, (int)left);
}

PG_INLINE vf v_abs(vf a) { return vi_asf(vi_and(v_asi(a), vi_set1(0x7fffffff))); }
PG_INLINE vf v_neg(vf a) { return vi_asf(vi_xor(v_asi(a), vi_set1((int32_t)0x80000000u))); }
/* The magnitude of a with the sign of s. */
PG_INLINE vf v_copysign(vf a, vf s) {
    return vi_asf(vi_or(vi_and(v_asi(a), vi_set1(0x7fffffff)),
                        vi_and(v_asi(s), vi_set1((int32_t)0x80000000u))));
}
PG_INLINE vm v_isnan(vf a) { return v_ne(a, a); }
/* a where m holds, else +0: also where a is NaN. */
PG_INLINE vf v_keep(vm m, vf a) { return v_sel(m, a, v_zero()); }

#endif
