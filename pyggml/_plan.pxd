from pyggml cimport _ggml
from pyggml._runtime cimport Buffer


cdef int expand(_ggml.ggml_cgraph * graph, _ggml.ggml_tensor * result) except -1
cdef Buffer place(_ggml.ggml_cgraph * graph)
