/* The few words about threads that the pool needs, over POSIX threads and over Windows. */
#ifndef PG_THREAD_SHIM_H
#define PG_THREAD_SHIM_H

#include <stdint.h>

#include "common.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#endif

/* ---- atomics: sequentially consistent unless the name says otherwise ---- */

#if defined(_MSC_VER) && !defined(__clang__)

#include <intrin.h>
typedef struct { volatile __int64 v; } pg_atomic;
typedef struct { void *volatile v; } pg_atomic_ptr;
PG_INLINE int64_t pg_load(pg_atomic *a) {
#if defined(_M_ARM64)
    return InterlockedOr64(&a->v, 0);
#else
    int64_t r = a->v; /* x86: a load is never ordered before an earlier locked store */
    _ReadWriteBarrier();
    return r;
#endif
}
PG_INLINE void pg_store(pg_atomic *a, int64_t v) { InterlockedExchange64(&a->v, v); }
PG_INLINE int64_t pg_add(pg_atomic *a, int64_t v) { return InterlockedExchangeAdd64(&a->v, v) + v; }
PG_INLINE int pg_cas(pg_atomic *a, int64_t old, int64_t v) {
    return InterlockedCompareExchange64(&a->v, v, old) == old;
}
PG_INLINE void *pg_load_ptr(pg_atomic_ptr *a) {
    return InterlockedCompareExchangePointer(&a->v, NULL, NULL);
}
PG_INLINE void pg_store_ptr(pg_atomic_ptr *a, void *p) { InterlockedExchangePointer(&a->v, p); }

#else

#include <stdatomic.h>
typedef struct { atomic_int_least64_t v; } pg_atomic;
typedef struct { _Atomic(void *) v; } pg_atomic_ptr;
PG_INLINE int64_t pg_load(pg_atomic *a) { return atomic_load(&a->v); }
PG_INLINE void pg_store(pg_atomic *a, int64_t v) { atomic_store(&a->v, v); }
PG_INLINE int64_t pg_add(pg_atomic *a, int64_t v) { return atomic_fetch_add(&a->v, v) + v; }
PG_INLINE int pg_cas(pg_atomic *a, int64_t old, int64_t v) {
    int_least64_t expected = old;
    return atomic_compare_exchange_strong(&a->v, &expected, v);
}
PG_INLINE void *pg_load_ptr(pg_atomic_ptr *a) { return atomic_load(&a->v); }
PG_INLINE void pg_store_ptr(pg_atomic_ptr *a, void *p) { atomic_store(&a->v, p); }

#endif

/* Tells the core that this is a waiting loop. */
PG_INLINE void pg_relax(void) {
#if defined(_MSC_VER) && !defined(__clang__)
    YieldProcessor();
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* ---- mutex, condition, thread ---- */

#if defined(_WIN32)

typedef SRWLOCK pg_mutex;
typedef CONDITION_VARIABLE pg_cond;
typedef HANDLE pg_thread;
#define PG_MUTEX_INIT SRWLOCK_INIT
#define PG_COND_INIT CONDITION_VARIABLE_INIT
PG_INLINE void pg_mutex_init(pg_mutex *m) { InitializeSRWLock(m); }
PG_INLINE void pg_cond_init(pg_cond *c) { InitializeConditionVariable(c); }
PG_INLINE void pg_lock(pg_mutex *m) { AcquireSRWLockExclusive(m); }
PG_INLINE int pg_trylock(pg_mutex *m) { return TryAcquireSRWLockExclusive(m) != 0; }
PG_INLINE void pg_unlock(pg_mutex *m) { ReleaseSRWLockExclusive(m); }
PG_INLINE void pg_wait(pg_cond *c, pg_mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
PG_INLINE void pg_wake_all(pg_cond *c) { WakeAllConditionVariable(c); }
PG_INLINE void pg_yield(void) { SwitchToThread(); }
PG_INLINE int64_t pg_now_ns(void) {
    LARGE_INTEGER t, f;
    QueryPerformanceCounter(&t);
    QueryPerformanceFrequency(&f);
    return (int64_t)((double)t.QuadPart * 1e9 / (double)f.QuadPart);
}
#define PG_THREAD_RESULT DWORD WINAPI
#define PG_THREAD_RETURN 0
PG_INLINE int pg_thread_start(pg_thread *t, LPTHREAD_START_ROUTINE fn, void *arg) {
    *t = CreateThread(NULL, 0, fn, arg, 0, NULL);
    return *t == NULL ? -1 : 0;
}
PG_INLINE void pg_thread_join(pg_thread t) {
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
PG_INLINE int pg_this_cpu(void) { return -1; } /* not needed: see pg_leave_cpu */
PG_INLINE void pg_leave_cpu(int cpu) { (void)cpu; }
PG_INLINE int pg_cpu_count(void) {
    DWORD_PTR mine, all;
    int n = 0;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) return 1;
    for (; mine; mine &= mine - 1) n++;
    return n > 0 ? n : 1;
}

#else

typedef pthread_mutex_t pg_mutex;
typedef pthread_cond_t pg_cond;
typedef pthread_t pg_thread;
#define PG_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define PG_COND_INIT PTHREAD_COND_INITIALIZER
PG_INLINE void pg_mutex_init(pg_mutex *m) { pthread_mutex_init(m, NULL); }
PG_INLINE void pg_cond_init(pg_cond *c) { pthread_cond_init(c, NULL); }
PG_INLINE void pg_lock(pg_mutex *m) { pthread_mutex_lock(m); }
PG_INLINE int pg_trylock(pg_mutex *m) { return pthread_mutex_trylock(m) == 0; }
PG_INLINE void pg_unlock(pg_mutex *m) { pthread_mutex_unlock(m); }
PG_INLINE void pg_wait(pg_cond *c, pg_mutex *m) { pthread_cond_wait(c, m); }
PG_INLINE void pg_wake_all(pg_cond *c) { pthread_cond_broadcast(c); }
PG_INLINE void pg_yield(void) { sched_yield(); }
PG_INLINE int64_t pg_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#define PG_THREAD_RESULT void *
#define PG_THREAD_RETURN NULL
PG_INLINE int pg_thread_start(pg_thread *t, void *(*fn)(void *), void *arg) {
    /* Signals stay with the threads that Python knows. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(t, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? 0 : -1;
}
PG_INLINE void pg_thread_join(pg_thread t) { pthread_join(t, NULL); }
/* The processor this thread runs on, or -1. */
PG_INLINE int pg_this_cpu(void) {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}
/* Move the calling thread off a processor, if it may run on others; where it may run stays as it
 * is. */
PG_INLINE void pg_leave_cpu(int cpu) {
#if defined(__linux__) && defined(CPU_COUNT)
    cpu_set_t mine, others;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;
    others = mine;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof mine, &mine);
#else
    (void)cpu;
#endif
}
PG_INLINE int pg_cpu_count(void) {
#if defined(__linux__) && defined(CPU_COUNT)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

#endif

#endif
