#include "dropout.h"

#include <string.h>

#include "isa.h"
#include "pool.h"

#define GRAIN 16384
/* Elements that share a pair of keys: the counter within is 32 bits wide. */
#define SPAN ((pg_int)1 << 31)

typedef struct {
    const pg_rng *r;
    int what, parts;
    float rate;
    pg_int n;
    const float *x;
    float *out;
} job;

/* splitmix64's step and finalizer (S. Vigna, public domain). */
static uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void part_fn(void *ctx, int part) {
    job *j = ctx;
    pg_int b, e;
    pg_part_range(j->n, 64, j->parts, part, &b, &e);
    while (b < e) {
        pg_int span = b / SPAN, end = pg_min(e, (span + 1) * SPAN);
        uint64_t k = mix64(j->r->seed);
        k = mix64(k ^ j->r->step);
        k = mix64(k ^ j->r->stream ^ (uint64_t)span << 32);
        pg_isa->random(j->what, (uint32_t)k, (uint32_t)(k >> 32), (uint32_t)(b % SPAN), j->rate,
                       end - b, j->x ? j->x + b : NULL, j->out + b);
        b = end;
    }
}

static void go(const pg_rng *r, int what, float rate, pg_int n, const float *x, float *out) {
    job j = {r, what, pg_parts(n, GRAIN), rate, n, x, out};
    pg_parallel(j.parts, part_fn, &j);
}

void pg_dropout_mask(const pg_rng *r, float rate, pg_int n, float *mask) {
    go(r, 2, rate, n, NULL, mask);
}

void pg_dropout(const pg_rng *r, float rate, pg_int n, const float *x, float *y) {
    go(r, 3, rate, n, x, y);
}

void pg_random_bits(const pg_rng *r, pg_int n, uint32_t *out) {
    go(r, 0, 0.0f, n, NULL, (float *)out); /* written as floats of the same bits */
}

void pg_random_uniform(const pg_rng *r, pg_int n, float *out) { go(r, 1, 0.0f, n, NULL, out); }
