"""The base of all layers, and the symbols that functional models are written with."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from pyggml import _loading, initializers
from pyggml._forward import build
from pyggml._graph import Tensor
from pyggml._random import generator
from pyggml._scalars import integer, number
from pyggml._settings import Settled
from pyggml._variable import Variable, assign_checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_counts: dict[str, int] = {}


def _snake_case(name):
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def unique_name(base):
    """Return ``base``, ``base_1``, ``base_2`` and so on."""
    n = _counts.get(base, 0)
    _counts[base] = n + 1
    return base if n == 0 else f"{base}_{n}"


class Symbol:
    """A value of a functional model before there is any data: a shape and where it comes from.

    Attributes
    ----------
    shape : tuple
        With None for the batch.
    dtype : {"float32", "int32"}
    """

    def __init__(self, shape, dtype, node=None, index=0, name=None) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.node = node
        self.index = index
        self.name = name

    def __repr__(self):
        return f"<Symbol shape={self.shape} dtype={self.dtype}>"


class Node:
    """One use of a layer: which symbols went in and which came out."""

    def __init__(self, layer, inputs, nested, arguments) -> None:
        self.layer = layer
        self.inputs = inputs
        self.nested = nested
        self.arguments = arguments
        self.outputs: list[Symbol] = []
        self.single = True


class Layer(Settled):
    """Base of all layers. Subclasses write :meth:`build` and :meth:`call`.

    Parameters
    ----------
    name : str, optional
        By default the class name in snake case, numbered.
    trainable : bool
        Whether training moves the weights.

    Notes
    -----
    What the constructor was given cannot be changed once the layer is built: graphs that exist
    would go on with the old value, and later ones would have the new one.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import ops
    >>> class Scale(pyggml.layers.Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight("factor", (input_shape[-1],), "ones")
    ...
    ...     def call(self, x):
    ...         return ops.multiply(x, self.factor)
    >>> pyggml.Sequential([pyggml.Input((3,)), Scale()]).count_params()
    3
    """

    def __init__(self, name: str | None = None, trainable: bool = True) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a string, got {type(name).__name__}")
        self.name = unique_name(_snake_case(type(self).__name__)) if name is None else name
        self.built = False
        self._trainable = bool(trainable)
        self._own: list[tuple[Variable, bool]] = []

    def _whose(self):
        return f"layer {self.name!r}"

    # -- what subclasses write -----------------------------------------------------------

    def build(self, input_shape):
        """Make the weights, with :meth:`add_weight`. Called once, before the first use.

        Parameters
        ----------
        input_shape : tuple, or list of tuple for several inputs
            With None for the batch.
        """

    def call(self, x):
        """Return the output as tensors of the input's graph, made with :mod:`pyggml.ops`.

        Parameters
        ----------
        x : Tensor, or list of Tensor
            Shapes are whole, batch first. An argument ``training``, if there is one, is True in
            training graphs.
        """
        raise NotImplementedError(f"{type(self).__name__}.call")

    def compute_output_shape(self, input_shape):
        """Return the shape, with None for the batch, that comes out for an input shape.

        The default runs :meth:`call` on a graph that is thrown away.

        Parameters
        ----------
        input_shape : tuple, or list of tuple for several inputs
            With None for the batch.

        Returns
        -------
        tuple, or list of tuple for several outputs
        """
        return self._traced_shape(input_shape, {})

    def _output_shape(self, input_shape, arguments):
        """Return the shape for a call with arguments."""
        if type(self).compute_output_shape is Layer.compute_output_shape:
            return self._traced_shape(input_shape, arguments)
        return self.compute_output_shape(input_shape)

    def _traced_shape(self, input_shape, arguments, rows=3):
        many = isinstance(input_shape, list)
        shapes = input_shape if many else [input_shape]
        dtypes = getattr(self, "_shape_dtypes", ["float32"] * len(shapes))

        def make(graph):
            tensors = [graph.input((graph.batch_size, *shape[1:]), dtype)
                       for shape, dtype in zip(shapes, dtypes, strict=True)]
            return self._run(graph, tensors if many else tensors[0], dict(arguments))

        _, result = build(make, rows, False, {})
        found = list(result) if isinstance(result, (list, tuple)) else [result]
        for t in found:
            if not isinstance(t, Tensor):
                raise TypeError(f"layer {self.name!r} must return a tensor, or a list of them, "
                                f"got {type(t).__name__}")
            if t.shape[:1] != (rows,):
                raise ValueError(f"layer {self.name!r} must return the batch as first axis, got "
                                 f"shape {t.shape} for a batch of {rows}")
        shapes = [(None, *t.shape[1:]) for t in found]
        return shapes if isinstance(result, (list, tuple)) else shapes[0]

    def get_config(self):
        """Return the arguments of the constructor as a dict that JSON can hold."""
        return {"name": self.name, "trainable": self._trainable}

    @classmethod
    def from_config(cls, config):
        """Make the layer anew from :meth:`get_config`'s dict.

        Parameters
        ----------
        config : dict

        Returns
        -------
        Layer
        """
        return cls(**config)

    # -- weights -------------------------------------------------------------------------

    def add_weight(self, name: str, shape: Sequence[int], initializer: Any = "glorot_uniform",
                   trainable: bool = True, regularizer: Any = None,
                   axes: Sequence[int] | None = None, decay: bool = True) -> Variable:
        """Make a weight.

        Parameters
        ----------
        name : str
        shape : tuple of int
            As users see it.
        initializer : str or Initializer
        trainable : bool
        regularizer : callable, optional
            Takes the weight as a tensor of ``shape`` and returns a term of the loss.
        axes : tuple of int, optional
            Order of the axes in memory, outermost first. By default matrices are stored
            transposed, which is what :func:`pyggml.ops.linear` multiplies with.
        decay : bool
            Whether the optimizer's weight decay applies.

        Returns
        -------
        Variable
        """
        shape = tuple(shape)
        if axes is None and len(shape) == 2:
            axes = (1, 0)
        initializer = initializers.get(initializer)
        draw = _loading.drawn(shape)
        variable = Variable(shape, name, axes, trainable and self._trainable, decay, initializer,
                            regularizer, clear=draw)
        if draw:
            variable.initialize(generator())
        if isinstance(regularizer, Settled):
            regularizer.settle()
        self._own.append((variable, bool(trainable)))
        return variable

    @property
    def sublayers(self) -> list[Layer]:
        """Layers that are attributes of this one, alone or in lists, tuples and dicts."""
        found = []
        for value in vars(self).values():
            if isinstance(value, dict):
                value = list(value.values())
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(item, Layer):
                    found.append(item)
        return found

    @property
    def weights(self) -> list[Variable]:
        """All weights, those of layers inside included."""
        found = [v for v, _ in self._own]
        for layer in self.sublayers:
            found += [v for v in layer.weights if v not in found]
        return found

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training moves."""
        return [v for v in self.weights if v.trainable]

    @property
    def trainable(self):
        """Whether training moves the weights; takes effect where a trainer is made or compiled."""
        return self._trainable

    @trainable.setter
    def trainable(self, value):
        self._trainable = bool(value)
        for variable, wanted in self._own:
            variable.trainable = wanted and self._trainable
        for layer in self.sublayers:
            layer.trainable = value

    def get_weights(self, copy: bool = True) -> list[NDArray[np.float32]]:
        """Return the weights as NumPy arrays; with ``copy=False`` as views on their memory.

        Parameters
        ----------
        copy : bool

        Returns
        -------
        list of numpy.ndarray
        """
        return [v.numpy(copy) for v in self.weights]

    def set_weights(self, weights: Sequence[ArrayLike]) -> None:
        """Set all weights.

        Parameters
        ----------
        weights : list of array_like
            In the order and shapes of :meth:`get_weights`.

        Raises
        ------
        ValueError
            Another number of arrays, or a shape that differs; nothing is changed then.
        """
        assign_all(self.weights, weights, f"layer {self.name!r}")

    def count_params(self) -> int:
        """Return the number of elements of all weights."""
        return sum(v.size for v in self.weights)

    # -- use -----------------------------------------------------------------------------

    def __call__(self, inputs, **arguments):
        """Apply the layer to symbols of a functional model or to tensors of a graph.

        Parameters
        ----------
        inputs : Symbol or Tensor, or list of them
        **arguments
            Go to :meth:`call`.

        Returns
        -------
        Symbol or Tensor, or list of them

        Raises
        ------
        TypeError
            What is neither symbol nor tensor.
        ValueError
            No inputs, or shapes that the layer does not take.
        """
        flat = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if flat and all(isinstance(item, Tensor) for item in flat):
            return self._run(flat[0].graph, inputs, arguments)
        for item in flat:
            if not isinstance(item, Symbol):
                raise TypeError(
                    f"layer {self.name!r} takes symbols (from Input or other layers) or tensors, "
                    f"got {type(item).__name__}")
        if not flat:
            raise ValueError(f"layer {self.name!r} was called without inputs")
        return self._connect(list(flat), isinstance(inputs, (list, tuple)), arguments)

    def _connect(self, symbols, nested, arguments):
        shapes = [s.shape for s in symbols]
        self._shape_dtypes = [s.dtype for s in symbols]
        self._ensure_built(shapes if nested else shapes[0])
        shape = self._output_shape(shapes if nested else shapes[0], arguments)
        if not all(layer.built for layer in self.sublayers):
            # They get their weights where they are first called; a model lists weights once.
            self._traced_shape(shapes if nested else shapes[0], arguments)
        node = Node(self, symbols, nested, arguments)
        node.single = not isinstance(shape, list)
        for i, s in enumerate([shape] if node.single else shape):
            node.outputs.append(Symbol(s, "float32", node, i))
        return node.outputs[0] if node.single else list(node.outputs)

    def _ensure_built(self, shape):
        if not self.built:
            self.build(shape)
            self.built = True
            self.settle()
            if not self._trainable:
                self.trainable = False  # of layers inside too

    def _run(self, graph, inputs, arguments):
        shapes = ([(None, *t.shape[1:]) for t in inputs] if isinstance(inputs, (list, tuple))
                  else (None, *inputs.shape[1:]))
        self._ensure_built(shapes)
        if "training" in inspect.signature(self.call).parameters:
            arguments = {"training": graph.training} | arguments
        return self.call(inputs, **arguments)

    def __repr__(self):
        return f"<{type(self).__name__} {self.name!r}>"


def assign_all(variables, values, owner):
    """Set variables to values after checking that all of them fit."""
    if not hasattr(values, "__iter__"):
        raise TypeError(f"weights of {owner} must be a list of arrays, got "
                        f"{type(values).__name__}")
    values = list(values)
    if len(values) != len(variables):
        raise ValueError(f"{owner} has {len(variables)} weights, got {len(values)}")
    assign_checked(list(variables), [
        variable.check(value) for variable, value in zip(variables, values, strict=True)])


def positive_int(value, name):
    """Return value as an int, or raise TypeError or ValueError that names it."""
    value = integer(value, name)
    if value < 1:
        raise ValueError(f"{name} must be positive, got {value}")
    return _int64(value, name)


def batch_rows(value, name="batch_size"):
    """Return a number of rows to compute at once as an int, or raise as :func:`positive_int`."""
    value = positive_int(value, name)
    if value > 1 << 30:
        raise ValueError(f"{name} must be at most {1 << 30}, got {value}")
    return value


def count(value, name):
    """Return value as an int that is not negative, or raise as :func:`positive_int` does."""
    value = integer(value, name)
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return _int64(value, name)


def _int64(value, name):
    if value >= 1 << 62:
        raise ValueError(f"{name} must be below 2**62, got {value}")
    return value


def share(value, name):
    """Return value as a float in [0, 1), or raise TypeError or ValueError that names it."""
    value = number(value, name)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value}")
    return value
