"""Constructor arguments that graphs are made with, and that cannot change behind their backs."""

import inspect


def settings(cls):
    """Return the names of the arguments of a class's constructors, as far as they are settings."""
    found = set()
    for base in cls.__mro__[:-1]:
        if "__init__" in vars(base):
            found.update(inspect.signature(base.__init__).parameters)
    return found - {"self", "name", "trainable"}


class Settled:
    """A base of objects that graphs are made from.

    Once :meth:`settle` was called, what the constructor was given stays: graphs that exist would
    go on with an old value, and later ones would have the new one.
    """

    __slots__ = ("_is_settled",)  # not among what ``vars`` tells

    def __setattr__(self, name, value):
        if getattr(self, "_is_settled", False):
            known = vars(self)
            if name in known and value is not known[name] and name in settings(type(self)):
                raise AttributeError(
                    f"{name} of {self._whose()} cannot be changed from {known[name]!r} to "
                    f"{value!r}: it is in use; make a new one")
        super().__setattr__(name, value)

    def settle(self):
        """Forbid changes from now on."""
        object.__setattr__(self, "_is_settled", True)

    def __reduce_ex__(self, protocol):
        return super().__reduce_ex__(max(protocol, 2))  # earlier ones take no slots

    def _whose(self):
        return repr(self)
