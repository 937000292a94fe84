from libc.stdint cimport int64_t

from pyggml._runtime cimport Buffer


cdef class Variable:
    cdef Buffer buffer
    cdef readonly tuple shape
    cdef readonly tuple axes
    cdef readonly str name
    cdef public bint trainable
    cdef public bint decay
    cdef public object initializer
    cdef public object regularizer
    cdef readonly size_t size
    cdef float * data
    cdef tuple storage_shape(self)
    cdef void zero(self) noexcept nogil
