/* Custom nodes: what ggml calls in place of its own operations. */
#ifndef PG_NODES_H
#define PG_NODES_H

#include "lowering.h"

/* What a custom node needs beside its sources. */
typedef struct pg_note {
    int *    status;
    int      act; /* an activation, a loss or a rule */
    float    param[2];
    double   scale;
    int      flag; /* see the node */
    pg_rng * rng;
    pg_function * function;
    struct pg_note * next;
} pg_note;

/* src: a [K,M], b [K,N] as of MUL_MAT. */
void pg_node_mul_mat(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: a [K,M], b [K,N], bias [M]; act. */
void pg_node_dense(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: a [M,K], b [N,K] as of OUT_PROD; b may be transposed. */
void pg_node_out_prod(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: a, b of OUT_PROD, weight, params, states; act = rule, param[0] = limit of each element of the
 * gradient or 0. */
void pg_node_update(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: weight, gradient, params, states; act and param as before. */
void pg_node_step(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: a, and b of its shape or of that of some of its last axes */
void pg_node_add(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: x, permuted */
void pg_node_permuted(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: x [M,rows] */
void pg_node_sum_rows(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: x */
void pg_node_act(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: dy, and y if flag, else x */
void pg_node_act_back(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: x, or dy for the backward pass */
void pg_node_dropout(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: predictions, labels, weights; flag: weights are one a row */
void pg_node_loss(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: gradient of the loss, predictions, labels, weights */
void pg_node_loss_back(struct ggml_tensor * dst, int ith, int nth, void * note);
void pg_node_softmax(struct ggml_tensor * dst, int ith, int nth, void * note);
/* src: dy, y */
void pg_node_softmax_back(struct ggml_tensor * dst, int ith, int nth, void * note);

/* Whether a rewritten node is a gradient of f, and of which input. */
int pg_is_gradient_of(const struct ggml_tensor * t, const pg_function * f);
int pg_is_gradient(const struct ggml_tensor * t, const pg_function * f, int input);

#endif
