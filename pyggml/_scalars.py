"""Checks of arguments that are single numbers."""


def integer(value, name):
    """Return value as an int, or raise TypeError that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return value.__index__()


def number(value, name):
    """Return value as a float, or raise TypeError that names it."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {value!r}") from None
