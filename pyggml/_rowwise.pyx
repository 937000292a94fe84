# cython: language_level=3
"""What metrics need along the last axis, which is short: NumPy is slow there."""

import numpy as np

from libc.math cimport expf
from libc.stdint cimport int64_t

cimport numpy as cnp

cnp.import_array()


cdef cnp.ndarray _rows(x):
    x = np.asarray(x)
    if x.ndim < 1 or x.shape[x.ndim - 1] == 0:
        raise ValueError(f"the last axis must not be empty, got shape {x.shape}")
    return np.ascontiguousarray(x, np.float32)


def argmax_last(x):
    """Return where the largest element along the last axis is, the first of equal ones.

    Parameters
    ----------
    x : numpy.ndarray of shape (..., n)
        float32 is read in place; everything else but integers is converted.

    Returns
    -------
    numpy.ndarray of int64 of shape (...)
        As ``numpy.argmax`` does, NaN counts as the largest.
    """
    cdef cnp.ndarray a
    cdef cnp.ndarray out
    cdef int64_t i, j, best, rows, n
    cdef const float * row
    cdef int64_t * to
    if getattr(x, "dtype", None) != np.float32:
        return np.argmax(x, axis=-1)
    a = _rows(x)
    n = a.shape[a.ndim - 1]
    out = np.empty(x.shape[:x.ndim - 1], np.int64)
    rows = out.size
    row = <const float *>cnp.PyArray_DATA(a)
    to = <int64_t *>cnp.PyArray_DATA(out)
    with nogil:
        for i in range(rows):
            best = 0
            for j in range(1, n):
                if row[best] != row[best]:
                    break
                if row[j] > row[best] or row[j] != row[j]:
                    best = j
            to[i] = best
            row += n
    return out


def softmax_last(x):
    """Return ``exp(x) / sum(exp(x))`` along the last axis as float32, without overflow.

    Parameters
    ----------
    x : array_like of shape (..., n)
    """
    cdef cnp.ndarray a = _rows(x)
    cdef cnp.ndarray out = np.empty((<object>a).shape, np.float32)
    cdef int64_t _i, j, rows
    cdef int64_t n = a.shape[a.ndim - 1]
    cdef const float * row = <const float *>cnp.PyArray_DATA(a)
    cdef float * to = <float *>cnp.PyArray_DATA(out)
    cdef float top, total
    rows = (<object>a).size // n
    with nogil:
        for _i in range(rows):
            top = row[0]
            for j in range(1, n):
                if row[j] > top:
                    top = row[j]
            total = 0
            for j in range(n):
                to[j] = expf(row[j] - top)
                total += to[j]
            for j in range(n):
                to[j] /= total
            row += n
            to += n
    return out
