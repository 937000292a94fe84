"""Models and weights in GGUF files.

One file holds everything: the architecture and the arguments of ``compile`` as JSON, every
weight as a tensor that any ggml program can read, and the optimizer's state. ``docs/files.md``
lists the keys.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import _config, _loading, _serialize
from pyggml._container import MAX_NAME, Container, FileFormatError, write
from pyggml._freezing import TrainingMode, walk
from pyggml._gguf import Checksum, layout, quantize
from pyggml._serialize import register
from pyggml.layers.base import positive_int

if TYPE_CHECKING:
    from pyggml.models import Model

__all__ = ["FileFormatError", "load_model", "load_weights", "register", "save_model",
           "save_weights"]

FORMAT = 1
_quantised = ("f16", "bf16", "q8_0", "q4_K")


# ---- tensors ------------------------------------------------------------------------------

class Names:
    """Tensor names of at most 63 bytes, each once."""

    def __init__(self):
        self.taken = set()

    def give(self, name):
        """Return ``name``, or a shorter one that ends in its checksum."""
        short, n = name, 0
        while len(short.encode()) > MAX_NAME or short in self.taken or not short:
            checksum = Checksum()
            checksum.update(f"{name}\0{n}".encode())
            head = name.encode()[:MAX_NAME - 17].decode("utf-8", "ignore")
            short, n = f"{head}~{checksum.hexdigest()}", n + 1
        self.taken.add(short)
        return short


class Stored:
    """A weight in a file.

    Attributes
    ----------
    name, tensor : str
        What pyggml calls it, and what the file calls it.
    shape, axes : tuple of int
        As for :class:`pyggml.Variable`.
    about : dict
        The whole record.
    """

    def __init__(self, container, record):
        try:
            self.name, self.tensor = record["name"], record["tensor"]
            self.shape, self.axes = tuple(record["shape"]), tuple(record["axes"])
        except (TypeError, KeyError) as error:
            container.fail(f"damaged: a record of a weight lacks {error}")
        self.about = record
        if not (isinstance(self.name, str) and isinstance(self.tensor, str)
                and all(type(n) is int for n in self.shape + self.axes)):
            container.fail(f"damaged: a record of a weight is {record}")
        if self.tensor not in container.entries:
            container.fail(f"damaged: it has no tensor {self.tensor!r}")
        stored = container.entries[self.tensor].shape
        if sorted(self.axes) != list(range(len(self.shape))) or stored != (
                tuple(self.shape[a] for a in self.axes) or (1,)):
            container.fail(f"damaged: {self.name!r} of shape {self.shape} is stored as {stored}")

    @property
    def size(self):
        """Number of elements."""
        return math.prod(self.shape)


def storage(variable):
    """Return a variable's memory as an array in the order in which it lies."""
    array = variable.numpy(copy=False).transpose(variable.axes)
    return array if array.ndim else array.reshape(1)


def filling(container, pairs, fresh):
    """Return what reads weights into variables when it is called.

    Parameters
    ----------
    container : Container
    pairs : list of (Variable, Stored)
        Of equal shapes.
    fresh : bool
        Nobody needs what the variables hold: the file is read once and checked on the way. Else
        all of it is checked before this returns, and signals wait until all variables are set.

    Returns
    -------
    callable
    """
    targets, moved = {}, []
    for variable, stored in pairs:
        if stored.tensor in targets:
            container.fail(f"damaged: tensor {stored.tensor!r} belongs to two variables")
        target = storage(variable)
        if stored.axes != variable.axes:
            target = np.empty(container.entries[stored.tensor].shape, np.float32)
            order = [stored.axes.index(a) for a in range(len(stored.axes))]
            source = target.reshape([stored.shape[a] for a in stored.axes]).transpose(order)
            moved.append((variable.numpy(copy=False), source))
        targets[stored.tensor] = target
    if not fresh:
        container.verify()
        read = container.reading(targets)
        for pair in moved:
            read.then(*pair)
        return read.run

    def read_all():
        container.read_all(targets)
        for variable, source in moved:
            variable[...] = source

    return read_all


def _type_for(array, wanted):
    """Choose how a weight is stored: smaller types need whole blocks and numbers they can hold."""
    if wanted is None or array.ndim < 2:
        return "f32"
    largest = float(np.max(np.abs(array))) if np.isfinite(array).all() else np.inf
    # f16 ends at 65504; the scales of q8_0 and q4_K are f16 too.
    if wanted == "bf16":
        return wanted if np.isfinite(largest) and largest < 3e38 else "f32"
    if largest > 65504:
        return "f32"
    return wanted if array.shape[-1] % layout(wanted)[0] == 0 else "f16"


