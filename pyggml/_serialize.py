"""Objects as what JSON can hold, and back.

An object with ``get_config`` becomes ``{"class_name": ..., "config": ...}``, a function
``{"class_name": "function", "config": <its name>}``. Names are looked up in the caller's
``custom_objects``, then among what :func:`register` was given, then in pyggml.
"""

import contextlib
import contextvars
import importlib
import math
from types import FunctionType

import numpy as np

_modules = {
    "layer": "pyggml.layers", "activation": "pyggml.activations",
    "initializer": "pyggml.initializers", "regularizer": "pyggml.regularizers",
    "constraint": "pyggml.constraints", "loss": "pyggml.losses", "metric": "pyggml.metrics",
    "optimizer": "pyggml.optimizers", "schedule": "pyggml.schedules",
    "model": "pyggml.models",
}
_registered: dict[str, object] = {}
_custom = contextvars.ContextVar("pyggml_custom_objects", default=None)


def register(item):
    """Make a class or function of yours known to :func:`pyggml.load_model`; a decorator.

    Parameters
    ----------
    item : type or callable
        A class with ``get_config``, or a function; known by its ``__name__`` from now on.

    Returns
    -------
    type or callable
        The same.

    Raises
    ------
    ValueError
        Something else is registered under this name.

    Examples
    --------
    >>> from pyggml import saving
    >>> @saving.register
    ... def shifted_relu(x):
    ...     return pyggml.ops.relu(x)
    """
    name = _name(item)
    known = _registered.setdefault(name, item)
    if known is not item and (known.__module__, known.__qualname__) != (
            item.__module__, item.__qualname__):
        raise ValueError(f"{name!r} is registered for another object already")
    _registered[name] = item
    return item


def _name(item):
    name = getattr(item, "__name__", None)
    if name is None or not name.isidentifier():
        raise TypeError(f"{item!r} has no name to be found by; write it with def or class")
    return name


@contextlib.contextmanager
def custom(objects):
    """Look names up in a dict first, inside the block."""
    if objects is not None and not isinstance(objects, dict):
        raise TypeError(f"custom_objects must be a dict of names to classes and functions, got "
                        f"{type(objects).__name__}")
    token = _custom.set({**(_custom.get() or {}), **(objects or {})})
    try:
        yield
    finally:
        _custom.reset(token)


def serialize(value):
    """Return what JSON can hold for a value of a configuration.

    Raises
    ------
    TypeError
        It holds something that has neither ``get_config`` nor a name.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return serialize(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else {"class_name": "float", "config": repr(value)}
    if isinstance(value, (list, tuple)):
        return [serialize(item) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"keys must be strings to be saved, got {key!r}")
        return {key: serialize(item) for key, item in value.items()}
    if isinstance(value, type):
        return {"class_name": "class", "config": _name(value)}
    if hasattr(value, "get_config"):
        # __class__ and not type(): a trainer may hold its model by a weak proxy.
        return {"class_name": value.__class__.__name__, "config": serialize(value.get_config())}
    if callable(value) and hasattr(value, "__name__"):
        return {"class_name": "function", "config": _name(value)}
    raise TypeError(f"{value!r} cannot be saved: {type(value).__name__} has no get_config")


def _is_object(value):
    return isinstance(value, dict) and set(value) == {"class_name", "config"}


def find(name, kind=None):
    """Return the class or function of a name.

    Raises
    ------
    ValueError
        There is none.
    """
    for table in (_custom.get() or {}, _registered):
        if name in table:
            return table[name]
    order = ([kind] if kind is not None else []) + [k for k in _modules if k != kind]
    for key in order:
        try:
            module = importlib.import_module(_modules[key])
        except ModuleNotFoundError as error:
            if error.name != _modules[key]:
                raise
            continue
        found = getattr(module, name, None) if not name.startswith("_") else None
        if isinstance(found, type) and hasattr(found, "get_config"):
            return found
        if isinstance(found, FunctionType) and key in ("activation", "regularizer"):
            return found
    raise ValueError(f"{name!r} is not known; pass custom_objects={{{name!r}: ...}}")


def deserialize(value, kind=None):
    """Return the value for what :func:`serialize` gave.

    Parameters
    ----------
    value : object
        From JSON.
    kind : str, optional
        Where to look first: losses and metrics share names.
    """
    if isinstance(value, list):
        return [deserialize(item, kind) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_object(value):
        return {key: deserialize(item, kind) for key, item in value.items()}
    name, config = value["class_name"], value["config"]
    if not isinstance(name, str):
        raise ValueError(f"class_name must be a string, got {name!r}")
    if name == "float":
        return float(config)
    if name in ("function", "class"):
        return find(config, kind)
    if not isinstance(config, dict):
        raise ValueError(f"the config of {name!r} must be a dict, got {type(config).__name__}")
    cls = find(name, kind)
    config = {key: deserialize(item) for key, item in config.items()}
    return cls.from_config(config) if hasattr(cls, "from_config") else cls(**config)


# ---- models -------------------------------------------------------------------------------

def sequential_config(model):
    """Return the configuration of a Sequential, built or not."""
    stack = [] if model._input is None else [model._input]
    return {"name": model.name, "layers": [serialize(layer) for layer in stack + model._stack]}


def model_config(model):
    """Return the configuration of a functional model: layers, and who calls whom."""
    from pyggml import _wiring

    flat = _wiring.flatten(model.program)
    calls = [{"layer": index, "inputs": inputs, "nested": bool(nested),
              "arguments": serialize(arguments)}
             for index, inputs, nested, arguments, _, _ in flat["calls"]]
    return {"name": model.name, "layers": [serialize(layer) for layer in flat["layers"]],
            "calls": calls, "n_inputs": flat["n_inputs"], "outputs": flat["outputs"],
            "output_names": list(model.program.output_names)}


def sequential_from_config(cls, config):
    """Return the model for :func:`sequential_config`."""
    return cls(deserialize(config["layers"], "layer"), name=config["name"])


def model_from_config(cls, config):
    """Return the model for :func:`model_config`; the calls are made anew."""
    from pyggml.layers.base import Layer

    layers = deserialize(config["layers"], "layer")
    n = config["n_inputs"]
    symbols = [layer.symbol for layer in layers[:n]]
    for call in config["calls"]:
        inputs = [symbols[i] for i in call["inputs"]]
        # The base's call: what layers' own calls make of their arguments is what was recorded.
        result = Layer.__call__(layers[call["layer"]], inputs if call["nested"] else inputs[0],
                                **deserialize(call["arguments"]))
        symbols += result if isinstance(result, list) else [result]
    names, outputs = config["output_names"], [symbols[i] for i in config["outputs"]]
    if len(names) != len(outputs) or len(set(names)) != len(names):
        raise ValueError(f"output names {names} do not fit {len(outputs)} outputs")
    return cls(symbols[:n], dict(zip(names, outputs, strict=True)), name=config["name"])
