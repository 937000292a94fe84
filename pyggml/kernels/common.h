/* What every kernel file needs: status codes and the compiler's words for a few ideas. */
#ifndef PG_COMMON_H
#define PG_COMMON_H

#include <stddef.h>
#include <stdint.h>

/* Status of a kernel that may have to allocate scratch memory. */
enum { PG_OK = 0, PG_ENOMEM = -1, PG_EINVAL = -2 };

#if defined(__GNUC__)
#define PG_INLINE static inline __attribute__((always_inline, unused))
#define PG_NOINLINE __attribute__((noinline))
#define PG_RESTRICT __restrict
#if defined(__clang__) /* which unrolls by a number too late to keep arrays in registers */
#define PG_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PG_UNROLL _Pragma("GCC unroll 16")
#endif
#define PG_ALIGN64 __attribute__((aligned(64)))
#elif defined(_MSC_VER)
#define PG_INLINE static __forceinline
#define PG_NOINLINE __declspec(noinline)
#define PG_RESTRICT __restrict
#define PG_UNROLL
#define PG_ALIGN64 __declspec(align(64))
#else
#define PG_INLINE static inline
#define PG_NOINLINE
#define PG_RESTRICT restrict
#define PG_UNROLL
#define PG_ALIGN64 _Alignas(64)
#endif

/* AddressSanitizer sees plain accesses and memcpy, but no instruction with a mask. */
#if defined(__SANITIZE_ADDRESS__)
#define PG_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PG_ASAN
#endif
#endif

#if defined(_MSC_VER)
#define PG_TLS __declspec(thread)
#else
#define PG_TLS _Thread_local
#endif

typedef ptrdiff_t pg_int; /* sizes, strides and indices */

PG_INLINE pg_int pg_min(pg_int a, pg_int b) { return a < b ? a : b; }
PG_INLINE pg_int pg_max(pg_int a, pg_int b) { return a > b ? a : b; }
PG_INLINE pg_int pg_ceil_div(pg_int a, pg_int b) { return (a + b - 1) / b; }

PG_INLINE void pg_prefetch(const void *p) {
#if defined(__GNUC__)
    __builtin_prefetch(p);
#else
    (void)p;
#endif
}

/* Into the second-level cache. */
PG_INLINE void pg_prefetch_l2(const void *p) {
#if defined(__GNUC__)
    __builtin_prefetch(p, 0, 2);
#else
    (void)p;
#endif
}

#endif
