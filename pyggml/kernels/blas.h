/* The BLAS this was built with, if any: one single-threaded sgemm. */
#ifndef PG_BLAS_H
#define PG_BLAS_H

#include "common.h"

/* Limits the BLAS to one thread. */
void pg_blas_init(void);
int pg_blas_available(void);
/* Row-major, on the calling thread. */
void pg_blas_sgemm(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                   pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc);

#endif
