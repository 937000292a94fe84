/* AVX2 with FMA. See simd.h. */
#include <immintrin.h>

#define VL 8
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

PG_INLINE vf v_set1(float a) { return _mm256_set1_ps(a); }
PG_INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
PG_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
PG_INLINE void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
PG_INLINE vi vi_iota(void) { return _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0); }
PG_INLINE vi v_first_i(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), vi_iota()); }
PG_INLINE vm v_first(int n) { return _mm256_castsi256_ps(v_first_i(n)); }
#if defined(PG_ASAN)
PG_INLINE vf v_loadn(const float *p, int n) {
    float lanes[VL] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return v_load(lanes);
}
#else
PG_INLINE vf v_loadn(const float *p, int n) { return _mm256_maskload_ps(p, v_first_i(n)); }
#endif
/* In pieces: masked stores are slow on some processors. */
PG_INLINE void v_storen(float *p, vf a, int n) {
    __m128 h = _mm256_castps256_ps128(a);
    if (n >= 8) {
        _mm256_storeu_ps(p, a);
        return;
    }
    if (n & 4) {
        _mm_storeu_ps(p, h);
        h = _mm256_extractf128_ps(a, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, h);
        h = _mm_movehl_ps(h, h);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, h);
}
PG_INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
PG_INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
PG_INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
PG_INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
PG_INLINE vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
PG_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }   /* a*b + c */
PG_INLINE vf v_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); } /* c - a*b */
PG_INLINE vf v_fms(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); }   /* a*b - c */
PG_INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
PG_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
PG_INLINE vm v_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
PG_INLINE vm v_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
PG_INLINE vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
PG_INLINE vm v_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
PG_INLINE vm v_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
PG_INLINE vm v_ne(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ); }
PG_INLINE vm m_and(vm a, vm b) { return _mm256_and_ps(a, b); }
PG_INLINE vm m_or(vm a, vm b) { return _mm256_or_ps(a, b); }
PG_INLINE vm m_not(vm a) {
    return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
}
PG_INLINE vf v_sel(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
PG_INLINE vi vi_set1(int32_t a) { return _mm256_set1_epi32(a); }
PG_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
PG_INLINE vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
PG_INLINE vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
PG_INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
PG_INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
PG_INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
#define vi_shl(a, n) _mm256_slli_epi32(a, n)
#define vi_shr(a, n) _mm256_srli_epi32(a, n)
#define vi_sar(a, n) _mm256_srai_epi32(a, n)
PG_INLINE vi v_toi(vf a) { return _mm256_cvtps_epi32(a); } /* rounds to nearest */
PG_INLINE vf vi_tof(vi a) { return _mm256_cvtepi32_ps(a); }
PG_INLINE vi v_asi(vf a) { return _mm256_castps_si256(a); }
PG_INLINE vf vi_asf(vi a) { return _mm256_castsi256_ps(a); }
PG_INLINE vf v_round(vf a) { return _mm256_round_ps(a, 8); }
/* a * 2^n for whole n in [-252, 254]: in two factors, each a normal number. */
PG_INLINE vf v_ldexp(vf a, vf n) {
    vi i = v_toi(n), h = vi_sar(i, 1), bias = vi_set1(127);
    vf s = vi_asf(vi_shl(vi_add(h, bias), 23));
    vf t = vi_asf(vi_shl(vi_add(vi_sub(i, h), bias), 23));
    return v_mul(v_mul(a, s), t);
}
PG_INLINE float v_hsum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}
PG_INLINE double v_hsumd(vf a) {
    __m256d s = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a)),
                              _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

/* Every second lane of a and then of b, from the first or the second on; and back. */
PG_INLINE vf v_even(vf a, vf b) {
    __m256d t = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(t, 0xd8));
}
PG_INLINE vf v_odd(vf a, vf b) {
    __m256d t = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(t, 0xd8));
}
PG_INLINE vf v_zip_lo(vf a, vf b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
PG_INLINE vf v_zip_hi(vf a, vf b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}

#define PG_MR 6 /* rows of a GEMM tile; it is two vectors wide */
#define PG_HAVE_TRANSPOSE 1
/* r[i][j] -> r[j][i] for a VL x VL block. */
PG_INLINE void v_transpose(vf r[VL]) {
    __m256 t[8];
    PG_UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    PG_UNROLL
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    PG_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    PG_UNROLL
    for (int i = 0; i < 8; i++) r[i] = t[i];
}
