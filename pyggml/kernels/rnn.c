#include "rnn.h"

#include <string.h>

#include "activations.h"
#include "gemm.h"
#include "isa.h"
#include "pool.h"
#include "scratch.h"
#include "thread_shim.h"

/* Multiply-adds of all steps below which one thread is faster than several. */
#define PARALLEL 200000.0

static pg_int gates(const pg_rnn *r) {
    return r->kind == PG_RNN_LSTM ? 4 : r->kind == PG_RNN_GRU ? 3 : 1;
}

/* Floats of the workspace for one row and step, in units of h. */
static pg_int slot(const pg_rnn *r) {
    return r->kind == PG_RNN_LSTM ? 6 : r->kind == PG_RNN_GRU ? 4 : 0;
}

size_t pg_rnn_workspace(const pg_rnn *r) {
    return (size_t)(r->n * r->t * r->h) * (size_t)slot(r);
}

typedef struct {
    const pg_rnn *r;
    const float *xw, *u, *rbias, *h0, *c0, *dhseq, *dh_last, *dc_last, *packed, *packed_h;
    const float *hseq_in;
    float *hseq, *c_last, *ws, *dxw, *dh0, *dc0;
    int parts;
    pg_atomic status;
} job;

static int parts_of(const pg_rnn *r) {
    double work = (double)(r->n * r->t) * (double)(gates(r) * r->h) * (double)r->h;
    return work < PARALLEL ? 1 : pg_parts(r->n, 1);
}

/* Step i in the order of the recurrence -> time. */
static pg_int time_of(const pg_rnn *r, pg_int i) { return r->reverse ? r->t - 1 - i : i; }

/* z[rows][G h] = h' u^T for rows from b on. */
static void recur(const job *j, const float *h_prev, pg_int ld, pg_int rows, pg_int cols,
                  const float *packed, float *z, pg_int ldz) {
    pg_isa->gemm_packed(rows, cols, j->r->h, h_prev, ld, packed, 0.0f, z, ldz);
}

