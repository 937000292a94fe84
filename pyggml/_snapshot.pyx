# cython: language_level=3
"""Frozen copies of a network, and moving them towards one that is trained."""

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pyggml._forward cimport Predictor
from pyggml._variable cimport Variable

from pyggml._forward import Predictor
from pyggml._locks import Locks
from pyggml.layers.base import batch_rows
from pyggml.optimizers import _within


cdef object _key = object()  # whoever has it may make snapshots


@cython.no_gc_clear
cdef class Snapshot:
    """A copy of a trainer's network at one moment, for predictions.

    Made by :meth:`pyggml.Trainer.snapshot`. It has weights, graphs and a scheduler of its own:
    later steps do not move it, it outlives the trainer, and another thread may use it while the
    trainer steps. Dropout is off in it, and batch norm uses the moving statistics.

    Attributes
    ----------
    batch_size : int
        Rows that :meth:`predict` computes at once by default: the trainer's.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
    >>> model.compile(optimizer="adam", loss="mse")
    >>> x, y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
    >>> with pyggml.Trainer(model, batch_size=8) as trainer:
    ...     target = trainer.snapshot()
    ...     before = target.predict(x)
    ...     loss = trainer.step(x, y)
    >>> bool((target.predict(x) == before).all())
    True
    >>> target.free()
    """

    def __cinit__(self, key=None, *args, **kwargs):
        if key is not _key:
            raise TypeError("snapshots are made by Trainer.snapshot()")

    @staticmethod
    def _of(program, dict bindings, dict names, batch_size, str source):
        """Copy the weights; the caller holds their lock."""
        cdef Snapshot self = Snapshot.__new__(Snapshot, _key)
        self.program = program
        self.names = names
        self.source = source
        self.batch_size = batch_size
        self.bindings = {v: bindings.get(v, v).clone() for v in program.variables}
        self.predictor = Predictor(program, self.bindings)
        self.lock = self.predictor.lock
        return self

    cdef int _alive(self) except -1:
        if self.freed:
            raise RuntimeError("this snapshot was freed")
        return 0

    def predict(self, x, batch_size=None, matmul_precision=None):
        """Return the outputs, in evaluation mode.

        Parameters
        ----------
        x : array_like of shape (n, ...), or list or dict of them
            Any number of rows.
        batch_size : int, optional
            Rows computed at once.
        matmul_precision : {None, "default", "float32"}
            ggml's hint for matrix products; on the CPU all are float32.

        Returns
        -------
        numpy.ndarray of float32, or list of them for several outputs
            Arrays that own their memory.

        Raises
        ------
        RuntimeError
            The snapshot was freed.
        """
        if matmul_precision is not None:
            check_precision(matmul_precision)
        cdef Predictor predictor
        size = self.batch_size if batch_size is None else batch_rows(batch_size)
        self.lock.take()
        try:
            self._alive()
            predictor = self.predictor  # outlives a free while x is read
            return predictor.predict_any(x, size)
        finally:
            self.lock.give()

    def get_weights(self, copy=True):
        """Return the weights in the model's order.

        Parameters
        ----------
        copy : bool
            False gives views, which stay valid even after :meth:`free`.

        Returns
        -------
        list of numpy.ndarray of float32
        """
        with self.lock:
            self._alive()
            return [self.bindings[v].numpy(copy) for v in self.program.variables]

    def _target(self):
        """Return what :func:`move` needs: a lock, and the weights by name."""
        with self.lock:
            self._alive()
            return self.lock, {self.names[v]: self.bindings[v] for v in self.program.variables}

    def free(self):
        """Release everything. Calling it again is harmless; other methods raise RuntimeError."""
        with self.lock:
            self.freed = True
            self.predictor = None
            self.bindings = {}

    def close(self):
        """Same as :meth:`free`."""
        self.free()

    def __enter__(self):
        self._alive()
        return self

    def __exit__(self, *exception):
        self.free()

    def __reduce__(self):
        raise TypeError("a snapshot cannot be pickled; take its get_weights()")

    def __repr__(self):
        if self.freed:
            return "<Snapshot freed>"
        n = sum([v.size for v in self.bindings.values()])
        return f"<Snapshot of {self.source!r}: {n} parameters, {4 * n} bytes on CPU>"


def snapshot_free(snapshot):
    """Release a snapshot: the same as its ``free()``.

    Parameters
    ----------
    snapshot : Snapshot

    Examples
    --------
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> snapshot = pyggml.Trainer(model).snapshot()
    >>> pyggml.snapshot_free(snapshot)
    >>> snapshot
    <Snapshot freed>
    """
    if not isinstance(snapshot, Snapshot):
        raise TypeError(f"snapshot must be a Snapshot, got {type(snapshot).__name__}")
    snapshot.free()


def statistics(program):
    """Return the variables that no training ever moves by a gradient: those of batch norm."""
    found = set()
    stack = list(program.layers)
    while stack:
        layer = stack.pop()
        found.update([v for v, wanted in layer._own if not wanted])
        stack += layer.sublayers
    return found


cdef struct _Pair:
    const float * source
    float * target
    size_t n
    bint whole


def move(lock, dict current, set whole, target_lock, dict target, tau):
    """Move weights: ``target <- tau * current + (1 - tau) * target``.

    Parameters
    ----------
    lock, target_lock : Lock
    current, target : dict of str to Variable
    whole : set of str
        Names of those that are copied, never averaged.
    tau : float
        In [0, 1]; 1 copies bit for bit.

    Raises
    ------
    ValueError
        Names or shapes differ, or tau is out of range; nothing is changed then.
    """
    cdef _Pair * pairs
    cdef Variable a, b
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(current)
    cdef float new, old
    tau = _within(tau, "tau", 0, 1)
    new, old = tau, 1 - tau
    missing = sorted(set(current) - set(target))
    unknown = sorted(set(target) - set(current))
    if missing or unknown:
        raise ValueError(f"the target has other weights: it lacks {missing} and has {unknown} "
                         "instead")
    for name in current:
        a, b = current[name], target[name]
        if a.shape != b.shape or a.axes != b.axes:
            raise ValueError(f"{name!r} has shape {a.shape}, stored by axes {a.axes}, but "
                             f"{b.shape} and {b.axes} in the target")
    pairs = <_Pair *>malloc(max(n, 1) * sizeof(_Pair))
    if pairs is NULL:
        raise MemoryError
    try:
        for i, name in enumerate(current):
            a, b = current[name], target[name]
            pairs[i].source, pairs[i].target, pairs[i].n = a.data, b.data, a.size
            pairs[i].whole = tau == 1 or name in whole
        with Locks([lock, target_lock]):
            with nogil:
                for i in range(n):
                    if pairs[i].source == pairs[i].target:
                        continue
                    if pairs[i].whole:
                        memcpy(pairs[i].target, pairs[i].source, pairs[i].n * sizeof(float))
                    elif new != 0:
                        _average(pairs[i].source, pairs[i].target, pairs[i].n, new, old)
    finally:
        free(pairs)


cdef void _average(const float * source, float * target, size_t n, float new,
                   float old) noexcept nogil:
    cdef size_t i
    for i in range(n):
        target[i] = new * source[i] + old * target[i]


def check_precision(matmul_precision):
    """Raise ValueError for anything but None, "default" and "float32"."""
    if matmul_precision is not None and matmul_precision not in ("default", "float32"):
        raise ValueError("matmul_precision must be None, 'default' or 'float32', got "
                         f"{matmul_precision!r}")
