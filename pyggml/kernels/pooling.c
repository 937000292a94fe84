#include "pooling.h"

#include "isa.h"
#include "pool.h"

#define GRAIN 8192 /* elements of x a thread */

typedef struct {
    const pg_pool2d *p;
    int what, parts;
    const float *x, *dy;
    float *out;
} job;

static void part_fn(void *ctx, int part) {
    job *j = ctx;
    const pg_pool2d *p = j->p;
    pg_int b, e, in = p->h * p->w, out = p->oh * p->ow;
    pg_part_range(p->planes, 1, j->parts, part, &b, &e);
    for (pg_int i = b; i < e; i++) {
        switch (j->what) {
        case 0: pg_isa->max_pool(p, j->x + i * in, j->out + i * out); break;
        case 1: pg_isa->max_pool_backward(p, j->x + i * in, j->dy + i * out, j->out + i * in); break;
        case 2: pg_isa->avg_pool(p, j->x + i * in, j->out + i * out); break;
        default: pg_isa->avg_pool_backward(p, j->dy + i * out, j->out + i * in); break;
        }
    }
}

static void go(const pg_pool2d *p, int what, const float *x, const float *dy, float *out) {
    job j = {p, what, pg_parts(p->planes, pg_ceil_div(GRAIN, pg_max(p->h * p->w, 1))), x, dy, out};
    pg_parallel(j.parts, part_fn, &j);
}

void pg_max_pool_forward(const pg_pool2d *p, const float *x, float *y) { go(p, 0, x, NULL, y); }
void pg_max_pool_backward(const pg_pool2d *p, const float *x, const float *dy, float *dx) {
    go(p, 1, x, dy, dx);
}
void pg_avg_pool_forward(const pg_pool2d *p, const float *x, float *y) { go(p, 2, x, NULL, y); }
void pg_avg_pool_backward(const pg_pool2d *p, const float *dy, float *dx) { go(p, 3, NULL, dy, dx); }
