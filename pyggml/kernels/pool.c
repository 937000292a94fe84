#include "pool.h"

#include <stdlib.h>

#include "scratch.h"
#include "thread_shim.h"

#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__) || defined(_M_IX86)
#include <xmmintrin.h>
#endif

/* A waiting thread polls this long before it sleeps, and gives its core to others that want it
 * after the first part of that. Regions of one training step follow each other within a few
 * microseconds; a thread that sleeps takes tens of microseconds to come back. */
#define SPIN_NS 40000
#define YIELD_AFTER_NS 4000
#define MOVE_EVERY_NS 10000000
/* A brief region goes to the workers if the one before ended so lately. Less than SPIN_NS: workers
 * that only wait from one brief region to the next would take a core for little. */
#define CLOSE_NS 10000

#define SLOTS 256

/* One job at a time. generation grows by one before its fields are written and by one after, so
 * that a reader who finds the same even number before and after has the fields of one job. A part
 * is claimed by writing that number into its slot; a thread that comes late finds every slot of
 * its job taken, so it can never run a part of a job that is over. */
static struct {
    pg_mutex owner;  /* held by the thread whose region runs, or that resizes the pool */
    pg_mutex lock;   /* guards sleeping */
    pg_cond wake;    /* workers: a new generation */
    pg_cond done;    /* owner: the last part is done */
    pg_atomic n_threads;
    int started;     /* workers that run; guarded by owner */
    pg_thread thread[PG_MAX_THREADS];
    PG_ALIGN64 pg_atomic generation;
    pg_atomic stop;
    pg_atomic_ptr fn, ctx;
    pg_atomic n_parts;
    PG_ALIGN64 pg_atomic pending;
    pg_atomic sleeping, owner_sleeps;
    pg_atomic owner_cpu; /* where the last region began, or -1 */
    pg_atomic brief_end; /* when the last brief region ended */
    PG_ALIGN64 pg_atomic slot[SLOTS];
} P = {.owner = PG_MUTEX_INIT, .lock = PG_MUTEX_INIT, .wake = PG_COND_INIT, .done = PG_COND_INIT};

static PG_TLS int in_part;
static PG_TLS int thread_limit;

/* ---- denormals ---- */

pg_ftz_state pg_ftz_enter(void) {
#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__) || defined(_M_IX86)
    unsigned s = _mm_getcsr();
    _mm_setcsr(s | 0x8040u); /* FTZ and DAZ */
    return s;
#elif defined(__aarch64__) && defined(__GNUC__)
    uint64_t s;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(s));
    __asm__ __volatile__("msr fpcr, %0" ::"r"(s | (1ull << 24)));
    return s;
#elif defined(_M_ARM64)
    uint64_t s = (uint64_t)_ReadStatusReg(0x5A20); /* FPCR */
    _WriteStatusReg(0x5A20, (int64_t)(s | (1ull << 24)));
    return s;
#else
    return 0;
#endif
}

void pg_ftz_leave(pg_ftz_state s) {
#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__) || defined(_M_IX86)
    _mm_setcsr((unsigned)s);
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ __volatile__("msr fpcr, %0" ::"r"(s));
#elif defined(_M_ARM64)
    _WriteStatusReg(0x5A20, (int64_t)s);
#else
    (void)s;
#endif
}

/* ---- the work ---- */

static int claim(int i, int64_t generation) {
    int64_t v = pg_load(&P.slot[i]);
    return v < generation && pg_cas(&P.slot[i], v, generation);
}

static void run_slot(int i, int n_parts, pg_part_fn fn, void *ctx) {
    for (int p = i; p < n_parts; p += SLOTS) fn(ctx, p);
    if (pg_add(&P.pending, -1) == 0 && pg_load(&P.owner_sleeps)) {
        pg_lock(&P.lock);
        pg_wake_all(&P.done);
        pg_unlock(&P.lock);
    }
}

/* First the slots that are this thread's by number, so that it meets the same memory every time;
 * then whatever nobody has begun. */
