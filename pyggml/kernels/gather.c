#include "gather.h"

#include <string.h>

#include "isa.h"
#include "pool.h"

#define GRAIN 32768 /* floats a thread */

typedef struct {
    pg_int table_rows, width, n;
    const float *src;
    const int32_t *ids;
    float *dst;
    int parts;
} job;

static int ids_valid(pg_int rows, pg_int n, const int32_t *ids) {
    int bad = 0;
    for (pg_int i = 0; i < n; i++) bad |= ids[i] < 0 || ids[i] >= rows;
    return !bad;
}

static void gather_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 1, j->parts, part, &b, &e);
    for (pg_int i = b; i < e; i++)
        memcpy(j->dst + i * j->width, j->src + (pg_int)j->ids[i] * j->width,
               (size_t)j->width * sizeof(float));
}

int pg_gather_rows(pg_int table_rows, pg_int width, const float *table, pg_int n,
                   const int32_t *ids, float *out) {
    if (!ids_valid(table_rows, n, ids)) return PG_EINVAL;
    job j = {table_rows, width, n, table, ids, out,
             pg_parts(n, pg_ceil_div(GRAIN, pg_max(width, 1)))};
    pg_parallel(j.parts, gather_part, &j);
    return PG_OK;
}

/* Each part owns a range of columns: every sum is formed in the order of the rows. */
static void scatter_part(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->width, 16, j->parts, part, &b, &e);
    if (b == e) return;
    for (pg_int r = 0; r < j->table_rows; r++)
        memset(j->dst + r * j->width + b, 0, (size_t)(e - b) * sizeof(float));
    for (pg_int i = 0; i < j->n; i++) {
        float *d = j->dst + (pg_int)j->ids[i] * j->width + b;
        pg_isa->axpby(e - b, 1.0f, d, 1.0f, j->src + i * j->width + b, d);
    }
}

int pg_gather_rows_backward(pg_int table_rows, pg_int width, pg_int n, const int32_t *ids,
                            const float *dy, float *dtable) {
    if (!ids_valid(table_rows, n, ids)) return PG_EINVAL;
    job j = {table_rows, width, n, dy, ids, dtable, 1};
    j.parts = (int)pg_min(pg_parts((n + table_rows) * width, GRAIN), pg_ceil_div(width, 16));
    if (j.parts < 1) j.parts = 1;
    pg_parallel(j.parts, scatter_part, &j);
    return PG_OK;
}
