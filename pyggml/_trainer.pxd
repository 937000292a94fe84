from libc.stdint cimport int64_t, uint64_t

from pyggml._training cimport ApplyGraph, StepParams, TrainGraph


cdef class Trainer:
    cdef readonly object compiled
    cdef object program
    cdef readonly object criterion
    cdef object optimizer
    cdef dict bindings
    cdef dict slots
    cdef dict idle_slots
    cdef object mode
    cdef dict gradients_sum
    cdef list trained
    cdef StepParams params
    cdef object graphs
    cdef ApplyGraph apply_graph
    cdef object predictor
    cdef object lock
    cdef readonly int64_t batch_size
    cdef readonly int64_t nbatch_logical
    cdef readonly double weight_decay
    cdef int64_t steps
    cdef int64_t updates
    cdef int64_t window_rows
    cdef uint64_t seed
    cdef bint freed
    cdef bint warned
    cdef TrainGraph train_graph(self, int64_t rows, str use)
    cdef int set_params(self) except -1
    cdef float run(self, TrainGraph g, int64_t rows) except? -1
    cdef int finish_window(self) except -1
