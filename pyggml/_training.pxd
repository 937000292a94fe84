from libc.stdint cimport int64_t, uint64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._runtime cimport Buffer, Context, Scheduler
from pyggml._variable cimport Variable


cdef class StepParams:
    """What the step rule reads: one set with weight decay, one without."""
    cdef readonly Variable decayed
    cdef readonly Variable plain


cdef class TrainGraph:
    cdef readonly Graph graph
    cdef readonly list inputs
    cdef readonly object loss
    cdef Scheduler scheduler
    cdef _ggml.ggml_opt_context_t opt
    cdef float * loss_value
    cdef float * seed
    cdef readonly dict targets
    cdef int64_t evaluations
    cdef bint accumulating
    cdef public bint moves_statistics
    cdef int _redirect_gradients(self, dict gradients) except -1
    cdef int _redirect_steps(self, str rule, dict slots, StepParams params) except -1
    cdef float evaluate(self, float weight) except? -1
    cdef int draw_masks(self, uint64_t seed, uint64_t step) except -1


cdef class ApplyGraph:
    cdef Graph graph
    cdef Scheduler scheduler
    cdef Context results
    cdef _ggml.ggml_cgraph * cgraph
    cdef Tensor factor
    cdef int apply(self, float factor) except -1
