"""Layers with several inputs."""

from pyggml import ops
from pyggml._scalars import integer
from pyggml.layers.base import Layer


class _Merge(Layer):
    """A layer that is called with a list of at least two inputs."""

    exactly_two = False

    def _checked(self, xs):
        wanted = "two inputs" if self.exactly_two else "at least two inputs"
        if not isinstance(xs, (list, tuple)):
            raise TypeError(f"layer {self.name!r} takes a list of {wanted}, got one input")
        if len(xs) < 2 or (self.exactly_two and len(xs) > 2):
            raise ValueError(f"layer {self.name!r} takes {wanted}, got {len(xs)}")
        return list(xs)

    def call(self, xs):
        """Return the result for a list of tensors.

        Parameters
        ----------
        xs : list of Tensor

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            Shapes that do not fit together.
        """
        first, *others = self._checked(xs)
        for x in others:
            if len(x.shape) != len(first.shape) or x.shape[0] != first.shape[0]:
                raise ValueError(f"layer {self.name!r} takes inputs with the same number of axes, "
                                 f"got shapes {[x.shape for x in xs]}")
            first = self.combine(first, x)
        return first

    def combine(self, x, y):
        """Return the result for two tensors.

        Parameters
        ----------
        x, y : Tensor

        Returns
        -------
        Tensor
        """
        raise NotImplementedError(f"{type(self).__name__}.combine")


class Add(_Merge):
    """Sum of the inputs, element by element; sizes of 1 are repeated.

    Parameters
    ----------
    name : str, optional
    trainable : bool

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3,)), pyggml.Input((3,))
    >>> pyggml.layers.Add()([a, b]).shape
    (None, 3)
    """

    def combine(self, x, y):
        return ops.add(x, y)


class Subtract(_Merge):
    """First input minus the second; sizes of 1 are repeated.

    Parameters
    ----------
    name : str, optional
    trainable : bool

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3,)), pyggml.Input((3,))
    >>> pyggml.layers.Subtract()([a, b]).shape
    (None, 3)
    """

    exactly_two = True

    def combine(self, x, y):
        return ops.subtract(x, y)


class Multiply(_Merge):
    """Product of the inputs, element by element; sizes of 1 are repeated.

    Parameters
    ----------
    name : str, optional
    trainable : bool

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3,)), pyggml.Input((1,))
    >>> pyggml.layers.Multiply()([a, b]).shape
    (None, 3)
    """

    def combine(self, x, y):
        return ops.multiply(x, y)


class Average(_Merge):
    """Mean of the inputs, element by element; sizes of 1 are repeated.

    Parameters
    ----------
    name : str, optional
    trainable : bool

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3,)), pyggml.Input((3,))
    >>> pyggml.layers.Average()([a, b]).shape
    (None, 3)
    """

    def call(self, xs):
        return ops.affine(super().call(xs), 1 / len(xs))

    def combine(self, x, y):
        return ops.add(x, y)


class Maximum(_Merge):
    """Largest of the inputs, element by element; sizes of 1 are repeated.

    Where they are equal, the first input gets the gradient.

    Parameters
    ----------
    name : str, optional
    trainable : bool

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3,)), pyggml.Input((3,))
    >>> pyggml.layers.Maximum()([a, b]).shape
    (None, 3)
    """

    def combine(self, x, y):
        return ops.maximum(y, x)


class Concatenate(_Merge):
    """Join the inputs along an axis.

    Parameters
    ----------
    axis : int
        Not the batch.

    Raises
    ------
    ValueError
        Shapes that differ along another axis.

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3,)), pyggml.Input((4,))
    >>> pyggml.layers.Concatenate()([a, b]).shape
    (None, 7)
    """

    def __init__(self, axis=-1, **kwargs) -> None:
        super().__init__(**kwargs)
        self.axis = integer(axis, "axis")
        if self.axis == 0:
            raise ValueError("axis must not be the batch, got 0")

    def call(self, xs):
        """Return the result for a list of tensors.

        Parameters
        ----------
        xs : list of Tensor

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            Shapes that do not fit together.
        """
        xs = self._checked(xs)
        if self.axis % max(len(xs[0].shape), 1) == 0:
            raise ValueError(f"axis must not be the batch, got {self.axis} for shape {xs[0].shape}")
        return ops.concatenate(xs, self.axis)

    def get_config(self):
        return super().get_config() | {"axis": self.axis}


class Dot(_Merge):
    """Sum of products over one axis of each of two inputs, row by row.

    Parameters
    ----------
    axes : int or (int, int)
        The axis of both inputs, or one each; not the batch.
    normalize : bool
        Whether both are scaled to length 1 along their axis first, which gives the cosine. A
        length below 1e-7 counts as 1e-7.

    Raises
    ------
    ValueError
        The axes have different sizes.

    Notes
    -----
    The output has the other axes of the first input, then those of the second; two vectors give
    (batch, 1). Formula: Keras' documentation.

    Examples
    --------
    >>> import pyggml
    >>> a, b = pyggml.Input((3, 4)), pyggml.Input((5, 4))
    >>> pyggml.layers.Dot(axes=2)([a, b]).shape
    (None, 3, 5)
    """

    exactly_two = True

    def __init__(self, axes, normalize=False, **kwargs) -> None:
        super().__init__(**kwargs)
        pair = tuple(axes) if isinstance(axes, (tuple, list)) else (axes, axes)
        if len(pair) != 2:
            raise TypeError(f"axes must be an integer or two, got {axes!r}")
        pair = tuple(integer(a, "axes") for a in pair)
        if 0 in pair:
            raise ValueError(f"axes must not be the batch, got {axes!r}")
        self.axes = pair
        self.normalize = bool(normalize)

    def call(self, xs):
        """Return the result for a list of tensors.

        Parameters
        ----------
        xs : list of Tensor

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            Shapes that do not fit together.
        """
        a, b = (self._last(x, axis) for x, axis in
                zip(self._checked(xs), self.axes, strict=True))
        if a.shape[0] != b.shape[0] or a.shape[-1] != b.shape[-1]:
            raise ValueError(f"layer {self.name!r} cannot multiply shapes "
                             f"{[x.shape for x in xs]} over axes {self.axes}")
        if len(a.shape) + len(b.shape) > 7:
            raise ValueError(f"the output of layer {self.name!r} would have more than 4 axes")
        n, size = a.shape[0], a.shape[-1]
        shape = (n, *a.shape[1:-1], *b.shape[1:-1])
        out = ops.matmul_transposed(ops.reshape(a, (n, -1, size)), ops.reshape(b, (n, -1, size)))
        return ops.reshape(out, shape if len(shape) > 1 else (n, 1))

    def _last(self, x, axis):
        """The input with its axis moved to the end, of length 1 if asked for."""
        count = len(x.shape)
        if not -count < axis < count:
            raise ValueError(f"axes must be axes of the inputs beside the batch, got {self.axes} "
                             f"for shape {x.shape}")
        axis %= count
        if axis != count - 1:
            x = ops.transpose(x, (*(i for i in range(count) if i != axis), axis))
        if not self.normalize:
            return x
        squares = ops.sum(ops.square(x), -1, keepdims=True)
        return ops.divide(x, ops.sqrt(ops.maximum(squares, 1e-14)))

    def get_config(self):
        return super().get_config() | {"axes": self.axes, "normalize": self.normalize}
