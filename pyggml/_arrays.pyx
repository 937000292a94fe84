# cython: language_level=3
"""Rows of the caller's arrays, copied straight into ggml's input tensors."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

cimport numpy as cnp

cdef extern from "_gather.h" nogil:
    enum pg_kind:
        PG_F32
        PG_F64
        PG_F16
        PG_LONG_DOUBLE
        PG_I8
        PG_I16
        PG_I32
        PG_I64
        PG_U8
        PG_U16
        PG_U32
        PG_U64
        PG_BOOL
    ctypedef void (*pg_run_t)(const char * src, int64_t n, int64_t step, int swap, float * dst)
    pg_run_t pg_runs[13]
    void pg_prefetch(const char * row, int64_t size)
    double pg_element(int kind, const char * src, int swap)

cnp.import_array()

cdef dict _kinds = {
    "f4": PG_F32, "f8": PG_F64, "f2": PG_F16,
    "i1": PG_I8, "i2": PG_I16, "i4": PG_I32, "i8": PG_I64,
    "u1": PG_U8, "u2": PG_U16, "u4": PG_U32, "u8": PG_U64,
    "b1": PG_BOOL,
}


def as_array(value, str name):
    """Return ``value`` as an array without copying one that already is.

    Raises
    ------
    TypeError
        What NumPy cannot make an array of.
    ValueError
        A masked array with masked elements, whose mask would be forgotten.
    """
    # numpy.ma is imported when it is first asked for: only for subclasses of arrays.
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray and np.ma.is_masked(value):
        raise ValueError(f"{name} is a masked array with {np.ma.count_masked(value)} masked "
                         "elements; fill them, and give sample_weight 0 to rows not to count")
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of unequal length
        raise TypeError(f"{name} must be an array of real numbers: {error}") from None


def shape_of(value, str name):
    """Return the shape of an array-like, as a tuple."""
    shape = getattr(value, "shape", None)
    return tuple(as_array(value, name).shape if shape is None else shape)


def as_real_array(value, str name):
    """Return ``value`` as an array of real numbers without copying one that already is.

    Raises
    ------
    TypeError
        Complex, object, string and date arrays, and what NumPy cannot make an array of.
    ValueError
        As for :func:`as_array`.
    """
    array = as_array(value, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must hold real numbers (float, integer or bool), got dtype {array.dtype}")
    return array


cdef class Rows:
    """The rows (first axis) of an array of any real type, strides, alignment and byte order.

    Nothing is copied: the array is kept, and :meth:`copy` reads rows out of it as float32.
    """

    def __cinit__(self, value, str name="array"):
        cdef int i
        array = as_real_array(value, name)
        if array.ndim < 1 or array.ndim > 8:
            raise ValueError(f"{name} must have from 1 to 8 axes, got shape {array.shape}")
        code = f"{array.dtype.kind}{array.dtype.itemsize}"
        if code in _kinds:
            self.kind = _kinds[code]
        elif array.dtype == np.longdouble:
            self.kind = PG_LONG_DOUBLE
        else:
            raise TypeError(f"{name} has dtype {array.dtype}, which is not supported")
        self.array = array
        self.shape = array.shape
        self.swap = not array.dtype.isnative
        self.n_rows = array.shape[0]
        self.row_step = array.strides[0]
        self.row_size = 1
        for n in array.shape[1:]:
            self.row_size *= n
        self.base = <const char *>cnp.PyArray_DATA(array)
        # Axes that lie behind one another in memory are read as one.
        counts, steps = [], []
        for n, step in zip(array.shape[1:], array.strides[1:]):
            if n == 1:
                continue
            if counts and steps[-1] == step * n:
                counts[-1] *= n
                steps[-1] = step
            else:
                counts.append(n)
                steps.append(step)
        if not counts:
            counts, steps = [1], [array.dtype.itemsize]
        self.ndim = len(counts)
        for i in range(self.ndim):
            self.counts[i] = counts[i]
            self.steps[i] = steps[i]
        self.contiguous = (
            self.kind == PG_F32 and not self.swap and self.ndim == 1
            and (self.steps[0] == sizeof(float) or self.counts[0] == 1))

    cdef void copy(self, int64_t start, int64_t n, const int64_t * index,
                   float * target) noexcept nogil:
        """Write rows ``start`` to ``start + n``, or ``index[start:start + n]``, as float32.

        The caller has checked that they exist.
        """
        cdef int64_t i, row
        cdef int64_t size = self.row_size
        if self.contiguous:
            if index is NULL and self.row_step == size * <int64_t>sizeof(float):
                memcpy(target, self.base + start * self.row_step, n * size * sizeof(float))
                return
            for i in range(n):
                row = start + i if index is NULL else index[start + i]
                if index is not NULL and i + 8 < n:
                    pg_prefetch(self.base + index[start + i + 8] * self.row_step,
                                size * <int64_t>sizeof(float))
                memcpy(target + i * size, self.base + row * self.row_step, size * sizeof(float))
            return
        for i in range(n):
            row = start + i if index is NULL else index[start + i]
            self._copy_row(self.base + row * self.row_step, target + i * size)

    cdef void _copy_row(self, const char * source, float * target) noexcept nogil:
        cdef pg_run_t run = pg_runs[self.kind]
        cdef int last = self.ndim - 1
        cdef int axis
        cdef int64_t at[8]
        cdef int64_t done = 0
        if self.row_size == 0:
            return
        for axis in range(self.ndim):
            at[axis] = 0
        while True:
            run(source, self.counts[last], self.steps[last], self.swap, target + done)
            done += self.counts[last]
            axis = last - 1
            while axis >= 0:
                at[axis] += 1
                source += self.steps[axis]
                if at[axis] < self.counts[axis]:
                    break
                source -= self.steps[axis] * self.counts[axis]
                at[axis] = 0
                axis -= 1
            if axis < 0:
                return

    cdef int64_t copy_labels(self, int64_t start, int64_t n, const int64_t * index,
                             int32_t * target, int64_t n_classes) noexcept nogil:
        """Write labels below ``n_classes``, or only check them where ``target`` is NULL.

        Returns the first bad row, or -1.
        """
        cdef int64_t i, j, row
        cdef int64_t size = self.row_size
        cdef double value
        cdef int64_t k
        for i in range(n):
            row = start + i if index is NULL else index[start + i]
            for j in range(size):
                value = pg_element(
                    self.kind, self._element(self.base + row * self.row_step, j), self.swap)
                if not (value >= 0 and value < n_classes):
                    return row
                k = <int64_t>value
                if <double>k != value:
                    return row
                if target is not NULL:
                    target[i * size + j] = <int32_t>k
        return -1

    cdef const char * _element(self, const char * source, int64_t j) noexcept nogil:
        cdef int axis = self.ndim - 1
        while axis >= 0:
            source += (j % self.counts[axis]) * self.steps[axis]
            j //= self.counts[axis]
            axis -= 1
        return source

    def gather(self, index=None):
        """Return rows as a new float32 array, as the training loop reads them."""
        cdef int64_t[::1] rows
        cdef cnp.ndarray out
        if index is None:
            out = np.empty(self.shape, np.float32)
            if self.n_rows:
                self.copy(0, self.n_rows, NULL, <float *>cnp.PyArray_DATA(out))
            return out
        rows = check_index(index, self.n_rows, "index")
        out = np.empty((rows.shape[0],) + self.shape[1:], np.float32)
        if rows.shape[0]:
            self.copy(0, rows.shape[0], &rows[0], <float *>cnp.PyArray_DATA(out))
        return out


def check_index(index, int64_t n_rows, str name):
    """Return ``index`` as contiguous int64 after checking that every row exists.

    Raises
    ------
    TypeError
        Not integers.
    IndexError
        A row outside ``[0, n_rows)``; negative rows are not counted from the end.
    """
    array = np.asarray(index)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}")
    array = np.ascontiguousarray(array, dtype=np.int64)
    if array.size and (array.min() < 0 or array.max() >= n_rows):
        bad = array[(array < 0) | (array >= n_rows)].flat[0]
        raise IndexError(f"{name} holds row {bad}, but there are {n_rows} rows")
    return array
