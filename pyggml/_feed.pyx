# cython: language_level=3
"""Whole batches into the input, label and weight tensors of a graph."""

from libc.math cimport isfinite
from libc.stdint cimport int64_t

cimport numpy as cnp

from pyggml._arrays cimport Rows
from pyggml._forward cimport ForwardGraph
from pyggml._graph cimport Tensor
from pyggml._slot cimport Slot

from pyggml._forward import same_rows

cnp.import_array()


cdef class Feed:
    """Arrays of a whole data set, checked once and read batch by batch.

    Parameters
    ----------
    program : Program
    criterion : Criterion
    inputs : list of Slot
    loss : Built
        Of any graph of the same network.
    x, y, sample_weight
        What the user gave.

    Raises
    ------
    ValueError
        Numbers of rows that differ or are 0, shapes that do not fit, labels out of range,
        weights that are negative or not finite.
    """

    def __init__(self, program, criterion, list inputs, loss, x, y, sample_weight=None):
        cdef Slot slot
        self.x = [slot.accept(value) for slot, value in zip(inputs, program.split_inputs(x))]
        self.y = [slot.accept(value) for slot, value in
                  zip(loss.labels, criterion.split_labels(y))]
        self.w = []
        if loss.weights:
            self.w = [slot.accept(value) for slot, value in
                      zip(loss.weights, criterion.split_weights(sample_weight))]
        self.mask = criterion.mask
        slots = list(inputs) + list(loss.labels) + list(loss.weights)
        self.n_rows = same_rows(self.x + self.y + self.w, [slot.name for slot in slots])
        if self.n_rows == 0:
            raise ValueError("x has no rows")
        for slot, rows in zip(slots, self.x + self.y + self.w):
            slot.check(rows)

    cdef int fill(self, list inputs, object loss, order, int64_t start, int64_t n) except -1:
        """Copy rows ``start`` to ``start + n`` of an order (None: as they lie)."""
        cdef Slot slot
        cdef Rows rows
        cdef int64_t[::1] index
        cdef const int64_t * p = NULL
        if order is not None:
            index = order
            p = &index[0]
        for slot, rows in zip(inputs, self.x):
            slot.fill(rows, start, n, p)
        for slot, rows in zip(loss.labels, self.y):
            slot.fill(rows, start, n, p)
        if self.w:
            for slot, rows in zip(loss.weights, self.w):
                slot.fill(rows, start, n, p)
            clean_masked(inputs, loss)
        return 0

    def labels(self, int i, order, int64_t start, int64_t n):
        """Return rows of output i's labels as they were given, for metrics."""
        cdef Rows rows = self.y[i]
        return _take(rows, order, start, n)

    def weights(self, int i, order, int64_t start, int64_t n):
        """Return rows of output i's weights, or None."""
        return _take(self.w[i], order, start, n) if self.w else None


def _take(Rows rows, order, start, n):
    array = rows.array
    return array[start:start + n] if order is None else array[order[start:start + n]]


def read(Tensor t):
    """Return a NumPy view on a kept tensor; it is valid until the graph computes again."""
    cdef cnp.npy_intp dims[4]
    cdef int i
    for i in range(len(t.shape)):
        dims[i] = t.shape[i]
    array = cnp.PyArray_SimpleNewFromData(len(t.shape), dims, cnp.NPY_FLOAT32, t.ptr.data)
    cnp.set_array_base(array, t)
    return array


def evaluate_rows(Feed feed, ForwardGraph g, order, int64_t start, int64_t n):
    """Return the total loss on rows of a feed; predictions can be read from the graph then."""
    cdef Tensor total = g.loss.total
    feed.fill(g.inputs, g.loss, order, start, n)
    g.compute()
    return <double>(<float *>total.ptr.data)[0]


cdef int load_batch(list inputs, object loss, object program, object criterion, x, y,
                    sample_weight) except -1:
    """Check and copy a batch. What fails leaves only input tensors changed, which hold no state."""
    cdef Slot slot
    if len(inputs) == 1 and not isinstance(x, (list, tuple, dict)):
        slot = inputs[0]
        slot.load(x)
    else:
        for slot, value in zip(inputs, program.split_inputs(x)):
            slot.load(value)
    labels = loss.labels
    if len(labels) == 1 and not isinstance(y, (list, tuple, dict)):
        slot = labels[0]
        slot.load(y)
    else:
        for slot, value in zip(labels, criterion.split_labels(y)):
            slot.load(value)
    if not loss.weights:
        if sample_weight is not None:
            raise ValueError("sample_weight needs a trainer made with loss_mask=1 or "
                             "loss_mask=<number of outputs>")
        return 0
    if sample_weight is None:
        for slot in loss.weights:
            slot.ones()
        return 0
    for slot, value in zip(loss.weights, criterion.split_weights(sample_weight)):
        slot.load(value)
    return clean_masked(inputs, loss)


cdef int clean_masked(list inputs, object loss) except -1:
    """Make sure that what has weight 0 cannot spread a NaN.

    Labels of weight 0 become 0. Rows that no output has weight for, and that are not finite,
    become 0 too.
    """
    cdef Slot weight, label, source
    cdef int64_t i, j, per, n, size
    cdef float * w
    cdef float * data
    cdef bint used, finite
    for weight, label in zip(loss.weights, loss.labels):
        n = weight.n_rows * weight.row_size
        size = label.n_rows * _elements(label)
        per = size // n
        w = weight.data()
        data = label.data()
        for i in range(n):
            if w[i] == 0:
                for j in range(i * per, (i + 1) * per):
                    data[j] = 0
    for source in inputs:
        if source.kind != "dense":
            continue
        data = source.data()
        size = source.row_size
        for i in range(source.n_rows):
            used = False
            for weight in loss.weights:
                w = weight.data() + i * weight.row_size
                for j in range(weight.row_size):
                    used = used or w[j] != 0
            if used:
                continue
            finite = True
            for j in range(i * size, (i + 1) * size):
                finite = finite and isfinite(data[j])
            if not finite:
                for j in range(i * size, (i + 1) * size):
                    data[j] = 0
    return 0


cdef int64_t _elements(Slot label):
    cdef int64_t size = 1
    for n in label.tensor.shape[1:]:
        size *= n
    return size
