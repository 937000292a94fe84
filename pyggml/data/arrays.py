"""Arrays of any kind, read by rows."""

import mmap

import numpy as np

from pyggml._arrays import as_array

# Bytes of memory maps that may be in memory before they are given back.
_held = 256 << 20
# How much the system maps for every row read out of order, where it does not tell: it may be more.
_around = 64 << 10
# Rows between two looks at how much is mapped.
_looks = 64


class LazyArray:
    """An array that lies elsewhere and is read by slices: h5py, zarr, netCDF4, dask.

    Parameters
    ----------
    source : object
        With ``shape``, ``dtype`` and ``__getitem__``.
    name : str
        For messages.

    Examples
    --------
    >>> from pyggml import data
    >>> data.LazyArray(np.zeros((5, 2)), "x").shape
    (5, 2)
    """

    def __init__(self, source, name):
        self.source = source
        self.name = name
        self.shape = tuple(int(n) for n in source.shape)
        self.dtype = np.dtype(source.dtype)
        if self.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers (float, integer or bool), got dtype "
                            f"{self.dtype}")
        self.ndim = len(self.shape)

    def __len__(self):
        return self.shape[0]

    def read(self, rows):
        """Return rows as a NumPy array.

        Parameters
        ----------
        rows : slice, or numpy.ndarray of int64 in any order, without repetitions
        """
        if isinstance(rows, slice):
            return np.asarray(self.source[rows])
        # Files want increasing indices; a dense range is read faster as a whole.
        order = np.argsort(rows)
        increasing = rows[order]
        first, last = int(increasing[0]), int(increasing[-1]) + 1
        if last - first <= 2 * len(rows):
            found = np.asarray(self.source[first:last])[increasing - first]
        elif hasattr(self.source, "oindex"):
            found = np.asarray(self.source.oindex[increasing])
        else:
            found = np.asarray(self.source[increasing])
        result = np.empty_like(found)
        result[order] = found
        return result


def adapt(value, name):
    """Return an array-like as a NumPy array, or as a LazyArray where that would read a file.

    Parameters
    ----------
    value : array_like, pandas.DataFrame, pandas.Series, h5py.Dataset, ...
    name : str
        For messages.

    Returns
    -------
    numpy.ndarray or LazyArray

    Raises
    ------
    TypeError
        What is not made of real numbers.
    ValueError
        A masked array with masked elements.

    Examples
    --------
    >>> from pyggml import data
    >>> data.adapt([[1, 2], [3, 4]], "x").shape
    (2, 2)
    """
    if isinstance(value, np.ndarray):
        plain = type(value) in (np.ndarray, np.memmap) or not np.ma.isMaskedArray(value)
        return value if plain else as_array(value, name)
    if hasattr(value, "to_numpy") and (hasattr(value, "dtypes") or hasattr(value, "dtype")):
        return _from_frame(value, name)
    if hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__") \
            and len(value.shape) and not hasattr(value, "__array_interface__") \
            and not hasattr(value, "__dlpack__"):
        return LazyArray(value, name)
    return as_array(value, name)


def _from_frame(value, name):
    """Return a DataFrame or Series as an array; columns of several types become float32."""
    dtypes = getattr(value, "dtypes", None)
    if dtypes is None or not hasattr(value, "columns"):
        dtypes = [value.dtype]
    kinds = {getattr(dtype, "kind", "O") for dtype in dtypes}
    if not kinds <= set("fiub"):
        columns = getattr(value, "columns", [getattr(value, "name", None)])
        bad = [f"{column!r} ({dtype})" for column, dtype in zip(columns, dtypes, strict=False)
               if getattr(dtype, "kind", "O") not in "fiub"]
        raise TypeError(f"{name} must hold real numbers; not so column {', '.join(bad)}")
    distinct = {str(dtype) for dtype in dtypes}
    array = value.to_numpy() if len(distinct) == 1 else None
    if array is None or array.dtype == object:
        array = value.to_numpy(dtype=np.int64 if kinds <= set("iub") and not _has_missing(value)
                               else np.float32)
    return array


def _has_missing(value):
    return bool(np.asarray(value.isna()).any())


