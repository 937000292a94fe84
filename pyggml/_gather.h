/* Reading runs of array elements of any real type, byte order and alignment as float32. */

#ifndef PYGGML_GATHER_H
#define PYGGML_GATHER_H

#include <stdint.h>
#include <string.h>

#include "ggml.h"

enum pg_kind {
    PG_F32, PG_F64, PG_F16, PG_LONG_DOUBLE,
    PG_I8, PG_I16, PG_I32, PG_I64,
    PG_U8, PG_U16, PG_U32, PG_U64,
    PG_BOOL,
    PG_N_KINDS,
};

static inline void pg_load(void * value, const char * src, size_t size, int swap) {
    if (!swap) {
        memcpy(value, src, size); /* the source may be unaligned */
        return;
    }
    for (size_t i = 0; i < size; ++i) {
        ((char *) value)[i] = src[size - 1 - i];
    }
}

#define PG_RUN(NAME, TYPE, OUT, CONVERT)                                                          \
    static void NAME(const char * src, int64_t n, int64_t step, int swap, OUT * dst) {            \
        TYPE value;                                                                               \
        if (!swap && step == (int64_t) sizeof(TYPE)) {                                            \
            for (int64_t i = 0; i < n; ++i) {                                                     \
                memcpy(&value, src + i * (int64_t) sizeof(TYPE), sizeof(TYPE));                   \
                dst[i] = CONVERT;                                                                 \
            }                                                                                     \
            return;                                                                               \
        }                                                                                         \
        for (int64_t i = 0; i < n; ++i) {                                                         \
            pg_load(&value, src + i * step, sizeof(TYPE), swap);                                  \
            dst[i] = CONVERT;                                                                     \
        }                                                                                         \
    }

PG_RUN(pg_run_f32, float, float, value)
PG_RUN(pg_run_f64, double, float, (float) value)
PG_RUN(pg_run_f16, ggml_fp16_t, float, ggml_fp16_to_fp32(value))
PG_RUN(pg_run_long_double, long double, float, (float) value)
PG_RUN(pg_run_i8, int8_t, float, (float) value)
PG_RUN(pg_run_i16, int16_t, float, (float) value)
PG_RUN(pg_run_i32, int32_t, float, (float) value)
PG_RUN(pg_run_i64, int64_t, float, (float) value)
PG_RUN(pg_run_u8, uint8_t, float, (float) value)
PG_RUN(pg_run_u16, uint16_t, float, (float) value)
PG_RUN(pg_run_u32, uint32_t, float, (float) value)
PG_RUN(pg_run_u64, uint64_t, float, (float) value)
PG_RUN(pg_run_bool, uint8_t, float, value ? 1.0f : 0.0f)

typedef void (*pg_run_t)(const char * src, int64_t n, int64_t step, int swap, float * dst);

static const pg_run_t pg_runs[PG_N_KINDS] = {
    pg_run_f32, pg_run_f64, pg_run_f16, pg_run_long_double,
    pg_run_i8, pg_run_i16, pg_run_i32, pg_run_i64,
    pg_run_u8, pg_run_u16, pg_run_u32, pg_run_u64,
    pg_run_bool,
};

/* Asks for the beginning of a row that is copied soon; the rest of it comes by itself. */
static inline void pg_prefetch(const char * row, int64_t size) {
#if defined(__GNUC__)
    for (int64_t i = 0; i < size && i < 512; i += 64) {
        __builtin_prefetch(row + i);
    }
#else
    (void) row;
    (void) size;
#endif
}

/* One element as double, exactly, except for 64-bit integers beyond 2^53 (no label is). */
static double pg_element(int kind, const char * src, int swap) {
#define PG_ELEMENT(KIND, TYPE, CONVERT)                                                           \
    case KIND: {                                                                                  \
        TYPE value;                                                                               \
        pg_load(&value, src, sizeof(TYPE), swap);                                                 \
        return (double) (CONVERT);                                                                \
    }
    switch (kind) {
        PG_ELEMENT(PG_F32, float, value)
        PG_ELEMENT(PG_F64, double, value)
        PG_ELEMENT(PG_F16, ggml_fp16_t, ggml_fp16_to_fp32(value))
        PG_ELEMENT(PG_LONG_DOUBLE, long double, value)
        PG_ELEMENT(PG_I8, int8_t, value)
        PG_ELEMENT(PG_I16, int16_t, value)
        PG_ELEMENT(PG_I32, int32_t, value)
        PG_ELEMENT(PG_I64, int64_t, value)
        PG_ELEMENT(PG_U8, uint8_t, value)
        PG_ELEMENT(PG_U16, uint16_t, value)
        PG_ELEMENT(PG_U32, uint32_t, value)
        PG_ELEMENT(PG_U64, uint64_t, value)
        PG_ELEMENT(PG_BOOL, uint8_t, value ? 1.0 : 0.0)
    }
    return -1.0;
#undef PG_ELEMENT
}

#endif
