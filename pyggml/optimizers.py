"""Optimizers: what moves the weights, and by how much."""

import functools
import math

import numpy as np

from pyggml._lookup import lookup
from pyggml._scalars import number


def _rate(value, name):
    value = number(value, name)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value


def _within(value, name, low, high, open_high=False):
    value = number(value, name)
    if not (low <= value < high if open_high else low <= value <= high):
        raise ValueError(f"{name} must be in [{low}, {high}{')' if open_high else ']'}, "
                         f"got {value}")
    if open_high and _rounded(value) >= high:
        raise ValueError(f"{name} must be below {high} in single precision, got {value}")
    return value


@functools.lru_cache(maxsize=64)  # asked twice a step
def _rounded(beta):
    """The number that the step rules use, which are in single precision."""
    return float(np.float32(beta))


def _limit(value, name):
    if value is None:
        return None
    value = _rate(value, name)
    if value == 0:
        raise ValueError(f"{name} must be positive, got {value}")
    return value


class Optimizer:
    """Base of all optimizers: holds arguments; the state lives in the trainer.

    Parameters
    ----------
    learning_rate : float or callable
        Finite and not negative; at 0 weights stay as they are, bit for bit. Or a schedule, such
        as those of :mod:`pyggml.schedules`, that returns the rate for the number of updates done.
    weight_decay : float
        In [0, 1]. Decoupled: at each step weights are multiplied by
        ``1 - learning_rate * weight_decay`` (Loshchilov and Hutter, "Decoupled weight decay
        regularization", 2019). Frozen weights are not decayed.
    clipnorm, clipvalue, global_clipnorm : float, optional
        Positive; at most one of them. Before the step the gradient of each weight is scaled down
        to this norm, each element of a gradient is limited to this size, or all gradients
        together are scaled down to this norm. Norms are summed in double.
    decay_biases : bool
        Whether weight decay applies to biases and scales too: weights with fewer than two axes,
        and those called bias. A weight made with ``decay=False`` is never decayed.

    Attributes
    ----------
    rule : str
        Name of the step rule.
    n_slots : int
        How many arrays of state there are for each weight.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.SGD(0.1, weight_decay=0.01, decay_biases=False).decay_biases
    False
    """

    rule = ""
    n_slots = 0
    # What decides which state there is, and what it is read by.
    _shaping: tuple[str, ...] = ("decay_biases",)

    def __setattr__(self, name, value):
        if name in self._shaping and bool(vars(self).get(name, value)) != bool(value):
            raise ValueError(f"{name} cannot be changed from {vars(self)[name]} to {value}: the "
                             "state of a training depends on it; compile with a new optimizer")
        super().__setattr__(name, value)

    def __init__(self, learning_rate=1e-3, weight_decay=0.0, clipnorm=None, clipvalue=None,
                 global_clipnorm=None, decay_biases=True) -> None:
        self.learning_rate = learning_rate
        self.weight_decay = _within(weight_decay, "weight_decay", 0, 1)
        self.clipnorm = _limit(clipnorm, "clipnorm")
        self.clipvalue = _limit(clipvalue, "clipvalue")
        self.global_clipnorm = _limit(global_clipnorm, "global_clipnorm")
        if sum(limit is not None for limit in (clipnorm, clipvalue, global_clipnorm)) > 1:
            raise ValueError("at most one of clipnorm, clipvalue and global_clipnorm may be given")
        self.decay_biases = bool(decay_biases)

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
        """Take the rate for the next update from the schedule, if there is one.

        Parameters
        ----------
        updates : int
            Those done so far.
        """
        if self._schedule is not None:
            self._learning_rate = _rate(self._schedule(updates), "learning_rate")

    @property
    def clipping(self):
        """What is clipped, None, "value", "norm" or "global", and the limit."""
        if self.clipvalue is not None:
            return "value", self.clipvalue
        if self.clipnorm is not None:
            return "norm", self.clipnorm
        if self.global_clipnorm is not None:
            return "global", self.global_clipnorm
        return None, 0.0

    def params(self, weight_decay, t):
        """Return what the step rule reads at update number t, counted from 1.

        The first two are the learning rate and the weight decay; there are at most seven.

        Parameters
        ----------
        weight_decay : float
        t : int

        Returns
        -------
        tuple of float
        """
        raise NotImplementedError(f"{type(self).__name__}.params")

    def get_config(self):
        """Return the arguments of the constructor."""
        config = {key.lstrip("_"): value for key, value in vars(self).items()}
        schedule = config.pop("schedule")
        return config if schedule is None else config | {"learning_rate": schedule}

    @classmethod
    def from_config(cls, config):
        """Make an optimizer from :meth:`get_config`'s dict.

        Parameters
        ----------
        config : dict

        Returns
        -------
        Optimizer
        """
        return cls(**config)

    def __repr__(self):
        # What is not asked for is not worth a word.
        shown = {k: v for k, v in self.get_config().items()
                 if v is not None and (k, v) != ("decay_biases", True)}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


