#include "blas.h"

#if defined(PYGGML_BLAS_SCIPY_OPENBLAS)

/* Symbols have a prefix of their own: NumPy's and SciPy's OpenBLAS are other libraries. */
#define SGEMM scipy_cblas_sgemm
extern void scipy_openblas_set_num_threads(int n);
#define BLAS_INIT() scipy_openblas_set_num_threads(1)

#elif defined(PYGGML_BLAS_SYSTEM)

#define SGEMM cblas_sgemm
#if defined(PYGGML_BLAS_HAVE_OPENBLAS_SET_NUM_THREADS)
extern void openblas_set_num_threads(int n);
#define BLAS_INIT() openblas_set_num_threads(1)
#elif defined(PYGGML_BLAS_HAVE_FLEXIBLAS_SET_NUM_THREADS)
extern void flexiblas_set_num_threads(int n);
#define BLAS_INIT() flexiblas_set_num_threads(1)
#elif defined(PYGGML_BLAS_HAVE_MKL_SET_NUM_THREADS)
extern void MKL_Set_Num_Threads(int n);
#define BLAS_INIT() MKL_Set_Num_Threads(1)
#elif defined(PYGGML_BLAS_HAVE_BLI_THREAD_SET_NUM_THREADS)
extern void bli_thread_set_num_threads(ptrdiff_t n);
#define BLAS_INIT() bli_thread_set_num_threads(1)
#else
#define BLAS_INIT() ((void)0)
#endif

#endif

#if defined(SGEMM)

/* CBLAS of 32-bit integers. */
extern void SGEMM(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                  int lda, const float *b, int ldb, float beta, float *c, int ldc);
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

void pg_blas_init(void) { BLAS_INIT(); }
int pg_blas_available(void) { return 1; }
void pg_blas_sgemm(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                   pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc) {
    SGEMM(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)k, alpha, a,
          (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

#else

void pg_blas_init(void) {}
int pg_blas_available(void) { return 0; }
void pg_blas_sgemm(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                   pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc) {
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc;
}

#endif
