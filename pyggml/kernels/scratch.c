#include "scratch.h"

#include <stdlib.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <windows.h>
#else
#include <pthread.h>
#endif

typedef struct { void *p; size_t bytes; } block;
static PG_TLS block blocks[PG_SCRATCH_SLOTS];
static PG_TLS int noticed; /* whether the end of this thread will call free_at_end */

static void *aligned(size_t bytes) {
#if defined(_WIN32)
    return _aligned_malloc(bytes, 64);
#else
    void *p = NULL;
    return posix_memalign(&p, 64, bytes) == 0 ? p : NULL;
#endif
}

static void aligned_free(void *p) {
#if defined(_WIN32)
    _aligned_free(p);
#else
    free(p);
#endif
}

void pg_scratch_free(void) {
    for (int i = 0; i < PG_SCRATCH_SLOTS; i++) {
        aligned_free(blocks[i].p);
        blocks[i] = (block){NULL, 0};
    }
}

/* A key whose destructor runs when a thread ends: threads of the caller's come and go. */
#if defined(_WIN32)
static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
static DWORD key = FLS_OUT_OF_INDEXES;
static VOID WINAPI free_at_end(PVOID p) {
    if (p) pg_scratch_free();
}
static BOOL CALLBACK make_key(PINIT_ONCE o, PVOID p, PVOID *c) {
    (void)o, (void)p, (void)c;
    key = FlsAlloc(free_at_end);
    return TRUE;
}
static void notice(void) {
    InitOnceExecuteOnce(&once, make_key, NULL, NULL);
    if (key != FLS_OUT_OF_INDEXES) FlsSetValue(key, blocks);
}
#else
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int have_key;
static void free_at_end(void *p) {
    (void)p;
    pg_scratch_free();
}
static void make_key(void) { have_key = pthread_key_create(&key, free_at_end) == 0; }
static void notice(void) {
    pthread_once(&once, make_key);
    if (have_key) pthread_setspecific(key, blocks);
}
#endif

void *pg_scratch(int slot, size_t bytes) {
    block *b = &blocks[slot];
    if (b->bytes < bytes) {
        if (!noticed) {
            notice();
            noticed = 1;
        }
        /* Somewhat more than asked for, so that slowly growing wishes do not allocate each time. */
        size_t want = bytes + bytes / 4 + 4096;
        aligned_free(b->p);
        *b = (block){NULL, 0};
        void *p = aligned(want);
        if (p == NULL) return NULL;
        *b = (block){p, want};
    }
    return b->p;
}
