/* Matrix products, row-major float32. */
#ifndef PG_GEMM_H
#define PG_GEMM_H

#include "activations.h"
#include "common.h"
#include "steps.h"

/* C[m,n] = act(alpha * op(A) op(B) + beta * C + bias[n]).
 * op(A) is [m,k]: A stored [m,k], or [k,m] if ta; op(B) is [k,n]: B stored [k,n], or [n,k] if tb.
 * C is not read where beta is 0. bias may be NULL. Returns PG_OK or PG_ENOMEM. */
int pg_gemm(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a, pg_int lda,
            const float *b, pg_int ldb, float beta, float *c, pg_int ldc);
int pg_gemm_bias_act(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                     pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc,
                     const float *bias, int act, float act_param);

/* The same for batch products whose operands lie stride_a, stride_b, stride_c elements apart
 * (0: the same operand for all; not for C). */
int pg_gemm_batched(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                    pg_int lda, pg_int stride_a, const float *b, pg_int ldb, pg_int stride_b,
                    float beta, float *c, pg_int ldc, pg_int stride_c, pg_int batch);

/* Gradient and step in one: g = op(A) op(B) is formed tile by tile in the cache and the step rule
 * applied to w, m, v (contiguous [m,n]) at once; g is never written. Linear in k, so for m * n
 * larger than the caches. */
int pg_gemm_step(int ta, int tb, pg_int m, pg_int n, pg_int k, const float *a, pg_int lda,
                 const float *b, pg_int ldb, const pg_step_params *p, float *w, float *s1, float *s2,
                 float *s3);

/* Which single-threaded product is used: -1 by the table, 0 our own, 1 the BLAS's (if there is
 * one). For measurements. */
void pg_gemm_force(int which);
int pg_have_blas(void);

/* One single-threaded product in strides, as the kernels for an instruction set see it. */
typedef struct pg_gemm_args {
    pg_int m, n, k;
    const float *a;
    pg_int a_rs, a_cs;
    const float *b;
    pg_int b_rs, b_cs;
    float *c;
    pg_int c_rs;
    float alpha, beta;
    const float *bias;
    int act;
    float act_param;
} pg_gemm_args;

/* On the calling thread only. */
int pg_gemm1(const pg_gemm_args *g);

#endif