static void forward_part(void *ctx, int part) {
    job *j = ctx;
    const pg_rnn *r = j->r;
    const pg_int h = r->h, g = gates(r) * h, w = slot(r) * h, T = r->t;
    pg_int b, e;
    pg_part_range(r->n, 1, j->parts, part, &b, &e);
    const pg_int rows = e - b;
    if (rows == 0) return;
    /* The share of the recurrence and, if nobody wants the workspace, one step of it. */
    float *z = pg_scratch(PG_SCRATCH_RNN, (size_t)(rows * (g + w)) * sizeof(float));
    if (z == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    float *ws0 = j->ws ? j->ws + b * T * w : z + rows * g;
    const pg_int ws_row = j->ws ? T * w : w, ws_step = j->ws ? w : 0;
    for (pg_int i = 0; i < T; i++) {
        const pg_int t = time_of(r, i), tp = i > 0 ? time_of(r, i - 1) : 0;
        const float *hp = i > 0 ? j->hseq + (b * T + tp) * h : j->h0 ? j->h0 + b * h : NULL;
        const pg_int hp_row = i > 0 ? T * h : h;
        const int two = r->kind == PG_RNN_GRU && !r->reset_after;
        if (hp) recur(j, hp, hp_row, rows, two ? 2 * h : g, j->packed, z, g);
        else memset(z, 0, (size_t)(rows * g) * sizeof(float));
        for (pg_int n = 0; n < rows; n++) {
            const float *x = j->xw + ((b + n) * T + t) * g, *p = hp ? hp + n * hp_row : NULL;
            float *ws = ws0 + n * ws_row + t * ws_step, *out = j->hseq + ((b + n) * T + t) * h;
            if (r->kind == PG_RNN_LSTM) {
                const float *c = i > 0 ? ws0 + n * ws_row + tp * ws_step + 4 * h
                                       : j->c0 ? j->c0 + (b + n) * h : NULL;
                pg_isa->lstm_cell(h, x, z + n * g, c, ws, out);
                if (i == T - 1 && j->c_last)
                    memcpy(j->c_last + (b + n) * h, ws + 4 * h, (size_t)h * sizeof(float));
            } else if (r->kind == PG_RNN_GRU) {
                pg_isa->gru_gates(h, x, z + n * g, two ? p : NULL, ws);
                if (!two)
                    pg_isa->gru_out(1, h, x + 2 * h, z + n * g + 2 * h, j->rbias, p, ws, out);
                else if (p == NULL)
                    memset(ws + 3 * h, 0, (size_t)h * sizeof(float));
            } else {
                pg_isa->simple_cell(h, x, z + n * g, out);
            }
        }
        if (!two) continue;
        if (hp) recur(j, ws0 + t * ws_step + 3 * h, ws_row, rows, h, j->packed_h, z + 2 * h, g);
        for (pg_int n = 0; n < rows; n++)
            pg_isa->gru_out(0, h, j->xw + ((b + n) * T + t) * g + 2 * h, z + n * g + 2 * h, NULL,
                            hp ? hp + n * hp_row : NULL, ws0 + n * ws_row + t * ws_step,
                            j->hseq + ((b + n) * T + t) * h);
    }
}

int pg_rnn_forward(const pg_rnn *r, const float *xw, const float *u, const float *rbias,
                   const float *h0, const float *c0, float *hseq, float *c_last, float *ws) {
    if (r->n <= 0 || r->t <= 0 || r->h <= 0) return PG_OK;
    const pg_int h = r->h, g = gates(r) * h;
    const int two = r->kind == PG_RNN_GRU && !r->reset_after;
    const pg_int first = two ? 2 * h : g;
    size_t a = pg_isa->gemm_packed_size(h, first), b = two ? pg_isa->gemm_packed_size(h, h) : 0;
    float *packed = pg_scratch(PG_SCRATCH_ROWS, (a + b) * sizeof(float));
    if (packed == NULL) return PG_ENOMEM;
    pg_isa->gemm_pack(u, 1, h, h, first, packed);
    if (two) pg_isa->gemm_pack(u + 2 * h * h, 1, h, h, h, packed + a);
    job j = {.r = r, .xw = xw, .u = u, .rbias = rbias, .h0 = h0, .c0 = c0, .packed = packed,
             .packed_h = packed + a, .hseq = hseq, .c_last = c_last, .ws = ws,
             .parts = parts_of(r)};
    pg_parallel(j.parts, forward_part, &j);
    return (int)pg_load(&j.status);
}

/* ---- backward ---- */

static void backward_part(void *ctx, int part) {
    job *j = ctx;
    const pg_rnn *r = j->r;
    const pg_int h = r->h, g = gates(r) * h, w = slot(r) * h, T = r->t;
    pg_int b, e;
    pg_part_range(r->n, 1, j->parts, part, &b, &e);
    const pg_int rows = e - b;
    if (rows == 0) return;
    const size_t row_bytes = (size_t)h * sizeof(float), all = (size_t)rows * row_bytes;
    float *dh = pg_scratch(PG_SCRATCH_RNN, 3 * all);
    if (dh == NULL) {
        pg_store(&j->status, PG_ENOMEM);
        return;
    }
    float *dc = dh + rows * h, *q = dc + rows * h;
    if (j->dh_last) memcpy(dh, j->dh_last + b * h, all);
    else memset(dh, 0, all);
    if (j->dc_last) memcpy(dc, j->dc_last + b * h, all);
    else memset(dc, 0, all);
    for (pg_int i = T - 1; i >= 0; i--) {
        const pg_int t = time_of(r, i), tp = i > 0 ? time_of(r, i - 1) : 0;
        const float *hp = i > 0 ? j->hseq_in + (b * T + tp) * h : j->h0 ? j->h0 + b * h : NULL;
        const pg_int hp_row = i > 0 ? T * h : h;
        float *dz = j->dxw + (b * T + t) * g;
        for (pg_int n = 0; n < rows; n++) {
            const pg_int cell = (b + n) * T + t;
            const float *p = hp ? hp + n * hp_row : NULL;
            float *ws = j->ws + cell * w, *d = dh + n * h;
            if (j->dhseq) pg_isa->axpby(h, 1.0f, d, 1.0f, j->dhseq + cell * h, d);
            if (r->kind == PG_RNN_LSTM) {
                const float *c = i > 0 ? j->ws + ((b + n) * T + tp) * w + 4 * h
                                       : j->c0 ? j->c0 + (b + n) * h : NULL;
                pg_isa->lstm_cell_backward(h, ws, c, d, dc + n * h, dz + n * T * g);
            } else if (r->kind == PG_RNN_GRU) {
                pg_isa->gru_backward(r->reset_after, h, ws, p, d, dz + n * T * g);
            } else {
                pg_isa->simple_cell_backward(h, j->hseq_in + cell * h, d, dz + n * T * g);
            }
        }
        if (r->kind != PG_RNN_GRU) {
            pg_isa->gemm_packed(rows, h, g, dz, T * g, j->packed, 0.0f, dh, h);
            continue;
        }
        if (r->reset_after) {
            pg_isa->gemm_packed(rows, h, h, j->ws + (b * T + t) * w + 3 * h, T * w, j->packed_h, 1.0f,
                                dh, h);
        } else {
            pg_isa->gemm_packed(rows, h, h, dz + 2 * h, T * g, j->packed_h, 0.0f, q, h);
            for (pg_int n = 0; n < rows; n++)
                pg_isa->gru_backward_reset(h, j->ws + ((b + n) * T + t) * w,
                                           hp ? hp + n * hp_row : NULL, q + n * h, dh + n * h,
                                           dz + n * T * g);
        }
        pg_isa->gemm_packed(rows, h, 2 * h, dz, T * g, j->packed, 1.0f, dh, h);
    }
    if (j->dh0) memcpy(j->dh0 + b * h, dh, all);
    if (j->dc0) memcpy(j->dc0 + b * h, dc, all);
}

/* h' of every row and step: [n * t, h]. */
static float *previous(const pg_rnn *r, const float *h0, const float *hseq) {
    const size_t bytes = (size_t)r->h * sizeof(float);
    float *p = pg_scratch(PG_SCRATCH_ROWS, (size_t)(r->n * r->t) * bytes);
    if (p == NULL) return NULL;
    for (pg_int n = 0; n < r->n; n++)
        for (pg_int i = 0; i < r->t; i++) {
            float *d = p + (n * r->t + time_of(r, i)) * r->h;
            if (i > 0) memcpy(d, hseq + (n * r->t + time_of(r, i - 1)) * r->h, bytes);
            else if (h0) memcpy(d, h0 + n * r->h, bytes);
            else memset(d, 0, bytes);
        }
    return p;
}

int pg_rnn_backward(const pg_rnn *r, const float *u, const float *h0, const float *c0,
                    const float *hseq, float *ws, const float *dhseq, const float *dh_last,
                    const float *dc_last, float *dxw, float *du, float *drbias, float *dh0,
                    float *dc0) {
    const pg_int h = r->h, g = gates(r) * h, rows = r->n * r->t, w = slot(r) * h;
    if (r->n <= 0 || r->t <= 0 || h <= 0) return PG_OK;
    const int gru = r->kind == PG_RNN_GRU;
    const pg_int first = gru ? 2 * h : g;
    size_t a = pg_isa->gemm_packed_size(first, h), b = gru ? pg_isa->gemm_packed_size(h, h) : 0;
    float *packed = pg_scratch(PG_SCRATCH_ROWS, (a + b) * sizeof(float));
    if (packed == NULL) return PG_ENOMEM;
    pg_isa->gemm_pack(u, h, 1, first, h, packed);
    if (gru) pg_isa->gemm_pack(u + 2 * h * h, h, 1, h, h, packed + a);
    job j = {.r = r, .u = u, .h0 = h0, .c0 = c0, .packed = packed, .packed_h = packed + a,
             .hseq_in = hseq, .ws = ws, .dhseq = dhseq, .dh_last = dh_last, .dc_last = dc_last,
             .dxw = dxw, .dh0 = dh0, .dc0 = dc0, .parts = parts_of(r)};
    pg_parallel(j.parts, backward_part, &j);
    int rc = (int)pg_load(&j.status);
    if (rc == PG_OK && drbias)
        rc = pg_sum_rows(rows, h, r->reset_after ? ws + 3 * h : dxw + 2 * h,
                         r->reset_after ? w : g, 0.0f, drbias);
    if (rc != PG_OK || du == NULL) return rc;
    /* The kernel's gradient: one product over all rows and steps. */
    const float *hp = previous(r, h0, hseq);
    if (hp == NULL) return PG_ENOMEM;
    rc = pg_gemm(1, 0, first, h, rows, 1.0f, dxw, g, hp, h, 0.0f, du, h);
    if (rc != PG_OK || !gru) return rc;
    if (r->reset_after)
        return pg_gemm(1, 0, h, h, rows, 1.0f, ws + 3 * h, w, hp, h, 0.0f, du + 2 * h * h, h);
    return pg_gemm(1, 0, h, h, rows, 1.0f, dxw + 2 * h, g, ws + 3 * h, w, 0.0f, du + 2 * h * h, h);
}
