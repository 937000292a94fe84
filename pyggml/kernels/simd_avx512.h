/* AVX-512 F, DQ, BW, VL. See simd.h. */
#include <immintrin.h>

#define VL 16
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

PG_INLINE vf v_set1(float a) { return _mm512_set1_ps(a); }
PG_INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
PG_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
PG_INLINE void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
PG_INLINE vm v_first(int n) { return (vm)((1u << n) - 1u); }
#if defined(PG_ASAN)
PG_INLINE vf v_loadn(const float *p, int n) {
    float lanes[VL] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return v_load(lanes);
}
PG_INLINE void v_storen(float *p, vf a, int n) {
    float lanes[VL];
    v_store(lanes, a);
    memcpy(p, lanes, (size_t)n * sizeof *p);
}
#else
PG_INLINE vf v_loadn(const float *p, int n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
PG_INLINE void v_storen(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, v_first(n), a); }
#endif
PG_INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
PG_INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
PG_INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
PG_INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
PG_INLINE vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
PG_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }   /* a*b + c */
PG_INLINE vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a*b */
PG_INLINE vf v_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }   /* a*b - c */
PG_INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
PG_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
PG_INLINE vm v_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
PG_INLINE vm v_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
PG_INLINE vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
PG_INLINE vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
PG_INLINE vm v_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
PG_INLINE vm v_ne(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
PG_INLINE vm m_and(vm a, vm b) { return (vm)(a & b); }
PG_INLINE vm m_or(vm a, vm b) { return (vm)(a | b); }
PG_INLINE vm m_not(vm a) { return (vm)~a; }
PG_INLINE vf v_sel(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
PG_INLINE vi vi_set1(int32_t a) { return _mm512_set1_epi32(a); }
PG_INLINE vi vi_iota(void) {
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
PG_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
PG_INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
PG_INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
PG_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
PG_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
PG_INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
#define vi_shl(a, n) _mm512_slli_epi32(a, n)
#define vi_shr(a, n) _mm512_srli_epi32(a, n)
#define vi_sar(a, n) _mm512_srai_epi32(a, n)
PG_INLINE vi v_toi(vf a) { return _mm512_cvtps_epi32(a); } /* rounds to nearest */
PG_INLINE vf vi_tof(vi a) { return _mm512_cvtepi32_ps(a); }
PG_INLINE vi v_asi(vf a) { return _mm512_castps_si512(a); }
PG_INLINE vf vi_asf(vi a) { return _mm512_castsi512_ps(a); }
PG_INLINE vf v_round(vf a) { return _mm512_roundscale_ps(a, 8); }
PG_INLINE vf v_ldexp(vf a, vf n) { return _mm512_scalef_ps(a, n); } /* a * 2^n, n whole */
PG_INLINE float v_hsum(vf a) { return _mm512_reduce_add_ps(a); }
PG_INLINE double v_hsumd(vf a) {
    __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
    __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
    return _mm512_reduce_add_pd(_mm512_add_pd(lo, hi));
}

/* Every second lane of a and then of b, from the first or the second on; and back. */
PG_INLINE vf v_even(vf a, vf b) {
    return _mm512_permutex2var_ps(a, _mm512_slli_epi32(vi_iota(), 1), b);
}
PG_INLINE vf v_odd(vf a, vf b) {
    return _mm512_permutex2var_ps(
        a, _mm512_add_epi32(_mm512_slli_epi32(vi_iota(), 1), _mm512_set1_epi32(1)), b);
}
PG_INLINE vf v_zip_lo(vf a, vf b) {
    return _mm512_permutex2var_ps(
        a, _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0), b);
}
PG_INLINE vf v_zip_hi(vf a, vf b) {
    return _mm512_permutex2var_ps(
        a, _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8), b);
}

#define PG_MR 14 /* rows of a GEMM tile; it is two vectors wide */
#define PG_HAVE_TRANSPOSE 1
/* r[i][j] -> r[j][i] for a VL x VL block. */
PG_INLINE void v_transpose(vf r[VL]) {
    __m512 t[16];
    PG_UNROLL
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    PG_UNROLL
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    PG_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    PG_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
