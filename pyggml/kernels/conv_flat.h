/* What the convolution kernels for an instruction set get; see conv_isa.c. */
#ifndef PG_CONV_FLAT_H
#define PG_CONV_FLAT_H

#include "common.h"

typedef struct pg_flat {
    pg_int rows, taps;
    const float *packed;   /* the weights, by conv_pack */
    const int32_t *offset; /* [taps] */
    pg_int pitch, oh, ow;
    const float *bias;     /* [rows] or NULL */
    int relu;
} pg_flat;

/* Floats behind the last position of a padded image that may be read (and are not used). */
#define PG_FLAT_SLACK 128

#endif
