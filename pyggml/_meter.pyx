# cython: language_level=3
"""Losses and metrics of an epoch: exact over all rows, and cheap for every batch."""

import math

import numpy as np

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cimport numpy as cnp

from pyggml import _activate
from pyggml._feed cimport Feed
from pyggml._graph cimport Tensor

cnp.import_array()

cdef int64_t _unlimited = 1 << 62
# Metrics are computed for so many rows at once, or for so many numbers if that is less.
cdef int64_t _rows_kept = 1024
cdef int64_t _numbers_kept = 1 << 20


@cython.final
cdef class _Kept:
    """Predictions of one output, gathered over several batches."""

    def __init__(self, int index, tuple row_shape, int64_t capacity):
        self.index = index
        self.activation = None
        self.row_shape = row_shape
        self.row_size = 1
        for n in row_shape:
            self.row_size *= n
        self.rows = np.empty((capacity,) + row_shape, np.float32)
        self.target = <float *>cnp.PyArray_DATA(self.rows)
        self.source = NULL


@cython.final
cdef class Meter:
    """Adds up losses in double and hands predictions to metrics, many rows at a time.

    Parameters
    ----------
    criterion : Criterion
    metrics : list of (int, str, Metric)
        Output index, name in the logs, metric.

    Notes
    -----
    Which rows a metric gets together depends on the batches alone, never on when somebody looks
    at :meth:`shown`: its sums are the same to the last bit in every run.
    """

    def __cinit__(self, criterion, list metrics):
        cdef int n = len(criterion.losses)
        self.n_parts = n if n > 1 else 0
        self.parts = <_Part *>calloc(n, sizeof(_Part))
        self.keeps = <void **>calloc(max(1, len(metrics)), sizeof(void *))
        if self.parts is NULL or self.keeps is NULL:
            raise MemoryError

    def __init__(self, criterion, list metrics):
        self.criterion = criterion
        self.metrics = metrics
        self.used = sorted({i for i, _, _ in metrics})
        self.kept = []
        self.capacity = 0
        self.reset()

    def __dealloc__(self):
        free(self.parts)
        free(self.keeps)

    def reset(self):
        """Begin an epoch."""
        cdef int i
        self.total = 0.0
        self.rows = self.batches = self.filled = 0
        self.flushed = False
        for i in range(self.n_parts):
            self.parts[i].total = 0.0
            self.parts[i].divisor = 0
        self.segments = []
        for _, _, metric in self.metrics:
            metric.reset()

    cdef int64_t follow(self, built, int64_t n) except -1:
        """Make ready to :meth:`take` batches of n rows; return how many there is room for.

        ``built`` is the Built of the graph that computes them.
        """
        cdef _Kept kept
        cdef Tensor t
        cdef int i
        for i in range(self.n_parts):
            t = built.parts[i]
            self.parts[i].source = <const float *>t.ptr.data
            self.parts[i].n = built.divisors[i]
        if not self.used:
            return _unlimited
        if self.filled + n > self.capacity:
            self.flush()
            if n > self.capacity:
                self._make_room(built, n)
        self.n_keeps = len(self.kept)
        for i in range(self.n_keeps):
            kept = self.kept[i]
            t, kept.activation = built.predictions[kept.index]
            kept.source = <const float *>t.ptr.data
            self.keeps[i] = <void *>kept
        return (self.capacity - self.filled) // n

    cdef void take(self, double loss, int64_t n) noexcept nogil:
        """Take in what was just computed."""
        cdef int i
        self.rows += n
        self.batches += 1
        self.total += loss * n
        for i in range(self.n_parts):
            self.parts[i].total += <double>self.parts[i].source[0] * self.parts[i].n
            self.parts[i].divisor += self.parts[i].n
        if self.n_keeps:
            for i in range(self.n_keeps):
                _keep(<_Kept>self.keeps[i], self.filled, n)
            self.filled += n

    def add(self, double loss, built, Feed feed, order, int64_t start, int64_t n, bint keep):
        """Take in a batch that was just computed.

        Parameters
        ----------
        loss : float
        built : Built
            Of the graph that computed it; predictions are read from its tensors now.
        feed : Feed
        order, start, n
            Rows of the feed.
        keep : bool
            Whether the feed's arrays stay as they are until the end of the epoch.
        """
        self.follow(built, n)
        self.take(loss, n)
        self.note(feed, order, start, n, keep)

    cdef int note(self, Feed feed, order, int64_t start, int64_t n, bint keep) except -1:
        """Remember which rows' labels and weights belong to the predictions just taken in."""
        cdef _Kept kept
        if not self.used or n == 0:
            return 0
        if not keep:
            # The source may use the same arrays again for the next batch.
            self.segments.append([
                (np.array(feed.labels(kept.index, order, start, n)),
                 _copied(feed.weights(kept.index, order, start, n))) for kept in self.kept])
            return 0
        if self.segments:
            last = self.segments[len(self.segments) - 1]
            if type(last) is tuple and last[0] is feed and last[1] is order \
                    and last[2] + last[3] == start:
                self.segments[len(self.segments) - 1] = (feed, order, last[2], last[3] + n)
                return 0
        self.segments.append((feed, order, start, n))
        return 0

    cdef int _make_room(self, built, int64_t n) except -1:
        cdef Tensor t
        cdef int64_t widest = 1
        cdef int64_t size
        for i in self.used:
            t = built.predictions[i][0]
            size = 1
            for m in t.shape[1:]:
                size *= m
            widest = max(widest, size)
        self.capacity = max(n, min(_rows_kept, _numbers_kept // widest))
        self.kept = []
        for i in self.used:
            t = built.predictions[i][0]
            self.kept.append(_Kept(i, tuple(t.shape[1:]), self.capacity))
        return 0

    cdef tuple _truth(self, int position):
        """Labels and weights of one output for what is gathered."""
        cdef _Kept kept = self.kept[position]
        pairs = []
        for segment in self.segments:
            if type(segment) is tuple:
                feed, order, start, n = segment
                pairs.append((feed.labels(kept.index, order, start, n),
                              feed.weights(kept.index, order, start, n)))
            else:
                pairs.append(segment[position])
        if len(pairs) == 1:
            return pairs[0]
        return _one_below_another([y for y, _ in pairs]), _joined(pairs)

    cdef int flush(self) except -1:
        """Hand what was gathered to the metrics."""
        cdef _Kept kept
        if self.filled == 0:
            return 0
        given = {}
        for position, kept in enumerate(self.kept):
            y_true, weights = self._truth(position)
            y_pred = _activate.apply[kept.activation](kept.rows[:self.filled])
            # Losses take labels without a last axis of size 1: of classes, and of elements.
            for last in (2, 1):
                if y_true.ndim == y_pred.ndim - last and y_pred.shape[-last] == 1:
                    y_true = y_true[..., np.newaxis]
            given[kept.index] = (y_true, y_pred, weights)
        self.segments = []
        self.filled = 0
        self.flushed = True
        for i, _, metric in self.metrics:
            metric.update(*given[i])
        return 0

    def logs(self):
        """Return the means over all rows so far, by name: loss, losses of outputs, metrics."""
        self.flush()
        return self._means(True)

    def shown(self):
        """Return the same for a display: metrics lack the rows that they have not got yet."""
        return self._means(self.flushed)

    cdef dict _means(self, bint metrics):
        cdef int i
        logs = {"loss": self.loss}
        for i in range(self.n_parts):
            part = self.parts[i]
            logs[f"{self.criterion.log_names[i]}_loss"] = (
                part.total / part.divisor if part.divisor else 0.0)
        if metrics:
            for _, name, metric in self.metrics:
                logs[name] = metric.result()
        return logs

    def get_state(self):
        """Return all that the rest of the epoch adds to, as checkpoints take it."""
        cdef _Kept kept
        gathered = []
        if self.filled:
            for position, kept in enumerate(self.kept):
                gathered.append((kept.rows[:self.filled].copy(), *self._truth(position)))
        return {
            "total": self.total, "rows": self.rows, "batches": self.batches,
            "parts": [(self.parts[i].total, self.parts[i].divisor) for i in range(self.n_parts)],
            "metrics": [_metric_state(metric) for _, _, metric in self.metrics],
            "capacity": self.capacity, "flushed": self.flushed, "gathered": gathered,
        }

    def set_state(self, state):
        """Go on where :meth:`get_state` was called.

        Raises
        ------
        ValueError
            It is of other outputs or metrics.
        """
        cdef _Kept kept
        cdef int64_t filled = 0
        if len(state["parts"]) != self.n_parts or len(state["metrics"]) != len(self.metrics) \
                or len(state["gathered"]) not in (0, len(self.used)):
            raise ValueError("the sums of the epoch are of other outputs or metrics")
        self.reset()
        self.total, self.rows, self.batches = state["total"], state["rows"], state["batches"]
        self.flushed = state["flushed"]
        for i, (total, divisor) in enumerate(state["parts"]):
            self.parts[i].total, self.parts[i].divisor = total, divisor
        for (_, _, metric), saved in zip(self.metrics, state["metrics"]):
            _set_metric_state(metric, saved)
        if not state["gathered"]:
            return
        self.capacity = state["capacity"]
        self.kept = []
        for index, (rows, _, _) in zip(self.used, state["gathered"]):
            filled = len(rows)
            kept = _Kept(index, rows.shape[1:], self.capacity)
            kept.rows[:filled] = rows
            self.kept.append(kept)
        self.filled = filled
        self.segments = [[(labels, weights) for _, labels, weights in state["gathered"]]]

    @property
    def names(self):
        """Names of what :meth:`logs` returns."""
        names = ["loss"]
        if self.n_parts:
            names += [f"{name}_loss" for name in self.criterion.log_names]
        return names + [name for _, name, _ in self.metrics]

    @property
    def loss(self):
        """Mean loss so far."""
        return self.total / self.rows if self.rows else 0.0


cdef void _keep(_Kept kept, int64_t at, int64_t n) noexcept nogil:
    memcpy(kept.target + at * kept.row_size, kept.source, n * kept.row_size * sizeof(float))


def _metric_state(metric):
    """What a metric has added up: all that is not an argument of its constructor."""
    if hasattr(metric, "get_state"):
        return metric.get_state()
    fixed = {"name", *metric.get_config()}
    return {key: value for key, value in vars(metric).items() if key not in fixed}


def _set_metric_state(metric, state):
    if hasattr(metric, "set_state"):
        metric.set_state(state)
    else:
        vars(metric).update(state)


cdef _copied(array):
    return None if array is None else np.array(array)


cdef _joined(list pairs):
    """Weights of all segments; a segment without has ones."""
    if all([w is None for _, w in pairs]):
        return None
    return _one_below_another([np.ones(len(y)) if w is None else w for y, w in pairs])


cdef _one_below_another(list arrays):
    """Join rows that batches may have in different shapes: (n,) beside (n, 1) or (n, m)."""
    row = max([a.shape[1:] for a in arrays], key=lambda shape: (math.prod(shape), len(shape)))
    same = []
    for a in arrays:
        if a.shape[1:] != row:
            fits = a.size == len(a) * math.prod(row)
            a = a.reshape(len(a), *row) if fits else np.broadcast_to(
                a.reshape(len(a), *([1] * len(row))), (len(a), *row))
        same.append(a)
    return np.concatenate(same)
