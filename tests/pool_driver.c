/* Drives the pool of threads from several threads at once, for ThreadSanitizer: see
 * tools/sanitize.py. Every element is incremented exactly once a region. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "pool.h"
#include "scratch.h"

#define N 4096
#define ROUNDS 400

typedef struct { int *x; int parts; } job;

static void part(void *ctx, int i) {
    job *j = ctx;
    pg_int begin, end;
    float *own = pg_scratch(PG_SCRATCH_ROWS, 64 * sizeof(float));
    if (own == NULL) abort();
    own[i % 64] = (float)i;
    pg_part_range(N, 1, j->parts, i, &begin, &end);
    for (pg_int k = begin; k < end; k++) j->x[k]++;
}

static void *caller(void *arg) {
    long seed = (long)arg;
    int *x = calloc(N, sizeof *x);
    if (x == NULL) abort();
    for (int r = 0; r < ROUNDS; r++) {
        job j = {x, 1 + (int)((seed * 7 + r) % 300)};
        pg_parallel(j.parts, part, &j);
        if (seed == 0 && r % 50 == 49) pg_set_num_threads(1 + r / 50 % 5);
        if (seed == 1 && r % 97 == 96) pg_pool_stop();
    }
    for (int k = 0; k < N; k++) {
        if (x[k] != ROUNDS) {
            fprintf(stderr, "element %d was met %d times instead of %d\n", k, x[k], ROUNDS);
            exit(1);
        }
    }
    free(x);
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    pg_set_num_threads(4);
    caller((void *)5L);
    for (long i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, caller, (void *)i) != 0) return 1;
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    pg_pool_stop();
    puts("ok");
    return 0;
}
