"""Data as users have it: arrays of any kind and whoever else makes batches.

Arrays are what knows its number of rows: NumPy arrays, memory maps, lists, pandas objects, and
arrays in files (h5py, zarr and the like) that are read slice by slice. A :class:`Stream` is
everything that hands out batches one after the other.
"""

import functools
import inspect
import mmap
import warnings

import numpy as np

from pyggml._prefetch import Prefetcher

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
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} is a masked array with {np.ma.count_masked(value)} masked "
                         "elements; fill them, and give sample_weight 0 to rows not to count")
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "to_numpy") and (hasattr(value, "dtypes") or hasattr(value, "dtype")):
        return _from_frame(value, name)
    if hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__") \
            and len(value.shape) and not hasattr(value, "__array_interface__") \
            and not hasattr(value, "__dlpack__"):
        return LazyArray(value, name)
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of unequal length
        raise TypeError(f"{name} must be an array of real numbers: {error}") from None


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


# ---- batches that somebody else makes ---------------------------------------------------------

def is_stream(value):
    """Return whether a value hands out batches, in contrast to being an array.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> from pyggml import data
    >>> data.is_stream(np.zeros(3)), data.is_stream(iter([]))
    (False, True)
    """
    if value is None or isinstance(value, (np.ndarray, list, tuple, dict, str, bytes)):
        return False
    if hasattr(value, "shape") or hasattr(value, "to_numpy"):
        return False
    return (hasattr(value, "__next__") or callable(value) or hasattr(value, "__iter__")
            or (hasattr(value, "__getitem__") and hasattr(value, "__len__")))


class Stream:
    """Batches from a callable, an iterable, an iterator, a sequence of batches or a DataLoader.

    Parameters
    ----------
    source : object
        A callable without arguments that returns a batch, or None at the end of an epoch (a
        generator function is called anew every epoch); an object with ``__len__`` and
        ``__getitem__``; an iterable, which starts anew every epoch; or an iterator, which goes on
        where the epoch before stopped.
    name : str
        For messages.
    steps : int, optional
        Batches of an epoch.
    workers : int
        Threads that prepare batches ahead; 0 for none. Items of a sequence are prepared in
        parallel, everything else in order by one at a time.

    Raises
    ------
    TypeError
        None of these.

    Examples
    --------
    >>> from pyggml import data
    >>> batches = data.Stream(lambda: (np.ones((4, 2)), np.ones(4)), "generator", steps=3)
    >>> len(list(batches.epoch()))
    3
    """

    def __init__(self, source, name, steps=None, workers=0):
        self.source = source
        self.name = name
        self.steps = steps
        self.workers = workers
        function = source.func if isinstance(source, functools.partial) else source
        if isinstance(source, (str, bytes, dict, np.ndarray)) or hasattr(source, "shape"):
            self.kind = None
        elif hasattr(source, "__next__"):
            self.kind = "iterator"
        elif hasattr(source, "__len__") and hasattr(source, "__getitem__"):
            self.kind = "sequence"
        elif hasattr(source, "__iter__"):
            self.kind = "iterable"
        elif inspect.isgeneratorfunction(function):
            self.kind = "factory"
        elif callable(source):
            self.kind = "callable"
        else:
            self.kind = None
        self.rewound = False
        if self.kind is None:
            raise TypeError(
                f"{name} must be a callable that returns (x, y), an iterable or iterator of such "
                f"batches, or a sequence of them, got {type(source).__name__}")

    @property
    def size(self):
        """Number of batches in an epoch, or None where nobody knows."""
        if self.steps is not None:
            return self.steps
        if hasattr(self.source, "__len__"):
            return len(self.source)
        return None

    def epoch(self, first=0, begun=None):
        """Iterate over the batches of one epoch, at most ``steps``; to be closed.

        Parameters
        ----------
        first : int
            Number of the batch to go on from. A source whose state was set stands there already.
            Else batches before it are passed over, except those of a callable or an iterator with
            ``steps``, which is taken for one without an end.
        begun : iterator, optional
            What was returned for this epoch before, from which the first batch may be gone.

        Returns
        -------
        iterator
        """
        rewound, self.rewound = self.rewound, False
        endless = self.kind in ("callable", "iterator") and self.steps is not None
        if begun is not None and (rewound or (first and self.kind == "sequence")):
            begun.close()
            begun = None
        if first and endless and not rewound:
            warnings.warn(f"{self.name} has no get_state and set_state: training goes on with "
                          "the batches that it gives next", RuntimeWarning, stacklevel=2)
        drops = 0 if rewound or endless or self.kind == "sequence" else first
        number = first if rewound or self.kind == "sequence" else 0
        if begun is None:
            begun = self._prefetched(number) if self.workers else self._limited(number)
        if first and endless and not rewound:
            return _Part(begun, 0, self.steps - first)
        return begun if not drops else _Part(begun, drops, None)

    def get_state(self):
        """Return where the source is, if it can tell; threads that run ahead hide it."""
        if self.workers or not hasattr(self.source, "set_state"):
            return None
        return self.source.get_state() if hasattr(self.source, "get_state") else None

    def set_state(self, state):
        """Let the source go to where it was.

        Parameters
        ----------
        state
            What :meth:`get_state` returned.
        """
        if state is not None and hasattr(self.source, "set_state"):
            self.source.set_state(state)
            self.rewound = True

    def _prefetched(self, first):
        tasks = Prefetcher(self._tasks(first), self.workers)
        try:
            yield from tasks
        finally:
            tasks.close()

    def _limited(self, first):
        for task in self._tasks(first):
            yield task()

    def _tasks(self, first):
        """Yield functions that return one batch each, from a number on."""
        if self.kind == "sequence":
            n = len(self.source)
            for i in range(first, n if self.steps is None else min(n, self.steps)):
                yield functools.partial(self.source.__getitem__, i)
            return
        left = None if self.steps is None else self.steps - first
        batches = self._iterate()
        while left is None or left > 0:
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield functools.partial(_same, batch)
            if left is not None:
                left -= 1

    def _iterate(self):
        if self.kind == "callable":
            return _Calls(self.source, self.name)
        if self.kind == "iterator":
            return self.source
        return iter(self.source() if self.kind == "factory" else self.source)

    def end_epoch(self):
        """Call the source's ``on_epoch_end``, if it has one."""
        hook = getattr(self.source, "on_epoch_end", None)
        if callable(hook):
            hook()


