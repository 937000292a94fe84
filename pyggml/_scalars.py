"""Checks of arguments that are single numbers."""


def integer(value, name):
    """Return value as an int, or raise TypeError that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return value.__index__()


def number(value, name):
    """Return value as a float, or raise TypeError that names it."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return float(value)
