from libc.stdint cimport uint64_t

from pyggml cimport _ggml

cdef extern from "lowering/lowering.h" nogil:
    struct pg_rng:
        uint64_t seed
        uint64_t step
        unsigned int stream
    struct pg_carrier:
        _ggml.ggml_tensor * key
        int kind
        int act
        float param[2]
        double scale
        _ggml.ggml_tensor * extra[2]
        int weight_rows
        pg_rng * rng
    struct pg_lowered:
        pass


cdef class Carriers:
    cdef pg_carrier * items
    cdef readonly int count
    cdef list streams
    cdef int activation(self, _ggml.ggml_tensor * key, int act, float param) except -1
    cdef int dropout(self, _ggml.ggml_tensor * key, float rate) except -1
    cdef int loss(self, _ggml.ggml_tensor * key, int kind, float param0, float param1,
                  double scale, _ggml.ggml_tensor * labels, _ggml.ggml_tensor * weights,
                  bint weight_rows) except -1
    cdef int set_rng(self, uint64_t seed, uint64_t step) except -1
    cdef pg_carrier * grow(self) except NULL


cdef class Lowered:
    cdef pg_lowered * ptr
    cdef Carriers carriers
    cdef int check(self) except -1


cdef class _Stream:
    cdef pg_rng rng


cdef Lowered lower(_ggml.ggml_context * compute, _ggml.ggml_context * kept, Carriers carriers)
cdef int set_threads(int n) except -1
cdef uint64_t begin_compute() noexcept nogil
cdef void end_compute(uint64_t state) noexcept nogil
cdef int fill_mask(float * mask, Py_ssize_t n, double rate, uint64_t seed, uint64_t step,
                   unsigned int stream) noexcept nogil
