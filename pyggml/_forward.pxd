from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph
from pyggml._locks cimport Lock
from pyggml._runtime cimport Buffer, Context, Scheduler


cdef class ForwardGraph:
    cdef readonly Graph graph
    cdef Scheduler scheduler
    cdef Context results
    cdef _ggml.ggml_cgraph * cgraph
    cdef Buffer memory
    cdef readonly list inputs
    cdef readonly list outputs
    cdef readonly object loss
    cdef int compute(self) except -1
    cpdef bint stale(self)


cdef class Predictor:
    cdef readonly object program
    cdef dict bindings
    cdef readonly Lock lock
    cdef readonly object _graphs
    cdef ForwardGraph _recent
    cdef readonly int64_t rows_at_once
    cpdef ForwardGraph graph(self, batch_size, criterion=*)
    cdef list predict_again(self, x, int64_t batch_size)
    cpdef list predict_array(self, x, int64_t batch_size)
    cdef object predict_any(self, x, int64_t batch_size)
    cpdef list predict(self, x, int64_t batch_size)
