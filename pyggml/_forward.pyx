# cython: language_level=3
"""Evaluation of a network: predictions and losses without gradients."""

import math
from collections import OrderedDict

import numpy as np

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cimport numpy as cnp

from pyggml cimport _ggml
from pyggml._arrays cimport Rows
from pyggml._graph cimport Graph, Tensor
from pyggml._locks cimport Lock
from pyggml._memory cimport require
from pyggml._plan cimport expand, place, planned_bytes
from pyggml._runtime cimport Context, Scheduler
from pyggml._slot cimport Slot

from pyggml._graph import GraphFull
from pyggml._lowering import enabled as lowering_enabled

cnp.import_array()


_NEAR = 1 << 21  # elements of a result that stay in the caches


def build(make, Py_ssize_t batch_size, bint training, dict bindings, trained=None):
    """Build a graph by ``make(graph)``, with as much capacity as it turns out to need.

    Returns
    -------
    tuple
        The graph and what ``make`` returned.
    """
    capacity = 1024 if training else 256
    while True:
        graph = Graph(batch_size, training, bindings, capacity, trained, fused=True)
        try:
            return graph, make(graph)
        except GraphFull:
            if capacity > 1 << 20:
                raise ValueError("the network has more than a million operations") from None
            capacity *= 4


@cython.no_gc_clear
cdef class ForwardGraph:
    """A network in evaluation mode, for one batch size, on a scheduler of its own.

    Parameters
    ----------
    program : Program
    batch_size : int
    bindings : dict
        Variables to use in place of the program's.
    criterion : Criterion, optional
        Adds the loss.
    """

    def __init__(self, program, Py_ssize_t batch_size, dict bindings, criterion=None):
        cdef Tensor out

        def make(Graph graph):
            inputs = program.make_inputs(graph)
            outputs = program.run(graph, [slot.tensor for slot in inputs])
            loss = None if criterion is None else criterion.build(graph, outputs)
            # Results that are inputs, weights or views get memory of their own.
            return inputs, [graph.keep(out) for out in outputs], loss

        self.graph, (self.inputs, self.outputs, self.loss) = build(
            make, batch_size, False, bindings)
        self.graph.allocate()
        self.graph.lower()
        # ggml sets aside kilobytes for every node that a graph may have.
        size = self.graph.count() + 16
        self.results = Context(0, size, 1)
        self.cgraph = _ggml.ggml_new_graph_custom(self.results.ptr, size, False)
        for out in self.outputs + ([] if self.loss is None else [self.loss.total]):
            expand(self.cgraph, out.ptr)
        if _ggml.ggml_graph_n_nodes(self.cgraph) > _ggml.GGML_DEFAULT_GRAPH_SIZE:
            self.memory = place(self.cgraph)
        self.scheduler = Scheduler(size, self.graph.fused)
        self.scheduler.stop_on_failure(self.graph.lowered)
        require(planned_bytes(self.cgraph), f"a batch of {batch_size} rows")
        if not _ggml.ggml_backend_sched_alloc_graph(self.scheduler.ptr, self.cgraph):
            raise MemoryError(f"no memory to evaluate a batch of {batch_size} rows")
        if lowering_enabled():  # the kernels take any address
            for slot in self.inputs:
                (<Slot>slot).let_borrow(self.graph)
        self.graph.seal()

    cpdef bint stale(self):
        """Whether it has to be made anew after a fork."""
        return self.scheduler.stale()

    cdef int compute(self) except -1:
        return self.scheduler.compute(self.cgraph, self.graph.lowered)

    @property
    def nbytes(self):
        """Bytes that the graph holds beside the weights."""
        planned = 0 if self.memory is None else self.memory.nbytes
        return self.graph.buffer.nbytes + self.scheduler.nbytes + planned


