from libc.stddef cimport size_t


cdef int require(size_t nbytes, str what, bint used=*) except -1
