/* What the files with custom nodes share. */
#ifndef PG_NODE_COMMON_H
#define PG_NODE_COMMON_H

#include "nodes.h"

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
