/* Functions of several tensors that carriers of kind PG_CARRY_FUNCTION become. */
#ifndef PG_FUNCTIONS_H
#define PG_FUNCTIONS_H

#include "lowering.h"

/* Fill in forward and backward for what u says; inputs in this order. */
void pg_function_conv(pg_function * f);       /* x, weights, bias (may be left out) */
void pg_function_max_pool(pg_function * f);   /* x */
void pg_function_avg_pool(pg_function * f);   /* x */
void pg_function_gather(pg_function * f);     /* table, ids */
void pg_function_layer_norm(pg_function * f); /* x, gamma, beta; workspace 2 rows */
void pg_function_batch_norm(pg_function * f); /* x, gamma, beta; workspace 2 channels */
void pg_function_batch_norm_fixed(pg_function * f); /* x, gamma, beta, mean, variance */
void pg_function_rnn(pg_function * f); /* xw, u, rbias, h0, c0; workspace pg_function_rnn_floats */
size_t pg_function_rnn_floats(const pg_rnn * r);
void pg_function_attention(pg_function * f); /* q, k, v, what queries see (may be left out) */
size_t pg_function_attention_floats(const pg_attention * a); /* workspace for backward */

/* Whether it computes an activation of its result if act and param say so. */
int pg_fuses_activation(const pg_function * f);

#endif
