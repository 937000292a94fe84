/* Lowering: after ggml has built a graph, its nodes on the CPU are rewritten in place to custom
 * nodes that call the kernels. The graph before it is the meaning, except for carriers.
 *
 * A carrier is a node with a backward pass of the right shape that stands for something else:
 * SILU for an activation or dropout, CROSS_ENTROPY_LOSS for any loss. Both its nodes are
 * rewritten; a graph with carriers is never run without lowering.
 */
#ifndef PG_LOWERING_H
#define PG_LOWERING_H

#include <stdint.h>

#include "activations.h"
#include "dropout.h"
#include "ggml.h"
#include "losses.h"
#include "steps.h"

enum pg_carrier_kind {
    PG_CARRY_ACTIVATION, /* SILU(key): act, param[0] */
    PG_CARRY_DROPOUT,    /* SILU(key): param[0] = rate, rng */
    PG_CARRY_LOSS,       /* CROSS_ENTROPY_LOSS(pred, key): act = kind of loss, param, scale */
};

typedef struct pg_carrier {
    struct ggml_tensor * key;
    enum pg_carrier_kind kind;
    int                  act;
    float                param[2];
    double               scale;
    struct ggml_tensor * extra[2]; /* of a loss: labels, weights or NULL */
    int                  weight_rows; /* weights are one a row, not one an element */
    pg_rng *             rng;
} pg_carrier;

enum pg_rule {
    PG_RULE_MATMUL = 1,   /* MUL_MAT, OUT_PROD */
    PG_RULE_FUSE   = 2,   /* bias and activation into the product */
    PG_RULE_STEP   = 4,   /* steps of optimizers */
    PG_RULE_BIAS   = 8,   /* REPEAT_BACK over rows */
    PG_RULE_UPDATE = 16,  /* a weight's gradient and step in one */
    PG_RULE_SOFTMAX = 32,
    PG_RULE_ALL    = 0xffff,
};

typedef struct pg_lowered pg_lowered;

/* Rewrite the nodes of both contexts; carriers always, the rest as far as rules say. NULL: no
 * memory. The result owns what the nodes refer to, and outlives the graph. */
pg_lowered * pg_lower(struct ggml_context * compute, struct ggml_context * kept,
                      const pg_carrier * carriers, int n_carriers, int rules);
void         pg_lowered_free(pg_lowered * lowered);
/* PG_OK, or what a kernel of the last computations failed with; resets it. */
int          pg_lowered_status(pg_lowered * lowered);
/* How many nodes were rewritten. */
int          pg_lowered_count(const pg_lowered * lowered);

#endif
