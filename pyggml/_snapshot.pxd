from libc.stdint cimport int64_t

from pyggml._forward cimport Predictor
from pyggml._locks cimport Lock


cdef class Snapshot:
    cdef object program
    cdef dict names
    cdef dict bindings
    cdef Predictor predictor
    cdef Lock lock
    cdef str source
    cdef readonly int64_t batch_size
    cdef bint freed
    cdef int _alive(self) except -1
