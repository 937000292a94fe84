from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph
from pyggml._runtime cimport Context, Scheduler


cdef class ForwardGraph:
    cdef readonly Graph graph
    cdef Scheduler scheduler
    cdef Context results
    cdef _ggml.ggml_cgraph * cgraph
    cdef readonly list inputs
    cdef readonly list outputs
    cdef readonly object loss
    cdef int compute(self) except -1
    cpdef bint stale(self)