static void work(int id, int n_threads, int64_t generation) {
    int n_parts = (int)pg_load(&P.n_parts);
    pg_part_fn fn = (pg_part_fn)pg_load_ptr(&P.fn);
    void *ctx = pg_load_ptr(&P.ctx);
    if (pg_load(&P.generation) != generation) return; /* too late, the job is over */
    int n = n_parts < SLOTS ? n_parts : SLOTS;
    in_part = 1;
    for (int i = id; i < n; i += n_threads)
        if (claim(i, generation)) run_slot(i, n_parts, fn, ctx);
    for (int k = 1; k < n; k++) {
        int i = (id + k) % n;
        if (claim(i, generation)) run_slot(i, n_parts, fn, ctx);
    }
    in_part = 0;
}

/* Poll until *a differs from v; 0 if it did not in SPIN_NS. */
static int spin_while_equal(pg_atomic *a, int64_t v) {
    int64_t begin = 0;
    for (int i = 0;; i++) {
        if (pg_load(a) != v) return 1;
        pg_relax();
        if (i % 16 == 15) {
            int64_t now = pg_now_ns();
            if (begin == 0) begin = now;
            if (now - begin > SPIN_NS) return 0;
            if (now - begin > YIELD_AFTER_NS) pg_yield();
        }
    }
}

/* Linux may leave two threads of one process on one processor for a tenth of a second while another
 * is idle, if both ran lately. A worker that finds itself on the owner's moves away, but not often:
 * with more threads than processors there is no better place. */
static void make_way(int64_t *last) {
    int cpu = pg_this_cpu();
    if (cpu < 0 || cpu != (int)pg_load(&P.owner_cpu)) return;
    int64_t now = pg_now_ns();
    if (*last != 0 && now - *last < MOVE_EVERY_NS) return;
    *last = now;
    pg_leave_cpu(cpu);
}

static int64_t wait_for_job(int64_t seen) {
    for (;;) {
        if (!spin_while_equal(&P.generation, seen)) {
            pg_lock(&P.lock);
            pg_add(&P.sleeping, 1);
            while (pg_load(&P.generation) == seen) pg_wait(&P.wake, &P.lock);
            pg_add(&P.sleeping, -1);
            pg_unlock(&P.lock);
        }
        int64_t now = pg_load(&P.generation);
        if (now % 2 == 0) return now;
        seen = now; /* being written: wait for the next number */
    }
}

static void publish(void) {
    pg_add(&P.generation, 2 - pg_load(&P.generation) % 2);
    if (pg_load(&P.sleeping) > 0) {
        pg_lock(&P.lock);
        pg_wake_all(&P.wake);
        pg_unlock(&P.lock);
    }
}

typedef struct { int id, n_threads; int64_t seen; } worker_arg;
static worker_arg worker_args[PG_MAX_THREADS];

static PG_THREAD_RESULT worker_main(void *p) {
    worker_arg a = *(worker_arg *)p;
    int64_t moved = 0;
    pg_ftz_enter();
    for (;;) {
        a.seen = wait_for_job(a.seen);
        if (pg_load(&P.stop)) break;
        make_way(&moved);
        work(a.id, a.n_threads, a.seen);
    }
    pg_scratch_free();
    return PG_THREAD_RETURN;
}

/* ---- start and stop; the caller holds owner ---- */

static void stop_workers(void) {
    if (P.started == 0) return;
    pg_store(&P.stop, 1);
    publish();
    for (int i = 0; i < P.started; i++) pg_thread_join(P.thread[i]);
    P.started = 0;
    pg_store(&P.stop, 0);
}

#if !defined(_WIN32)
/* The child of a fork has none of the parent's workers, whatever they were doing. */
static void after_fork(void) {
    pg_mutex_init(&P.owner);
    pg_mutex_init(&P.lock);
    pg_cond_init(&P.wake);
    pg_cond_init(&P.done);
    P.started = 0;
    pg_store(&P.stop, 0);
    pg_store(&P.sleeping, 0);
    pg_store(&P.owner_sleeps, 0);
    pg_add(&P.generation, 2 + pg_load(&P.generation) % 2);
    in_part = 0;
}
#endif

