/* Embeddings: rows picked from a table, and their gradient. */
#ifndef PG_GATHER_H
#define PG_GATHER_H

#include "common.h"

/* out[i] = table[ids[i]]; PG_EINVAL if an id is outside [0, table_rows). */
int pg_gather_rows(pg_int table_rows, pg_int width, const float *table, pg_int n,
                   const int32_t *ids, float *out);
/* dtable = sums of the rows of dy with the same id, in their order. */
int pg_gather_rows_backward(pg_int table_rows, pg_int width, pg_int n, const int32_t *ids,
                            const float *dy, float *dtable);

#endif
