# cython: language_level=3
"""Weights of a model: float32 arrays in ggml's memory."""

import numpy as np

cimport cython
from libc.string cimport memcpy, memset
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES

from pyggml cimport _ggml
from pyggml._runtime cimport allocate_bytes

from pyggml._scalars import integers

cdef Py_ssize_t _itemsize = sizeof(float)
cdef const char * _format = "f"
cdef size_t _largest = <size_t>1 << 46  # elements; beyond it sizes in bytes would overflow


@cython.final
cdef class _Memory:
    """Hands out a variable's memory as a flat float32 buffer and keeps the variable alive."""

    cdef Variable owner
    cdef Py_ssize_t shape[1]

    def __cinit__(self, Variable owner):
        self.owner = owner
        self.shape[0] = <Py_ssize_t>owner.size

    def __getbuffer__(self, Py_buffer * view, int flags):
        view.buf = self.owner.data
        view.obj = self
        view.len = self.shape[0] * _itemsize
        view.itemsize = _itemsize
        view.readonly = 0
        view.ndim = 1
        view.format = NULL
        if flags & PyBUF_FORMAT:
            view.format = <char *>_format
        view.shape = self.shape if flags & PyBUF_ND else NULL
        view.strides = &_itemsize if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL

    def __releasebuffer__(self, Py_buffer * view):
        pass


cdef class Variable:
    """One weight of a model: a float32 array in ggml's memory.

    Made by :meth:`pyggml.layers.Layer.add_weight`. The array that users see has Keras' order of
    axes; in memory it lies in the order that ggml computes with, and :meth:`numpy` hides that.

    Parameters
    ----------
    shape : tuple of int
        Shape as users see it.
    name : str
        Name inside the layer, such as ``"kernel"``.
    axes : tuple of int, optional
        Order of the user's axes in memory, outermost first; by default as they are.
    trainable : bool
        Whether training moves it.
    decay : bool
        Whether weight decay applies to it.
    initializer, regularizer : optional
        What :meth:`initialize` calls, and what the loss adds.
    clear : bool
        False leaves the values undefined, for who sets all of them anyway.

    Attributes
    ----------
    shape : tuple of int
    name : str
    trainable, decay : bool
    size : int
        Number of elements.

    Examples
    --------
    >>> from pyggml import Variable
    >>> v = Variable((2, 3), "kernel", axes=(1, 0))
    >>> v.assign(np.ones((2, 3)))
    >>> v.numpy().sum().item()
    6.0
    """

    def __cinit__(self, shape, str name="variable", axes=None, bint trainable=True,
                  bint decay=True, initializer=None, regularizer=None, bint clear=True):
        cdef size_t size = 1
        self.data = NULL
        self.shape = integers(shape, f"shape of {name!r}")
        if len(self.shape) > _ggml.GGML_MAX_DIMS:
            raise ValueError(f"shape of {name!r} may have at most 4 axes, got {self.shape}")
        for n in self.shape:
            if n < 1:
                raise ValueError(f"shape of {name!r} must be positive, got {self.shape}")
            if n > _largest // size:
                raise MemoryError(f"{name!r} of shape {self.shape} does not fit into memory")
            size *= n
        self.axes = (tuple(range(len(self.shape))) if axes is None
                     else integers(axes, "axes"))
        if sorted(self.axes) != list(range(len(self.shape))):
            raise ValueError(f"axes must be an order of the axes of {self.shape}, got {axes}")
        self.name = name
        self.trainable = trainable
        self.decay = decay
        self.initializer = initializer
        self.regularizer = regularizer
        self.size = size
        self.buffer = allocate_bytes(size * sizeof(float), f"{name!r} of shape {self.shape}",
                                     clear)
        self.data = <float *>_ggml.ggml_backend_buffer_get_base(self.buffer.ptr)

    cdef tuple storage_shape(self):
        return tuple(self.shape[a] for a in self.axes)

    def numpy(self, copy=True):
        """Return the values as a NumPy array of shape ``shape``.

        Parameters
        ----------
        copy : bool
            False gives a view: writing to it changes the weight, training changes it, and it
            stays valid as long as it is referenced.

        Returns
        -------
        numpy.ndarray of float32
            The view is transposed where ggml's order of axes differs.
        """
        flat = np.frombuffer(_Memory(self), dtype=np.float32)
        view = flat.reshape(self.storage_shape()).transpose(
            [self.axes.index(a) for a in range(len(self.axes))])
        return np.array(view, order="C") if copy else view

    def assign(self, value):
        """Set all values.

        Parameters
        ----------
        value : array_like of shape ``shape``
            Real numbers.

        Raises
        ------
        ValueError
            The shape differs: nothing is broadcast.
        TypeError
            ``value`` does not hold real numbers.
        """
        self.numpy(copy=False)[...] = self.check(value)

    def check(self, value):
        """Return ``value`` as an array that :meth:`assign` takes, or raise as it does.

        Parameters
        ----------
        value : array_like

        Returns
        -------
        numpy.ndarray of float32
        """
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{self.name!r} takes real numbers, got dtype {array.dtype}")
        if array.shape != self.shape:
            raise ValueError(f"{self.name!r} has shape {self.shape}, got {array.shape}")
        # Where a cast that overflows is an error, it is one before anything has changed.
        return np.asarray(array, dtype=np.float32)

    def initialize(self, rng):
        """Set the values from the initializer.

        Parameters
        ----------
        rng : numpy.random.Generator
            What it draws from.
        """
        self.assign(self.initializer(self.shape, rng))

    cdef void zero(self) noexcept nogil:
        memset(self.data, 0, self.size * sizeof(float))

    def clone(self, values=True):
        """Return a variable of its own memory with the same properties.

        Parameters
        ----------
        values : bool
            Whether it gets the same values too; False leaves them undefined.

        Returns
        -------
        Variable
        """
        cdef Variable other = Variable(
            self.shape, self.name, self.axes, self.trainable, self.decay, self.initializer,
            self.regularizer, clear=False)
        if values:
            with nogil:
                memcpy(other.data, self.data, self.size * sizeof(float))
        return other

    def __deepcopy__(self, memo):
        other = self.clone()
        memo[id(self)] = other
        return other

    def __reduce__(self):
        return _restore, (self.shape, self.name, self.axes, self.trainable, self.decay,
                          self.initializer, self.regularizer, self.numpy())

    def __repr__(self):
        return f"<Variable {self.name!r} shape={self.shape} trainable={bool(self.trainable)}>"


cdef object _owner(array):
    """The variable whose memory an array is a view of, or None."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return (<_Memory>base).owner if isinstance(base, _Memory) else None


def assign_checked(list variables, list arrays):
    """Set variables to what their ``check`` returned, all or none.

    Nothing here runs Python code, so no signal's handler comes between two of them.

    Parameters
    ----------
    variables : list of Variable
    arrays : list of numpy.ndarray
    """
    cdef Py_ssize_t i
    cdef list views = [v.numpy(False) for v in variables]
    # The view of another variable may be written to before it is read.
    arrays = [a.copy() if _owner(a) not in (None, v) else a for v, a in zip(variables, arrays)]
    for i in range(len(views)):
        views[i][...] = arrays[i]


def _restore(shape, name, axes, trainable, decay, initializer, regularizer, value):
    variable = Variable(shape, name, axes, trainable, decay, initializer, regularizer)
    variable.assign(value)
    return variable
