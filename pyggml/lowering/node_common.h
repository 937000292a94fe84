/* What the files with custom nodes share. */
#ifndef PG_NODE_COMMON_H
#define PG_NODE_COMMON_H

#include <string.h>

#include "nodes.h"

/* ggml keeps the function and its data in a custom node's parameters, in this order. */
typedef struct custom_params {
    ggml_custom_op_t fun;
    int              n_tasks;
    void *           userdata;
} custom_params;

static inline custom_params params_of(const struct ggml_tensor * t) {
    custom_params p;
    memcpy(&p, t->op_params, sizeof(p));
    return p;
}

/* ggml runs these graphs on one thread; the kernels bring their own. */
#define BEGIN                                                                                     \
    const pg_note * note = (const pg_note *) userdata;                                            \
    (void) note;                                                                                  \
    (void) nth;                                                                                   \
    if (ith != 0) {                                                                               \
        return;                                                                                   \
    }

#define F(tensor) ((float *) (tensor)->data)

static inline void failed(const pg_note * note, int status) {
    if (status != PG_OK) {
        *note->status = status;
    }
}

#endif