class Arrays:
    """The arrays of a data set, one list each for inputs, labels and weights.

    Parameters
    ----------
    program : Program
    criterion : Criterion or None
        None where only inputs are wanted.
    x, y, sample_weight
        As users give them.

    Attributes
    ----------
    n_rows : int
    lazy : bool
        Whether any of the arrays is read slice by slice.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import data
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> criterion = model.compiled.criterion
    >>> data.Arrays(model.program, criterion, np.ones((5, 2)), np.ones(5)).n_rows
    5
    """

    def __init__(self, program, criterion, x, y=None, sample_weight=None):
        self.x = [adapt(value, name) for value, name in
                  zip(program.split_inputs(x), _names("x", program.input_names), strict=True)]
        self.y, self.w = [], []
        if criterion is not None:
            labels = criterion.split_labels(y)
            if any(value is None for value in labels):
                raise ValueError("y must be given")
            self.y = [adapt(value, "y") for value in labels]
        if sample_weight is not None:
            self.w = [adapt(value, "sample_weight")
                      for value in criterion.split_weights(sample_weight)]
        arrays = self.x + self.y + self.w
        for symbol, array in zip(program.inputs, self.x, strict=True):
            if array.ndim == 0:
                row = ", ".join(map(str, symbol.shape[1:]))
                raise ValueError(f"x must have shape (n, {row}), got a scalar")
        for name, found in (("y", self.y), ("sample_weight", self.w)):
            if any(array.ndim == 0 for array in found):
                raise ValueError(f"{name} must have an entry for each row, got a scalar")
        # Weights are checked by mask_for, which knows all the shapes that they may have.
        for what, array in [("x", a) for a in self.x] + [("y", a) for a in self.y]:
            if len(array) != len(self.x[0]):
                raise ValueError(f"x has {len(self.x[0])} rows (shape {self.x[0].shape}), but "
                                 f"{what} has {len(array)} (shape {array.shape})")
        self.n_rows = len(self.x[0])
        self.lazy = any(isinstance(array, LazyArray) for array in arrays)
        self._maps = [m for m in (_mapping(array) for array in arrays) if m is not None]
        self.row_bytes = sum(array.nbytes // max(1, len(array)) for array in arrays
                             if not isinstance(array, LazyArray))

    def packed(self):
        """Return x, y and sample_weight as the model's methods take them."""
        return pack(self.x), pack(self.y), pack(self.w)

    def read(self, rows):
        """Return the same of some rows, as NumPy arrays.

        Parameters
        ----------
        rows : slice or numpy.ndarray of int64
        """
        return (pack([_take(a, rows) for a in self.x]), *self.read_labels(rows))

    def read_labels(self, rows):
        """Return y and sample_weight of some rows, as NumPy arrays.

        Parameters
        ----------
        rows : slice
        """
        return pack([_take(a, rows) for a in self.y]), pack([_take(a, rows) for a in self.w])

    def slabs(self, n):
        """Yield slices of at most n rows, giving back what was mapped in between.

        Parameters
        ----------
        n : int
            Rows of a slab.
        """
        watch = self.watch()
        for start in range(0, self.n_rows, n):
            yield slice(start, min(start + n, self.n_rows))
            if watch is not None:
                watch.read(n)
        if watch is not None:
            self.release()

    def watch(self):
        """Return what gives mapped pages back while rows are read; None where none is needed."""
        if sum(len(mapping) for mapping in self._maps) <= _held:
            return None
        return _Watch(self)

    def release(self):
        """Give pages of memory-mapped files back to the system, which has them in the file."""
        for mapping in self._maps:
            mapping.madvise(mmap.MADV_DONTNEED)


def _mapped():
    """Return how many bytes of files are mapped into the process, or None if nobody tells."""
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[2]) * mmap.PAGESIZE
    except OSError:
        return None


class _Watch:
    """Gives back what is mapped of a data set when it has become too much.

    Parameters
    ----------
    arrays : Arrays
    """

    interval = _looks  # rows

    def __init__(self, arrays):
        self.arrays = arrays
        self.rows = 0
        arrays.release()
        self.before = _mapped()

    def read(self, n):
        """Tell that n rows were read."""
        self.rows += n
        if self.rows < _looks:
            return
        if self.before is None:
            if self.rows * max(self.arrays.row_bytes, _around) > _held:
                self.rows = 0
                self.arrays.release()
        else:
            self.rows = 0
            if _mapped() - self.before > _held:
                self.arrays.release()


def _take(array, rows):
    return array.read(rows) if isinstance(array, LazyArray) else array[rows]


def _mapping(array):
    """Return the mapping behind a memory map whose pages may be dropped without loss."""
    if not isinstance(array, np.memmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    mapping = getattr(array, "_mmap", None)
    # Changes to a copy-on-write map lie only in its pages.
    if array.mode not in ("r", "r+", "w+") or not isinstance(mapping, mmap.mmap):
        return None
    return mapping


def _names(what, names):
    return [what] if len(names) == 1 else [f"{what}[{name!r}]" for name in names]


def pack(arrays):
    """Return a list of arrays as methods take them: one alone, several as a tuple, none as None.

    Parameters
    ----------
    arrays : list

    Returns
    -------
    object

    Examples
    --------
    >>> from pyggml import data
    >>> data.pack([1]), data.pack([1, 2]), data.pack([])
    (1, (1, 2), None)
    """
    if len(arrays) == 1:
        return arrays[0]
    return tuple(arrays) if arrays else None
