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
#include "attention.h"
#include "conv.h"
#include "dropout.h"
#include "ggml.h"
#include "losses.h"
#include "norm.h"
#include "pooling.h"
#include "rnn.h"
#include "steps.h"

enum pg_carrier_kind {
    PG_CARRY_ACTIVATION, /* SILU(key): act, param[0] */
    PG_CARRY_DROPOUT,    /* SILU(key): param[0] = rate, rng */
    PG_CARRY_LOSS,       /* CROSS_ENTROPY_LOSS(pred, key): act = kind of loss, param, scale */
    PG_CARRY_FUNCTION,   /* GET_ROWS(input, key): function, act = number of the input */
};

/* A function of several tensors with a gradient for each, carried by a sum of GET_ROWS nodes: they
 * map any shape to any other, and GET_ROWS_BACK maps back. The first becomes the function, the
 * others and the additions become views of it. */
#define PG_MAX_INPUTS 6

typedef struct pg_norm {
    int    rms, training;
    float  eps;
    pg_int batch, channels, size;
} pg_norm;

typedef union pg_function_u {
    pg_conv      conv;
    pg_pool2d    pool;
    pg_rnn       rnn;
    pg_norm      norm;
    pg_attention attention;
} pg_function_u;

typedef struct pg_function {
    ggml_custom_op_t     forward;                 /* src: inputs, workspace */
    ggml_custom_op_t     backward[PG_MAX_INPUTS]; /* src: gradient, inputs, workspace, output */
    int                  n_inputs;
    struct ggml_tensor * inputs[PG_MAX_INPUTS];
    int                  given[PG_MAX_INPUTS]; /* 0: stands for an input that was left out */
    struct ggml_tensor * workspace; /* memory from forward to backward, or NULL */
    struct ggml_tensor * output;    /* the first GET_ROWS node */
    struct ggml_tensor * sums[PG_MAX_INPUTS];
    int                  n_sums;
    int                  same_node; /* backward[0] computes all gradients, the others copy */
    pg_function_u        u;
    int   act;
    float param;
} pg_function;

typedef struct pg_carrier {
    struct ggml_tensor * key;
    enum pg_carrier_kind kind;
    int                  act;
    float                param[2];
    double               scale;
    struct ggml_tensor * extra[2]; /* of a loss: labels, weights or NULL */
    int                  weight_rows; /* weights are one a row, not one an element */
    pg_rng *             rng;
    pg_function *        function;
} pg_carrier;

enum pg_rule {
    PG_RULE_MATMUL  = 1 << 0, /* MUL_MAT, OUT_PROD */
    PG_RULE_FUSE    = 1 << 1, /* bias and activation into products and convolutions */
    PG_RULE_STEP    = 1 << 2, /* steps of optimizers */
    PG_RULE_BIAS    = 1 << 3, /* REPEAT_BACK over rows */
    PG_RULE_UPDATE  = 1 << 4, /* a weight's gradient and step in one */
    PG_RULE_SOFTMAX = 1 << 5,
    /* Carriers: whoever builds the graph asks for these; without them it composes the function. */
    PG_RULE_ACTIVATION = 1 << 6,
    PG_RULE_DROPOUT    = 1 << 7,
    PG_RULE_LOSS       = 1 << 8,
    PG_RULE_CONV       = 1 << 9,
    PG_RULE_POOL       = 1 << 10,
    PG_RULE_GATHER     = 1 << 11,
    PG_RULE_LAYER_NORM = 1 << 12,
    PG_RULE_BATCH_NORM = 1 << 13,
    PG_RULE_RNN        = 1 << 14,
    PG_RULE_ATTENTION  = 1 << 15,
    PG_RULE_ADD        = 1 << 16, /* sums with no bias of a product */
    PG_RULE_COPY       = 1 << 17, /* of permuted axes */
    PG_RULE_ALL        = (1 << 18) - 1,
};

typedef struct pg_lowered pg_lowered;

/* Rewrite the nodes of both contexts; carriers always, the rest as far as rules say. NULL: no
 * memory. The result owns what the nodes refer to, and outlives the graph. */
pg_lowered * pg_lower(struct ggml_context * compute, struct ggml_context * kept,
                      const pg_carrier * carriers, int n_carriers, int rules);
void         pg_lowered_free(pg_lowered * lowered);
/* PG_OK, or what a kernel of the last computations failed with; resets it. */
int          pg_lowered_status(pg_lowered * lowered);
/* Whether a kernel failed since pg_lowered_status was asked; NULL has no kernels. */
int          pg_lowered_failed(const pg_lowered * lowered);
/* How many nodes call a kernel, and how many are left out. */
int          pg_lowered_count(const pg_lowered * lowered);
int          pg_lowered_dead(const pg_lowered * lowered);

#endif
