from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._runtime cimport Context, Scheduler


cdef class OptCore:
    cdef _ggml.ggml_opt_context_t opt
    cdef Scheduler scheduler
    cdef readonly Graph graph
    cdef readonly list input_slots
    cdef readonly list heads
    cdef readonly list loss_types
    cdef readonly object loss_weights
    cdef readonly object offsets
    cdef double huber_delta
    cdef _ggml.ggml_opt_optimizer_params values
    cdef Tensor total
    cdef Context forward_context
    cdef readonly str optimizer_name
    cdef readonly int64_t opt_period
    cdef readonly bint static_graphs
    cdef readonly bint forward_only
    cdef int64_t position
    cdef bint ready
    cdef bint backward
    cdef bint stale
    cdef bint prepared
    cdef bint freed
    cdef bint reset_wanted
    cdef bint allocated
    cdef size_t planned
    cdef object signature
    cdef readonly object lock
    cdef int _init(self, bint static_graphs) except -1
    cdef int _count(self, int64_t room) except -1
    cdef size_t _state_bytes(self) except? 0
    cdef int alive(self) except -1
    cdef int _prepare(self) except -1
    cdef int _do_alloc(self, bint backward) except -1
    cdef int _begin_window(self) except -1
    cdef int _realign(self) except -1
    cdef int _compute(self) except -1
