from libc.stdint cimport int64_t, uint64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._large cimport LargeGraph
from pyggml._lowering cimport Carriers, Stepper, pg_stepped
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
    cdef Stepper stepper  # None where ggml's own nodes step
    cdef _ggml.ggml_opt_context_t opt
    cdef LargeGraph large
    cdef float * loss_value
    cdef float * seed
    cdef readonly dict targets
    cdef readonly set reached  # variables that gradients are added up for
    cdef int64_t evaluations
    cdef _Mask * masks
    cdef int n_masks
    cdef _Update * updates
    cdef int n_updates
    cdef bint accumulating
    cdef readonly tuple clip
    cdef public bint moves_statistics
    cdef int _build_static(self, size_t size, str rule, tuple clip, dict slots,
                           StepParams params) except -1
    cdef int _build_large(self, size_t size, str rule, tuple clip, dict slots,
                          StepParams params) except -1
    cdef int _redirect_gradients(self, dict gradients) except -1
    cdef int _redirect_steps(self, str rule, tuple clip, dict slots,
                             StepParams params) except -1
    cdef int _set_step(self, _ggml.ggml_tensor * t, Variable variable, str rule, dict slots,
                       StepParams params) except -1
    cdef float evaluate(self, float weight) except? -1
    cdef bint compute(self, float weight) noexcept nogil
    cdef int raise_unfinished(self) except -1
    cdef bint exhausted(self) noexcept
    cdef int _list_masks(self) except -1
    cdef int _list_updates(self) except -1
    cdef void draw_masks(self, uint64_t seed, uint64_t step) noexcept nogil


cdef class Application:
    cdef Stepper stepper
    cdef pg_stepped * items
    cdef int n
    cdef list owners
    cdef void apply(self, double factor) noexcept


cdef size_t planned_training(Graph graph) except? 0
