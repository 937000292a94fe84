/* Numbers that one thread writes while another one looks without a lock, and may see a little later. */

#ifndef PYGGML_SHARED_H
#define PYGGML_SHARED_H

#include <stdint.h>

#if defined(__GNUC__)
static inline int pyggml_peek(const int * value) { return __atomic_load_n(value, __ATOMIC_RELAXED); }
static inline void pyggml_set(int * value, int to) { __atomic_store_n(value, to, __ATOMIC_RELAXED); }
static inline int64_t pyggml_peek64(const int64_t * value) {
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}
static inline void pyggml_set64(int64_t * value, int64_t to) {
    __atomic_store_n(value, to, __ATOMIC_RELAXED);
}
#else /* MSVC, where volatile accesses of up to 64 bits are whole */
static inline int pyggml_peek(const int * value) { return *(const volatile int *) value; }
static inline void pyggml_set(int * value, int to) { *(volatile int *) value = to; }
static inline int64_t pyggml_peek64(const int64_t * value) {
    return *(const volatile int64_t *) value;
}
static inline void pyggml_set64(int64_t * value, int64_t to) { *(volatile int64_t *) value = to; }
#endif

#endif
