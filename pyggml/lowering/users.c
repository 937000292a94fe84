#include "users.h"

#include <stdlib.h>

size_t pg_users_slot(const pg_users * u, const struct ggml_tensor * t) {
    size_t i = ((size_t) (uintptr_t) t >> 4) * (size_t) 0x9e3779b97f4a7c15ULL & (u->size - 1);
    while (u->key[i] != NULL && u->key[i] != t) {
        i = (i + 1) & (u->size - 1);
    }
    return i;
}

int pg_users_count(const pg_users * u, const struct ggml_tensor * t) {
    const size_t i = pg_users_slot(u, t);
    return u->key[i] == NULL ? 0 : u->count[i];
}

struct ggml_tensor * pg_only_user(const pg_users * u, const struct ggml_tensor * t) {
    const size_t i = pg_users_slot(u, t);
    return u->key[i] != NULL && u->count[i] == 1 ? u->first[i] : NULL;
}

static void add_users(pg_users * u, struct ggml_context * ctx) {
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL;
         t = ggml_get_next_tensor(ctx, t)) {
        for (int s = 0; s < GGML_MAX_SRC; ++s) {
            if (t->src[s] == NULL) {
                continue;
            }
            const size_t i = pg_users_slot(u, t->src[s]);
            if (u->key[i] == NULL) {
                u->key[i]   = t->src[s];
                u->first[i] = t;
            }
            u->count[i]++;
        }
    }
}

static size_t count_tensors(struct ggml_context * ctx) {
    size_t n = 0;
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL;
         t = ggml_get_next_tensor(ctx, t)) {
        n++;
    }
    return n;
}

int pg_users_make(pg_users * u, struct ggml_context * a, struct ggml_context * b,
                  const pg_carrier * carriers, int n_carriers) {
    size_t n = GGML_MAX_SRC;
    n += 4 * (count_tensors(a) + count_tensors(b));
    u->size = 64;
    while (u->size < 2 * n) {
        u->size *= 2;
    }
    u->key     = calloc(u->size, sizeof(*u->key));
    u->count   = calloc(u->size, sizeof(*u->count));
    u->first   = calloc(u->size, sizeof(*u->first));
    u->carrier = calloc(u->size, sizeof(*u->carrier));
    if (u->key == NULL || u->count == NULL || u->first == NULL || u->carrier == NULL) {
        return PG_ENOMEM;
    }
    add_users(u, a);
    add_users(u, b);
    for (int c = 0; c < n_carriers; ++c) {
        const size_t i = pg_users_slot(u, carriers[c].key);
        if (u->key[i] != NULL) {
            u->carrier[i] = &carriers[c];
        }
    }
    return PG_OK;
}

void pg_users_free(pg_users * u) {
    free(u->key);
    free(u->count);
    free(u->first);
    free(u->carrier);
}
