#include "isa.h"

#include <stdlib.h>
#include <string.h>

#include "blas.h"

#if defined(PG_X86_SETS)
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
extern const pg_isa_table pg_isa_table_avx2, pg_isa_table_avx512;
#endif
extern const pg_isa_table pg_isa_table_baseline;

const pg_isa_table *pg_isa = &pg_isa_table_baseline;

#if defined(PG_X86_SETS)

static void cpuid(unsigned leaf, unsigned r[4]) {
#if defined(_MSC_VER)
    int t[4];
    __cpuidex(t, (int)leaf, 0);
    for (int i = 0; i < 4; i++) r[i] = (unsigned)t[i];
#else
    __cpuid_count(leaf, 0, r[0], r[1], r[2], r[3]);
#endif
}

/* Register states that the operating system saves. */
static unsigned long long xcr0(void) {
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    unsigned lo, hi;
    __asm__ __volatile__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo | (unsigned long long)hi << 32;
#endif
}

static int level(void) {
    unsigned r[4];
    cpuid(0, r);
    if (r[0] < 7) return 0;
    cpuid(1, r);
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28;
    if ((r[2] & (fma | osxsave | avx)) != (fma | osxsave | avx)) return 0;
    unsigned long long state = xcr0();
    if ((state & 0x6) != 0x6) return 0; /* xmm, ymm */
    cpuid(7, r);
    if (!(r[1] & 1u << 5)) return 0; /* AVX2 */
    const unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
    int wide = (r[1] & (f | dq | bw | vl)) == (f | dq | bw | vl);
    return wide && (state & 0xe6) == 0xe6 ? 2 : 1; /* opmask and zmm too */
}

static const pg_isa_table *const sets[] = {&pg_isa_table_baseline, &pg_isa_table_avx2,
                                           &pg_isa_table_avx512};

#else

static int level(void) { return 0; }
static const pg_isa_table *const sets[] = {&pg_isa_table_baseline};

#endif

void pg_init(void) {
    const char *wish = getenv("PYGGML_ISA");
    int best = level();
    pg_isa = sets[best];
    for (int i = 0; wish && i <= best; i++)
        if (strcmp(wish, sets[i]->name) == 0) pg_isa = sets[i];
    pg_blas_init();
}

const char *pg_isa_name(void) { return pg_isa->name; }

int pg_isa_available(const char *name) {
    for (int i = 0; i <= level(); i++)
        if (strcmp(name, sets[i]->name) == 0) return 1;
    return 0;
}
