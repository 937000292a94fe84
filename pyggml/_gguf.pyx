# cython: language_level=3
"""What files need of C: checksums, reads that no signal interrupts, writing ahead, quantisation.

ggml's own reader of GGUF files is not used. It reads a whole file into memory before anything
could be checked, searches names in quadratic time, and takes some damage for a reason to end the
process; see ``_container.py``.
"""

import os

import numpy as np

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

cimport numpy as cnp

from pyggml cimport _ggml

cdef extern from "_xxh64.h" nogil:
    ctypedef struct pg_xxh64:
        pass
    void pg_xxh64_start(pg_xxh64 * s)
    void pg_xxh64_update(pg_xxh64 * s, const unsigned char * p, size_t n)
    uint64_t pg_xxh64_value(const pg_xxh64 * s)

cdef extern from *:
    """
    #if defined(__linux__)
    #include <fcntl.h>
    #endif
    /* Ask the system to begin writing a part of a file to the disk, and do not wait. A hint: what
     * fails here, fsync reports. */
    static void pyggml_write_ahead(int fd, int64_t at, int64_t n) {
    #if defined(__linux__) && defined(SYNC_FILE_RANGE_WRITE)
        int done = sync_file_range(fd, at, n, SYNC_FILE_RANGE_WRITE);
        (void)done;
    #else
        (void)fd;
        (void)at;
        (void)n;
    #endif
    }
    """
    void pyggml_write_ahead(int fd, int64_t at, int64_t n) nogil

cnp.import_array()

# ggml's numbers of the types that files of pyggml hold, and the NumPy types of the plain ones.
TYPES = {
    "f32": <int>_ggml.GGML_TYPE_F32, "f16": <int>_ggml.GGML_TYPE_F16,
    "bf16": <int>_ggml.GGML_TYPE_BF16, "q8_0": <int>_ggml.GGML_TYPE_Q8_0,
    "q4_K": <int>_ggml.GGML_TYPE_Q4_K, "i8": <int>_ggml.GGML_TYPE_I8,
    "i16": <int>_ggml.GGML_TYPE_I16, "i32": <int>_ggml.GGML_TYPE_I32,
    "i64": <int>_ggml.GGML_TYPE_I64, "f64": <int>_ggml.GGML_TYPE_F64,
}
NAMES = {number: name for name, number in TYPES.items()}
DTYPES = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "f64": np.dtype("<f8"),
          "i8": np.dtype("<i1"), "i16": np.dtype("<i2"), "i32": np.dtype("<i4"),
          "i64": np.dtype("<i8")}


def layout(str name):
    """Return elements a block and bytes a block of a type of :data:`TYPES`."""
    cdef _ggml.ggml_type t = <_ggml.ggml_type><int>TYPES[name]
    return _ggml.ggml_blck_size(t), _ggml.ggml_type_size(t)


def write_ahead(int fd, int64_t at, int64_t n):
    """Ask the system to begin writing bytes of a file to the disk, without waiting for it."""
    with nogil:
        pyggml_write_ahead(fd, at, n)


@cython.final
cdef class Checksum:
    """XXH64 with seed 0 of bytes that come in pieces.

    Examples
    --------
    >>> from pyggml._gguf import Checksum
    >>> checksum = Checksum()
    >>> checksum.update(b"abc")
    >>> checksum.hexdigest()
    '44bc2cf5ad770999'
    """

    cdef pg_xxh64 state

    def __cinit__(self):
        pg_xxh64_start(&self.state)

    def update(self, const unsigned char[::1] data not None):
        """Take in contiguous bytes."""
        cdef size_t n = data.shape[0]
        if n == 0:
            return
        with nogil:
            pg_xxh64_update(&self.state, &data[0], n)

    def hexdigest(self):
        """Return the value as 16 hexadecimal digits, the most significant first."""
        return f"{pg_xxh64_value(&self.state):016x}"


def quantize(const float[:, ::1] rows not None, str name):
    """Return rows in one of ggml's types.

    Parameters
    ----------
    rows : array of shape (n, columns)
        Finite; ``columns`` is a multiple of the block size.
    name : {"f16", "bf16", "q8_0", "q4_K"}

    Returns
    -------
    numpy.ndarray of uint8 of shape (nbytes,)
    """
    cdef _ggml.ggml_type t = <_ggml.ggml_type><int>TYPES[name]
    cdef int64_t n = rows.shape[0]
    cdef int64_t columns = rows.shape[1]
    cdef unsigned char[::1] out
    cdef size_t written
    if name not in ("f16", "bf16", "q8_0", "q4_K"):
        raise ValueError(f"weights can be quantised to 'f16', 'bf16', 'q8_0' or 'q4_K', got "
                         f"{name!r}")
    if n == 0 or columns == 0 or columns % _ggml.ggml_blck_size(t):
        raise ValueError(f"rows of {columns} elements are not a multiple of the "
                         f"{_ggml.ggml_blck_size(t)} that a block of {name} holds")
    result = np.empty(n * _ggml.ggml_row_size(t, columns), np.uint8)
    out = result
    with nogil:
        written = _ggml.ggml_quantize_chunk(t, &rows[0, 0], &out[0], 0, n, columns, NULL)
    if written != <size_t>out.shape[0]:
        raise RuntimeError(f"ggml wrote {written} bytes instead of {out.shape[0]}")
    return result


