from libc.stdint cimport int64_t

cimport numpy as cnp

from pyggml._feed cimport Feed


cdef struct _Part:
    const float * source
    int64_t n
    double total
    int64_t divisor


cdef class _Kept:
    cdef int index
    cdef object activation
    cdef cnp.ndarray rows
    cdef float * target
    cdef const float * source
    cdef int64_t row_size
    cdef tuple row_shape


cdef class Meter:
    cdef object criterion
    cdef list metrics
    cdef list used
    cdef list kept
    cdef list segments
    cdef void ** keeps
    cdef int n_keeps
    cdef _Part * parts
    cdef int n_parts
    cdef double total
    cdef int64_t capacity
    cdef int64_t filled
    cdef bint flushed
    cdef readonly int64_t rows
    cdef readonly int64_t batches
    cdef int64_t follow(self, built, int64_t n) except -1
    cdef void take(self, double loss, int64_t n) noexcept nogil
    cdef int note(self, Feed feed, order, int64_t start, int64_t n, bint keep) except -1
    cdef int _make_room(self, built, int64_t n) except -1
    cdef tuple _truth(self, int position)
    cdef int flush(self) except -1
    cdef dict _means(self, bint metrics)
