/* One lane: compilers without vector extensions. See simd.h. */
#define VL 1
typedef float vf;
typedef int32_t vi;
typedef int vm;

PG_INLINE vf v_set1(float a) { return a; }
PG_INLINE vf v_zero(void) { return 0.0f; }
PG_INLINE vf v_load(const float *p) { return *p; }
PG_INLINE void v_store(float *p, vf a) { *p = a; }
PG_INLINE vi vi_iota(void) { return 0; }
PG_INLINE vi vi_set1(int32_t a) { return a; }
PG_INLINE vm v_first(int n) { return n > 0; }
PG_INLINE vf v_loadn(const float *p, int n) { return n > 0 ? *p : 0.0f; }
PG_INLINE void v_storen(float *p, vf a, int n) {
    if (n > 0) *p = a;
}
PG_INLINE vf v_add(vf a, vf b) { return a + b; }
PG_INLINE vf v_sub(vf a, vf b) { return a - b; }
PG_INLINE vf v_mul(vf a, vf b) { return a * b; }
PG_INLINE vf v_div(vf a, vf b) { return a / b; }
PG_INLINE vf v_sqrt(vf a) { return sqrtf(a); }
PG_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
PG_INLINE vf v_fnma(vf a, vf b, vf c) { return c - a * b; }
PG_INLINE vf v_fms(vf a, vf b, vf c) { return a * b - c; }
PG_INLINE vm v_lt(vf a, vf b) { return a < b; }
PG_INLINE vm v_le(vf a, vf b) { return a <= b; }
PG_INLINE vm v_gt(vf a, vf b) { return a > b; }
PG_INLINE vm v_ge(vf a, vf b) { return a >= b; }
PG_INLINE vm v_eq(vf a, vf b) { return a == b; }
PG_INLINE vm v_ne(vf a, vf b) { return a != b; }
PG_INLINE vm m_and(vm a, vm b) { return a && b; }
PG_INLINE vm m_or(vm a, vm b) { return a || b; }
PG_INLINE vm m_not(vm a) { return !a; }
PG_INLINE vf v_sel(vm m, vf a, vf b) { return m ? a : b; }
PG_INLINE vf v_min(vf a, vf b) { return a < b ? a : b; }
PG_INLINE vf v_max(vf a, vf b) { return a > b ? a : b; }
PG_INLINE vi vi_add(vi a, vi b) { return (vi)((uint32_t)a + (uint32_t)b); }
PG_INLINE vi vi_sub(vi a, vi b) { return (vi)((uint32_t)a - (uint32_t)b); }
PG_INLINE vi vi_mul(vi a, vi b) { return (vi)((uint32_t)a * (uint32_t)b); }
PG_INLINE vi vi_and(vi a, vi b) { return a & b; }
PG_INLINE vi vi_or(vi a, vi b) { return a | b; }
PG_INLINE vi vi_xor(vi a, vi b) { return a ^ b; }
PG_INLINE vi vi_shl(vi a, int n) { return (vi)((uint32_t)a << n); }
PG_INLINE vi vi_shr(vi a, int n) { return (vi)((uint32_t)a >> n); }
PG_INLINE vi vi_sar(vi a, int n) { return a >> n; }
PG_INLINE vi v_asi(vf a) {
    vi r;
    memcpy(&r, &a, sizeof r);
    return r;
}
PG_INLINE vf vi_asf(vi a) {
    vf r;
    memcpy(&r, &a, sizeof r);
    return r;
}
PG_INLINE vf vi_tof(vi a) { return (vf)a; }
PG_INLINE vf v_round(vf a) { return rintf(a); }
PG_INLINE vi v_toi(vf a) { return a == a ? (vi)rintf(a) : INT32_MIN; } /* for |a| < 2^31 */
PG_INLINE vf v_ldexp(vf a, vf n) { return ldexpf(a, v_toi(n)); }
PG_INLINE float v_hsum(vf a) { return a; }
PG_INLINE double v_hsumd(vf a) { return a; }

/* Every second lane of a and then of b, from the first or the second on; and back. */
PG_INLINE vf v_even(vf a, vf b) {
    (void)b;
    return a;
}
PG_INLINE vf v_odd(vf a, vf b) {
    (void)a;
    return b;
}
PG_INLINE vf v_zip_lo(vf a, vf b) {
    (void)b;
    return a;
}
PG_INLINE vf v_zip_hi(vf a, vf b) {
    (void)a;
    return b;
}

#define PG_MR 4 /* rows of a GEMM tile; it is two vectors wide */
