from pyggml cimport _ggml
from pyggml._runtime cimport Buffer

cdef enum:
    # Some less than the 256 holes of ggml's plans: ours may order its nodes a little differently.
    MANY_RESULTS = 200


cdef int expand(_ggml.ggml_cgraph * graph, _ggml.ggml_tensor * result) except -1
cdef Buffer place(_ggml.ggml_cgraph * graph)
cdef int keep_apart(_ggml.ggml_cgraph * graph) except -1
cdef size_t planned_bytes(_ggml.ggml_cgraph * graph) except? 0
