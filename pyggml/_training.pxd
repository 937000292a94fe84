from libc.stdint cimport int64_t, uint64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._lowering cimport Carriers
from pyggml._runtime cimport Buffer, Context, Scheduler
from pyggml._variable cimport Variable


cdef struct _Mask:
    float * data
    int64_t n
    double rate


cdef struct _Update:
    float * variable
    const float * value
    size_t n_bytes


cdef class StepParams:
    """What the step rule reads: one set with weight decay, one without."""
    cdef readonly Variable decayed
    cdef readonly Variable plain
    cdef readonly bint decay_biases
    cdef Variable of(self, Variable variable)


cdef class TrainGraph:
    cdef readonly Graph graph
    cdef Carriers carriers
    cdef readonly list inputs
    cdef readonly object loss
    cdef Scheduler scheduler
    cdef _ggml.ggml_opt_context_t opt
    cdef float * loss_value
    cdef float * seed
    cdef readonly dict targets
    cdef int64_t evaluations
    cdef _Mask * masks
    cdef int n_masks
    cdef _Update * updates
    cdef int n_updates
    cdef bint accumulating
    cdef public bint moves_statistics
    cdef int _redirect_gradients(self, dict gradients) except -1
    cdef int _redirect_steps(self, str rule, dict slots, StepParams params) except -1
    cdef float evaluate(self, float weight) except? -1
    cdef bint compute(self, float weight) noexcept nogil
    cdef int raise_unfinished(self) except -1
    cdef bint exhausted(self) noexcept
    cdef int _list_masks(self) except -1
    cdef int _list_updates(self) except -1
    cdef void draw_masks(self, uint64_t seed, uint64_t step) noexcept nogil


cdef class ApplyGraph:
    cdef Graph graph
    cdef Scheduler scheduler
    cdef Context results
    cdef _ggml.ggml_cgraph * cgraph
    cdef Tensor factor
    cdef bint stale(self) noexcept
    cdef int apply(self, float factor) except -1


cdef int clip_gradients(optimizer, list variables, dict gradients, double factor) except -1
cdef size_t planned_training(Graph graph) except? 0
