from pyggml._graph cimport Tensor


cdef Tensor _repeat(Tensor t, tuple shape)
