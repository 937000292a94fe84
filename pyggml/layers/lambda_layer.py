"""A function as a layer."""

from pyggml.layers.base import Layer


class Lambda(Layer):
    """Apply a function written with :mod:`pyggml.ops`.

    Parameters
    ----------
    function : callable
        Called with a tensor (or a list of them) and ``arguments``; returns a tensor. Models that
        are to be pickled need a named function of a module.
    arguments : dict, optional
        Further arguments for the function, by name.
    name : str, optional

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import ops
    >>> pyggml.layers.Lambda(lambda x: ops.square(x))(pyggml.Input((3,))).shape
    (None, 3)
    """

    def __init__(self, function, arguments=None, **kwargs) -> None:
        super().__init__(**kwargs)
        if not callable(function):
            raise TypeError(f"function must be callable, got {type(function).__name__}")
        self.function = function
        self.arguments = dict(arguments or {})

    def call(self, x):
        return self.function(x, **self.arguments)

    def get_config(self):
        return super().get_config() | {"function": self.function, "arguments": self.arguments}