def dequantize(const unsigned char[::1] data not None, str name, float[::1] out not None):
    """Write whole blocks of one of ggml's types to ``out`` as float32."""
    cdef _ggml.ggml_type t = <_ggml.ggml_type><int>TYPES[name]
    cdef const _ggml.ggml_type_traits * traits = _ggml.ggml_get_type_traits(t)
    cdef int64_t n = out.shape[0]
    cdef int64_t block = _ggml.ggml_blck_size(t)
    if traits.to_float is NULL:
        raise ValueError(f"{name} cannot be read as float32")
    if n % block or <size_t>data.shape[0] != <size_t>(n // block) * _ggml.ggml_type_size(t):
        raise ValueError(f"{data.shape[0]} bytes of {name} are not {n} elements")
    if n == 0:
        return
    with nogil:
        traits.to_float(&data[0], &out[0], n)


@cython.final
cdef class Reading:
    """Tensors of a file to be read into arrays that somebody needs.

    Running it executes no Python code before all is read: no signal's handler comes between
    two tensors, it finds all arrays as they were or all read.

    Parameters
    ----------
    file : io.FileIO
    stamp : tuple of int
        Size and time of the last change of the file when its data were checked.
    fail : callable
        Called with the reason where the file was written to since then. It raises.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from pyggml._gguf import Reading
    >>> with tempfile.TemporaryFile(buffering=0) as file:
    ...     _ = file.write(np.arange(4, dtype="<f4").tobytes())
    ...     about = os.fstat(file.fileno())
    ...     read = Reading(file, (about.st_size, about.st_mtime_ns), print)
    ...     target = np.zeros(3, np.float32)
    ...     read.add(4, 12, "f32", target)
    ...     read.run()
    >>> target
    array([1., 2., 3.], dtype=float32)
    """

    cdef object file, fileno, stamp, fail, fstat
    cdef list parts, moves

    def __init__(self, file, stamp, fail):
        self.file, self.fileno, self.stamp, self.fail = file, file.fileno(), stamp, fail
        self.fstat = os.fstat
        self.parts, self.moves = [], []

    def add(self, at, nbytes, str name, target):
        """Read a tensor of one of ggml's types.

        Parameters
        ----------
        at, nbytes : int
            Where in the file, and how long.
        name : str
        target : numpy.ndarray
            Flat, of the type's own dtype, or float32.
        """
        if target.size == 0:
            return
        if target.dtype == DTYPES.get(name):
            self.parts.append((at, nbytes, None, None, memoryview(target).cast("B"), 0, 0))
            return
        block, size = layout(name)
        step = min(nbytes, (1 << 20) // size * size)
        self.parts.append((at, nbytes, name, target, memoryview(bytearray(step)), block, size))

    def then(self, target, source):
        """Copy ``source`` to ``target`` when all is read: arrays of equal shape."""
        self.moves.append((target, source))

    cdef int require_unchanged(self, bint begun) except -1:
        found = self.fstat(self.fileno)
        if (found.st_size, found.st_mtime_ns) != self.stamp:
            self.fail("it was written to while it was read" + (
                "; what was loaded from it is undefined" if begun else ""))
        return 0

    cdef int fetch(self, view) except -1:
        cdef Py_ssize_t done = 0
        cdef Py_ssize_t n
        while done < len(view):
            n = self.file.readinto(view[done:])
            if n == 0:
                self.fail("cut short: it ended while it was read; what was loaded from it is "
                          "undefined")
            done += n
        return 0

    def run(self):
        """Read all, then copy."""
        cdef int64_t start, n, first, nbytes, block, size
        self.require_unchanged(False)
        for at, nbytes, name, target, view, block, size in self.parts:
            self.file.seek(at)
            if name is None:
                self.fetch(view)
                continue
            for start in range(0, nbytes, len(view)):
                n = min(<int64_t>len(view), nbytes - start)
                chunk = view[:n]
                self.fetch(chunk)
                first = start // size * block
                dequantize(chunk, name, target[first:first + n // size * block])
        self.require_unchanged(True)
        for target, source in self.moves:
            target[...] = source
