from libc.stdint cimport int64_t


cdef class Feed:
    cdef readonly list x
    cdef readonly list y
    cdef readonly list w
    cdef readonly object mask
    cdef readonly int64_t n_rows
    cdef int fill(self, list inputs, object loss, order, int64_t start, int64_t n) except -1


cdef int load_batch(list inputs, object loss, object program, object criterion, x, y,
                    sample_weight) except -1
cdef int clean_masked(list inputs, object loss) except -1
