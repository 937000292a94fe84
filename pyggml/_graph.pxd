from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._lowering cimport Carriers, Lowered
from pyggml._runtime cimport Buffer, Context
from pyggml._variable cimport Variable


cdef class Tensor:
    cdef _ggml.ggml_tensor * ptr
    cdef readonly Graph graph
    cdef readonly tuple shape
    cdef readonly str dtype
    cdef readonly bint requires_grad
    cdef readonly str made_by
    cdef readonly Tensor made_from
    cdef readonly int64_t limit


cdef class Graph:
    cdef Context inputs
    cdef Context weights
    cdef Context compute
    cdef Buffer buffer
    cdef readonly Py_ssize_t batch_size
    cdef readonly bint training
    cdef readonly size_t capacity
    cdef int spare
    cdef readonly dict bindings
    cdef readonly object trained
    cdef readonly dict aliases
    cdef readonly list variables
    cdef readonly list masks
    cdef readonly bint fused
    cdef bint draws
    cdef int check_draws(self) except -1
    cdef Carriers carriers
    cdef Lowered lowered
    cpdef bint carries(self, str name) except -1
    cdef int lower(self) except -1
    cdef readonly list penalties
    cdef list owners
    cdef readonly list constants
    cdef readonly dict zero_tensors
    cdef readonly list updates
    cdef Tensor awaited
    cdef public object taps
    cdef bint consumed  # by ggml-opt, which adds its own nodes
    cdef Tensor wrap(self, _ggml.ggml_tensor * ptr, tuple shape, bint requires_grad)
    cdef int reserve(self, int n) except -1
    cdef int own(self, Tensor t, str name) except -1
    cdef size_t count(self)
    cpdef Tensor weight(self, Variable variable)
    cpdef Tensor input(self, shape, str dtype=*, str name=*)
    cpdef Tensor keep(self, Tensor t)
    cdef int seal(self) except -1


cdef Tensor _tensor(x, Tensor like=*, str name=*)
cdef Tensor _real(x, Tensor like=*, str name=*)
cdef Tensor _contiguous(Tensor t)
cdef Tensor _same(Tensor t)
cdef int check_size(tuple shape) except -1
