from libc.stdint cimport uint64_t

from pyggml cimport _ggml
from pyggml._kernels cimport pg_attention, pg_conv, pg_pool2d, pg_rng, pg_rnn

cdef extern from "lowering/lowering.h" nogil:
    enum:
        PG_MAX_INPUTS
    struct pg_norm:
        int rms, training
        float eps
        Py_ssize_t batch, channels, size
    union pg_function_u:
        pg_conv conv
        pg_pool2d pool
        pg_rnn rnn
        pg_norm norm
        pg_attention attention
    struct pg_function:
        int n_inputs
        _ggml.ggml_tensor * inputs[6]
        int given[6]
        _ggml.ggml_tensor * workspace
        _ggml.ggml_tensor * output
        _ggml.ggml_tensor * sums[6]
        int n_sums
        int same_node
        pg_function_u u
        int act
        float param
    struct pg_carrier:
        _ggml.ggml_tensor * key
        int kind
        int act
        float param[2]
        double scale
        _ggml.ggml_tensor * extra[2]
        int weight_rows
        pg_rng * rng
        pg_function * function
    struct pg_lowered:
        pass

cdef extern from "lowering/stepper.h" nogil:
    struct pg_stepped:
        Py_ssize_t n
        float * w
        const float * g
        const float * params
        float * state[3]
    struct pg_stepper:
        int rule
        int clip
        double limit
        double scale
        int n


cdef class Carriers:
    cdef pg_carrier * items
    cdef readonly int count
    cdef list streams
    cdef list functions
    cdef pg_function * new_function(self) except NULL
    cdef int function(self, _ggml.ggml_tensor * key, pg_function * f, int number) except -1
    cdef int activation(self, _ggml.ggml_tensor * key, int act, float param) except -1
    cdef int dropout(self, _ggml.ggml_tensor * key, float rate) except -1
    cdef int loss(self, _ggml.ggml_tensor * key, int kind, float param0, float param1,
                  double scale, _ggml.ggml_tensor * labels, _ggml.ggml_tensor * weights,
                  bint weight_rows) except -1
    cdef void set_rng(self, uint64_t seed, uint64_t step) noexcept nogil
    cdef pg_carrier * grow(self) except NULL


cdef class Lowered:
    cdef pg_lowered * ptr
    cdef Carriers carriers
    cdef int check(self) except -1


cdef class Stepper:
    cdef pg_stepper data
    cdef readonly tuple clip
    cdef int set_clip(self, tuple clip) except -1
    cdef int take(self, _ggml.ggml_tensor * t) except -1
    cdef void begin(self) noexcept nogil
    cdef void step(self, const pg_stepped * t) noexcept nogil


cdef class _Function:
    cdef pg_function data


cdef class _Stream:
    cdef pg_rng rng


cdef Lowered lower(_ggml.ggml_context * compute, _ggml.ggml_context * kept, Carriers carriers)
cdef int set_threads(int n) except -1
cdef void never_run(_ggml.ggml_tensor * dst, int ith, int nth,
                    void * userdata) noexcept nogil
cdef uint64_t begin_compute() noexcept nogil
cdef void end_compute(uint64_t state) noexcept nogil
cdef int fill_mask(float * mask, Py_ssize_t n, double rate, uint64_t seed, uint64_t step,
                   unsigned int stream) noexcept nogil
cdef int make_function(pg_function * f, str kind) except -1
cdef size_t rnn_floats(const pg_rnn * r) noexcept nogil
cdef size_t attention_floats(const pg_attention * a) noexcept nogil
cpdef bint on(str rule) except -1
