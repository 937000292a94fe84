"""Models: what is computed, how it is trained, and the methods that users call."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyggml import _freezing, _serialize, _wiring, checkpoints, optimizers
from pyggml._compiled import Compiled, check_metrics, resolve
from pyggml._file_methods import FileMethods
from pyggml._fit_methods import FitMethods
from pyggml._forward import Predictor
from pyggml._graph import Tensor
from pyggml._program import Program
from pyggml._trainer import Trainer
from pyggml.layers.base import Layer, Symbol, assign_all
from pyggml.layers.input import Input, InputLayer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from pyggml._variable import Variable

    _Symbols = Symbol | Sequence[Symbol] | Mapping[str, Symbol]
    _Shape = tuple[int | None, ...]


class Model(_freezing.Freezing, FileMethods, FitMethods, Layer):
    """A network from input symbols to output symbols.

    Parameters
    ----------
    inputs, outputs : Symbol, or list or dict of Symbol
        Connected by calls of layers. A dict of outputs gives them names; without one they are
        called after the layers that made them.
    name : str, optional

    Examples
    --------
    >>> import pyggml
    >>> x = pyggml.Input((4,))
    >>> y = pyggml.layers.Dense(2, "softmax")(pyggml.layers.Dense(8, "relu")(x))
    >>> pyggml.Model(x, y).output_shape
    (None, 2)
    """

    def __init__(self, inputs: _Symbols, outputs: _Symbols, name: str | None = None) -> None:
        super().__init__(name=name)
        self._reset()
        given = self._names(outputs)
        self._set_program(self._symbols(inputs, "inputs"), self._symbols(outputs, "outputs"),
                          given)
        self.built = True

    def _reset(self):
        self.compiled = None
        self._program = None
        self._predictor = None

    @staticmethod
    def _names(outputs):
        return list(outputs) if isinstance(outputs, dict) else None

    @staticmethod
    def _symbols(value, what):
        if isinstance(value, dict):
            value = list(value.values())
        symbols = list(value) if isinstance(value, (list, tuple)) else [value]
        for symbol in symbols:
            if not isinstance(symbol, Symbol):
                raise TypeError(f"{what} must be symbols (from Input and layers), got "
                                f"{type(symbol).__name__}")
        if what == "inputs":
            for symbol in symbols:
                if not isinstance(symbol.node.layer, InputLayer):
                    raise ValueError(f"inputs must come from Input, got the output of "
                                     f"{symbol.node.layer.name!r}")
        return symbols

    def _set_program(self, inputs, outputs, names=None):
        self._program = Program(inputs, outputs)
        if names is None:
            names = []
            for symbol in outputs:
                base = symbol.node.layer.name
                names.append(base if base not in names else f"{base}_{len(names)}")
        self._program.output_names = names
        self._predictor = Predictor(self._program, {})
        if self.compiled is not None:
            self.compiled.fit_to(self._program)

    # -- structure -----------------------------------------------------------------------

    def require_built(self):
        """Raise ValueError where the input shape is not known yet."""
        if self._program is None:
            raise ValueError(f"model {self.name!r} does not know its input shape; start it with "
                             "an Input, or call build(input_shape)")

    def require_compiled(self):
        """Raise ValueError where the model is not compiled or not built."""
        self.require_built()
        if self.compiled is None:
            raise ValueError(f"model {self.name!r} is not compiled; call compile first")

    @property
    def program(self):
        """What the model computes."""
        self.require_built()
        return self._program

    @property
    def layers(self) -> list[Layer]:
        """The layers: of the inputs, then the others as Keras lists them.

        Those that most calls follow come first.
        """
        return list(self.program.layers)

    @property
    def sublayers(self):
        """Same as :attr:`layers`."""
        return [] if self._program is None else self.layers

    @property
    def weight_names(self) -> dict[Variable, str]:
        """Dict from each weight to ``"layer/weight"``."""
        names, taken = {}, set()
        for layer in self.layers:
            for v in layer.weights:
                if v in names:
                    continue
                base = name = f"{layer.name}/{v.name}"
                n = 1
                while name in taken:
                    name = f"{base}_{n}"
                    n += 1
                names[v] = name
                taken.add(name)
        return names

    @property
    def input_shape(self) -> _Shape | list[_Shape]:
        """Shape with None for the batch, or a list of them."""
        shapes = [s.shape for s in self.program.inputs]
        return shapes[0] if len(shapes) == 1 else shapes

    @property
    def output_shape(self) -> _Shape | list[_Shape]:
        """Shape with None for the batch, or a list of them."""
        shapes = [s.shape for s in self.program.outputs]
        return shapes[0] if len(shapes) == 1 else shapes

    @property
    def output_names(self) -> list[str]:
        """How losses, metrics and labels call the outputs."""
        return list(self.program.output_names)

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Return a layer by its name or its position in :attr:`layers`.

        Parameters
        ----------
        name : str, optional
        index : int, optional
            Negative ones count from the end.

        Returns
        -------
        Layer

        Raises
        ------
        ValueError
            Neither or both are given, or there is no such layer.
        TypeError
            ``index`` is no integer.
        """
        if (name is None) == (index is None):
            raise ValueError("exactly one of name and index must be given")
        if name is not None:
            for layer in self.layers:
                if layer.name == name:
                    return layer
            raise ValueError(f"no layer is named {name!r}; the model has "
                             f"{[layer.name for layer in self.layers]}")
        n = len(self.layers)
        if index is None or isinstance(index, bool) or not hasattr(index, "__index__"):
            raise TypeError(f"index must be an integer, got {index!r}")
        if not -n <= index < n:
            raise ValueError(f"index must be from {-n} to {n - 1}, got {index}")
        return self.layers[index]

    def call(self, x):
        """Run the layers on tensors: a model may be used as a layer.

        Parameters
        ----------
        x : Tensor or list of Tensor

        Returns
        -------
        Tensor or list of Tensor

        Raises
        ------
        TypeError
            Something else than tensors of a graph.
        """
        tensors = list(x) if isinstance(x, (list, tuple)) else [x]
        if not tensors or not all(isinstance(t, Tensor) for t in tensors):
            raise TypeError(f"model {self.name!r} takes tensors of a graph, got {x!r}")
        found = self.program.run(tensors[0].graph, tensors, nested=True)
        return found[0] if len(found) == 1 else found

    def summary(self, print_fn: Callable[[str], object] = print) -> None:
        """Print a table of the layers with output shapes and numbers of weights.

        Parameters
        ----------
        print_fn : callable
            Called with each line.
        """
        rows = [("Layer (type)", "Output shape", "Params")]
        shapes: dict[int, list[_Shape]] = {}
        for node in [s.node for s in self.program.inputs] + self.program.nodes:
            shapes.setdefault(id(node.layer), [s.shape for s in node.outputs])
        for layer in self.layers:
            shape = shapes[id(layer)]
            rows.append((f"{layer.name} ({type(layer).__name__})",
                         ", ".join(map(str, shape)), f"{layer.count_params():,}"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        line = "-" * (sum(widths) + 4)
        print_fn(f"Model {self.name!r}")
        for i, (a, b, c) in enumerate(rows):
            print_fn(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}")
            if i == 0:
                print_fn(line)
        trained = sum(v.size for v in self.trainable_weights)
        total = self.count_params()
        print_fn(line)
        print_fn(f"Params: {total:,} ({4 * total:,} bytes), trainable {trained:,}, "
                 f"frozen {total - trained:,}")

    # -- copies --------------------------------------------------------------------------

    def __getstate__(self):
        state = vars(self).copy()
        state["_program"] = state["_predictor"] = None
        state["_flat"] = None if self._program is None else (
            _wiring.flatten(self._program) | {"names": self._program.output_names})
        return state

    def __setstate__(self, state):
        flat = state.pop("_flat")
        vars(self).update(state)
        compiled, self.compiled = self.compiled, None
        if flat is not None:
            self._set_program(*_wiring.restore(flat, flat["layers"]), flat["names"])
        self.compiled = compiled

    def __deepcopy__(self, memo):
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        state = self.__getstate__()
        flat = state["_flat"]
        if flat is not None:
            flat["layers"] = _wiring.copy_layers(flat["layers"], memo)
        for key, value in state.items():
            if key not in ("_flat", "_own"):
                state[key] = copy.deepcopy(value, memo)
        state["_own"] = []
        other.__setstate__(state)
        return other

    def copy(self) -> Self:
        """Return a model of its own weights with the same values, compiled the same."""
        return copy.deepcopy(self)

    def get_config(self):
        """Return the architecture as a dict that JSON can hold."""
        return _serialize.model_config(self)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Make the model anew from :meth:`get_config`'s dict, with new weights.

        Parameters
        ----------
        config : dict
        custom_objects : dict of str to type or callable, optional
            Classes and functions of yours that the configuration names.

        Returns
        -------
        Model
        """
        with _serialize.custom(custom_objects):
            return cls._from_config(config)

    @classmethod
    def _from_config(cls, config):
        return _serialize.model_from_config(cls, config)

    # -- training ------------------------------------------------------------------------

    def compile(self, optimizer: str | optimizers.Optimizer = "adam", loss: Any = None,
                metrics: Any = None, loss_weights: Any = None) -> None:
        """Choose optimizer, losses and metrics; forgets what earlier training left behind.

        Parameters
        ----------
        optimizer : str or Optimizer
        loss : str, Loss or callable, or list or dict of them
            One for all outputs, or one an output.
        metrics : list, optional
            Names, metrics or functions; for several outputs a list a output or a dict.
        loss_weights : list or dict of float, optional

        Raises
        ------
        ValueError, TypeError
            Unknown names; the message lists the known ones.
        """
        if loss is None:
            raise ValueError("loss must be given")
        check_metrics(metrics)
        compiled = Compiled(copy.deepcopy(optimizers.get(optimizer)), resolve(loss),
                            loss_weights, metrics)
        if self._program is not None:
            compiled.fit_to(self._program)
        # Not in the middle of what another thread does with the model.
        with contextlib.nullcontext() if self._predictor is None else self._predictor.lock:
            self.compiled = compiled

    @property
    def optimizer(self) -> optimizers.Optimizer | None:
        """The optimizer given to ``compile``."""
        return None if self.compiled is None else self.compiled.optimizer

    def set_weights(self, weights: Sequence[ArrayLike]) -> None:
        self.require_built()
        with self._predictor.lock:
            assign_all(self.weights, weights, f"model {self.name!r}")

    def _predictor_of_program(self):
        self.require_built()
        return self._predictor

    def _build_from(self, x):
        """Take the input shape from data where nothing else has told it."""

    def make_trainer(self, batch_size, nbatch_logical, mask):
        """Return the trainer that ``fit`` runs on: one for as long as the model is compiled.

        Parameters
        ----------
        batch_size : int
        nbatch_logical : int or None
        mask : {None, "rows", "elements"}
            Whether weights are taken, and how many.

        Returns
        -------
        Trainer
        """
        self.require_compiled()
        compiled = self.compiled
        if compiled.trainer is None:
            trainer = Trainer._on_weights_of(self, batch_size, nbatch_logical, mask)
            if compiled.training_state is not None:
                checkpoints.resume(trainer, compiled.training_state)
            compiled.trainer, compiled.training_state = trainer, None
        else:
            compiled.trainer._follow_freezing()
            compiled.trainer._configure(batch_size, nbatch_logical, mask)
        return compiled.trainer


class Sequential(Model):
    """Layers one after the other.

    Parameters
    ----------
    layers : list of Layer
        The first may be an ``Input``; without one the input shape is taken from
        :meth:`build` or from the first data.
    name : str, optional

    Examples
    --------
    >>> import pyggml
    >>> model = pyggml.Sequential([
    ...     pyggml.Input((4,)),
    ...     pyggml.layers.Dense(8, activation="relu"),
    ...     pyggml.layers.Dense(2, activation="softmax"),
    ... ])
    >>> model.count_params()
    58
    """

    _is_layer = False

    def __init__(self, layers: Sequence[Layer | Symbol] = (), name: str | None = None) -> None:
        Layer.__init__(self, name=name)
        self._reset()
        self._input = None
        self._stack: list[Layer] = []
        for layer in layers:
            self._push(layer)
        self._connect_layers()

    def _push(self, layer):
        if isinstance(layer, Symbol) and isinstance(layer.node.layer, InputLayer):
            layer = layer.node.layer
        if isinstance(layer, InputLayer):
            if self._input is not None or self._stack:
                raise ValueError("an Input can only be the first layer")
            self._input = layer
            return
        if not isinstance(layer, Layer):
            raise TypeError(f"layers must be Layer objects, got {type(layer).__name__}")
        if _holds(layer, self):
            raise ValueError(f"model {self.name!r} cannot be a layer of itself")
        if any(other.name == layer.name for other in self._stack):
            raise ValueError(f"two layers are named {layer.name!r}")
        self._stack.append(layer)
        if not self._trainable:
            layer.trainable = False

    def _connect_layers(self):
        if self._input is None or not self._stack:
            self._program = None
            return
        x = self._input.symbol
        for layer in self._stack:
            x = layer(x)
        self._set_program([self._input.symbol], [x])
        self.built = True

    def _connect(self, symbols, nested, arguments):
        found = super()._connect(symbols, nested, arguments)
        self._is_layer = True
        return found

    @contextlib.contextmanager
    def _changing(self):
        """Connect the layers anew after a change of them, or go back to those there were."""
        if self._is_layer:
            raise RuntimeError(f"model {self.name!r} is a layer of another model, whose graphs "
                               "would go on with the layers it had; make a new model")
        before = vars(self).copy()
        self._stack = list(self._stack)
        self.compiled = copy.copy(self.compiled)  # the copy has no trainer, and is fitted anew
        try:
            yield
            self._connect_layers()
        except BaseException:
            vars(self).update(before)
            raise

    def add(self, layer: Layer | Symbol) -> None:
        """Append a layer.

        Parameters
        ----------
        layer : Layer or Input

        Raises
        ------
        RuntimeError
            This model is a layer of another one.
        """
        with self._changing():
            self._push(layer)

    def pop(self) -> Layer:
        """Remove the last layer and return it.

        Returns
        -------
        Layer

        Raises
        ------
        IndexError
            There is none.
        RuntimeError
            This model is a layer of another one.
        """
        if not self._stack:
            raise IndexError(f"model {self.name!r} has no layers")
        with self._changing():
            return self._stack.pop()

    def require_built(self):
        """Raise ValueError where there are no layers, or their input shape is not known yet."""
        if self._input is not None and not self._stack:
            raise ValueError(f"model {self.name!r} has no layers")
        super().require_built()

    def build(self, input_shape):
        """Tell the input shape.

        Parameters
        ----------
        input_shape : tuple of int
            Of one row, or with None for the batch in front.

        Raises
        ------
        ValueError
            The model has no layers, or a layer does not take the shape.
        """
        if self._input is not None:
            return
        if not self._stack:
            raise ValueError(f"model {self.name!r} has no layers")
        shape = tuple(input_shape)
        dtype = getattr(self._stack[0], "input_dtype", "float32")
        with self._changing():
            self._input = Input(shape[1:] if shape[:1] == (None,) else shape, dtype).node.layer

    def _build_from(self, x):
        if self._program is None and hasattr(x, "shape"):
            self.build(tuple(x.shape[1:]))

    @property
    def layers(self) -> list[Layer]:
        """The layers in order, without the Input."""
        return list(self._stack)

    @property
    def sublayers(self):
        """Same as :attr:`layers`; there before the input shape is known, to be frozen for one."""
        return self.layers

    def get_config(self):
        return _serialize.sequential_config(self)

    @classmethod
    def _from_config(cls, config):
        return _serialize.sequential_from_config(cls, config)

    def __getstate__(self):
        state = super().__getstate__()
        if state["_flat"] is not None:
            state["_input"] = None
            state["_stack"] = None
        return state

    def __setstate__(self, state):
        flat = state["_flat"]
        super().__setstate__(state)
        if flat is not None:
            self._input = flat["layers"][0]
            self._stack = [flat["layers"][call[0]] for call in flat["calls"]]


def _holds(layer, wanted):
    """Whether a layer is another one, or has it inside."""
    left, seen = [layer], set()
    while left:
        layer = left.pop()
        if layer is wanted:
            return True
        if id(layer) not in seen:
            seen.add(id(layer))
            left += layer.sublayers
    return False
