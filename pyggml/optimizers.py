"""Optimizers: what moves the weights, and by how much."""

import math

from pyggml._lookup import lookup


def _rate(value, name):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            value = float(value.__float__())
        except (AttributeError, TypeError):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}") from None
    value = float(value)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value


def _within(value, name, low, high, open_high=False):
    value = float(value)
    if not (low <= value < high if open_high else low <= value <= high):
        raise ValueError(f"{name} must be in [{low}, {high}{')' if open_high else ']'}, "
                         f"got {value}")
    return value


class Optimizer:
    """Base of all optimizers: holds arguments; the state lives in the trainer.

    Parameters
    ----------
    learning_rate : float or callable
        Finite and not negative; or a schedule, such as those of :mod:`pyggml.schedules`, that
        returns the rate for the number of updates done.
    weight_decay : float
        In [0, 1]. Decoupled: before each step weights are multiplied by
        ``1 - learning_rate * weight_decay`` (Loshchilov and Hutter, "Decoupled weight decay
        regularization", 2019).
    """

    rule = ""
    n_slots = 0

    def __init__(self, learning_rate=1e-3, weight_decay=0.0):
        self.learning_rate = learning_rate
        self.weight_decay = _within(weight_decay, "weight_decay", 0, 1)

    @property
    def learning_rate(self):
        """The rate of the next update; setting it takes effect at the next step.

        Setting a number ends a schedule.
        """
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        if callable(value):
            self._learning_rate = _rate(value(0), "learning_rate")
            self._schedule = value
        else:
            self._learning_rate = _rate(value, "learning_rate")
            self._schedule = None

    @property
    def schedule(self):
        """What gives the rate by the number of updates, or None."""
        return self._schedule

    def follow_schedule(self, updates):
        """Take the rate for the next update from the schedule, if there is one."""
        if self._schedule is not None:
            self._learning_rate = _rate(self._schedule(updates), "learning_rate")

    def params(self, weight_decay, t):
        """Return what the step rule reads at update number t, counted from 1."""
        raise NotImplementedError(f"{type(self).__name__}.params")

    def get_config(self):
        """Return the arguments of the constructor."""
        config = {key.lstrip("_"): value for key, value in vars(self).items()}
        schedule = config.pop("schedule")
        return config if schedule is None else config | {"learning_rate": schedule}

    def __repr__(self):
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class Adam(Optimizer):
    """Adam, Kingma and Ba (2015), algorithm 1.

    Parameters
    ----------
    learning_rate : float
    beta_1, beta_2 : float
        In [0, 1).
    epsilon : float
        Added to the root of the corrected second moment.
    weight_decay : float
        Decoupled, in [0, 1].

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.Adam(3e-4).learning_rate
    0.0003
    """

    rule = "adamw"
    n_slots = 2

    def __init__(self, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-8,
                 weight_decay=0.0):
        super().__init__(learning_rate, weight_decay)
        self.beta_1 = _within(beta_1, "beta_1", 0, 1, open_high=True)
        self.beta_2 = _within(beta_2, "beta_2", 0, 1, open_high=True)
        self.epsilon = _rate(epsilon, "epsilon")

    def params(self, weight_decay, t):
        return (self._learning_rate, self.beta_1, self.beta_2, self.epsilon, weight_decay,
                1 / (1 - self.beta_1**t), 1 / (1 - self.beta_2**t))


class AdamW(Adam):
    """Adam under the name that says that its weight decay is decoupled.

    Parameters
    ----------
    learning_rate, beta_1, beta_2, epsilon, weight_decay : float
        As for :class:`Adam`.
    """


class SGD(Optimizer):
    """Gradient descent: ``w -= learning_rate * gradient``.

    Parameters
    ----------
    learning_rate : float
    weight_decay : float
        Decoupled, in [0, 1].
    """

    rule = "sgd"

    def params(self, weight_decay, t):
        return (self._learning_rate, weight_decay)


_classes = {"adam": Adam, "adamw": AdamW, "sgd": SGD}


def get(identifier):
    """Return an optimizer by name or the object itself.

    Parameters
    ----------
    identifier : str or Optimizer

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.get("sgd").learning_rate
    0.001
    """
    found = lookup(identifier, _classes, "optimizer", Optimizer)
    return found() if isinstance(found, type) else found
