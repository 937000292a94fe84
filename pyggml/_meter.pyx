# cython: language_level=3
"""Losses and metrics of an epoch: exact over all rows, and cheap for every batch."""

import numpy as np

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cimport numpy as cnp

from pyggml import _activate
from pyggml._feed cimport Feed
from pyggml._graph cimport Tensor

cnp.import_array()

# Metrics are computed for so many rows at once, or for so many numbers if that is less.
cdef int64_t _rows_kept = 1024
cdef int64_t _numbers_kept = 1 << 20


@cython.final
cdef class _Kept:
    """Predictions of one output, gathered over several batches."""

    cdef int index
    cdef object activation
    cdef cnp.ndarray rows
    cdef int64_t row_size
    cdef tuple row_shape

    def __init__(self, int index, Tensor t, activation, int64_t capacity):
        self.index = index
        self.activation = activation
        self.row_shape = tuple(t.shape[1:])
        self.row_size = 1
        for n in self.row_shape:
            self.row_size *= n
        self.rows = np.empty((capacity,) + self.row_shape, np.float32)


@cython.final
cdef class Meter:
    """Adds up losses in double and hands predictions to metrics, many rows at a time.

    Parameters
    ----------
    criterion : Criterion
    metrics : list of (int, str, Metric)
        Output index, name in the logs, metric.
    """

    cdef object criterion
    cdef list metrics
    cdef list used
    cdef list kept
    cdef list segments
    cdef list parts
    cdef list divisors
    cdef double total
    cdef int64_t capacity
    cdef int64_t filled
    cdef readonly int64_t rows
    cdef readonly int64_t batches

    def __init__(self, criterion, list metrics):
        self.criterion = criterion
        self.metrics = metrics
        self.used = sorted({i for i, _, _ in metrics})
        self.kept = []
        self.capacity = 0
        self.reset()

    def reset(self):
        """Begin an epoch."""
        n = len(self.criterion.losses)
        self.total = 0.0
        self.rows = self.batches = self.filled = 0
        self.parts = [0.0] * n
        self.divisors = [0] * n
        self.segments = []
        for _, _, metric in self.metrics:
            metric.reset()

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
        cdef Tensor t
        cdef int i
        self.rows += n
        self.batches += 1
        self.total += loss * n
        if len(self.parts) > 1:
            for i in range(len(self.parts)):
                t = built.parts[i]
                self.parts[i] += <double>(<float *>t.ptr.data)[0] * built.divisors[i]
                self.divisors[i] += built.divisors[i]
        if self.used:
            self._keep(built, feed, order, start, n, keep)

    cdef int _keep(self, built, Feed feed, order, int64_t start, int64_t n, bint keep) except -1:
        cdef _Kept kept
        cdef Tensor t
        if self.filled + n > self.capacity:
            self.flush()
            if n > self.capacity:
                self._make_room(built, n)
        for kept in self.kept:
            t = built.predictions[kept.index][0]
            memcpy(<float *>cnp.PyArray_DATA(kept.rows) + self.filled * kept.row_size,
                   t.ptr.data, n * kept.row_size * sizeof(float))
        self.filled += n
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
        self.kept = [_Kept(i, built.predictions[i][0], built.predictions[i][1], self.capacity)
                     for i in self.used]
        return 0

    cdef int flush(self) except -1:
        """Hand what was gathered to the metrics."""
        cdef _Kept kept
        if self.filled == 0:
            return 0
        given = {}
        for position, kept in enumerate(self.kept):
            pairs = []
            for segment in self.segments:
                if type(segment) is tuple:
                    feed, order, start, n = segment
                    pairs.append((feed.labels(kept.index, order, start, n),
                                  feed.weights(kept.index, order, start, n)))
                else:
                    pairs.append(segment[position])
            y_true = pairs[0][0] if len(pairs) == 1 else np.concatenate([y for y, _ in pairs])
            weights = _joined(pairs)
            y_pred = _activate.apply[kept.activation](kept.rows[:self.filled])
            if y_true.ndim == y_pred.ndim - 1 and y_pred.shape[-1] == 1:
                y_true = y_true[..., np.newaxis]
            given[kept.index] = (y_true, y_pred, weights)
        self.segments = []
        self.filled = 0
        for i, _, metric in self.metrics:
            metric.update(*given[i])
        return 0

    def logs(self):
        """Return the means over all rows so far, by name: loss, losses of outputs, metrics."""
        self.flush()
        logs = {"loss": self.total / self.rows if self.rows else 0.0}
        if len(self.parts) > 1:
            for name, part, n in zip(self.criterion.log_names, self.parts, self.divisors,
                                     strict=True):
                logs[f"{name}_loss"] = part / n if n else 0.0
        for _, name, metric in self.metrics:
            logs[name] = metric.result()
        return logs

    @property
    def names(self):
        """Names of what :meth:`logs` returns."""
        names = ["loss"]
        if len(self.parts) > 1:
            names += [f"{name}_loss" for name in self.criterion.log_names]
        return names + [name for _, name, _ in self.metrics]

    @property
    def loss(self):
        """Mean loss so far."""
        return self.total / self.rows if self.rows else 0.0


cdef _copied(array):
    return None if array is None else np.array(array)


cdef _joined(list pairs):
    """Weights of all segments; a segment without has ones."""
    if len(pairs) == 1:
        return pairs[0][1]
    if all([w is None for _, w in pairs]):
        return None
    return np.concatenate([w for _, w in pairs])