static void start_workers(int n_threads) {
    static int registered;
#if !defined(_WIN32) /* Windows ends a process's other threads before it unloads libraries */
    if (!registered) {
        pthread_atfork(NULL, NULL, after_fork);
        atexit(pg_pool_stop);
    }
#endif
    registered = 1;
    int64_t generation = pg_load(&P.generation);
    for (int i = P.started; i < n_threads - 1; i++) {
        worker_args[i] = (worker_arg){i + 1, n_threads, generation};
        if (pg_thread_start(&P.thread[i], worker_main, &worker_args[i]) != 0) break;
        P.started = i + 1;
    }
    (void)registered;
}

void pg_pool_stop(void) {
    if (in_part) return;
    pg_lock(&P.owner);
    stop_workers();
    pg_unlock(&P.owner);
}

static int pool_size(void) {
    int n = (int)pg_load(&P.n_threads);
    if (n == 0) {
        n = pg_cpu_count();
        if (n > PG_MAX_THREADS) n = PG_MAX_THREADS;
        if (!pg_cas(&P.n_threads, 0, n)) n = (int)pg_load(&P.n_threads);
    }
    return n;
}

int pg_set_num_threads(int n) {
    if (n < 1 || in_part) return PG_EINVAL;
    if (n > PG_MAX_THREADS) n = PG_MAX_THREADS;
    pg_lock(&P.owner);
    if (n != pool_size()) {
        stop_workers();
        pg_store(&P.n_threads, n);
    }
    pg_unlock(&P.owner);
    return PG_OK;
}

int pg_get_num_threads(void) {
    int n = pool_size();
    return thread_limit > 0 && thread_limit < n ? thread_limit : n;
}

void pg_set_thread_limit(int n) { thread_limit = n > 0 ? n : 0; }

void pg_parallel(int n_parts, pg_part_fn fn, void *ctx) {
    if (n_parts <= 1 || in_part || !pg_trylock(&P.owner)) {
        for (int i = 0; i < n_parts; i++) fn(ctx, i);
        return;
    }
    int n_threads = pool_size();
    if (n_threads > 1 && P.started < n_threads - 1) start_workers(n_threads);
    if (P.started == 0) {
        pg_unlock(&P.owner);
        for (int i = 0; i < n_parts; i++) fn(ctx, i);
        return;
    }
    pg_add(&P.generation, 1);
    pg_store_ptr(&P.fn, (void *)fn);
    pg_store_ptr(&P.ctx, ctx);
    pg_store(&P.n_parts, n_parts);
    pg_store(&P.owner_cpu, pg_this_cpu());
    pg_store(&P.pending, pg_min(n_parts, SLOTS));
    publish();
    work(0, n_threads, pg_load(&P.generation));
    while (pg_load(&P.pending) != 0) {
        int64_t left = pg_load(&P.pending);
        if (left != 0 && !spin_while_equal(&P.pending, left)) {
            pg_lock(&P.lock);
            pg_store(&P.owner_sleeps, 1);
            while (pg_load(&P.pending) != 0) pg_wait(&P.done, &P.lock);
            pg_store(&P.owner_sleeps, 0);
            pg_unlock(&P.lock);
        }
    }
    pg_unlock(&P.owner);
}

void pg_parallel_brief(int n_parts, pg_part_fn fn, void *ctx) {
    if (pg_now_ns() - pg_load(&P.brief_end) < CLOSE_NS) {
        pg_parallel(n_parts, fn, ctx);
    } else {
        for (int i = 0; i < n_parts; i++) fn(ctx, i);
    }
    pg_store(&P.brief_end, pg_now_ns());
}

int pg_parts(pg_int n, pg_int grain) {
    pg_int most = grain > 0 ? n / grain : n;
    int threads = pg_get_num_threads();
    return (int)pg_max(1, pg_min(most, threads));
}

void pg_part_range(pg_int n, pg_int unit, int parts, int i, pg_int *begin, pg_int *end) {
    pg_int units = pg_ceil_div(n, unit);
    *begin = pg_min(n, units * i / parts * unit);
    *end = pg_min(n, units * (i + 1) / parts * unit);
}
