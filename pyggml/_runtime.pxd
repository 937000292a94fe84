from pyggml cimport _ggml
from pyggml._locks cimport Lock
from pyggml._lowering cimport Lowered


cdef class Context:
    cdef _ggml.ggml_context * ptr
    cdef void * memory
    cdef size_t nbytes
    cdef int room(self) except -1
    cdef size_t count(self)
    cdef size_t unallocated(self)


cdef class Buffer:
    cdef _ggml.ggml_backend_buffer_t ptr
    cdef readonly size_t nbytes


cdef class ThreadPool:
    cdef _ggml.ggml_threadpool * ptr
    cdef readonly int n_threads
    cdef long pid


cdef class Backend:
    cdef _ggml.ggml_backend_t ptr
    cdef ThreadPool pool
    cdef long generation


cdef class Scheduler:
    cdef _ggml.ggml_backend_sched_t ptr
    cdef readonly Backend backend
    cdef bint lowered
    cdef bint stale(self) noexcept
    cdef int stop_on_failure(self, Lowered lowered) except -1
    cdef Lock enter_compute(self)
    cdef int leave_compute(self, Lock lock) except -1
    cdef int compute(self, _ggml.ggml_cgraph * graph, Lowered lowered) except -1


cdef Buffer allocate_context(Context context, str what)
cdef Buffer allocate_bytes(size_t nbytes, str what, bint clear=*)
cdef _ggml.ggml_backend_buffer_type_t buffer_type() except NULL