def record(names, name, variable, tensors, wanted=None, **about):
    """Add a variable to the tensors of a file; return what JSON says about it."""
    array = storage(variable)
    kind = _type_for(array, wanted)
    tensor = names.give(name)

    def make():
        if kind == "f32":
            return array
        return quantize(array.reshape(-1, array.shape[-1]), kind)

    tensors.append((tensor, array.shape, kind, make))
    return {"name": name, "tensor": tensor, "shape": list(variable.shape),
            "axes": list(variable.axes), **about}


def _owners(model):
    """Return the class name of each weight's layer."""
    found = {}
    for layer in model.layers:
        for v in layer.weights:
            found.setdefault(v, type(layer).__name__)
    return found


def weight_records(model, names, tensors, values=None, wanted=None, mode=None):
    """Add the weights of a model, or their values elsewhere, to the tensors of a file."""
    owner = _owners(model)
    mode = TrainingMode(model.program) if mode is None else mode
    return [record(names, name, v if values is None else values[name], tensors, wanted,
                   trainable=v in mode, layer=owner[v], weight=v.name)
            for v, name in model.weight_names.items()]


def _statistics(model, mode):
    """Return what training does with the statistics of each layer that keeps some."""
    keepers = [layer for layer in walk(model.sublayers) if hasattr(layer, "freeze_stats")]
    if mode is None:  # as a model that is not built has none
        return ["fixed" if layer.freeze_stats else "moving" if layer.trainable else "still"
                for layer in keepers]
    return ["fixed" if layer in mode.fixed else "moving" if layer in mode.moving else "still"
            for layer in keepers]


def _set_statistics(model, states):
    keepers = [layer for layer in walk(model.sublayers) if hasattr(layer, "freeze_stats")]
    if not isinstance(states, list) or len(states) != len(keepers):
        raise ValueError(f"pyggml.statistics is {states!r}, but {len(keepers)} layers keep some")
    for layer, state in zip(keepers, states, strict=True):
        layer.freeze_stats = state == "fixed"
        if state != "fixed":
            layer._trainable = state == "moving"


# ---- metadata -----------------------------------------------------------------------------

def base_metadata(kind, model):
    """Return the keys that every file has."""
    return {"general.name": model.name, "pyggml.format": FORMAT, "pyggml.kind": kind,
            "pyggml.version": _config.VERSION}


