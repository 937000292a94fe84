"""Checks of numbers from users, which name the argument before C takes them."""


def integer(value, name):
    """Return value as an int below 2**62 in size; TypeError and ValueError name it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    try:
        value = value.__index__()
    except TypeError:  # an array of several
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if not -(1 << 62) < value < 1 << 62:
        raise ValueError(f"{name} must be below 2**62 in size, got {value}")
    return value


def integers(values, name, n=None):
    """Return a sequence of n integers as a tuple, or raise as :func:`integer` does."""
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a sequence of integers, got {values!r}")
    found = tuple([integer(value, name) for value in values])
    if n is not None and len(found) != n:
        raise ValueError(f"{name} must have {n} entries, got {found}")
    return found


def number(value, name):
    """Return value as a float, or raise TypeError that names it."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {value!r}") from None
