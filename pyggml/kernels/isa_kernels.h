/* For the sources that are compiled once per instruction set: PG_FN(name) is the function's name
 * in this one. PG_ISA_SUFFIX comes from the build. */
#ifndef PG_ISA_KERNELS_H
#define PG_ISA_KERNELS_H

#include "isa.h"
#include "simd.h"

#define PG_PASTE2(a, b) pg_##a##_##b
#define PG_PASTE(a, b) PG_PASTE2(a, b)
#define PG_FN(name) PG_PASTE(name, PG_ISA_SUFFIX)

#define X(result, name, args) result PG_FN(name) args;
PG_KERNEL_LIST(X)
#undef X

#endif
