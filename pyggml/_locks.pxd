cdef class Lock:
    cdef unsigned long owner
    cdef int depth
    cdef int n_waiting
    cdef long era
    cdef object queue
    cdef int take(self) except -1
    cdef int give(self) except -1
    cdef bint wanted(self) noexcept nogil
    cdef int _wait(self, unsigned long me) except -1
    cdef int _hand_on(self) except -1
    cdef int _after_fork(self) except -1


cdef class Locks(Lock):
    cdef list parts
    cdef void ** members
    cdef int n_members
