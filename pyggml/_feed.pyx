# cython: language_level=3
"""Whole batches into the input, label and weight tensors of a graph."""

cimport cython
from libc.math cimport isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cimport numpy as cnp

from pyggml cimport _ggml
from pyggml._arrays cimport Rows
from pyggml._forward cimport ForwardGraph
from pyggml._graph cimport Tensor
from pyggml._slot cimport Slot

from pyggml._forward import same_rows

cnp.import_array()

cdef str _no_weights = ("sample_weight needs a trainer made with loss_mask=1 or "
                        "loss_mask=<number of outputs>")


@cython.no_gc_clear
cdef class Intake:
    """The slots of one graph, to be filled again and again without the GIL.

    Parameters
    ----------
    inputs : list of Slot
    loss : Built
    """

    def __cinit__(self, list inputs, loss):
        cdef Py_ssize_t i
        cdef list slots = list(inputs) + list(loss.labels) + list(loss.weights)
        cdef list labels_of = list(loss.labels_of)
        self.slots = self.weights = self.labels_of = NULL
        self.owners = slots + labels_of
        self.n_inputs = len(inputs)
        self.n_slots = len(slots)
        self.n_weights = len(loss.weights)
        self.slots = <void **>malloc((len(slots) + len(labels_of)) * sizeof(void *))
        if self.slots is NULL:
            raise MemoryError
        self.labels_of = self.slots + len(slots)
        self.weights = self.slots + (len(slots) - self.n_weights)
        for i in range(len(slots)):
            self.slots[i] = <void *>slots[i]
        for i in range(len(labels_of)):
            self.labels_of[i] = NULL if labels_of[i] is None else <void *>labels_of[i]

    def __dealloc__(self):
        free(self.slots)

    cdef int fill(self, void ** rows, int64_t start, int64_t n,
                  const int64_t * index) noexcept nogil:
        """Copy accepted and checked rows, one Rows a slot; NULL leaves a slot as it is.

        Returns the number of a slot whose labels or weights do not pass after all, or -1.
        """
        cdef int i
        for i in range(self.n_slots):
            if rows[i] is not NULL:
                if (<Slot>self.slots[i]).put(<Rows>rows[i], start, n, index) >= 0:
                    return i
                if i >= self.n_slots - self.n_weights and not (<Slot>self.slots[i]).weighs(n):
                    return i
        return -1

    cdef void ones(self) noexcept nogil:
        """Weights that were left out."""
        cdef int i
        for i in range(self.n_weights):
            (<Slot>self.weights[i]).ones()

    cdef void clean(self) noexcept nogil:
        """Make sure that what has weight 0 cannot spread a NaN.

        Labels of weight 0 become 0; of a loss in which labels of a row act on one another only
        those that are not finite. Rows that no output has weight for, and that are not finite,
        become 0 too.
        """
        cdef int i
        for i in range(self.n_weights):
            if self.labels_of[i] is not NULL:
                _blank_labels(<Slot>self.weights[i], <Slot>self.labels_of[i])
        for i in range(self.n_inputs):
            _blank_rows(<Slot>self.slots[i], self.weights, self.n_weights)


cdef void _blank_labels(Slot weight, Slot label) noexcept nogil:
    cdef int64_t n = weight.n_rows * weight.row_size
    cdef int64_t per = _ggml.ggml_nelements(label.tensor.ptr) // n
    cdef int64_t i, j
    cdef float * w = weight.data()
    cdef float * data = label.data()
    for i in range(n):
        if w[i] == 0:
            for j in range(i * per, (i + 1) * per):
                if not (label.joint and isfinite(data[j])):
                    data[j] = 0


cdef void _blank_rows(Slot source, void ** weights, int n_weights) noexcept nogil:
    cdef int64_t i, j
    cdef int64_t size = source.row_size
    cdef int k
    cdef bint used, finite
    cdef float * data = source.data()
    cdef float * w
    if source.tensor.ptr.type != _ggml.GGML_TYPE_F32:
        return
    for i in range(source.n_rows):
        used = False
        for k in range(n_weights):
            w = (<Slot>weights[k]).data() + i * (<Slot>weights[k]).row_size
            for j in range((<Slot>weights[k]).row_size):
                used = used or w[j] != 0
        if used:
            continue
        finite = True
        for j in range(i * size, (i + 1) * size):
            finite = finite and isfinite(data[j])
        if not finite:
            memset(data + i * size, 0, size * sizeof(float))


