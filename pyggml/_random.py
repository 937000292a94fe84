"""The random stream that weights, shuffles and dropout seeds are drawn from."""

from __future__ import annotations

import numpy as np

# Made when first asked for: a sixth of the time to import pyggml goes into numpy.random.
_stream: dict[str, np.random.Generator] = {}


def set_seed(seed: int) -> None:
    """Make everything random that follows reproducible.

    Parameters
    ----------
    seed : int
        Not negative. Initial weights, shuffles and dropout masks of what is made afterwards
        depend on it, and on the order in which it is made.

    Raises
    ------
    TypeError, ValueError
        ``seed`` is not an integer, or negative.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.set_seed(1)
    """
    _stream["generator"] = new_generator(seed)


def new_generator(seed=None):
    """Return a generator for ``seed``, or one split off the global stream."""
    if seed is None:
        seed = draw_seed()
    if not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be an integer, got {type(seed).__name__}")
    if seed.__index__() < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    return np.random.Generator(np.random.PCG64(seed.__index__()))


def generator():
    """Return the global generator."""
    if "generator" not in _stream:  # set_seed of another thread may come first: it wins
        _stream.setdefault("generator", np.random.Generator(np.random.PCG64()))
    return _stream["generator"]


def draw_seed():
    """Draw a seed from the global stream."""
    return int(generator().integers(1 << 63))
