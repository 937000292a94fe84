from libc.stdint cimport int32_t, int64_t


cdef class Rows:
    cdef readonly object array
    cdef readonly tuple shape
    cdef int kind
    cdef bint swap
    cdef int ndim
    cdef int64_t counts[8]
    cdef int64_t steps[8]
    cdef int64_t row_step
    cdef int64_t row_size
    cdef readonly int64_t n_rows
    cdef const char * base
    cdef bint contiguous
    cdef void copy(self, int64_t start, int64_t n, const int64_t * index,
                   float * target) noexcept nogil
    cdef void _copy_row(self, const char * source, float * target) noexcept nogil
    cdef const char * _element(self, const char * source, int64_t j) noexcept nogil
    cdef int64_t copy_labels(self, int64_t start, int64_t n, const int64_t * index,
                             int32_t * target, int64_t n_classes) noexcept nogil