cdef Intake intake_of(list inputs, object loss):
    """Return the intake of a graph, made at first use."""
    if loss.intake is None:
        loss.intake = Intake(inputs, loss)
    return loss.intake


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
    check : bool
        Whether labels and weights of all rows are checked; else :meth:`check_rows` does it for
        those that are used.

    Raises
    ------
    ValueError
        Numbers of rows that differ or are 0, shapes that do not fit, labels out of range,
        weights that are negative or not finite.
    """

    def __init__(self, program, criterion, list inputs, loss, x, y, sample_weight=None,
                 bint check=True):
        cdef Slot slot
        self.x = [slot.accept(value) for slot, value in zip(inputs, program.split_inputs(x))]
        self.y = [slot.accept(value) for slot, value in
                  zip(loss.labels, criterion.split_labels(y))]
        # Outputs whose loss takes no labels have none to be found.
        self.label_index = [loss.labels.index(slot) if slot is not None else None
                            for slot in loss.labels_of]
        self.w = []
        if not loss.weights and sample_weight is not None:
            raise ValueError(_no_weights)
        self.unweighted = sample_weight is None
        if loss.weights and not self.unweighted:
            self.w = [slot.accept(value) for slot, value in
                      zip(loss.weights, criterion.split_weights(sample_weight))]
        self.mask = criterion.mask
        slots = list(inputs) + list(loss.labels) + list(loss.weights)[:len(self.w)]
        self.n_rows = same_rows(self.x + self.y + self.w, [slot.name for slot in slots])
        if self.n_rows == 0:
            raise ValueError("x has no rows")
        if check:
            for slot, rows in zip(slots, self.x + self.y + self.w):
                slot.check(rows)

    cdef int check_rows(self, list inputs, object loss, const int64_t[:, ::1] index) except -1:
        """Check labels and weights of the rows that an index names."""
        cdef Slot slot
        cdef int64_t n = index.shape[0] * index.shape[1]
        if n == 0:
            return 0
        slots = list(inputs) + list(loss.labels) + list(loss.weights)
        for slot, rows in zip(slots, self.x + self.y + self.w):
            slot.check_rows(rows, n, &index[0, 0])
        return 0

    cdef int require_fit(self, list inputs, object loss) except -1:
        """Refuse a graph with other slots than those that the arrays were accepted by."""
        cdef Slot slot
        cdef Rows rows
        cdef list slots = inputs + loss.labels + loss.weights
        cdef list sources = self.x + self.y + self.w
        cdef bint fits = len(sources) + (len(loss.weights) if self.unweighted else 0) == len(slots)
        for slot, rows in zip(slots, sources):
            fits = fits and rows.row_size == slot.row_size
        if not fits:
            raise RuntimeError("the arrays were checked for other losses or weights than those "
                               "that are computed now")
        return 0

    cdef int fill(self, list inputs, object loss, order, int64_t start, int64_t n,
                  bint borrow=False) except -1:
        """Copy rows ``start`` to ``start + n`` of an order (None: as they lie).

        ``borrow`` allows the graph to read inputs where they lie, until they are given back.
        """
        cdef Slot slot
        cdef Rows rows
        cdef int64_t[::1] index
        cdef const int64_t * p = NULL
        self.require_fit(inputs, loss)
        if order is not None:
            index = order
            p = &index[0]
        # Weights of 0 blank rows of the inputs.
        borrow = borrow and order is None and not loss.weights
        for slot, rows in zip(inputs, self.x):
            if not (borrow and slot.borrow(rows, start, n)):
                slot.fill(rows, start, n, p)
        for slot, rows in zip(loss.labels, self.y):
            slot.fill(rows, start, n, p)
        if loss.weights:
            if self.unweighted:
                intake_of(inputs, loss).ones()
            for slot, rows in zip(loss.weights, self.w):
                slot.fill(rows, start, n, p)
            intake_of(inputs, loss).clean()
        return 0

    def labels(self, int i, order, int64_t start, int64_t n):
        """Return rows of output i's labels as they were given, for metrics."""
        cdef Rows rows = self.y[self.label_index[i]]
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
    cdef Slot slot
    try:
        feed.fill(g.inputs, g.loss, order, start, n, True)
        g.compute()
    finally:
        for slot in g.inputs:
            slot.give_back()
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
            raise ValueError(_no_weights)
        return 0
    if sample_weight is None:
        intake_of(inputs, loss).ones()
        return 0
    for slot, value in zip(loss.weights, criterion.split_weights(sample_weight)):
        slot.load(value)
    intake_of(inputs, loss).clean()
    return 0
