# cython: language_level=3
"""Inputs, labels and weights of a graph: what may go in, and the one copy that puts it there."""

from libc.math cimport isfinite
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cimport cython
cimport numpy as cnp

from pyggml cimport _ggml
from pyggml._arrays cimport Rows
from pyggml._graph cimport Graph, Tensor
from pyggml._runtime cimport Context

from pyggml._arrays import as_array

cnp.import_array()

cdef tuple _kinds = ("dense", "index", "classes", "weight")


cdef enum _Kind:
    _DENSE, _INDEX, _CLASSES, _WEIGHT


@cython.no_gc_clear
cdef class Slot:
    """One input tensor of a graph, with the checks on what is copied into it.

    Parameters
    ----------
    tensor : Tensor
        Its first axis is the batch.
    name : str
        How errors call the array: ``"x"``, ``"y"``, ``"sample_weight"``.
    kind : {"dense", "index", "classes", "weight"}
        Real numbers; integers below ``limit``; class labels below ``limit`` that are spread out
        to one-hot rows; non-negative finite weights.
    limit : int
        For ``"classes"``; for ``"index"`` it is the tensor's own, set by what looks up with it.
    row_shape : tuple of int, optional
        Shape of one row as the caller gives it, where it is not the tensor's.

    Attributes
    ----------
    joint : bool
        Of labels: whether one acts on what others contribute to the loss.
    """

    def __cinit__(self, Tensor tensor, str name, str kind="dense", int64_t limit=INT32_MAX,
                  row_shape=None):
        self.labels = NULL
        self.seen = NULL
        self.offsets = NULL
        self.tensor = tensor
        self.name = name
        self.kind = kind
        self.code = _kinds.index(kind)
        self.limit = limit
        self.n_rows = tensor.shape[0]
        if row_shape is None:
            row_shape = tensor.shape[1:-1] if kind == "classes" else tensor.shape[1:]
        self.row_shape = tuple(row_shape)
        self.n_axes = 1 + len(self.row_shape)
        self.row_size = 1
        for n in self.row_shape:
            self.row_size *= n
        if kind == "classes":
            self.labels = <int32_t *>malloc(self.n_rows * self.row_size * sizeof(int32_t))
            if self.labels is NULL:
                raise MemoryError(f"no memory for {self.n_rows * self.row_size} labels")

    def __dealloc__(self):
        free(self.labels)
        free(self.seen)
        free(self.offsets)

    cdef float * data(self) noexcept nogil:
        return <float *>self.tensor.ptr.data

    cdef int64_t _bound(self) noexcept nogil:
        return self.tensor.limit if self.code == _INDEX else self.limit

    cdef bint _takes_column(self):
        return self.kind == "classes" or (self.kind == "weight" and not self.row_shape)

    def _accepted(self):
        """The shapes that an array of n rows may have, for error messages."""
        rows = "n"
        shapes = [self.row_shape]
        if self.row_shape[-1:] == (1,):
            shapes.append(self.row_shape[:-1])
        elif self._takes_column():
            shapes.append(self.row_shape + (1,))
        return " or ".join(
            "(" + ", ".join([rows] + [str(i) for i in s]) + ("," if not s else "") + ")"
            for s in shapes)

    cpdef Rows accept(self, value):
        """Check everything but the number of rows, and copy nothing.

        Raises
        ------
        TypeError
            Not an array of real numbers.
        ValueError
            The rows have another shape than the model's.
        """
        cdef Rows rows
        cdef tuple shape
        array = as_array(value, self.name)
        if array.ndim == 0:
            raise ValueError(f"{self.name} must have shape {self._accepted()}, got a scalar")
        rows = Rows(array, self.name)
        shape = rows.shape[1:]
        if (shape != self.row_shape
                and not (self.row_shape[-1:] == (1,) and shape == self.row_shape[:-1])
                and not (self._takes_column() and shape == self.row_shape + (1,))):
            hint = ""
            if self.kind == "classes" and shape == self.row_shape + (self.limit,):
                hint = ("; these look like one-hot rows: use loss 'categorical_crossentropy', "
                        "or pass integer labels")
            elif self.kind == "dense" and self.name.startswith("y") and len(self.row_shape) \
                    and shape in (self.row_shape[:-1], self.row_shape[:-1] + (1,)) \
                    and self.row_shape[-1] > 1:
                hint = ("; if these are integer class labels, use loss "
                        "'sparse_categorical_crossentropy'")
            raise ValueError(
                f"{self.name} must have shape {self._accepted()}, got {rows.shape}{hint}")
        return rows

    def check(self, Rows rows):
        """Raise what :meth:`fill` would raise for any row."""
        self.check_rows(rows, rows.n_rows, NULL)

    cdef int check_rows(self, Rows rows, int64_t n, const int64_t * index) except -1:
        """Raise what :meth:`fill` would raise for the first n rows, or those of an index."""
        cdef int64_t i
        cdef int64_t bad = -1
        cdef float * target
        if self.code == _WEIGHT:
            target = <float *>malloc(max(self.row_size, 1) * sizeof(float))
            if target is NULL:
                raise MemoryError
            try:
                for i in range(n):
                    rows.copy(i, 1, index, target)
                    self._check_weights(target, self.row_size)
            finally:
                free(target)
        elif self.code != _DENSE:
            limit = self._bound()
            with nogil:
                bad = rows.copy_labels(0, n, index, NULL, limit)
            if bad >= 0:
                self._bad_label(rows, bad)
        return 0

    cdef int _bad_label(self, Rows rows, int64_t bad) except -1:
        limit = self._bound()
        wrong = [v for v in rows.array[bad].ravel().tolist()
                 if not (0 <= v < limit and float(v).is_integer())]
        raise ValueError(
            f"{self.name} holds {wrong[0]!r} in row {bad}; it takes whole numbers in the range "
            f"[0, {limit})")

    cdef int _check_weights(self, const float * w, int64_t n) except -1:
        cdef int64_t i
        for i in range(n):
            if not (w[i] >= 0 and isfinite(w[i])):
                raise ValueError(f"{self.name} must be finite and not negative, got {w[i]}")
        return 0

    cdef bint weighs(self, int64_t n) noexcept nogil:
        """Whether the first n rows of the tensor are weights: finite and not negative."""
        cdef int64_t i
        cdef float * w = self.data()
        for i in range(n * self.row_size):
            if not (w[i] >= 0 and isfinite(w[i])):
                return False
        return True

    cdef int64_t put(self, Rows rows, int64_t start, int64_t n,
                     const int64_t * index) noexcept nogil:
        """Copy n accepted rows to the front of the tensor; return a row of a bad label, or -1."""
        cdef int64_t i, bad
        cdef float * target = self.data()
        if self.code == _INDEX:
            return rows.copy_labels(start, n, index, <int32_t *>target, self.tensor.limit)
        if self.code != _CLASSES:
            rows.copy(start, n, index, target)
            return -1
        bad = rows.copy_labels(start, n, index, self.labels, self.limit)
        if bad < 0:
            memset(target, 0, n * self.row_size * self.limit * sizeof(float))
            for i in range(n * self.row_size):
                target[i * self.limit + self.labels[i]] = 1.0
        return bad

    cdef int fill(self, Rows rows, int64_t start, int64_t n, const int64_t * index) except -1:
        """Copy n accepted rows to the front of the tensor."""
        cdef int64_t bad
        with nogil:
            bad = self.put(rows, start, n, index)
        if bad >= 0:
            self._bad_label(rows, bad)
        if self.code == _WEIGHT:
            self._check_weights(self.data(), n * self.row_size)
        return 0

    cdef int let_borrow(self, Graph graph) except -1:
        """Allow :meth:`borrow` in a graph that is complete and only reads its inputs."""
        cdef _ggml.ggml_tensor * t
        cdef Context context
        cdef Py_ssize_t i
        cdef size_t address
        if self.code != _DENSE or self.n_seen:
            return 0
        found = []  # the tensor and its views
        for context in (graph.inputs, graph.compute):
            t = _ggml.ggml_get_first_tensor(context.ptr)
            while t is not NULL:
                if (t is self.tensor.ptr or t.view_src is self.tensor.ptr) and t.data is not NULL:
                    found.append(<size_t>t)
                t = _ggml.ggml_get_next_tensor(context.ptr, t)
        self.seen = <_ggml.ggml_tensor **>malloc(len(found) * sizeof(void *))
        self.offsets = <int64_t *>malloc(len(found) * sizeof(int64_t))
        if self.seen is NULL or self.offsets is NULL:
            raise MemoryError
        self.own = self.data()
        for i, address in enumerate(found):
            self.seen[i] = <_ggml.ggml_tensor *>address
            self.offsets[i] = <char *>self.seen[i].data - <char *>self.own
        self.n_seen = len(found)
        return 0

    cdef bint borrow(self, Rows rows, int64_t start, int64_t n) noexcept nogil:
        """Let the graph read n accepted rows where they lie, until :meth:`give_back`.

        Returns False, and does nothing, where they would have to be copied.
        """
        cdef Py_ssize_t i
        cdef const char * source = rows.base + start * rows.row_step
        if (n != self.n_rows or self.n_seen == 0 or not rows.contiguous
                or rows.row_step != self.row_size * <int64_t>sizeof(float)
                or <size_t>source % sizeof(float)):
            return False
        for i in range(self.n_seen):
            self.seen[i].data = <void *>(source + self.offsets[i])
        return True

    cdef void give_back(self) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.n_seen):
            self.seen[i].data = <char *>self.own + self.offsets[i]

    cdef int load(self, value) except -1:
        """Check and copy a whole batch."""
        cdef Rows rows
        cdef cnp.ndarray array
        if type(value) is cnp.ndarray:
            array = value
            if self.takes(array) and cnp.PyArray_DIM(array, 0) == self.n_rows:
                memcpy(self.data(), cnp.PyArray_DATA(array),
                       self.n_rows * self.row_size * sizeof(float))
                return 0
        rows = self.accept(value)
        if rows.n_rows != self.n_rows:
            raise ValueError(f"{self.name} has {rows.n_rows} rows, but the batch size is "
                             f"{self.n_rows}")
        return self.fill(rows, 0, self.n_rows, NULL)

    cdef bint takes(self, cnp.ndarray array) noexcept:
        """Whether the array's rows lie in memory as they do in the tensor, however many."""
        cdef int i
        cdef int n = cnp.PyArray_NDIM(array)
        if (self.code != _DENSE or n != self.n_axes
                or cnp.PyArray_TYPE(array) != cnp.NPY_FLOAT32
                or not cnp.PyArray_ISCARRAY_RO(array)):
            return False
        for i in range(1, n):
            if cnp.PyArray_DIM(array, i) != self.tensor.ptr.ne[n - 1 - i]:
                return False
        return True

    cdef int ones(self) noexcept nogil:
        """Set every element to 1: weights that were left out."""
        cdef int64_t i
        cdef float * target = self.data()
        for i in range(self.n_rows * self.row_size):
            target[i] = 1.0
        return 0
