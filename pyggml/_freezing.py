"""Freezing of weights and of batch normalization's statistics, by range, names and prefix."""


class Freezing:
    """The methods of models that freeze layers."""

    def freeze_weights(self, from_=None, to=None, layer_names=None, prefix=None):
        """Keep the weights of layers as they are in training, bit for bit.

        Takes effect for trainers made from now on and at the next ``fit``, which keeps the
        optimizer's state of the other weights. What range, names and prefix mean is frozen
        together; without any of them all layers are.

        Parameters
        ----------
        from_, to : int or str, optional
            Ends of a range of :attr:`layers`, both included, as positions from 0 (negative ones
            count from the end) or names.
        layer_names : str or list of str, optional
            Layers inside other layers too.
        prefix : str, optional
            All layers whose names begin with it.

        Raises
        ------
        ValueError
            No such layer, or ``from_`` after ``to``; nothing is changed then.

        Examples
        --------
        >>> import pyggml
        >>> from pyggml import layers
        >>> model = pyggml.Sequential([
        ...     pyggml.Input((4,)), layers.Dense(8, name="base_1"), layers.Dense(2, name="head")])
        >>> model.freeze_weights(prefix="base_")
        >>> [v.name for v in model.trainable_weights]
        ['kernel', 'bias']
        """
        for layer in select(self, from_, to, layer_names, prefix):
            layer.trainable = False

    def unfreeze_weights(self, from_=None, to=None, layer_names=None, prefix=None):
        """Undo :meth:`freeze_weights`.

        Parameters
        ----------
        from_, to, layer_names, prefix
            As for :meth:`freeze_weights`.
        """
        for layer in select(self, from_, to, layer_names, prefix):
            layer.trainable = True

    def freeze_bn_stats(self, from_=None, to=None, layer_names=None, prefix=None):
        """Let batch normalizations use their running statistics in training too.

        They are neither moved nor recalibrated then. Scales and offsets go on training unless
        they are frozen as well. Takes effect for trainers made from now on and at the next
        ``fit``.

        Parameters
        ----------
        from_, to, layer_names, prefix
            As for :meth:`freeze_weights`.

        Raises
        ------
        ValueError
            As for :meth:`freeze_weights`, or there is no batch normalization among them.
        """
        self._set_bn_stats(True, select(self, from_, to, layer_names, prefix))

    def unfreeze_bn_stats(self, from_=None, to=None, layer_names=None, prefix=None):
        """Undo :meth:`freeze_bn_stats`.

        Parameters
        ----------
        from_, to, layer_names, prefix
            As for :meth:`freeze_weights`.
        """
        self._set_bn_stats(False, select(self, from_, to, layer_names, prefix))

    def _set_bn_stats(self, frozen, layers):
        for layer in with_statistics(layers, self):
            layer.freeze_stats = frozen

    def _training_mode(self):
        return TrainingMode(self.program)


class TrainingMode:
    """What training moves of a program, as it was when this was made.

    A trainer builds all its graphs by the same one: what is frozen later, for another trainer on
    the same layers, goes on training in it.

    Parameters
    ----------
    program : Program

    Attributes
    ----------
    trained : frozenset of Variable
        Those that the optimizer moves.
    fixed : frozenset of Layer
        Those that normalise by their running statistics in training too.
    moving : frozenset of Layer
        Those that may move their running statistics.
    """

    def __init__(self, program):
        keepers = [layer for layer in walk(program.layers) if hasattr(layer, "freeze_stats")]
        self.trained = frozenset(v for v in program.variables if v.trainable)
        self.fixed = frozenset(layer for layer in keepers if layer.freeze_stats)
        self.moving = frozenset(layer for layer in keepers if layer.trainable) - self.fixed

    def __contains__(self, variable):
        return variable in self.trained

    def __eq__(self, other):
        if not isinstance(other, TrainingMode):
            return NotImplemented
        return (self.trained, self.fixed, self.moving) == (other.trained, other.fixed,
                                                           other.moving)

    __hash__ = None  # type: ignore[assignment]


def walk(layers):
    """Yield layers and the layers inside them, each before its own."""
    for layer in layers:
        yield layer
        yield from walk(layer.sublayers)


def select(model, from_, to, layer_names, prefix):
    """Return the layers that a range, names and a prefix mean together; all without any.

    Parameters
    ----------
    model : Model
    from_, to : int or str, optional
        Ends of a range, both included.
    layer_names : str or list of str, optional
    prefix : str, optional

    Raises
    ------
    ValueError
        A range that is none, or a name or prefix that fits no layer.
    """
    if from_ is None and to is None and layer_names is None and prefix is None:
        return list(model.layers)
    chosen = []
    if from_ is not None or to is not None:
        n = len(model.layers)
        first = 0 if from_ is None else _position(model, from_, "from_")
        last = n - 1 if to is None else _position(model, to, "to")
        if first > last:
            raise ValueError(f"from_ must not lie after to, got {from_!r} and {to!r}")
        chosen += model.layers[first:last + 1]
    everything = list(walk(model.layers))
    for name in [layer_names] if isinstance(layer_names, str) else layer_names or ():
        found = [layer for layer in everything if layer.name == name]
        if not found:
            raise ValueError(f"no layer is named {name!r}; the model has "
                             f"{[layer.name for layer in everything]}")
        chosen += found
    if prefix is not None:
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a string, got {type(prefix).__name__}")
        found = [layer for layer in everything if layer.name.startswith(prefix)]
        if not found:
            raise ValueError(f"no layer's name begins with {prefix!r}; the model has "
                             f"{[layer.name for layer in everything]}")
        chosen += found
    if not chosen:
        raise ValueError("layer_names is empty")
    return chosen


def with_statistics(layers, model):
    """Return those layers, or layers inside, that keep running statistics.

    Raises
    ------
    ValueError
        There are none.
    """
    found = [layer for layer in walk(layers) if hasattr(layer, "freeze_stats")]
    if not found:
        raise ValueError(f"no batch normalization among the layers chosen of {model.name!r}")
    return found


def _position(model, end, name):
    names = [layer.name for layer in model.layers]
    if isinstance(end, str):
        if end not in names:
            raise ValueError(f"{name}: no layer is named {end!r}; the model has {names}")
        return names.index(end)
    if isinstance(end, bool) or not hasattr(end, "__index__"):
        raise TypeError(f"{name} must be the number or the name of a layer, got {end!r}")
    i = end.__index__()
    if not -len(names) <= i < len(names):
        raise ValueError(f"{name} must be from {-len(names)} to {len(names) - 1}, got {i}")
    return i % len(names)
