/* Thresholds of the matrix products, measured with benchmarks/kernels/gemm.py. Sizes in elements. */
#ifndef PG_GEMM_TABLE_H
#define PG_GEMM_TABLE_H

/* Blocks: a packed block of S (MC x KC) and a panel of V (KC x 2 vectors) stay in the caches. */
#define PG_GEMM_KC 384
#define PG_GEMM_MC 168
#define PG_GEMM_NC 1024
/* V is read in place where at most so many tiles of rows use it, */
#define PG_GEMM_V_IN_PLACE_TILES 4
/* and then so many rows of it at a time; or so many where they are packed. */
#define PG_GEMM_KC_IN_PLACE 64
#define PG_GEMM_KC_ROWS 128
/* Elements of an operand that the caches hold, whatever the order it is read in. */
#define PG_GEMM_NEAR (128 * 1024)
/* Blocks of V up to this size are walked for one tile of rows after the other. */
#define PG_GEMM_ROWS_OUTER (128 * 1024)
/* Up to so many rows (with 16 lanes) a product of two operands contiguous along K is dot products. */
#define PG_GEMM_DOT_ROWS 4

/* The BLAS, where there is one, from so many multiply-adds and so long a shortest side on. On x86-64
 * ours are as fast on large products and faster on the others; elsewhere this is a guess. */
#if defined(__x86_64__) || defined(_M_X64)
#define PG_GEMM_BLAS_WORK 1e9
#define PG_GEMM_BLAS_SIDE 512
#else
#define PG_GEMM_BLAS_WORK 2e5
#define PG_GEMM_BLAS_SIDE 8
#endif

/* K is shared out, with partial results, where the result is at most so large and K so long for
 * each thread. */
#define PG_GEMM_SPLIT_K_MN 16384.0
#define PG_GEMM_SPLIT_K 256
/* Cost of a slice's edge (reading and packing), beside its area. */
#define PG_GEMM_GRID_EDGE 64.0

/* Multiply-adds below which one thread is faster than several. */
#define PG_GEMM_PARALLEL 200000.0
/* Elements to pack below which one thread is faster. */
#define PG_GEMM_PARALLEL_PACK 32768.0
/* The same for a product of one row, which reads every weight once: it takes the time that a core
 * takes to read its own cache, and two cores have two. */
#define PG_GEMM_ROW_PARALLEL 50000.0

#endif
