/* The kernels that exist for each instruction set: X(result, name, arguments). What they do is
 * said in the headers of their families. */
#ifndef PG_KERNEL_LIST_H
#define PG_KERNEL_LIST_H

#include "activations.h"
#include "conv_flat.h"
#include "conv_last.h"
#include "gemm.h"
#include "pooling.h"
#include "steps.h"

#define PG_KERNEL_LIST(X)                                                                         \
    /* gemm.h */                                                                                  \
    X(int, gemm, (const pg_gemm_args *g))                                                         \
    X(size_t, gemm_packed_size, (pg_int k, pg_int n))                                             \
    X(void, gemm_pack, (const float *b, pg_int rs, pg_int cs, pg_int k, pg_int n, float *dst))    \
    X(void, gemm_packed,                                                                          \
      (pg_int m, pg_int n, pg_int k, const float *a, pg_int lda, const float *packed, float beta, \
       float *c, pg_int ldc))                                                                     \
    X(int, gemm_step,                                                                             \
      (const pg_gemm_args *g, const float *packed, const pg_step_params *p, float *w, float *s1,  \
       float *s2, float *s3))                                                                     \
    /* steps.h */                                                                                 \
    X(void, step,                                                                                 \
      (const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,         \
       float *s3))                                                                                \
    X(double, sum_squares, (pg_int n, const float *x))                                            \
    /* activations.h */                                                                           \
    X(void, act_forward, (int act, float param, pg_int n, const float *x, float *y))              \
    X(void, act_backward,                                                                         \
      (int act, int from_y, float param, pg_int n, const float *dy, const float *s, float *dx))   \
    X(void, bias_act,                                                                             \
      (int act, float param, pg_int n, const float *x, const float *bias, float *z, float *y))    \
    X(void, const_bias_act,                                                                       \
      (int act, float param, pg_int n, const float *x, float bias, float *z, float *y))           \
    X(void, sum_rows,                                                                             \
      (pg_int rows, pg_int n, const float *x, pg_int ld, float beta, float *out))                 \
    X(double, sum, (pg_int n, const float *x))                                                    \
    X(void, axpby, (pg_int n, float alpha, const float *a, float beta, const float *b, float *c)) \
    X(void, mul, (pg_int n, const float *a, const float *b, float *c))                            \
    X(void, transpose,                                                                            \
      (pg_int rows, pg_int cols, const float *src, pg_int ld, float *dst, pg_int dst_ld))         \
    /* losses.h */                                                                                \
    X(double, loss_elements,                                                                      \
      (int kind, float p0, float p1, pg_int n, const float *pred, const float *target,            \
       const float *w, float scale, float *grad))                                                 \
    X(double, loss_row,                                                                           \
      (int kind, pg_int n, const float *pred, const float *target, float weight, float scale,     \
       float *grad))                                                                              \
    X(void, softmax_row, (int log, pg_int n, const float *x, float *y))                           \
    X(void, softmax_backward_row, (int log, pg_int n, const float *dy, const float *y, float *dx)) \
    /* dropout.h */                                                                               \
    X(void, random,                                                                               \
      (int what, uint32_t key0, uint32_t key1, uint32_t first, float rate, pg_int n,              \
       const float *x, float *out))                                                               \
    /* norm.h */                                                                                  \
    X(double, sum_sq_dev, (pg_int n, const float *x, float c))                                    \
    X(void, sum_dy_dev,                                                                           \
      (pg_int n, const float *dy, const float *x, float c, double *s1, double *s2))               \
    X(void, affine, (pg_int n, const float *x, float c, float a, float b, float *y))              \
    X(void, affine_backward,                                                                      \
      (pg_int n, const float *dy, const float *x, float c, float a, float b, float d, float *dx)) \
    X(void, norm_row,                                                                             \
      (int rms, pg_int n, float eps, const float *x, const float *gamma, const float *beta,       \
       float *y, float *mean, float *rstd))                                                       \
    X(void, norm_backward_row,                                                                    \
      (int rms, pg_int n, const float *dy, const float *x, const float *gamma, float mean,        \
       float rstd, float *dx, float *dgamma, float *dbeta))                                       \
    X(void, columns_sq_dev,                                                                       \
      (pg_int rows, pg_int n, const float *x, pg_int ld, const float *c, float *out))             \
    X(void, columns_dy_dev,                                                                       \
      (pg_int rows, pg_int n, const float *dy, const float *x, pg_int ld, const float *c,         \
       float *s1, float *s2))                                                                     \
    X(void, columns_affine,                                                                       \
      (pg_int rows, pg_int n, const float *x, pg_int ld, const float *c, const float *a,          \
       const float *b, float *y))                                                                 \
    X(void, columns_affine_backward,                                                              \
      (pg_int rows, pg_int n, const float *dy, const float *x, pg_int ld, const float *c,         \
       const float *a, const float *b, const float *d, float *dx))                                \
    /* conv_isa.c */                                                                              \
    X(void, conv_pack,                                                                            \
      (pg_int rows, pg_int taps, const float *s, pg_int rs, const int32_t *tap, float *dst))      \
    X(void, conv_flat, (const pg_flat *f, const float *image, pg_int q0, pg_int q1, float *y))    \
    X(void, conv_dots,                                                                            \
      (pg_int rows, pg_int taps, pg_int images, pg_int n, const float *dy, pg_int dy_ld,          \
       pg_int dy_step, const float *x, pg_int x_step, const int32_t *offset, float *out))         \
    /* conv_last_isa.c */                                                                         \
    X(void, conv_to_last,                                                                         \
      (pg_int channels, pg_int h, pg_int w, pg_int rows, pg_int cols, const float *src,           \
       float *dst, pg_int pitch))                                                                 \
    X(size_t, conv_last_size, (pg_int outs, pg_int k))                                            \
    X(void, conv_last_pack,                                                                       \
      (pg_int outs, pg_int k, const float *w, pg_int rs, const int32_t *tap, float *dst))         \
    X(void, conv_last, (const pg_last *f, const float *image, pg_int r0, pg_int r1, float *y))    \
    X(void, conv_last_pack_dy, (pg_int outs, pg_int positions, const float *dy, float *dst))      \
    X(void, conv_last_dots,                                                                       \
      (const pg_last_dots *f, const float *dy, const float *image, float *acc))                   \
    X(size_t, conv_last_acc, (pg_int outs, pg_int ins, pg_int taps))                              \
    X(int, conv_last_better, (pg_int outs, pg_int used, pg_int all))                              \
    X(void, conv_last_collect,                                                                    \
      (pg_int outs, pg_int ins, pg_int taps, const float *acc, float beta, float *dw))            \
    /* pooling.h */                                                                               \
    X(void, max_pool, (const pg_pool2d *p, float *work, const float *x, float *y))                \
    X(void, max_pool_backward,                                                                    \
      (const pg_pool2d *p, float *work, const float *x, const float *dy, float *dx))              \
    X(void, avg_pool, (const pg_pool2d *p, float *work, const float *x, float *y))                \
    X(void, avg_pool_backward, (const pg_pool2d *p, float *work, const float *dy, float *dx))     \
    /* rnn_isa.c */                                                                               \
    X(void, lstm_cell,                                                                            \
      (pg_int h, const float *x, const float *z, const float *c_prev, float *ws, float *out))     \
    X(void, lstm_cell_backward,                                                                   \
      (pg_int h, const float *ws, const float *c_prev, const float *dh, float *dc, float *dz))    \
    X(void, gru_gates, (pg_int h, const float *x, const float *z, const float *h_prev, float *ws)) \
    X(void, gru_out,                                                                              \
      (int after, pg_int h, const float *x_h, const float *z_h, const float *rbias,               \
       const float *h_prev, float *ws, float *out))                                               \
    X(void, gru_backward,                                                                         \
      (int after, pg_int h, float *ws, const float *h_prev, float *dh, float *dz))                \
    X(void, gru_backward_reset,                                                                   \
      (pg_int h, const float *ws, const float *h_prev, const float *q, float *dh, float *dz))     \
    X(void, simple_cell, (pg_int h, const float *x, const float *z, float *out))                  \
    X(void, simple_cell_backward, (pg_int h, const float *out, const float *dh, float *dz))

#endif
