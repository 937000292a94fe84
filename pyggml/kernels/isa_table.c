/* The table of one instruction set. */
#include "isa_kernels.h"

#define STRING2(s) #s
#define STRING(s) STRING2(s)

#define X(result, name, args) PG_FN(name),
const pg_isa_table PG_PASTE(isa_table, PG_ISA_SUFFIX) = {STRING(PG_ISA_SUFFIX), PG_KERNEL_LIST(X)};
#undef X
