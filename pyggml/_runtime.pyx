# cython: language_level=3, freethreading_compatible=False
"""Owners of ggml's C objects, threads and log.

One C object, one extension type. ``free()`` may be called any number of times, ``__dealloc__``
is the backstop, and whoever needs an object keeps a reference to its owner.
"""

import atexit
import logging
import os
import threading
import time

cimport cython

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

from pyggml cimport _ggml
from pyggml._locks cimport Lock
from pyggml._lowering cimport Lowered, begin_compute, end_compute, has_failed, set_threads
from pyggml._memory cimport require

from pyggml._threads import default_num_threads, processors

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Ask for large pages behind large buffers, as NumPy does: touching 100 MB for the first time
     * costs 25,000 page faults otherwise. A hint: what comes of it does not matter. */
    static void pyggml_prefer_large_pages(void * data, size_t n) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        uintptr_t page = (uintptr_t)1 << 12;
        uintptr_t start = ((uintptr_t)data + page - 1) & ~(page - 1);
        uintptr_t end = ((uintptr_t)data + n) & ~(page - 1);
        if (n >= ((size_t)1 << 22) && end > start) {
            madvise((void *)start, end - start, MADV_HUGEPAGE);
        }
    #else
        (void)data;
        (void)n;
    #endif
    }
    """
    void pyggml_prefer_large_pages(void * data, size_t n)

cdef extern from *:
    """
    #include <stdlib.h>
    #include "thread_shim.h"
    static PG_THREAD_RESULT
    #if defined(_WIN32)
    pyggml_wait(LPVOID gate)
    #else
    pyggml_wait(void * gate)
    #endif
    {
        pg_lock((pg_mutex *)gate);
        pg_unlock((pg_mutex *)gate);
        return PG_THREAD_RETURN;
    }
    /* Whether so many threads can run at once: ggml ends the process where one cannot start. */
    static int pyggml_threads_start(int n) {
        pg_mutex gate;
        pg_thread * threads = (pg_thread *)malloc((size_t)n * sizeof(pg_thread));
        int started = 0;
        if (threads == NULL) return 0;
        pg_mutex_init(&gate);
        pg_lock(&gate);
        while (started < n && pg_thread_start(&threads[started], pyggml_wait, &gate) == 0) {
            started++;
        }
        pg_unlock(&gate);
        for (int i = 0; i < started; i++) pg_thread_join(threads[i]);
        free(threads);
        return started == n;
    }
    """
    int pyggml_threads_start(int n) nogil

cdef extern from *:
    """
    #include <stdbool.h>
    static int (*pyggml_failed)(void *);
    static bool pyggml_stop(void * lowered) { return pyggml_failed(lowered) != 0; }
    """
    bint (*pyggml_failed)(void * lowered) noexcept nogil
    bint pyggml_stop(void * lowered) noexcept nogil

cdef extern from "Python.h":
    void * PyInterpreterState_Get()
    void * PyInterpreterState_Main()

if PyInterpreterState_Get() != PyInterpreterState_Main():
    raise ImportError("not the main interpreter")  # the package says more


# ---- log and abort ------------------------------------------------------------------------

_logger = logging.getLogger("pyggml.ggml")
# A library leaves the choice of handlers to the program.
logging.getLogger("pyggml").addHandler(logging.NullHandler())
cdef dict _levels = {
    <int>_ggml.GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    <int>_ggml.GGML_LOG_LEVEL_INFO: logging.INFO,
    <int>_ggml.GGML_LOG_LEVEL_WARN: logging.WARNING,
    <int>_ggml.GGML_LOG_LEVEL_ERROR: logging.ERROR,
}
cdef str _pending = ""
cdef int _pending_level = logging.INFO


cdef void _log(_ggml.ggml_log_level level, const char * text, void * user_data) noexcept with gil:
    # ggml sends lines in pieces: a piece without a newline is continued by the next one.
    global _pending, _pending_level
    try:
        if level != _ggml.GGML_LOG_LEVEL_CONT:
            _pending_level = _levels.get(<int>level, logging.INFO)
        _pending += (<bytes>text).decode("utf-8", "replace")
        while "\n" in _pending:
            line, _pending = _pending.split("\n", 1)
            if line:
                _logger.log(_pending_level, "%s", line)
    except BaseException as error:  # nothing may leave a C callback
        _pending = ""
        try:
            _logger.error("a message of ggml could not be logged: %r", error)
        except BaseException:
            _pending = ""


cdef void _log_nothing(_ggml.ggml_log_level level, const char * text,
                       void * user_data) noexcept nogil:
    pass


_ggml.ggml_log_set(_log, NULL)
pyggml_failed = has_failed


@atexit.register
def _silence_log():
    # A message after the interpreter is gone would wait for its lock for ever.
    _ggml.ggml_log_set(_log_nothing, NULL)


# ---- threads ------------------------------------------------------------------------------

cdef int _n_threads = 0
cdef int _processors = processors()
cdef long _generation = 1
cdef ThreadPool _shared_pool = None
cdef Lock _pool_lock = Lock()
cdef long _pid = os.getpid()
cdef int _computing = 0  # computations that run now
cdef bint _exiting = False


cdef class ThreadPool:
    """A ggml thread pool; the thread that computes is one of its threads."""

    def __cinit__(self, int n_threads):
        cdef _ggml.ggml_threadpool_params params = (
            _ggml.ggml_threadpool_params_default(n_threads))
        self.ptr = NULL
        self.n_threads = n_threads
        self.pid = _pid
        # Between graphs, threads sleep soon: spinning takes the core from whoever shares it.
        params.poll = 1
        if n_threads > 1 and not pyggml_threads_start(n_threads - 1):
            raise RuntimeError(f"{n_threads} threads could not be started; set fewer with "
                               "set_num_threads")
        require(1 << 16, "a pool of threads")
        with nogil:
            self.ptr = _ggml.ggml_threadpool_new(&params)
        if self.ptr is NULL:
            raise MemoryError(f"ggml could not make a pool of {n_threads} threads")

    def __dealloc__(self):
        # A forked child has the memory of the pool but none of its threads: nothing to join.
        if self.ptr is not NULL and self.pid == _pid:
            with nogil:
                _ggml.ggml_threadpool_free(self.ptr)
        self.ptr = NULL


def get_num_threads():
    """Return the number of threads that computations use.

    Returns
    -------
    int
        What :func:`set_num_threads` set, else ``PYGGML_NUM_THREADS`` from the environment, else
        the smallest of what the process may use by CPU affinity, control group,
        ``OMP_NUM_THREADS`` and ``SLURM_CPUS_PER_TASK``.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.get_num_threads() >= 1
    True
    """
    global _n_threads
    if _n_threads == 0:
        n = min(default_num_threads(), <int>_ggml.GGML_MAX_N_THREADS)
        set_threads(n)
        _n_threads = n
    return _n_threads


def set_num_threads(n):
    """Set the number of threads that computations of this process use.

    Parameters
    ----------
    n : int
        From 1 to 512. May be changed at any time, during training too; results depend on the
        number of threads in their last bits. Where ggml computes by itself (``pyggml.opt``, and
        all with ``PYGGML_LOWERING=0``), no more than there are processors are used.

    Raises
    ------
    TypeError
        ``n`` is not an integer.
    ValueError
        ``n`` is out of range.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.set_num_threads(2)
    >>> pyggml.get_num_threads()
    2
    """
    global _n_threads, _generation, _shared_pool
    try:
        n = n.__index__()
    except AttributeError:
        raise TypeError(f"n must be an integer, got {type(n).__name__}") from None
    if not 1 <= n <= _ggml.GGML_MAX_N_THREADS:
        raise ValueError(f"n must be from 1 to {<int>_ggml.GGML_MAX_N_THREADS}, got {n}")
    with _pool_lock:
        if n != _n_threads:
            set_threads(n)
            _n_threads = n
            _shared_pool = None  # schedulers that still hold it let go at their next compute
            _generation += 1


@atexit.register
def _wait_for_daemons():
    # The end of the process frees what daemon threads compute with.
    global _exiting
    _exiting = True
    while _computing:
        time.sleep(0.001)


def _after_fork_in_child():
    global _pool_lock, _shared_pool, _generation, _pid, _computing, _exiting
    _computing = 0
    _exiting = False
    _pid = os.getpid()
    _pool_lock = Lock()
    _shared_pool = None
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- owners -------------------------------------------------------------------------------

cdef extern from *:
    """
    /* Graphs come and go and fill a small part of their room. On the heap each would touch other
       pages of it, which stay with the process; here the system has them back. */
    #ifdef _WIN32
    #include <stdlib.h>
    static void * pyggml_pages(size_t size) { return malloc(size); }
    static void pyggml_give_pages(void * p, size_t size) { (void) size; free(p); }
    #else
    #include <stddef.h>
    #include <sys/mman.h>
    static void * pyggml_pages(size_t size) {
        void * p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    static void pyggml_give_pages(void * p, size_t size) {
        if (p) munmap(p, size);
    }
    #endif
    """
    void * pyggml_pages(size_t size) nogil
    void pyggml_give_pages(void * p, size_t size) nogil


cdef class Context:
    """A ggml context that holds descriptions of tensors, not their data.

    Parameters
    ----------
    n_tensors : int
        How many tensors it has room for.
    graph_size : int
        Room for ``n_graphs`` graphs of so many nodes is added.
    """

    def __cinit__(self, size_t n_tensors, size_t graph_size=0, size_t n_graphs=0):
        cdef _ggml.ggml_init_params params
        self.ptr = NULL
        self.memory = NULL
        params.mem_size = n_tensors * _ggml.ggml_tensor_overhead()
        if n_graphs:
            params.mem_size += n_graphs * _ggml.ggml_graph_overhead_custom(graph_size, True)
        params.mem_size = max(params.mem_size, <size_t>64)
        # Memory of ours: ggml ends the process where it finds none.
        require(params.mem_size, "descriptions of tensors")
        self.nbytes = params.mem_size
        self.memory = params.mem_buffer = pyggml_pages(self.nbytes)
        if self.memory is NULL:
            raise MemoryError(f"{params.mem_size} bytes for descriptions of tensors could not be "
                              "allocated")
        params.no_alloc = True
        self.ptr = _ggml.ggml_init(params)
        if self.ptr is NULL:
            raise MemoryError(f"ggml could not make a context of {params.mem_size} bytes")

    cdef int room(self) except -1:
        """How many more tensors fit."""
        return <int>((_ggml.ggml_get_mem_size(self.ptr) - _ggml.ggml_used_mem(self.ptr))
                     // _ggml.ggml_tensor_overhead())

    cdef size_t unallocated(self):
        """How many bytes the tensors need that have no memory yet."""
        cdef size_t nbytes = 0
        cdef _ggml.ggml_tensor * t = _ggml.ggml_get_first_tensor(self.ptr)
        while t is not NULL:
            if t.data is NULL and t.view_src is NULL:
                nbytes += _ggml.ggml_nbytes(t)
            t = _ggml.ggml_get_next_tensor(self.ptr, t)
        return nbytes

    cdef size_t count(self):
        """How many tensors there are."""
        cdef size_t n = 0
        cdef _ggml.ggml_tensor * t = _ggml.ggml_get_first_tensor(self.ptr)
        while t is not NULL:
            n += 1
            t = _ggml.ggml_get_next_tensor(self.ptr, t)
        return n

    def __dealloc__(self):
        if self.ptr is not NULL:
            _ggml.ggml_free(self.ptr)
        pyggml_give_pages(self.memory, self.nbytes)


cdef class Buffer:
    """Memory of a device that tensors lie in."""

    def __cinit__(self):
        self.ptr = NULL
        self.nbytes = 0

    def __dealloc__(self):
        if self.ptr is not NULL:
            _ggml.ggml_backend_buffer_free(self.ptr)


cdef Backend _allocator = None


cdef _ggml.ggml_backend_buffer_type_t buffer_type() except NULL:
    global _allocator
    if _allocator is None:
        _allocator = Backend()
    return _ggml.ggml_backend_get_default_buffer_type(_allocator.ptr)


cdef Buffer allocate_context(Context context, str what):
    """Allocate, and set to zero, the data of every tensor of the context that has none."""
    cdef Buffer buffer = Buffer()
    cdef size_t nbytes = context.unallocated()
    if nbytes == 0:
        return buffer
    require(nbytes, what)
    buffer.ptr = _ggml.ggml_backend_alloc_ctx_tensors_from_buft(context.ptr, buffer_type())
    if buffer.ptr is NULL:
        raise MemoryError(f"{nbytes} bytes for {what} could not be allocated")
    _ggml.ggml_backend_buffer_clear(buffer.ptr, <uint8_t>0)
    buffer.nbytes = _ggml.ggml_backend_buffer_get_size(buffer.ptr)
    return buffer


cdef Buffer allocate_bytes(size_t nbytes, str what, bint clear=True):
    cdef Buffer buffer = Buffer()
    require(nbytes, what)
    buffer.ptr = _ggml.ggml_backend_buft_alloc_buffer(buffer_type(), nbytes)
    if buffer.ptr is NULL:
        raise MemoryError(f"{nbytes} bytes for {what} could not be allocated")
    pyggml_prefer_large_pages(_ggml.ggml_backend_buffer_get_base(buffer.ptr), nbytes)
    if clear:
        _ggml.ggml_backend_buffer_clear(buffer.ptr, <uint8_t>0)
    buffer.nbytes = nbytes
    return buffer


cdef class Backend:
    """ggml's CPU backend with a work buffer of its own."""

    def __cinit__(self):
        self.generation = 0
        require(1 << 16, "a CPU backend")
        self.ptr = _ggml.ggml_backend_cpu_init()
        if self.ptr is NULL:
            raise MemoryError("ggml could not make a CPU backend")

    def __dealloc__(self):
        if self.ptr is not NULL:
            _ggml.ggml_backend_free(self.ptr)


@cython.no_gc_clear
cdef class Scheduler:
    """ggml's scheduler on a backend of its own: plans a graph's memory and runs it."""

    def __cinit__(self, size_t graph_size, bint lowered=False):
        self.ptr = NULL
        self.lowered = lowered
        get_num_threads()
        self.backend = Backend()
        # Descriptions of copies that a graph on several backends would need; ggml does not look
        # whether it got them.
        require(graph_size * (60 * sizeof(_ggml.ggml_tensor) + 2048) + (1 << 16), "a scheduler",
                False)
        self.ptr = _ggml.ggml_backend_sched_new(
            &self.backend.ptr, NULL, 1, graph_size, False, False)
        if self.ptr is NULL:
            raise MemoryError("ggml could not make a scheduler")

    @property
    def nbytes(self):
        """Size of the compute buffer in bytes."""
        return _ggml.ggml_backend_sched_get_buffer_size(self.ptr, self.backend.ptr)

    cdef bint stale(self) noexcept:
        """Whether its threads stayed in the parent of this process, maybe with a lock held."""
        cdef ThreadPool pool = self.backend.pool
        return pool is not None and pool.n_threads > 1 and pool.pid != _pid

    cdef int stop_on_failure(self, Lowered lowered) except -1:
        """End a computation at the node whose kernel failed, before weights move."""
        if lowered.ptr is not NULL:
            _ggml.ggml_backend_cpu_set_abort_callback(
                self.backend.ptr, <_ggml.ggml_abort_callback>pyggml_stop, lowered.ptr)
        return 0

    cdef Lock enter_compute(self):
        """Give the backend its threads; return what leave_compute takes after computing.

        One thread needs no lock. Several share one pool, which runs one graph at a time. A
        lowered graph runs on one: its kernels have a pool of their own.
        """
        global _shared_pool, _computing
        cdef Backend backend = self.backend
        cdef int n = 1 if self.lowered else get_num_threads()
        cdef long generation = _generation
        cdef Lock lock = None
        if _exiting and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()  # until the process is gone
        if self.stale():
            raise RuntimeError("this was computed on several threads before the process was "
                               "forked; make it anew in the child")
        if n > 1:
            lock = _pool_lock
            lock.take()
            # May have changed while we waited. More threads than processors would take turns at
            # ggml's barriers, which spin: a hundred times slower.
            n = min(_n_threads, _processors)
            generation = _generation
        if backend.generation != generation:
            try:
                if n > 1:
                    if _shared_pool is None:
                        _shared_pool = ThreadPool(n)
                    pool = _shared_pool
                else:
                    pool = ThreadPool(1)
                # The old pool is paused in this call, so it must still be alive.
                _ggml.ggml_backend_cpu_set_threadpool(backend.ptr, (<ThreadPool>pool).ptr)
                _ggml.ggml_backend_cpu_set_n_threads(backend.ptr, n)
                backend.pool = pool
                backend.generation = generation
            except BaseException:
                if lock is not None:
                    lock.give()
                raise
        _computing += 1
        return lock

    cdef int leave_compute(self, Lock lock) except -1:
        """End what :meth:`enter_compute` began."""
        global _computing
        _computing -= 1
        if lock is not None:
            lock.give()
        return 0

    cdef int compute(self, _ggml.ggml_cgraph * graph, Lowered lowered) except -1:
        """Run a graph that was planned here; raise what it, or a kernel, could not do."""
        cdef _ggml.ggml_status status
        cdef uint64_t denormals
        cdef Lock lock = self.enter_compute()
        try:
            with nogil:
                denormals = begin_compute()
                status = _ggml.ggml_backend_sched_graph_compute(self.ptr, graph)
                end_compute(denormals)
        finally:
            self.leave_compute(lock)
        lowered.check()
        if status != _ggml.GGML_STATUS_SUCCESS:
            raise RuntimeError(f"ggml could not compute the graph (status {<int>status})")
        return 0

    def __dealloc__(self):
        if self.ptr is not NULL:
            _ggml.ggml_backend_sched_free(self.ptr)