def dumps(value):
    """Return JSON text of one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(container, key, default=None):
    """Return what the JSON text of a key holds."""
    text = container.get(key)
    if text is None:
        return default
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        return container.fail(f"damaged: {key} is not JSON: {error}")


def architecture(model, mode=None):
    """Return the metadata that :func:`build` makes the model of.

    What it trains is that of ``mode``, a TrainingMode, by default what it would train now.
    """
    try:
        keys = {"pyggml.model": dumps(_serialize.serialize(model))}
    except (TypeError, RecursionError) as error:
        raise TypeError(f"model {model.name!r} cannot be saved: {error}") from error
    states = _statistics(model, mode)
    return keys | ({"pyggml.statistics": dumps(states)} if states else {})


def compile_arguments(model, compiled=None):
    """Return the arguments of ``compile``, or None; those of an earlier one, if it is given."""
    c = model.compiled if compiled is None else compiled
    if c is None:
        return None
    try:
        return {"optimizer": _serialize.serialize(c.optimizer),
                "loss": _serialize.serialize(c.loss),
                "loss_weights": _serialize.serialize(c.loss_weights),
                "metrics": _serialize.serialize(c.metrics)}
    except (TypeError, RecursionError) as error:
        raise TypeError(f"what model {model.name!r} was compiled with cannot be saved: {error}"
                        ) from error


def open_file(path, kinds):
    """Open a file of pyggml.

    Raises
    ------
    FileFormatError
        Another program's file, a newer format, or another kind of file.
    """
    container = Container(path)
    try:
        number = container.get("pyggml.format")
        if number is None:
            container.fail("a GGUF file, but not one of pyggml: it has no key pyggml.format")
        if not isinstance(number, int) or not 1 <= number <= FORMAT:
            container.fail(f"written in format {number!r} by pyggml "
                           f"{container.get('pyggml.version')}; this is pyggml {_config.VERSION},"
                           f" which reads up to format {FORMAT}")
        kind = container.get("pyggml.kind")
        if kind not in kinds:
            hint = ("; make the model and call its load_weights" if kind == "weights" else "")
            container.fail(f"holds a {kind!r}, but {' or '.join(map(repr, kinds))} was asked for"
                           + hint)
    except BaseException:
        container.close()
        raise
    return container


def stored_weights(container):
    """Return the list of Stored of a file."""
    records = loads(container, "pyggml.weights", [])
    if not isinstance(records, list):
        container.fail("damaged: pyggml.weights is not a list")
    return [Stored(container, item) for item in records]


_broken = (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError,
           ArithmeticError, NotImplementedError)


def build(container, custom_objects, compiled):
    """Make the model of a file, with undefined weights.

    Returns
    -------
    tuple
        The model, and a list of (Variable, Stored).
    """
    found = stored_weights(container)
    config = loads(container, "pyggml.model")
    if config is None:
        container.fail(container.get("pyggml.model_error")
                       or "damaged: it has no architecture (pyggml.model)")
    budget = sum(item.size for item in found)
    with _serialize.custom(custom_objects):
        try:
            with _loading.from_file(budget):
                model = _serialize.deserialize(config, "model")
            names = model.weight_names
        except _broken as error:
            raise FileFormatError(container.path,
                                  f"its model cannot be built: {error}") from error
        wrong = compare([(n, v.shape) for v, n in names.items()],
                        [(s.name, s.shape) for s in found])
        if wrong:
            container.fail("its weights do not fit its own architecture: " + "; ".join(wrong))
        by_name = {s.name: s for s in found}
        pairs = [(v, by_name[name]) for v, name in names.items()]
        try:
            _set_statistics(model, loads(container, "pyggml.statistics", []))
        except ValueError as error:
            container.fail(f"damaged: {error}")
        for v, s in pairs:
            v.trainable = bool(s.about.get("trainable", v.trainable))
        arguments = loads(container, "pyggml.compile")
        if compiled and arguments is not None:
            try:
                model.compile(
                    optimizer=_serialize.deserialize(arguments["optimizer"], "optimizer"),
                    loss=_serialize.deserialize(arguments["loss"], "loss"),
                    loss_weights=_serialize.deserialize(arguments["loss_weights"]),
                    metrics=_serialize.deserialize(arguments["metrics"], "metric"))
            except _broken as error:
                raise FileFormatError(
                    container.path, f"its model cannot be compiled: {error}; compile=False "
                    "loads it without") from error
    return model, pairs


def compare(wanted, given):
    """Return what differs between two lists of (name, shape), as a list of sentences."""
    wanted_by, given_by = dict(wanted), dict(given)
    wrong = []
    for name, shape in wanted_by.items():
        if name not in given_by:
            wrong.append(f"{name!r} of shape {shape} is not in the file")
        elif given_by[name] != shape:
            wrong.append(f"{name!r} has shape {shape}, in the file {given_by[name]}")
    wrong += [f"the file has {name!r} of shape {shape}, the model does not"
              for name, shape in given_by.items() if name not in wanted_by]
    return wrong


# ---- what users call ----------------------------------------------------------------------

def save_model(model, path, quantize=None, include_optimizer=True, keep=1):
    """Save a model as one GGUF file; see :meth:`pyggml.Model.save`.

    Parameters
    ----------
    model : Model
    path : str or path-like
    quantize : {None, "f16", "bf16", "q8_0", "q4_K"}
    include_optimizer, keep
        As for :meth:`pyggml.Model.save`.

    Raises
    ------
    ValueError
        An unknown ``quantize``.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import saving
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> saving.save_model(model, "model.gguf")
    >>> pyggml.load_model("model.gguf").count_params()
    3
    """
    if quantize is not None and quantize not in _quantised:
        raise ValueError(f"quantize must be None or one of {', '.join(_quantised)}, got "
                         f"{quantize!r}")
    keep = positive_int(keep, "keep")
    metadata = base_metadata("model", model) | architecture(model)
    names, tensors = Names(), []
    weights = [] if model._program is None else weight_records(model, names, tensors,
                                                               wanted=quantize)
    metadata["pyggml.weights"] = dumps(weights)
    if quantize is not None:
        metadata["pyggml.quantize"] = quantize
        metadata["general.quantization_version"] = 2
    arguments = compile_arguments(model)
    if arguments is not None:
        metadata["pyggml.compile"] = dumps(arguments)
    with contextlib.nullcontext() if model._program is None else model._predictor.lock:
        state = None
        if include_optimizer and quantize is None and model.compiled is not None:
            state = model.compiled.training_state
            if model.compiled.trainer is not None:
                state = model.compiled.trainer._get_state()
        if state is not None:
            from pyggml import checkpoints

            metadata["pyggml.training"] = dumps(
                checkpoints.training_record(state, names, tensors))
        write(path, metadata, tensors, keep)


def load_model(path: str | PathLike[str], custom_objects: Mapping[str, Any] | None = None,
               compile: bool = True) -> Model:
    """Load a model from a file of :meth:`Model.save` or of a checkpoint.

    Nothing random is drawn, and quantised weights become float32.

    Parameters
    ----------
    path : str or path-like
    custom_objects : dict of str to (type or callable), optional
        Your own layers, losses and functions by their names.
    compile : bool
        Whether to compile the model as it was, and take over the optimizer's state, so that
        ``fit`` goes on where it was.

    Returns
    -------
    Sequential or Model

    Raises
    ------
    OSError
        The file cannot be read.
    FileFormatError
        A ``ValueError`` with the path and the reason: damaged, cut short, no file of pyggml,
        a file that holds only weights, or a name that is not known.

    Examples
    --------
    >>> import os, tempfile
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.gguf"))
    ...     again = pyggml.load_model(os.path.join(folder, "model.gguf"))
    >>> bool((again.get_weights()[0] == model.get_weights()[0]).all())
    True
    """
    with open_file(path, ("model", "checkpoint")) as container:
        model, pairs = build(container, custom_objects, compile)
        state = None
        if compile and model.compiled is not None:
            from pyggml import checkpoints

            state = checkpoints.stored_training(container)
        if state is not None:
            pairs = pairs + checkpoints.detach(state)
        filling(container, pairs, fresh=True)()
        if state is not None:
            model.compiled.training_state = state
    return model


def save_weights(model, path, keep=1):
    """Save the weights of a model without its architecture; see :meth:`Model.save_weights`.

    Parameters
    ----------
    model : Model
    path : str or path-like
    keep : int
        How many older files stay, as ``<path>.1`` and so on.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import saving
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> saving.save_weights(model, "weights.gguf")
    """
    model.require_built()
    keep = positive_int(keep, "keep")
    names, tensors = Names(), []
    records = weight_records(model, names, tensors)
    metadata = base_metadata("weights", model) | {"pyggml.weights": dumps(records)}
    with model._predictor.lock:
        write(path, metadata, tensors, keep)


def load_weights(model, path, by_name=False, skip_mismatch=False):
    """Load weights into a model; see :meth:`Model.load_weights`.

    Parameters
    ----------
    model : Model
    path : str or path-like
    by_name, skip_mismatch : bool
        As for :meth:`pyggml.Model.load_weights`.

    Returns
    -------
    list of str, or None

    Raises
    ------
    ValueError
        The file does not fit the model, or ``skip_mismatch`` without ``by_name``.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import saving
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> saving.save_weights(model, "weights.gguf")
    >>> loaded = saving.load_weights(model, "weights.gguf")
    """
    model.require_built()
    if skip_mismatch and not by_name:
        raise ValueError("skip_mismatch needs by_name=True")
    with open_file(path, ("model", "weights", "checkpoint")) as container:
        found = stored_weights(container)
        names = model.weight_names
        if by_name:
            wrong = compare([(n, v.shape) for v, n in names.items()],
                            [(s.name, s.shape) for s in found])
            by = {s.name: s for s in found}
            pairs = [(v, by[n]) for v, n in names.items() if n in by and by[n].shape == v.shape]
        else:
            wrong, pairs = _in_order(model, names, found), None
        if wrong and not skip_mismatch:
            shown = wrong[:20] + ([f"and {len(wrong) - 20} more"] if len(wrong) > 20 else [])
            container.fail(f"its weights do not fit model {model.name!r}: " + "; ".join(shown))
        if pairs is None:
            pairs = list(zip(names, found, strict=True))
        with model._predictor.lock:
            filling(container, pairs, fresh=False)()
    loaded = {v for v, _ in pairs}
    return [n for v, n in names.items() if v not in loaded]


def _in_order(model, names, found):
    """Compare what layers are, what they call their weights, and shapes; not layers' names."""
    owner = _owners(model)
    wrong = []
    if len(names) != len(found):
        wrong.append(f"the model has {len(names)} weights, the file {len(found)}")
    for (v, name), s in zip(names.items(), found, strict=False):
        mine = (owner[v], v.name, v.shape)
        theirs = (s.about.get("layer"), s.about.get("weight"), s.shape)
        if mine != theirs:
            wrong.append(f"{name!r} is the {mine[1]} of a {mine[0]} with shape {mine[2]}, in the "
                         f"file {s.name!r} is the {theirs[1]} of a {theirs[0]} with shape "
                         f"{theirs[2]}")
    return wrong
