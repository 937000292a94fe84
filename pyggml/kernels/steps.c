#include "steps.h"

#include "isa.h"
#include "pool.h"
#include "scratch.h"

/* Below this a region costs more than it saves. */
#define GRAIN 16384
/* Sums are formed block by block and the blocks added in their order. */
#define BLOCK 65536

typedef struct {
    const pg_step_params *p;
    pg_int n;
    float *w, *s1, *s2, *s3;
    const float *g;
    int parts;
} step_job;

static void step_part(void *ctx, int part) {
    step_job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    if (b < e)
        pg_isa->step(j->p, e - b, j->w + b, j->g + b, j->s1 ? j->s1 + b : NULL,
                     j->s2 ? j->s2 + b : NULL, j->s3 ? j->s3 + b : NULL);
}

void pg_step(const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,
             float *s3) {
    step_job j = {p, n, w, s1, s2, s3, g, pg_parts(n, GRAIN)};
    pg_parallel(j.parts, step_part, &j);
}

void pg_step1(const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,
              float *s3) {
    pg_isa->step(p, n, w, g, s1, s2, s3);
}

typedef struct {
    pg_int n;
    const float *x;
    double *sums;
} squares_job;

static void squares_part(void *ctx, int part) {
    squares_job *j = ctx;
    pg_int b = (pg_int)part * BLOCK;
    j->sums[part] = pg_isa->sum_squares(pg_min(BLOCK, j->n - b), j->x + b);
}

double pg_sum_squares(pg_int n, const float *x) {
    int blocks = (int)pg_ceil_div(n, BLOCK);
    if (blocks <= 1) return n > 0 ? pg_isa->sum_squares(n, x) : 0.0;
    squares_job j = {n, x, pg_scratch(PG_SCRATCH_REDUCE, (size_t)blocks * sizeof(double))};
    double sum = 0.0;
    if (j.sums == NULL) {
        for (int i = 0; i < blocks; i++)
            sum += pg_isa->sum_squares(pg_min(BLOCK, n - (pg_int)i * BLOCK), x + (pg_int)i * BLOCK);
        return sum;
    }
    pg_parallel(blocks, squares_part, &j);
    for (int i = 0; i < blocks; i++) sum += j.sums[i];
    return sum;
}
