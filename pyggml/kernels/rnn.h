/* Recurrent layers over a whole sequence, forward and backward through time.
 *
 * The inputs' share of the gates comes in as xw [n, t, G * h], bias included; u [G * h, h] is the
 * recurrent kernel, a row for each output. Gates are in Keras' order:
 *
 *   LSTM (G = 4: i, f, c, o)  c = f c' + i tanh(z_c); h = o tanh(c)
 *   GRU  (G = 3: z, r, h)     h = z h' + (1 - z) tanh(xw_h + r (u_h h' + rbias)), with reset_after,
 *                             or tanh(xw_h + u_h (r h')) without
 *   SIMPLE (G = 1)            h = tanh(xw + u h')
 *
 * rbias [h] is the recurrent bias of the GRU's candidate (that of z and r belongs into xw).
 */
#ifndef PG_RNN_H
#define PG_RNN_H

#include "common.h"

enum { PG_RNN_LSTM, PG_RNN_GRU, PG_RNN_SIMPLE };

typedef struct pg_rnn {
    int kind, reset_after;
    int reverse; /* the last time step first; arrays stay in the order of time */
    pg_int n, t, h;
} pg_rnn;

/* Floats that forward leaves for backward. */
size_t pg_rnn_workspace(const pg_rnn *r);

/* h0, c0 [n, h] (NULL: zeros), hseq [n, t, h], c_last [n, h] or NULL, ws or NULL (no backward). */
int pg_rnn_forward(const pg_rnn *r, const float *xw, const float *u, const float *rbias,
                   const float *h0, const float *c0, float *hseq, float *c_last, float *ws);

/* ws is used up. dhseq [n, t, h], dh_last and dc_last [n, h] are gradients of the loss and may each be
 * NULL; dxw [n, t, G * h]; du, drbias, dh0, dc0 may be NULL. */
int pg_rnn_backward(const pg_rnn *r, const float *u, const float *h0, const float *c0,
                    const float *hseq, float *ws, const float *dhseq, const float *dh_last,
                    const float *dc_last, float *dxw, float *du, float *drbias, float *dh0,
                    float *dc0);

#endif
