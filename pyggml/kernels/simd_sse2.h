/* SSE2: every x86-64 machine. No FMA: v_fma rounds twice. See simd.h. */
#include <emmintrin.h>

#define VL 4
typedef __m128 vf;
typedef __m128i vi;
typedef __m128 vm;

PG_INLINE vf v_set1(float a) { return _mm_set1_ps(a); }
PG_INLINE vf v_zero(void) { return _mm_setzero_ps(); }
PG_INLINE vf v_load(const float *p) { return _mm_loadu_ps(p); }
PG_INLINE void v_store(float *p, vf a) { _mm_storeu_ps(p, a); }
PG_INLINE vi vi_iota(void) { return _mm_set_epi32(3, 2, 1, 0); }
PG_INLINE vm v_first(int n) {
    return _mm_castsi128_ps(_mm_cmpgt_epi32(_mm_set1_epi32(n), vi_iota()));
}
PG_INLINE vf v_loadn(const float *p, int n) {
    float t[4] = {0, 0, 0, 0};
    for (int i = 0; i < n && i < 4; i++) t[i] = p[i];
    return _mm_loadu_ps(t);
}
PG_INLINE void v_storen(float *p, vf a, int n) {
    float t[4];
    _mm_storeu_ps(t, a);
    for (int i = 0; i < n && i < 4; i++) p[i] = t[i];
}
PG_INLINE vf v_add(vf a, vf b) { return _mm_add_ps(a, b); }
PG_INLINE vf v_sub(vf a, vf b) { return _mm_sub_ps(a, b); }
PG_INLINE vf v_mul(vf a, vf b) { return _mm_mul_ps(a, b); }
PG_INLINE vf v_div(vf a, vf b) { return _mm_div_ps(a, b); }
PG_INLINE vf v_sqrt(vf a) { return _mm_sqrt_ps(a); }
PG_INLINE vf v_fma(vf a, vf b, vf c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
PG_INLINE vf v_fnma(vf a, vf b, vf c) { return _mm_sub_ps(c, _mm_mul_ps(a, b)); }
PG_INLINE vf v_fms(vf a, vf b, vf c) { return _mm_sub_ps(_mm_mul_ps(a, b), c); }
PG_INLINE vf v_min(vf a, vf b) { return _mm_min_ps(a, b); }
PG_INLINE vf v_max(vf a, vf b) { return _mm_max_ps(a, b); }
PG_INLINE vm v_lt(vf a, vf b) { return _mm_cmplt_ps(a, b); }
PG_INLINE vm v_le(vf a, vf b) { return _mm_cmple_ps(a, b); }
PG_INLINE vm v_gt(vf a, vf b) { return _mm_cmpgt_ps(a, b); }
PG_INLINE vm v_ge(vf a, vf b) { return _mm_cmpge_ps(a, b); }
PG_INLINE vm v_eq(vf a, vf b) { return _mm_cmpeq_ps(a, b); }
PG_INLINE vm v_ne(vf a, vf b) { return _mm_cmpneq_ps(a, b); }
PG_INLINE vm m_and(vm a, vm b) { return _mm_and_ps(a, b); }
PG_INLINE vm m_or(vm a, vm b) { return _mm_or_ps(a, b); }
PG_INLINE vm m_not(vm a) { return _mm_xor_ps(a, _mm_castsi128_ps(_mm_set1_epi32(-1))); }
PG_INLINE vf v_sel(vm m, vf a, vf b) { return _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b)); }
PG_INLINE vi vi_set1(int32_t a) { return _mm_set1_epi32(a); }
PG_INLINE vi vi_add(vi a, vi b) { return _mm_add_epi32(a, b); }
PG_INLINE vi vi_sub(vi a, vi b) { return _mm_sub_epi32(a, b); }
PG_INLINE vi vi_mul(vi a, vi b) {
    __m128i even = _mm_mul_epu32(a, b);
    __m128i odd = _mm_mul_epu32(_mm_srli_si128(a, 4), _mm_srli_si128(b, 4));
    return _mm_unpacklo_epi32(_mm_shuffle_epi32(even, 0x08), _mm_shuffle_epi32(odd, 0x08));
}
PG_INLINE vi vi_and(vi a, vi b) { return _mm_and_si128(a, b); }
PG_INLINE vi vi_or(vi a, vi b) { return _mm_or_si128(a, b); }
PG_INLINE vi vi_xor(vi a, vi b) { return _mm_xor_si128(a, b); }
#define vi_shl(a, n) _mm_slli_epi32(a, n)
#define vi_shr(a, n) _mm_srli_epi32(a, n)
#define vi_sar(a, n) _mm_srai_epi32(a, n)
PG_INLINE vi v_toi(vf a) { return _mm_cvtps_epi32(a); } /* rounds to nearest */
PG_INLINE vf vi_tof(vi a) { return _mm_cvtepi32_ps(a); }
PG_INLINE vi v_asi(vf a) { return _mm_castps_si128(a); }
PG_INLINE vf vi_asf(vi a) { return _mm_castsi128_ps(a); }
PG_INLINE vf v_round(vf a) { return vi_tof(v_toi(a)); } /* for |a| < 2^31 */
/* a * 2^n for whole n in [-252, 254]: in two factors, each a normal number. */
PG_INLINE vf v_ldexp(vf a, vf n) {
    vi i = v_toi(n), h = vi_sar(i, 1), bias = vi_set1(127);
    vf s = vi_asf(vi_shl(vi_add(h, bias), 23));
    vf t = vi_asf(vi_shl(vi_add(vi_sub(i, h), bias), 23));
    return v_mul(v_mul(a, s), t);
}
PG_INLINE float v_hsum(vf a) {
    __m128 s = _mm_add_ps(a, _mm_movehl_ps(a, a));
    s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}
PG_INLINE double v_hsumd(vf a) {
    __m128d s = _mm_add_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(_mm_movehl_ps(a, a)));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Every second lane of a and then of b, from the first or the second on; and back. */
PG_INLINE vf v_even(vf a, vf b) { return _mm_shuffle_ps(a, b, 0x88); }
PG_INLINE vf v_odd(vf a, vf b) { return _mm_shuffle_ps(a, b, 0xdd); }
PG_INLINE vf v_zip_lo(vf a, vf b) { return _mm_unpacklo_ps(a, b); }
PG_INLINE vf v_zip_hi(vf a, vf b) { return _mm_unpackhi_ps(a, b); }

#define PG_MR 4 /* rows of a GEMM tile; it is two vectors wide */
#define PG_HAVE_TRANSPOSE 1
/* r[i][j] -> r[j][i] for a VL x VL block. */
PG_INLINE void v_transpose(vf r[VL]) { _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]); }
