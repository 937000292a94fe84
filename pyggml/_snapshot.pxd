cdef class Snapshot:
    cdef object program
    cdef dict names
    cdef dict bindings
    cdef object predictor
    cdef object lock
    cdef str source
    cdef readonly object batch_size
    cdef bint freed
