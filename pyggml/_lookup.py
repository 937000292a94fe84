"""Objects by name, as ``compile`` and the layers take them."""


def lookup(identifier, table, what, base=None):
    """Return what ``identifier`` names or is.

    Parameters
    ----------
    identifier : str or object
    table : dict of str to object
    what : str
        For the message.
    base : type, optional
        What an object that is not named must be an instance of; else it must be callable.

    Raises
    ------
    ValueError
        An unknown name; the message lists the known ones.
    TypeError
        Neither a name nor a fitting object.
    """
    if isinstance(identifier, str):
        if identifier not in table:
            raise ValueError(
                f"unknown {what} {identifier!r}; known are {', '.join(sorted(table))}")
        return table[identifier]
    if isinstance(identifier, base) if base is not None else callable(identifier):
        return identifier
    wanted = f"a {base.__name__}" if base is not None else "callable"
    raise TypeError(f"{what} must be a name or {wanted}, got {type(identifier).__name__}")
