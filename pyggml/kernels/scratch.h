/* Scratch memory of the calling thread: grows, is reused, and is freed with the thread. */
#ifndef PG_SCRATCH_H
#define PG_SCRATCH_H

#include "common.h"

/* Who uses which block; two users that call each other must not share one. */
enum {
    PG_SCRATCH_PACK_A,
    PG_SCRATCH_PACK_B,
    PG_SCRATCH_TILE,
    PG_SCRATCH_REDUCE, /* what the parts of a region leave for their caller */
    PG_SCRATCH_CONV,
    PG_SCRATCH_CONV2,
    PG_SCRATCH_RNN,
    PG_SCRATCH_ROWS,
    PG_SCRATCH_SLOTS
};

/* bytes, aligned to 64, contents undefined; NULL if there is no memory. Valid until the thread
 * asks for the same slot again. */
void *pg_scratch(int slot, size_t bytes);
/* Free what the calling thread holds. */
void pg_scratch_free(void);

#endif
