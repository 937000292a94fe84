cdef extern from "ggml.h":
    const char * ggml_version() nogil
def v():
    return ggml_version().decode()
