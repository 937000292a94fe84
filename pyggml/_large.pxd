from pyggml cimport _ggml
from pyggml._graph cimport Graph
from pyggml._runtime cimport Buffer, Context, Scheduler
from pyggml._variable cimport Variable


cdef size_t measure(Graph graph, _ggml.ggml_tensor * total) except 0


cdef class LargeGraph:
    cdef Context results
    cdef _ggml.ggml_cgraph * cgraph
    cdef size_t size
    cdef Buffer memory
    cdef Variable loss
    cdef Variable seed
    cdef int plan(self, Scheduler scheduler) except -1
