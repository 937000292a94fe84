# cython: language_level=3
"""Owner of ggml-opt's data sets, with every assertion of ggml forestalled."""

import numpy as np

cimport cython
from libc.stdint cimport int64_t

cimport numpy as cnp

from pyggml cimport _ggml
from pyggml._memory cimport require
from pyggml._opt_core cimport OptCore

from pyggml._scalars import integer
from pyggml.layers.base import count, positive_int

cnp.import_array()

cdef int64_t _largest = <int64_t>1 << 46


@cython.final
cdef class _Memory:
    """Owner of ggml's data set: views keep it alive beyond the Dataset."""

    cdef _ggml.ggml_opt_dataset_t ptr

    def __cinit__(self, int64_t ne_datapoint, int64_t columns, int64_t ndata, int64_t shard):
        require(<size_t>ndata * (ne_datapoint + columns) * sizeof(float)
                + <size_t>(ndata // shard) * sizeof(int64_t), f"{ndata} rows of a data set")
        self.ptr = _ggml.ggml_opt_dataset_init(
            _ggml.GGML_TYPE_F32, _ggml.GGML_TYPE_F32, ne_datapoint, columns, ndata, shard)
        # Without room ggml returns a data set whose tensors have no memory.
        if _ggml.ggml_opt_dataset_data(self.ptr).data is NULL:
            raise MemoryError(f"{ndata} rows of {ne_datapoint} numbers do not fit into memory")

    cdef object view(self, _ggml.ggml_tensor * t):
        cdef cnp.npy_intp dims[2]
        dims[0] = t.ne[1]
        dims[1] = t.ne[0]
        array = cnp.PyArray_SimpleNewFromData(2, dims, cnp.NPY_FLOAT32, t.data)
        cnp.set_array_base(array, self)
        return array

    def __dealloc__(self):
        if self.ptr is not NULL:
            _ggml.ggml_opt_dataset_free(self.ptr)


cdef class Dataset:
    """Data and labels in ggml's memory, shuffled and read in shards.

    Parameters
    ----------
    ne_datapoint : int
        Numbers a row.
    ne_label : int
        Numbers a label; 0 for none.
    ndata : int
        Rows.
    ndata_shard : int
        Rows that stay together when the data set is shuffled; ``ndata`` is a multiple.
    ne_weight : int
        Weights a row, for the weighted loss: 0, 1 or as many as labels. They are 1 at first.

    Attributes
    ----------
    ndata, ndata_shard, ne_datapoint, ne_label, ne_weight : int

    Raises
    ------
    ValueError
        Sizes that are not positive, or shards that do not divide the rows.
    MemoryError
        No room.

    Examples
    --------
    >>> from pyggml import opt
    >>> with opt.Dataset(4, 1, 100) as dataset:
    ...     dataset.data[:] = 1.0
    ...     dataset.data.shape, dataset.labels.shape
    ((100, 4), (100, 1))
    """

    cdef _Memory memory
    cdef readonly int64_t ne_datapoint
    cdef readonly int64_t ne_label
    cdef readonly int64_t ne_weight
    cdef readonly int64_t ndata
    cdef readonly int64_t ndata_shard

    def __cinit__(self, ne_datapoint, ne_label, ndata, ndata_shard=1, ne_weight=0):
        cdef int64_t columns
        self.ne_datapoint = positive_int(ne_datapoint, "ne_datapoint")
        self.ne_label = count(ne_label, "ne_label")
        self.ndata = positive_int(ndata, "ndata")
        self.ndata_shard = positive_int(ndata_shard, "ndata_shard")
        self.ne_weight = count(ne_weight, "ne_weight")
        if self.ndata % self.ndata_shard:
            raise ValueError(f"ndata must be a multiple of ndata_shard, got {ndata} and "
                             f"{ndata_shard}")
        if self.ne_weight not in (0, 1, self.ne_label):
            raise ValueError(f"ne_weight must be 0, 1 or ne_label ({ne_label}), got {ne_weight}")
        columns = self.ne_label + self.ne_weight
        if max(self.ne_datapoint, columns) > _largest // self.ndata:
            raise MemoryError(f"{ndata} rows of {ne_datapoint} numbers do not fit into memory")
        self.memory = _Memory(self.ne_datapoint, columns, self.ndata, self.ndata_shard)
        self.data[...] = 0
        if columns:
            self.memory.view(_ggml.ggml_opt_dataset_labels(self.memory.ptr))[...] = 0
        if self.ne_weight:
            self.weights[...] = 1

    cdef int alive(self) except -1:
        if self.memory is None:
            raise RuntimeError("this data set was freed")
        return 0

    @property
    def data(self):
        """View of shape (ndata, ne_datapoint), to be filled."""
        self.alive()
        return self.memory.view(_ggml.ggml_opt_dataset_data(self.memory.ptr))

    @property
    def labels(self):
        """View of shape (ndata, ne_label), to be filled; None where there are none."""
        self.alive()
        if self.ne_label == 0:
            return None
        labels = self.memory.view(_ggml.ggml_opt_dataset_labels(self.memory.ptr))
        return labels[:, :self.ne_label]

    @property
    def weights(self):
        """View of shape (ndata, ne_weight), to be filled; None where there are none."""
        self.alive()
        if self.ne_weight == 0:
            return None
        labels = self.memory.view(_ggml.ggml_opt_dataset_labels(self.memory.ptr))
        return labels[:, self.ne_label:]

    def shuffle(self, OptCore opt not None, idata=-1):
        """Shuffle shards with the context's random numbers.

        Parameters
        ----------
        opt : OptContext
        idata : int
            Only the first so many rows, a multiple of ``ndata_shard``; negative for all.
        """
        cdef int64_t n
        self.alive()
        opt.alive()
        n = integer(idata, "idata")
        if n > self.ndata:
            raise ValueError(f"idata must be at most {self.ndata}, got {n}")
        if n >= 0 and n % self.ndata_shard:
            raise ValueError(f"idata must be a multiple of ndata_shard ({self.ndata_shard}), got "
                             f"{n}")
        _ggml.ggml_opt_dataset_shuffle(opt.opt, self.memory.ptr, n)

    def get_batch(self, n_rows, ibatch):
        """Return data, labels and weights of a batch, in the shuffled order.

        Parameters
        ----------
        n_rows : int
            A multiple of ``ndata_shard``.
        ibatch : int

        Returns
        -------
        tuple of numpy.ndarray of float32
            Labels and weights are None where there are none.
        """
        cdef int64_t n = positive_int(n_rows, "n_rows")
        cdef int64_t i = count(ibatch, "ibatch")
        cdef cnp.ndarray x
        cdef cnp.ndarray y
        cdef void * labels = NULL
        self.alive()
        if n % self.ndata_shard:
            raise ValueError(f"n_rows must be a multiple of ndata_shard ({self.ndata_shard}), got "
                             f"{n}")
        if n > self.ndata or i >= self.ndata // n:
            raise IndexError(f"there are {self.ndata // n} batches of {n} rows, got ibatch {i}")
        x = np.empty((n, self.ne_datapoint), np.float32)
        y = np.empty((n, self.ne_label + self.ne_weight), np.float32)
        if self.ne_label + self.ne_weight:
            labels = cnp.PyArray_DATA(y)
        _ggml.ggml_opt_dataset_get_batch_host(
            self.memory.ptr, cnp.PyArray_DATA(x), n * self.ne_datapoint * sizeof(float), labels, i)
        return (x, y[:, :self.ne_label] if self.ne_label else None,
                y[:, self.ne_label:] if self.ne_weight else None)

    def get_batch_head(self, n_rows, ibatch, offset, size):
        """Return the labels of one output: columns ``offset`` to ``offset + size``.

        Parameters
        ----------
        n_rows, ibatch
            As for :meth:`get_batch`.
        offset, size : int
        """
        cdef int64_t first = count(offset, "offset")
        cdef int64_t n = positive_int(size, "size")
        if first + n > self.ne_label:
            raise IndexError(f"columns {first} to {first + n} are beyond the {self.ne_label} of "
                             "the labels")
        return self.get_batch(n_rows, ibatch)[1][:, first:first + n]

    def free(self):
        """Release the memory; views that are still held keep it until they are gone."""
        self.memory = None

    def __enter__(self):
        self.alive()
        return self

    def __exit__(self, *exception):
        self.free()

    def __len__(self):
        return self.ndata

    def __reduce__(self):
        raise TypeError("a data set cannot be pickled; pickle its arrays")
