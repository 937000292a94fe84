#include "pooling.h"

#include "isa.h"
#include "pool.h"
#include "scratch.h"

#define GRAIN 8192 /* elements of x a thread */

enum { MAX, MAX_BACKWARD, AVG, AVG_BACKWARD };

typedef struct {
    const pg_pool2d *p;
    int what, parts;
    const float *x, *dy;
    float *out, *work;
    pg_int each; /* floats of work */
} job;

static void part_fn(void *ctx, int part) {
    job *j = ctx;
    const pg_pool2d *p = j->p;
    pg_int b, e, in = p->h * p->w, out = p->oh * p->ow;
    float *work = j->each > 0 ? j->work + part * j->each : NULL;
    pg_part_range(p->planes, 1, j->parts, part, &b, &e);
    for (pg_int i = b; i < e; i++) {
        switch (j->what) {
        case MAX: pg_isa->max_pool(p, work, j->x + i * in, j->out + i * out); break;
        case MAX_BACKWARD:
            pg_isa->max_pool_backward(p, work, j->x + i * in, j->dy + i * out, j->out + i * in);
            break;
        case AVG: pg_isa->avg_pool(p, work, j->x + i * in, j->out + i * out); break;
        default: pg_isa->avg_pool_backward(p, work, j->dy + i * out, j->out + i * in); break;
        }
    }
}

static int go(const pg_pool2d *p, int what, const float *x, const float *dy, float *out) {
    job j = {.p = p, .what = what, .x = x, .dy = dy, .out = out,
             .parts = pg_parts(p->planes, pg_ceil_div(GRAIN, pg_max(p->h * p->w, 1)))};
    if (!pg_pool_single(p) && !pg_pool_halves(p)) {
        j.each = pg_pool_work(p, what == MAX_BACKWARD ? p->h : 1);
        j.work = pg_scratch(PG_SCRATCH_REDUCE, (size_t)(j.parts * j.each) * sizeof(float));
        if (j.work == NULL) return PG_ENOMEM;
    }
    pg_parallel(j.parts, part_fn, &j);
    return PG_OK;
}

int pg_max_pool_forward(const pg_pool2d *p, const float *x, float *y) {
    return go(p, MAX, x, NULL, y);
}
int pg_max_pool_backward(const pg_pool2d *p, const float *x, const float *dy, float *dx) {
    return go(p, MAX_BACKWARD, x, dy, dx);
}
int pg_avg_pool_forward(const pg_pool2d *p, const float *x, float *y) {
    return go(p, AVG, x, NULL, y);
}
int pg_avg_pool_backward(const pg_pool2d *p, const float *dy, float *dx) {
    return go(p, AVG_BACKWARD, NULL, dy, dx);
}
