/* Dropout masks from a counter: element i of stream s at step t depends on nothing else, so a
 * run can be resumed at any step and every platform draws the same masks. */

#ifndef PYGGML_DROPOUT_H
#define PYGGML_DROPOUT_H

#include <stdint.h>

static inline uint64_t pg_mix64(uint64_t z) { /* the finaliser of SplitMix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void pg_dropout_mask(float * mask, int64_t n, double rate, uint64_t seed, uint64_t step,
                            uint64_t stream) {
    const uint64_t key = pg_mix64(seed + UINT64_C(0x9e3779b97f4a7c15) * (step + 1));
    const uint64_t base = pg_mix64(key ^ pg_mix64(stream + 1));
    const float    kept = (float) (1.0 / (1.0 - rate));
    const uint64_t cut  = (uint64_t) (rate * 4294967296.0); /* a number below it is dropped */
    for (int64_t i = 0; i < n; i += 2) {
        const uint64_t bits = pg_mix64(base + UINT64_C(0x9e3779b97f4a7c15) * (uint64_t) (i / 2));
        mask[i] = (bits & UINT64_C(0xffffffff)) < cut ? 0.0f : kept;
        if (i + 1 < n) {
            mask[i + 1] = (bits >> 32) < cut ? 0.0f : kept;
        }
    }
}

#endif
