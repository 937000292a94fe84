from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

from pyggml cimport _ggml
from pyggml._arrays cimport Rows
from pyggml._graph cimport Graph, Tensor


cdef class Slot:
    cdef readonly Tensor tensor
    cdef readonly str name
    cdef readonly str kind
    cdef readonly tuple row_shape
    cdef readonly int64_t limit
    cdef readonly int64_t row_size
    cdef readonly int64_t n_rows
    cdef public bint joint
    cdef int code
    cdef int n_axes
    cdef int32_t * labels
    cdef float * own
    cdef _ggml.ggml_tensor ** seen
    cdef int64_t * offsets
    cdef Py_ssize_t n_seen
    cdef float * data(self) noexcept nogil
    cpdef Rows accept(self, value)
    cdef bint weighs(self, int64_t n) noexcept nogil
    cdef int64_t put(self, Rows rows, int64_t start, int64_t n,
                     const int64_t * index) noexcept nogil
    cdef int fill(self, Rows rows, int64_t start, int64_t n, const int64_t * index) except -1
    cdef int check_rows(self, Rows rows, int64_t n, const int64_t * index) except -1
    cdef int let_borrow(self, Graph graph) except -1
    cdef bint borrow(self, Rows rows, int64_t start, int64_t n) noexcept nogil
    cdef void give_back(self) noexcept nogil
    cdef int load(self, value) except -1
    cdef bint takes(self, cnp.ndarray array) noexcept
    cdef int _bad_label(self, Rows rows, int64_t bad) except -1
    cdef int _check_weights(self, const float * w, int64_t n) except -1
    cdef bint _takes_column(self)
    cdef int64_t _bound(self) noexcept nogil
    cdef int ones(self) noexcept nogil
