/* XXH64, the 64-bit checksum of Yann Collet's xxHash specification (revision 0.1.1), in pieces of
 * any length. Written from the specification; the tests compare with its published values. */
#ifndef PYGGML_XXH64_H
#define PYGGML_XXH64_H

#include <stdint.h>
#include <string.h>

#define PG_P1 0x9E3779B185EBCA87ULL
#define PG_P2 0xC2B2AE3D27D4EB4FULL
#define PG_P3 0x165667B19E3779F9ULL
#define PG_P4 0x85EBCA77C2B2AE63ULL
#define PG_P5 0x27D4EB2F165667C5ULL

typedef struct {
    uint64_t lane[4];
    uint64_t total;
    unsigned char rest[32];
    size_t held;
} pg_xxh64;

static inline uint64_t pg_rotate(uint64_t x, int n) { return (x << n) | (x >> (64 - n)); }

static inline uint64_t pg_read64(const unsigned char * p) {
    uint64_t x;
    memcpy(&x, p, sizeof(x));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static inline uint64_t pg_round(uint64_t lane, uint64_t input) {
    return pg_rotate(lane + input * PG_P2, 31) * PG_P1;
}

static void pg_xxh64_start(pg_xxh64 * s) {
    memset(s, 0, sizeof(*s));
    s->lane[0] = PG_P1 + PG_P2;
    s->lane[1] = PG_P2;
    s->lane[3] = 0 - PG_P1;
}

static void pg_xxh64_update(pg_xxh64 * s, const unsigned char * p, size_t n) {
    s->total += n;
    if (s->held > 0) {
        size_t take = 32 - s->held < n ? 32 - s->held : n;
        memcpy(s->rest + s->held, p, take);
        s->held += take;
        p += take;
        n -= take;
        if (s->held < 32) {
            return;
        }
        for (int i = 0; i < 4; i++) {
            s->lane[i] = pg_round(s->lane[i], pg_read64(s->rest + 8 * i));
        }
        s->held = 0;
    }
    uint64_t a = s->lane[0], b = s->lane[1], c = s->lane[2], d = s->lane[3];
    for (; n >= 32; n -= 32, p += 32) {
        a = pg_round(a, pg_read64(p));
        b = pg_round(b, pg_read64(p + 8));
        c = pg_round(c, pg_read64(p + 16));
        d = pg_round(d, pg_read64(p + 24));
    }
    s->lane[0] = a;
    s->lane[1] = b;
    s->lane[2] = c;
    s->lane[3] = d;
    memcpy(s->rest, p, n);
    s->held = n;
}

static uint64_t pg_xxh64_value(const pg_xxh64 * s) {
    uint64_t h = PG_P5;
    if (s->total >= 32) {
        h = pg_rotate(s->lane[0], 1) + pg_rotate(s->lane[1], 7) + pg_rotate(s->lane[2], 12)
            + pg_rotate(s->lane[3], 18);
        for (int i = 0; i < 4; i++) {
            h = (h ^ pg_round(0, s->lane[i])) * PG_P1 + PG_P4;
        }
    }
    h += s->total;
    const unsigned char * p = s->rest;
    size_t n = s->held;
    for (; n >= 8; n -= 8, p += 8) {
        h = pg_rotate(h ^ pg_round(0, pg_read64(p)), 27) * PG_P1 + PG_P4;
    }
    if (n >= 4) {
        uint64_t word = (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16
            | (uint64_t)p[3] << 24;
        h = pg_rotate(h ^ (word * PG_P1), 23) * PG_P2 + PG_P3;
        n -= 4;
        p += 4;
    }
    for (; n > 0; n--, p++) {
        h = pg_rotate(h ^ (*p * PG_P5), 11) * PG_P1;
    }
    h = (h ^ (h >> 33)) * PG_P2;
    h = (h ^ (h >> 29)) * PG_P3;
    return h ^ (h >> 32);
}

#endif
