"""The entrance of a model."""

from __future__ import annotations

from collections.abc import Sequence

from pyggml.layers.base import Layer, Node, Symbol, positive_int


class InputLayer(Layer):
    """Holds the shape of an input; made by :func:`Input`.

    Parameters
    ----------
    shape : tuple of int
        Of one row.
    dtype : {"float32", "int32"}
    name : str, optional

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.InputLayer((3,)).symbol.shape
    (None, 3)
    """

    def __init__(self, shape, dtype="float32", name=None) -> None:
        super().__init__(name=name)
        self.shape = tuple(positive_int(n, "each size in shape, which leaves out the batch,")
                           for n in shape)
        if len(self.shape) > 3:
            raise ValueError(f"shape of one row may have at most 3 axes, got {self.shape}")
        if dtype not in ("float32", "int32"):
            raise ValueError(f"dtype must be 'float32' or 'int32', got {dtype!r}")
        self.dtype = dtype
        self.built = True
        node = Node(self, [], False, {})
        self.symbol = Symbol((None, *self.shape), dtype, node, 0, self.name)
        node.outputs.append(self.symbol)

    def __reduce__(self):
        return InputLayer, (self.shape, self.dtype, self.name)

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), InputLayer(self.shape, self.dtype, self.name))

    def get_config(self):
        return {"shape": list(self.shape), "dtype": self.dtype, "name": self.name}


def Input(shape: Sequence[int], dtype: str = "float32", name: str | None = None) -> Symbol:
    """Return the symbol that a model starts from.

    Parameters
    ----------
    shape : tuple of int
        Of one row, without the batch; at most three axes.
    dtype : {"float32", "int32"}
        int32 for indices, as an embedding takes them.
    name : str, optional

    Returns
    -------
    Symbol

    Raises
    ------
    TypeError
        ``shape`` is no tuple.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.Input((28, 28)).shape
    (None, 28, 28)
    """
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"shape must be a tuple of integers, got {shape!r}; one feature is (1,)")
    return InputLayer(shape, dtype, name).symbol
