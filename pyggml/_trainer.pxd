from pyggml._engine cimport Engine


cdef class Trainer(Engine):
    pass
