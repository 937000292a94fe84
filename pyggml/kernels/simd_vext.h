/* Four lanes in the vector extensions of GCC and Clang: arm64 and whatever else. See simd.h. */
#define VL 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t pg_vu __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16)));

PG_INLINE vf v_set1(float a) { return (vf){a, a, a, a}; }
PG_INLINE vf v_zero(void) { return v_set1(0.0f); }
PG_INLINE vf v_load(const float *p) {
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}
PG_INLINE void v_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
PG_INLINE vi vi_iota(void) { return (vi){0, 1, 2, 3}; }
PG_INLINE vi vi_set1(int32_t a) { return (vi){a, a, a, a}; }
PG_INLINE vm v_first(int n) { return (vm)(vi_set1(n) > vi_iota()); }
PG_INLINE vf v_loadn(const float *p, int n) {
    float t[4] = {0, 0, 0, 0};
    for (int i = 0; i < n && i < 4; i++) t[i] = p[i];
    return v_load(t);
}
PG_INLINE void v_storen(float *p, vf a, int n) {
    for (int i = 0; i < n && i < 4; i++) p[i] = a[i];
}
PG_INLINE vf v_add(vf a, vf b) { return a + b; }
PG_INLINE vf v_sub(vf a, vf b) { return a - b; }
PG_INLINE vf v_mul(vf a, vf b) { return a * b; }
PG_INLINE vf v_div(vf a, vf b) { return a / b; }
PG_INLINE vf v_sqrt(vf a) { return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
/* Contracted to one instruction where the machine has it (-ffp-contract). */
PG_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
PG_INLINE vf v_fnma(vf a, vf b, vf c) { return c - a * b; }
PG_INLINE vf v_fms(vf a, vf b, vf c) { return a * b - c; }
PG_INLINE vm v_lt(vf a, vf b) { return (vm)(a < b); }
PG_INLINE vm v_le(vf a, vf b) { return (vm)(a <= b); }
PG_INLINE vm v_gt(vf a, vf b) { return (vm)(a > b); }
PG_INLINE vm v_ge(vf a, vf b) { return (vm)(a >= b); }
PG_INLINE vm v_eq(vf a, vf b) { return (vm)(a == b); }
PG_INLINE vm v_ne(vf a, vf b) { return (vm)(a != b); }
PG_INLINE vm m_and(vm a, vm b) { return a & b; }
PG_INLINE vm m_or(vm a, vm b) { return a | b; }
PG_INLINE vm m_not(vm a) { return ~a; }
PG_INLINE vf v_sel(vm m, vf a, vf b) { return (vf)(((vi)a & m) | ((vi)b & ~m)); }
PG_INLINE vf v_min(vf a, vf b) { return v_sel(v_lt(a, b), a, b); }
PG_INLINE vf v_max(vf a, vf b) { return v_sel(v_gt(a, b), a, b); }
/* Unsigned: a sum that wraps is meant. */
PG_INLINE vi vi_add(vi a, vi b) { return (vi)((pg_vu)a + (pg_vu)b); }
PG_INLINE vi vi_sub(vi a, vi b) { return (vi)((pg_vu)a - (pg_vu)b); }
PG_INLINE vi vi_mul(vi a, vi b) { return (vi)((pg_vu)a * (pg_vu)b); }
PG_INLINE vi vi_and(vi a, vi b) { return a & b; }
PG_INLINE vi vi_or(vi a, vi b) { return a | b; }
PG_INLINE vi vi_xor(vi a, vi b) { return a ^ b; }
PG_INLINE vi vi_shl(vi a, int n) { return (vi)((pg_vu)a << n); }
PG_INLINE vi vi_shr(vi a, int n) { return (vi)((pg_vu)a >> n); }
PG_INLINE vi vi_sar(vi a, int n) { return a >> n; }
PG_INLINE vi v_asi(vf a) { return (vi)a; }
PG_INLINE vf vi_asf(vi a) { return (vf)a; }
PG_INLINE vf vi_tof(vi a) { return __builtin_convertvector(a, vf); }
/* To nearest by the sum with 1.5 * 2^23, which leaves the whole number in the low bits: for
 * |a| < 2^22. */
PG_INLINE vi v_toi(vf a) {
    vf magic = v_set1(12582912.0f), s = a + magic;
    return vi_sub((vi)s, (vi)magic);
}
PG_INLINE vf v_round(vf a) { return vi_tof(v_toi(a)); }
/* a * 2^n for whole n in [-252, 254]: in two factors, each a normal number. */
PG_INLINE vf v_ldexp(vf a, vf n) {
    vi i = v_toi(n), h = vi_sar(i, 1), bias = vi_set1(127);
    vf s = vi_asf(vi_shl(vi_add(h, bias), 23));
    vf t = vi_asf(vi_shl(vi_add(vi_sub(i, h), bias), 23));
    return a * s * t;
}
PG_INLINE float v_hsum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
PG_INLINE double v_hsumd(vf a) { return ((double)a[0] + a[2]) + ((double)a[1] + a[3]); }

/* Every second lane of a and then of b, from the first or the second on; and back. */
PG_INLINE vf v_even(vf a, vf b) { return (vf){a[0], a[2], b[0], b[2]}; }
PG_INLINE vf v_odd(vf a, vf b) { return (vf){a[1], a[3], b[1], b[3]}; }
PG_INLINE vf v_zip_lo(vf a, vf b) { return (vf){a[0], b[0], a[1], b[1]}; }
PG_INLINE vf v_zip_hi(vf a, vf b) { return (vf){a[2], b[2], a[3], b[3]}; }

#define PG_MR 8 /* rows of a GEMM tile; it is two vectors wide */
