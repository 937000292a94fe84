/* The process's thread pool.
 *
 * A kernel cuts its work into parts by the number of threads and the size of the problem alone and
 * hands them to pg_parallel. Who runs which part is not fixed (a thread that is early takes over
 * from one that has not begun), so a part must compute the same whoever runs it.
 *
 * Threads wait by spinning for some microseconds and then sleep. A caller that finds the pool in
 * use by another thread, or is itself inside a part, runs all its parts itself.
 */
#ifndef PG_POOL_H
#define PG_POOL_H

#include "common.h"

#define PG_MAX_THREADS 256

typedef void (*pg_part_fn)(void *ctx, int part);

/* Number of threads, the caller's included. Stops and restarts workers as needed; waits for a
 * region in another thread to end. PG_EINVAL inside a part. */
int pg_set_num_threads(int n);
/* What pg_set_num_threads set (at first: the processors this process may use), or less where the
 * calling thread has a limit. */
int pg_get_num_threads(void);
/* Limit for regions that the calling thread begins; 0 lifts it. */
void pg_set_thread_limit(int n);

/* Run fn(ctx, 0 .. n_parts-1) and return when all are done. */
void pg_parallel(int n_parts, pg_part_fn fn, void *ctx);
/* The same for parts that take less time than a thread takes to wake: the workers are asked only
 * where regions follow each other so closely that they are awake. */
void pg_parallel_brief(int n_parts, pg_part_fn fn, void *ctx);

/* How many parts n items are worth: at most the number of threads, at least one, and each part of
 * grain items or more. */
int pg_parts(pg_int n, pg_int grain);
/* Part i of n items cut into parts, at multiples of unit: [*begin, *end). */
void pg_part_range(pg_int n, pg_int unit, int parts, int i, pg_int *begin, pg_int *end);

/* Stop and join the workers; the next region starts new ones. Done at exit too. */
void pg_pool_stop(void);

/* Flush denormals to zero in the calling thread; hand the result to pg_ftz_leave. Workers do so
 * for good. Without it a training run that converges may slow down many times. */
typedef uint64_t pg_ftz_state;
pg_ftz_state pg_ftz_enter(void);
void pg_ftz_leave(pg_ftz_state s);

#endif
