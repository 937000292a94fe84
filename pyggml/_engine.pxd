from libc.stdint cimport int64_t, uint64_t

from pyggml._feed cimport Feed
from pyggml._forward cimport Predictor
from pyggml._locks cimport Lock
from pyggml._meter cimport Meter
from pyggml._training cimport Application, StepParams, TrainGraph


cdef class Engine:
    cdef readonly object compiled
    cdef object made_with
    cdef readonly object program
    cdef readonly object criterion
    cdef object optimizer
    cdef dict bindings
    cdef dict names
    cdef dict slots
    cdef dict idle_slots
    cdef object mode
    cdef dict gradients_sum
    cdef dict gradients_given
    cdef list trained
    cdef StepParams params
    cdef object graphs
    cdef TrainGraph main
    cdef Predictor predictor
    cdef Lock lock
    cdef Application application
    cdef Application application_given
    cdef readonly int64_t batch_size
    cdef readonly int64_t nbatch_logical
    cdef readonly double weight_decay
    cdef double decay_seen
    cdef int64_t steps
    cdef int64_t updates
    cdef int64_t window_rows
    cdef uint64_t seed
    cdef int64_t at_once
    cdef bint made
    cdef readonly bint freed
    cdef bint warned
    cdef int alive(self) except -1
    cdef TrainGraph train_graph(self, int64_t rows, str use)
    cdef TrainGraph main_graph(self)
    cdef int follow_decay(self) except -1
    cdef int set_params(self) except -1
    cdef float run(self, TrainGraph g, int64_t rows) except? -1
    cdef int run_many(self, TrainGraph g, Feed feed, const int64_t[:, ::1] index,
                      double[::1] losses) except -1
    cdef int _give_way(self) except -1
    cdef int64_t run_some(self, TrainGraph g, Feed feed, const int64_t * index, int64_t start,
                          int64_t n, int64_t k, double * losses, Meter meter) except -1
    cdef int finish_window(self) except -1
    cdef int prepare_update(self) except -1
    cdef void end_window(self)
    cdef int _prepare_application(self, TrainGraph g, str use) except -1
    cdef void forget_window(self)
    cdef int _fill_table(self, float * table, int64_t n) except -1
    cdef int warn(self, double loss, int64_t step) except -1
