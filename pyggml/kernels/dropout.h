/* Random numbers by counter, and dropout.
 *
 * The number of element i is a hash of (seed, step, stream, i): the same on every machine, with any
 * number of threads, in any order, and the backward pass finds it again without a stored mask. An
 * element is kept where its number is at least rate * 2^32, and scaled by 1 / (1 - rate).
 */
#ifndef PG_DROPOUT_H
#define PG_DROPOUT_H

#include "common.h"

typedef struct pg_rng {
    uint64_t seed, step;
    uint32_t stream; /* which use of the seed: the layer */
} pg_rng;

/* mask = 0 or 1 / (1 - rate) */
void pg_dropout_mask(const pg_rng *r, float rate, pg_int n, float *mask);
/* y = mask * x; a dropped element is 0 whatever x is. Backward: the same with dy and dx. */
void pg_dropout(const pg_rng *r, float rate, pg_int n, const float *x, float *y);
/* The raw numbers, and uniform floats in [0, 1) made of their upper 24 bits. */
void pg_random_bits(const pg_rng *r, pg_int n, uint32_t *out);
void pg_random_uniform(const pg_rng *r, pg_int n, float *out);

#endif
