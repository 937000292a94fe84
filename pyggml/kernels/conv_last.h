/* Convolution with channels last, for the kernels of an instruction set; see conv_last_isa.c. */
#ifndef PG_CONV_LAST_H
#define PG_CONV_LAST_H

#include "common.h"

typedef struct pg_last {
    pg_int outs;           /* channels of the output */
    pg_int segs, len;      /* a window is segs runs of len floats */
    const int32_t *seg;    /* [segs] where they begin */
    const float *packed;   /* the weights, by conv_last_pack */
    pg_int oh, ow;
    pg_int row_step, col_step; /* floats from window to window */
    const float *bias;     /* [outs] or NULL */
    int relu;
} pg_last;

/* The gradient of the weights of one image. */
typedef struct pg_last_dots {
    pg_int outs, ins;      /* channels of dy and of the image */
    pg_int taps;
    const int32_t *tap;    /* [taps] where a tap's first position lies */
    pg_int oh, ow, row_step, col_step;
} pg_last_dots;

/* Floats behind an image that may be read (and are not used). */
#define PG_LAST_SLACK 64

#endif
