"""States of callbacks, random generators and loops as JSON, with arrays as tensors beside it."""

import math

import numpy as np

from pyggml._container import FileFormatError

_key = "$"
_kinds = {"f4": "f32", "f2": "f16", "f8": "f64", "i1": "i8", "i2": "i16", "i4": "i32",
          "i8": "i64"}
_carriers = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}


def get_state(item, name):
    """Return the state of an object.

    Parameters
    ----------
    item : numpy.random.Generator, numpy.random.RandomState, or object with ``get_state``
        and ``set_state``.
    name : str
        For the message.
    """
    if isinstance(item, np.random.Generator):
        return item.bit_generator.state
    if isinstance(item, np.random.RandomState):
        return item.get_state(legacy=False)
    if hasattr(item, "get_state") and hasattr(item, "set_state"):
        return item.get_state()
    raise TypeError(f"objects[{name!r}] must be a NumPy generator or have get_state and set_state, "
                    f"got {type(item).__name__}")


def check_generator(generator, state):
    """See whether a NumPy generator takes a state: its setter may fail half-way.

    Raises
    ------
    ValueError
        It is no state of this kind of generator.
    """
    try:
        type(generator.bit_generator)(0).state = state
    except (TypeError, ValueError, KeyError, OverflowError, IndexError) as error:
        raise ValueError(f"no state of a {type(generator.bit_generator).__name__}: {error!r}"
                         ) from error


def set_state(item, state, name):
    """Set what :func:`get_state` returned."""
    if isinstance(item, np.random.Generator):
        check_generator(item, state)
        item.bit_generator.state = state
    elif hasattr(item, "set_state"):
        item.set_state(state)
    else:
        raise TypeError(f"objects[{name!r}] must be a NumPy generator or have get_state and "
                        f"set_state, got {type(item).__name__}")


class Encoder:
    """Turns values into JSON and collects arrays.

    Parameters
    ----------
    names : Names
    tensors : list
        As :func:`pyggml._container.write` takes them.
    """

    def __init__(self, names, tensors):
        self.names = names
        self.tensors = tensors

    def encode(self, value, where):
        """Return what JSON can hold.

        Parameters
        ----------
        value : object
            None, numbers, strings, bytes, NumPy scalars and arrays of real numbers, and lists,
            tuples and dicts of them.
        where : str
            For tensor names and messages.

        Raises
        ------
        TypeError
            Anything else.
        """
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, np.generic):
            if value.dtype.kind not in "fiub":
                raise TypeError(f"{where} of dtype {value.dtype} cannot be saved")
            return {_key: "scalar", "dtype": value.dtype.str, "hex": value.tobytes().hex()}
        if isinstance(value, float):
            return value if math.isfinite(value) else {_key: "float", "value": repr(value)}
        if isinstance(value, bytes):
            return {_key: "bytes", "hex": value.hex()}
        if isinstance(value, list):
            return [self.encode(item, f"{where}/{i}") for i, item in enumerate(value)]
        if isinstance(value, tuple):
            return {_key: "tuple", "items": self.encode(list(value), where)}
        if isinstance(value, dict):
            if _key not in value and all(isinstance(key, str) for key in value):
                return {key: self.encode(item, f"{where}/{key}") for key, item in value.items()}
            return {_key: "dict", "items": [
                [self.encode(k, f"{where}/{k}"), self.encode(v, f"{where}/{k}")]
                for k, v in value.items()]}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        raise TypeError(f"{where} is a {type(value).__name__}, which cannot be saved")

    def _array(self, value, where):
        dtype = value.dtype
        if dtype.kind not in "fiub" or dtype.itemsize not in _carriers:
            raise TypeError(f"{where} is an array of dtype {dtype}, which cannot be saved")
        about = {_key: "array", "dtype": dtype.newbyteorder("<").str, "shape": list(value.shape)}
        if value.size == 0:
            return about
        data = np.array(value, dtype.newbyteorder("<"), order="C").reshape(-1)
        code = f"{dtype.kind}{dtype.itemsize}"
        if code not in _kinds:  # ggml has no unsigned types: the same bytes as signed ones
            code = _carriers[dtype.itemsize]
            data = data.view("<" + code)
        about["tensor"] = self.names.give(where)
        self.tensors.append((about["tensor"], data.shape, _kinds[code], lambda: data))
        return about


def decode(value, container):
    """Return the value for what :class:`Encoder` made.

    Raises
    ------
    FileFormatError
        It is not what an encoder makes.
    """
    try:
        return _decode(value, container)
    except FileFormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        return container.fail(f"damaged: a saved state cannot be read: {error!r}")


def _decode(value, container):
    if isinstance(value, list):
        return [_decode(item, container) for item in value]
    if not isinstance(value, dict):
        return value
    if _key not in value:
        return {key: _decode(item, container) for key, item in value.items()}
    kind = value[_key]
    if kind == "float":
        return float(value["value"])
    if kind == "bytes":
        return bytes.fromhex(value["hex"])
    if kind == "tuple":
        return tuple(_decode(value["items"], container))
    if kind == "dict":
        return {_decode(k, container): _decode(v, container) for k, v in value["items"]}
    if kind not in ("scalar", "array"):
        raise ValueError(f"unknown kind {kind!r}")
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "fiub":
        raise ValueError(f"dtype {dtype}")
    if kind == "scalar":
        return np.frombuffer(bytes.fromhex(value["hex"]), dtype)[0]
    if "tensor" in value:
        return container.read(value["tensor"]).view(dtype).reshape(value["shape"])
    if 0 not in value["shape"]:
        raise ValueError("an array without data")
    return np.empty(value["shape"], dtype)