class Adam(Optimizer):
    """Adam, Kingma and Ba (2015), algorithm 1.

    Parameters
    ----------
    learning_rate : float
    beta_1, beta_2 : float
        In [0, 1).
    epsilon : float
        Added to the root of the corrected second moment, as in the paper and in PyTorch. Keras
        adds it to the root of the moment before the correction, by which its epsilon has the
        effect of a larger one here: of ``epsilon / sqrt(1 - beta_2**t)`` at update t.
    weight_decay : float
        Decoupled, in [0, 1].
    **kwargs
        ``clipnorm``, ``clipvalue``, ``global_clipnorm``, ``decay_biases`` as for
        :class:`Optimizer`.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.Adam(3e-4).learning_rate
    0.0003
    """

    rule = "adamw"
    n_slots = 2

    def __init__(self, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-8, *,
                 weight_decay=0.0, **kwargs) -> None:
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.beta_1 = _within(beta_1, "beta_1", 0, 1, open_high=True)
        self.beta_2 = _within(beta_2, "beta_2", 0, 1, open_high=True)
        self.epsilon = _rate(epsilon, "epsilon")

    def params(self, weight_decay, t):
        # A beta of 0.999 is rounded, and 1 less that is 0.001 with an error of 1e-5: corrections by
        # the same number cancel it, at the first step as at the thousandth.
        return (self._learning_rate, self.beta_1, self.beta_2, self.epsilon, weight_decay,
                1 / (1 - _rounded(self.beta_1)**t), 1 / (1 - _rounded(self.beta_2)**t))


class AdamW(Adam):
    """Adam under the name that says that its weight decay is decoupled.

    Parameters
    ----------
    learning_rate, weight_decay, beta_1, beta_2, epsilon : float
        As for :class:`Adam`, in Keras' order; the decay is 0 unless given.
    **kwargs
        As for :class:`Optimizer`.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.AdamW(1e-3, 0.01, decay_biases=False).weight_decay
    0.01
    """

    def __init__(self, learning_rate=1e-3, weight_decay=0.0, beta_1=0.9, beta_2=0.999,
                 epsilon=1e-8, **kwargs) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, weight_decay=weight_decay,
                         **kwargs)


class SGD(Optimizer):
    """Gradient descent: ``w -= learning_rate * gradient``, or with momentum as in Keras:

    ``v = momentum * v - learning_rate * gradient``, then ``w += v``, or with Nesterov's form
    ``w += momentum * v - learning_rate * gradient``. Sutskever et al., "On the importance of
    initialization and momentum in deep learning" (2013).

    Parameters
    ----------
    learning_rate : float
    momentum : float
        In [0, 1).
    nesterov : bool
    weight_decay : float
        Decoupled, in [0, 1].
    **kwargs
        As for :class:`Optimizer`.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.SGD(0.1, momentum=0.9).n_slots
    1
    """

    _shaping = ("decay_biases", "momentum")

    def __init__(self, learning_rate=1e-3, momentum=0.0, nesterov=False, weight_decay=0.0,
                 **kwargs) -> None:
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.momentum = _within(momentum, "momentum", 0, 1, open_high=True)
        self.nesterov = bool(nesterov)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")

    @property
    def rule(self):
        return "momentum" if self.momentum else "sgd"

    @property
    def n_slots(self):
        return 1 if self.momentum else 0

    def params(self, weight_decay, t):
        if not self.momentum:
            return (self._learning_rate, weight_decay)
        return (self._learning_rate, weight_decay, self.momentum, self.nesterov)


