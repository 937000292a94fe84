from libc.stdint cimport int64_t


cdef class Intake:
    cdef list owners
    cdef int n_inputs
    cdef int n_slots
    cdef int n_weights
    cdef void ** slots
    cdef void ** weights
    cdef void ** labels_of
    cdef int fill(self, void ** rows, int64_t start, int64_t n,
                  const int64_t * index) noexcept nogil
    cdef void ones(self) noexcept nogil
    cdef void clean(self) noexcept nogil


cdef class Feed:
    cdef readonly list x
    cdef readonly list y
    cdef readonly list w
    cdef readonly list label_index
    cdef readonly object mask
    cdef readonly int64_t n_rows
    cdef bint unweighted
    cdef int require_fit(self, list inputs, object loss) except -1
    cdef int check_rows(self, list inputs, object loss, const int64_t[:, ::1] index) except -1
    cdef int fill(self, list inputs, object loss, order, int64_t start, int64_t n,
                  bint borrow=*) except -1


cdef int load_batch(list inputs, object loss, object program, object criterion, x, y,
                    sample_weight) except -1
cdef Intake intake_of(list inputs, object loss)
