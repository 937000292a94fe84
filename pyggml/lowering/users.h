/* Who uses a tensor, and which carrier it is the key of: a hash. */
#ifndef PG_USERS_H
#define PG_USERS_H

#include <stddef.h>

#include "lowering.h"

typedef struct pg_users {
    size_t                size; /* a power of two */
    struct ggml_tensor ** key;
    int *                 count;
    struct ggml_tensor ** first;
    const pg_carrier **   carrier;
} pg_users;

/* Of the nodes of two contexts. PG_OK or PG_ENOMEM; free it in any case. */
int  pg_users_make(pg_users * u, struct ggml_context * a, struct ggml_context * b,
                   const pg_carrier * carriers, int n_carriers);
void pg_users_free(pg_users * u);

/* Where a tensor is, or would be. */
size_t               pg_users_slot(const pg_users * u, const struct ggml_tensor * t);
int                  pg_users_count(const pg_users * u, const struct ggml_tensor * t);
struct ggml_tensor * pg_only_user(const pg_users * u, const struct ggml_tensor * t);

#endif