class _Part:
    """Batches of an epoch without the first ones, or only so many."""

    def __init__(self, batches, drops, most):
        self.batches = batches
        self.drops = drops
        self.most = most

    def __iter__(self):
        return self

    def __next__(self):
        while self.drops:
            self.drops -= 1
            next(self.batches)
        if self.most is not None:
            if self.most <= 0:
                raise StopIteration
            self.most -= 1
        return next(self.batches)

    def close(self):
        self.batches.close()


class _Calls:
    """Iterates over what a callable returns, until that is None."""

    def __init__(self, function, name):
        self.function = function
        self.name = name

    def __next__(self):
        batch = self.function()
        if batch is None:
            raise StopIteration
        if hasattr(batch, "__next__"):
            raise ValueError(f"{self.name} returned an iterator; pass what it returns, or a "
                             "function that returns one batch at each call")
        return batch


def _same(batch):
    return batch


def unpack(batch, name, number):
    """Return x, y and sample_weight of a batch.

    Parameters
    ----------
    batch : tuple or list
    name : str
        Of the source, for messages.
    number : int
        Of the batch, for messages.

    Returns
    -------
    tuple of x, y and sample_weight
        The last is None where the batch has two parts.

    Raises
    ------
    ValueError
        Not a tuple or list of two or three.

    Examples
    --------
    >>> from pyggml import data
    >>> data.unpack((1, 2), "generator", 1)
    (1, 2, None)
    """
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        got = (f"a {type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list))
               else f"a {type(batch).__name__}")
        raise ValueError(f"{name} must give (x, y) or (x, y, sample_weight) for each batch; batch "
                         f"{number} is {got}")
    return (*batch, None) if len(batch) == 2 else tuple(batch)


# ---- class weights ----------------------------------------------------------------------------

class ClassWeights:
    """Weights by class, as one weight a row.

    Parameters
    ----------
    class_weight : dict of int to float
    criterion : Criterion
        With one output.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import data
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> criterion = model.compiled.criterion
    >>> weights = data.ClassWeights({0: 1.0, 1: 3.0}, criterion)
    >>> weights.apply(np.array([0, 1, 1]), None).tolist()
    [1.0, 3.0, 3.0]
    """

    def __init__(self, class_weight, criterion):
        if not isinstance(class_weight, dict) or not class_weight:
            raise TypeError("class_weight must be a dict from class to weight, got "
                            f"{class_weight!r}")
        if len(criterion.losses) > 1:
            names = criterion.output_names
            raise ValueError(f"class_weight needs a model of one output, this one has {names}")
        for label, weight in class_weight.items():
            if isinstance(label, bool) or not hasattr(label, "__index__") or label < 0:
                raise ValueError(f"class_weight must have classes 0, 1, ... as keys, got {label!r}")
            if not (np.isscalar(weight) and np.isfinite(weight) and weight >= 0):
                raise ValueError(f"class_weight must be finite and not negative, got {weight!r} "
                                 f"for class {label}")
        self.table = np.full(max(class_weight) + 1, np.nan)
        for label, weight in class_weight.items():
            self.table[label] = weight
        self.shape = criterion.output_shapes[0]
        self.sparse = criterion.losses[0].labels == "classes"

    def apply(self, y, sample_weight):
        """Return the product of sample weights and class weights.

        Parameters
        ----------
        y : array_like of shape (n,), (n, 1) or (n, classes)
        sample_weight : array_like of shape (n,) or (n, outputs), or None

        Raises
        ------
        ValueError
            A class that has no weight, or rows with several labels.
        """
        y = np.asarray(y[0] if isinstance(y, tuple) else y)
        if not self.sparse and y.ndim == 2 and y.shape[1] > 1:
            y = y.argmax(axis=1)
        elif y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise ValueError(f"class_weight needs one label a row, y has shape {y.shape}")
        known = np.nonzero(~np.isnan(self.table))[0]
        bad = ~np.isin(y, known)
        if bad.any():
            raise ValueError(f"class_weight has no weight for class {y[bad][0]}; it has "
                             f"{known.tolist()}")
        weights = self.table[y.astype(np.int64)]
        if sample_weight is None:
            return weights
        given = np.asarray(sample_weight[0] if isinstance(sample_weight, tuple) else sample_weight)
        return given * weights.reshape((-1,) + (1,) * (given.ndim - 1))


