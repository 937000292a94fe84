/* Kernels exist once for each instruction set; pg_isa points to the set in use.
 *
 * Everything here works on the calling thread and on the range it is given.
 */
#ifndef PG_ISA_H
#define PG_ISA_H

#include "common.h"
#include "kernel_list.h"

typedef struct pg_isa_table {
    const char *name;
#define X(result, name, args) result(*name) args;
    PG_KERNEL_LIST(X)
#undef X
} pg_isa_table;

extern const pg_isa_table *pg_isa;

/* Choose the instruction set: the best that the processor and the system can run, or the one named
 * by the environment variable PYGGML_ISA (baseline, avx2, avx512) if it can. Sets the BLAS to one
 * thread. To be called once before the first kernel; may be called again. */
void pg_init(void);
/* "baseline", "avx2" or "avx512". */
const char *pg_isa_name(void);
/* 1 if the processor can run the named set. */
int pg_isa_available(const char *name);

#endif