class RMSprop(Optimizer):
    """RMSprop, Tieleman and Hinton (2012), with Keras' arrangement of its terms.

    The mean square is ``s = rho * s + (1 - rho) * g**2``, from which the square of the mean is
    taken if ``centered`` (Graves, "Generating sequences with recurrent neural networks", 2013);
    the increment is ``b = momentum * b + learning_rate * g / sqrt(s + epsilon)``; ``w -= b``.

    Parameters
    ----------
    learning_rate : float
    rho : float
        In [0, 1).
    momentum : float
        In [0, 1).
    epsilon : float
    centered : bool
    weight_decay : float
        Decoupled, in [0, 1].
    **kwargs
        As for :class:`Optimizer`.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.RMSprop(centered=True, momentum=0.9).n_slots
    3
    """

    rule = "rmsprop"
    _shaping = ("decay_biases", "momentum", "centered")

    def __init__(self, learning_rate=1e-3, rho=0.9, momentum=0.0, epsilon=1e-7, centered=False,
                 weight_decay=0.0, **kwargs) -> None:
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.rho = _within(rho, "rho", 0, 1, open_high=True)
        self.momentum = _within(momentum, "momentum", 0, 1, open_high=True)
        self.epsilon = _rate(epsilon, "epsilon")
        self.centered = bool(centered)

    @property
    def n_slots(self):
        return 1 + (self.momentum > 0) + self.centered

    def params(self, weight_decay, t):
        return (self._learning_rate, weight_decay, 1 - self.rho, self.momentum, self.epsilon,
                self.centered)


class Adagrad(Optimizer):
    """Adagrad: ``s += g**2``, ``w -= learning_rate * g / sqrt(s + epsilon)``.

    Duchi et al., "Adaptive subgradient methods" (2011); epsilon lies inside the root, as in
    Keras.

    Parameters
    ----------
    learning_rate : float
    initial_accumulator_value : float
        What s begins with.
    epsilon : float
    weight_decay : float
        Decoupled, in [0, 1].
    **kwargs
        As for :class:`Optimizer`.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.Adagrad(0.1).initial_accumulator_value
    0.1
    """

    rule = "adagrad"
    n_slots = 1

    def __init__(self, learning_rate=1e-3, initial_accumulator_value=0.1, epsilon=1e-7,
                 weight_decay=0.0, **kwargs) -> None:
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.initial_accumulator_value = _rate(initial_accumulator_value,
                                               "initial_accumulator_value")
        self.epsilon = _rate(epsilon, "epsilon")

    def params(self, weight_decay, t):
        # The state begins with 0, as all states do; what it should begin with is added here.
        return (self._learning_rate, weight_decay, self.epsilon + self.initial_accumulator_value)


class Lion(Optimizer):
    """Lion: ``w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g)``.

    Chen et al., "Symbolic discovery of optimization algorithms" (2023). Its rates are three to
    ten times smaller than Adam's, its decay as much larger.

    Parameters
    ----------
    learning_rate : float
    beta_1, beta_2 : float
        In [0, 1).
    weight_decay : float
        Decoupled, in [0, 1].
    **kwargs
        As for :class:`Optimizer`.

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.Lion(1e-4).beta_2
    0.99
    """

    rule = "lion"
    n_slots = 1

    def __init__(self, learning_rate=1e-3, beta_1=0.9, beta_2=0.99, weight_decay=0.0,
                 **kwargs) -> None:
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.beta_1 = _within(beta_1, "beta_1", 0, 1, open_high=True)
        self.beta_2 = _within(beta_2, "beta_2", 0, 1, open_high=True)

    def params(self, weight_decay, t):
        return (self._learning_rate, weight_decay, 1 - self.beta_1, 1 - self.beta_2)


_classes = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSprop, "adagrad": Adagrad,
            "lion": Lion}


def get(identifier):
    """Return an optimizer by name or the object itself.

    Parameters
    ----------
    identifier : str or Optimizer

    Returns
    -------
    Optimizer

    Examples
    --------
    >>> from pyggml import optimizers
    >>> optimizers.get("sgd").learning_rate
    0.001
    """
    found = lookup(identifier, _classes, "optimizer", Optimizer)
    return found() if isinstance(found, type) else found