cdef class Predictor:
    """Evaluates a network on any number of rows, keeping graphs for a few batch sizes.

    Calls from several threads are serialised.

    Parameters
    ----------
    program : Program
    bindings : dict
    lock : Lock, optional
        Held while computing. By default one of its own.

    Attributes
    ----------
    rows_at_once : int
        A batch size for many rows, from 32 to 512: large products, results still near the CPU.
    """

    max_graphs = 12  # batch sizes are powers of two or the caller's own

    def __init__(self, program, dict bindings, Lock lock=None):
        self.program = program
        self.bindings = bindings
        self.lock = Lock() if lock is None else lock
        self._graphs = OrderedDict()
        self._recent = None
        self.rows_at_once = 512
        while self.rows_at_once > 32 and self.rows_at_once * program.widest > _NEAR:
            self.rows_at_once //= 2

    cpdef ForwardGraph graph(self, batch_size, criterion=None):
        """Return the graph for a batch size, made at first use."""
        cdef ForwardGraph graph
        key = (batch_size, criterion)
        graph = self._graphs.get(key)
        if graph is None or graph.stale():
            graph = ForwardGraph(self.program, batch_size, self.bindings, criterion)
            self._graphs[key] = graph
            while len(self._graphs) > self.max_graphs:
                self._graphs.popitem(last=False)
        else:
            self._graphs.move_to_end(key)
        return graph

    @property
    def nbytes(self):
        """Bytes that the graphs hold beside the weights."""
        return sum([g.nbytes for g in self._graphs.values()])

    cdef list predict_again(self, x, int64_t batch_size):
        """Return the outputs for an array that the last graph takes as it is; else None.

        This is the short way for one observation after another. The caller holds the lock.
        """
        cdef ForwardGraph g = self._recent
        cdef cnp.ndarray array, result
        cdef Slot slot
        cdef Tensor out
        cdef list results
        cdef cnp.npy_intp dims[4]
        cdef int64_t n
        cdef size_t row
        cdef int i, n_axes
        if g is None or type(x) is not cnp.ndarray or g.stale():
            return None
        slot = <Slot>g.inputs[0]
        array = x
        if not slot.takes(array):
            return None
        n = cnp.PyArray_DIM(array, 0)
        if n == 0 or n > slot.n_rows or _bucket(n, batch_size) != slot.n_rows:
            return None
        memcpy(slot.data(), cnp.PyArray_DATA(array), n * slot.row_size * sizeof(float))
        g.compute()
        results = []
        dims[0] = n
        for out in g.outputs:
            n_axes = len(out.shape)
            for i in range(1, n_axes):
                dims[i] = out.ptr.ne[n_axes - 1 - i]
            result = cnp.PyArray_SimpleNew(n_axes, dims, cnp.NPY_FLOAT32)
            row = out.ptr.nb[3] * out.ptr.ne[3] // slot.n_rows
            memcpy(cnp.PyArray_DATA(result), out.ptr.data, n * row)
            results.append(result)
        return results

    cpdef list predict_array(self, x, int64_t batch_size):
        """As :meth:`predict`, sooner for an array that the last graph takes as it is."""
        cdef list results
        self.lock.take()
        try:
            results = self.predict_again(x, batch_size)
            if results is None:
                results = self.predict(x, batch_size)
            return results
        finally:
            self.lock.give()

    def predict_plain(self, x, batch_size):
        """As :meth:`predict_any` for an array and a number of rows; None for anything else."""
        cdef int64_t size
        if type(x) is not cnp.ndarray:
            return None
        if batch_size is None:
            size = self.rows_at_once
        elif type(batch_size) is int and 0 < batch_size <= 1 << 30:
            size = batch_size
        else:
            return None
        return self.predict_any(x, size)

    cdef object predict_any(self, x, int64_t batch_size):
        """As :meth:`predict_array`, but a single output by itself."""
        cdef list results = self.predict_array(x, batch_size)
        return results[0] if len(results) == 1 else results

    cpdef list predict(self, x, int64_t batch_size):
        """Return the outputs for all rows of x.

        Parameters
        ----------
        x : array_like, or list or dict of array_like
        batch_size : int
            Rows computed at once.

        Returns
        -------
        list of numpy.ndarray of float32
            One array an output, each owning its memory.
        """
        cdef ForwardGraph g
        cdef Slot slot
        cdef Rows rows
        cdef Tensor out
        cdef cnp.ndarray array
        cdef int64_t n, start, count, row
        values = self.program.split_inputs(x)
        with self.lock:
            g = self.graph(1)
            sources = [(<Slot>slot).accept(value) for slot, value in zip(g.inputs, values)]
            n = same_rows(sources, [slot.name for slot in g.inputs])
            require(sum([4 * n * math.prod(out.shape[1:]) for out in g.outputs]), "the outputs")
            results = [np.empty((n,) + tuple(out.shape[1:]), np.float32) for out in g.outputs]
            start = 0
            while start < n:
                count = _next(n - start, batch_size)
                g = self.graph(_bucket(count, batch_size))
                try:
                    for slot, rows in zip(g.inputs, sources):
                        if not slot.borrow(rows, start, count):
                            slot.fill(rows, start, count, NULL)
                    g.compute()
                finally:
                    for slot in g.inputs:
                        slot.give_back()
                for out, array in zip(g.outputs, results):
                    row = out.ptr.nb[3] * out.ptr.ne[3] // <int64_t>out.shape[0]
                    memcpy(cnp.PyArray_BYTES(array) + start * row, out.ptr.data, count * row)
                start += count
                self._recent = g if len(g.inputs) == 1 else None
        return results


cdef int64_t _next(int64_t left, int64_t batch_size):
    """How many of the rows that are left to compute next, so that few surplus ones are computed."""
    cdef int64_t bucket = _bucket(left, batch_size)
    if left >= batch_size:
        return batch_size
    if bucket <= 64 or bucket - left <= bucket // 8:
        return left
    return _bucket(left // 2 + 1, batch_size)  # the largest power of two within


cdef int64_t _bucket(int64_t n, int64_t batch_size):
    """The batch size to compute n rows with: surplus rows are computed and dropped."""
    cdef int64_t size = 1
    while size < n:
        size *= 2
    return min(size, batch_size)


def same_rows(sources, names):
    """Return the number of rows that all sources have.

    Raises
    ------
    ValueError
        They differ.
    """
    for source, name in zip(sources, names):
        if source.n_rows != sources[0].n_rows:
            raise ValueError(f"{names[0]} has {sources[0].n_rows} rows, but {name} has "
                             f"{source.n_rows}")
    return sources[0].n_rows
