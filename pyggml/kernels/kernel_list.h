/* The kernels that exist for each instruction set: X(result, name, arguments). What they do is
 * said in the headers of their families. */
#ifndef PG_KERNEL_LIST_H
#define PG_KERNEL_LIST_H

#include "activations.h"
#include "gemm.h"
#include "steps.h"

#define PG_KERNEL_LIST(X)                                                                         \
    /* gemm.h */                                                                                  \
    X(int, gemm, (const pg_gemm_args *g))                                                         \
    X(size_t, gemm_packed_size, (pg_int k, pg_int n))                                             \
    X(void, gemm_pack, (const float *b, pg_int rs, pg_int cs, pg_int k, pg_int n, float *dst))    \
    X(void, gemm_packed,                                                                          \
      (pg_int m, pg_int n, pg_int k, const float *a, pg_int lda, const float *packed, float beta, \
       float *c, pg_int ldc))                                                                     \
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
    X(void, mul, (pg_int n, const float *a, const float *b, float *c))

#endif
