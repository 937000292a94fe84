"""Learning rates that change as training goes on.

A schedule is a function of a number: of epochs, or of steps with ``by="step"``. It can be used
in three ways. In ``callbacks`` of ``fit`` it sets the rate of the model's optimizer, whichever
that is, starting from ``initial_learning_rate`` or else from the rate that the optimizer has
then. As ``learning_rate`` of an optimizer it is asked before every update, by the number of
updates, in loops of your own too. And it can be called.
"""

import bisect
import inspect
import math

from pyggml._callback import Callback
from pyggml._scalars import number
from pyggml.layers.base import count, positive_int
from pyggml.optimizers import _rate

__all__ = [
    "CosineDecay", "CyclicLR", "ExponentialDecay", "LearningRateScheduler", "OneCycle",
    "PiecewiseConstantDecay", "PolynomialDecay", "Schedule", "StepDecay",
]


def _positive(value, name):
    value = number(value, name)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and positive, got {value}")
    return value


class _RateSetter(Callback):
    """Sets the optimizer's rate at the beginning of every epoch or step."""

    reads_model = False

    def __init__(self, by) -> None:
        super().__init__()
        if by not in ("epoch", "step"):
            raise ValueError(f"by must be 'epoch' or 'step', got {by!r}")
        self.by = by
        self._epoch = 0
        self._steps = None

    @property
    def uses_batches(self):
        """Whether this needs to be called for every batch."""
        return self.by == "step"

    def on_train_begin(self, logs=None):
        self._steps = None

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        if self.by == "epoch":
            self._set(epoch)
        elif self._steps is None:
            # The steps of epochs that were run before, as initial_epoch says.
            size = self.params.get("steps")
            first = self.params.get("initial_epoch", epoch)
            if first and size is None:
                raise ValueError("with initial_epoch a schedule by step needs steps_per_epoch, or "
                                 "a source that knows its length")
            self._steps = first * (size or 0)

    def on_train_batch_begin(self, batch, logs=None):
        if self.by == "step":
            self._set(self._steps)
            self._steps += 1

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["learning_rate"] = self.model.optimizer.learning_rate

    def _set(self, number):
        self.model.optimizer.learning_rate = self.rate_for(number)

    def rate_for(self, number):
        """Return the rate for an epoch or step.

        Parameters
        ----------
        number : int
            Epochs or updates done.
        """
        raise NotImplementedError(f"{type(self).__name__}.rate_for")


class Schedule(_RateSetter):
    """Base of all schedules. Subclasses write :meth:`factor_at` or :meth:`rate_at`.

    Parameters
    ----------
    initial_learning_rate : float, optional
        By default what the optimizer has when training begins. It must be given where the
        schedule is called, or is an optimizer's ``learning_rate``.
    by : {"epoch", "step"}
        What is counted where the schedule is a callback.

    Attributes
    ----------
    base : float or None
        The initial rate. One that an optimizer gave is kept from one ``fit`` to the next, and
        given up where training begins with another optimizer: of another model, or after
        ``compile``.

    Examples
    --------
    >>> from pyggml import schedules
    >>> class Halve(schedules.Schedule):
    ...     def rate_at(self, number, base, period):
    ...         return base / 2**number
    >>> Halve(1.0, by="step")(3)
    0.125
    """

    def __init__(self, initial_learning_rate=None, by="epoch") -> None:
        super().__init__(by)
        self.initial_learning_rate = (
            None if initial_learning_rate is None
            else _rate(initial_learning_rate, "initial_learning_rate"))
        self.base = self.initial_learning_rate
        self._giver = None  # the optimizer whose rate the base is
        self._period = None

    def rate_at(self, number, base, period):
        """Return the rate.

        Parameters
        ----------
        number : int
            Epochs or steps done.
        base : float
            The initial rate.
        period : int or None
            Epochs or steps of the whole run, where that is known.
        """
        raise NotImplementedError(f"{type(self).__name__}.rate_at")

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        first = self.params.get("initial_epoch", 0)
        optimizer = self.model.optimizer
        if self._giver is not None and self._giver is not optimizer and not first:
            self.base = None
        if self.base is None:
            if first:
                raise ValueError(
                    f"{type(self).__name__} does not know the rate that training began with before "
                    f"epoch {first}: give initial_learning_rate, or restore its state")
            self.base, self._giver = optimizer.learning_rate, optimizer
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        self._period = epochs
        if self.by == "step":
            self._period = epochs * steps if epochs and steps else None

    def rate_for(self, number):
        return self.rate_at(number, self.base, self._period)

    def __call__(self, number):
        """Return the rate for a number of epochs or steps done.

        Parameters
        ----------
        number : int
            Updates done.

        Returns
        -------
        float
            The rate.

        Raises
        ------
        ValueError
            The schedule counts epochs, or does not know the rate it begins with.
        """
        if self.base is None:
            raise ValueError(f"{type(self).__name__} needs initial_learning_rate to be called or "
                             "to be an optimizer's learning_rate")
        return self.rate_at(number, self.base, self._period)

    def get_config(self):
        """Return the arguments of the constructor."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    def get_state(self):
        """Return what a resumed run needs."""
        return {"base": self.base, "period": self._period, "steps": self._steps}

    def set_state(self, state):
        """Take over :meth:`get_state`'s value.

        Parameters
        ----------
        state : dict
            What :meth:`get_state` returned.
        """
        self.base, self._giver = state["base"], None
        self._period = state["period"]
        self._steps = state["steps"]

    def __eq__(self, other):
        return type(other) is type(self) and self.get_config() == other.get_config()

    __hash__ = Callback.__hash__

    def __repr__(self):
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class StepDecay(Schedule):
    """``base * gamma ** (n // step_size)``.

    Parameters
    ----------
    step_size : int
    gamma : float
    initial_learning_rate : float, optional
    by : {"epoch", "step"}

    Examples
    --------
    >>> from pyggml import schedules
    >>> decay = schedules.StepDecay(10, 0.5, initial_learning_rate=1.0)
    >>> decay(9), decay(10), decay(25)
    (1.0, 0.5, 0.25)
    """

    def __init__(self, step_size=10, gamma=0.1, initial_learning_rate=None, by="epoch") -> None:
        super().__init__(initial_learning_rate, by)
        self.step_size = positive_int(step_size, "step_size")
        self.gamma = _positive(gamma, "gamma")

    def rate_at(self, number, base, period):
        return base * self.gamma ** (number // self.step_size)


class ExponentialDecay(Schedule):
    """``base * decay_rate ** (n / decay_steps)``.

    Parameters
    ----------
    decay_rate : float
    decay_steps : int
    staircase : bool
        Whether the exponent is rounded down.
    initial_learning_rate : float, optional
    by : {"epoch", "step"}

    Examples
    --------
    >>> from pyggml import schedules
    >>> rate = schedules.ExponentialDecay(0.5, 10, initial_learning_rate=1.0, by="step")
    >>> rate(20)
    0.25
    """

    def __init__(self, decay_rate=0.95, decay_steps=1, staircase=False,
                 initial_learning_rate=None, by="epoch") -> None:
        super().__init__(initial_learning_rate, by)
        self.decay_rate = _positive(decay_rate, "decay_rate")
        self.decay_steps = positive_int(decay_steps, "decay_steps")
        self.staircase = bool(staircase)

    def rate_at(self, number, base, period):
        exponent = number // self.decay_steps if self.staircase else number / self.decay_steps
        return base * self.decay_rate**exponent


class CosineDecay(Schedule):
    """Half a cosine from the base to ``eta_min``, with warm-up and warm restarts if wanted.

    ``eta_min + (base - eta_min) * (1 + cos(pi * t / t_max)) / 2`` of Loshchilov and Hutter,
    "SGDR: stochastic gradient descent with warm restarts" (2017), equation 5.

    Parameters
    ----------
    eta_min : float
    t_max : int, optional
        Length of the first half cosine, without the warm-up; by default the whole run.
    warmup : int
        The rate first rises in so many equal parts from ``warmup_start`` to the base.
    warmup_start : float
        The rate of the first step, or by epoch of the whole first epoch, which at 0 trains
        nothing.
    restarts : bool
        Whether the cosine begins anew at its end; else the rate stays at ``eta_min``.
    t_mult : float
        How much longer every cosine is than the one before; at least 1.
    initial_learning_rate : float, optional
    by : {"epoch", "step"}

    Examples
    --------
    >>> from pyggml import schedules
    >>> rate = schedules.CosineDecay(t_max=100, by="step", initial_learning_rate=1.0)
    >>> round(rate(50), 6)
    0.5
    """

    def __init__(self, eta_min=0.0, t_max=None, warmup=0, warmup_start=0.0, restarts=False,
                 t_mult=1.0, initial_learning_rate=None, by="epoch") -> None:
        super().__init__(initial_learning_rate, by)
        self.eta_min = _rate(eta_min, "eta_min")
        self.t_max = None if t_max is None else positive_int(t_max, "t_max")
        self.warmup = count(warmup, "warmup")
        self.warmup_start = _rate(warmup_start, "warmup_start")
        self.restarts = bool(restarts)
        self.t_mult = number(t_mult, "t_mult")
        if not (math.isfinite(self.t_mult) and self.t_mult >= 1):
            raise ValueError(f"t_mult must be at least 1, got {t_mult}")
        if self.restarts and t_max is None:
            raise ValueError("with restarts t_max must be given")

    def rate_at(self, number, base, period):
        if number < self.warmup:
            return self.warmup_start + (base - self.warmup_start) * number / self.warmup
        t = number - self.warmup
        length = self.t_max
        if length is None:
            if period is None:
                raise ValueError("CosineDecay needs t_max where the length of the run is unknown")
            length = max(1, period - self.warmup)
        if self.restarts and self.t_mult == 1:
            t %= length
        elif self.restarts:
            grows = self.t_mult - 1
            passed = int(math.log1p(t * grows / length) / math.log1p(grows)) - 1
            if passed > 64:  # cycles that hardly grow: not one by one
                more = math.expm1(passed * math.log1p(grows))
                t -= length * more / grows
                length *= 1 + more
            while t >= length:
                t -= length
                length *= self.t_mult
        t = min(t, length)
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / length)) / 2


class PolynomialDecay(Schedule):
    """``(base - end) * (1 - n / decay_steps) ** power + end``.

    Parameters
    ----------
    end_learning_rate : float
    decay_steps : int, optional
        By default the whole run.
    power : float
    cycle : bool
        Whether ``decay_steps`` is extended to its next multiple instead of staying at the end.
    initial_learning_rate : float, optional
    by : {"epoch", "step"}

    Examples
    --------
    >>> from pyggml import schedules
    >>> rate = schedules.PolynomialDecay(0.0, 10, initial_learning_rate=1.0, by="step")
    >>> rate(5)
    0.5
    """

    def __init__(self, end_learning_rate=1e-4, decay_steps=None, power=1.0, cycle=False,
                 initial_learning_rate=None, by="epoch") -> None:
        super().__init__(initial_learning_rate, by)
        self.end_learning_rate = _rate(end_learning_rate, "end_learning_rate")
        self.decay_steps = (None if decay_steps is None
                            else positive_int(decay_steps, "decay_steps"))
        self.power = _positive(power, "power")
        self.cycle = bool(cycle)

    def rate_at(self, number, base, period):
        length = self.decay_steps or period
        if length is None:
            raise ValueError("PolynomialDecay needs decay_steps where the length of the run is "
                             "unknown")
        if self.cycle:
            length *= max(1, math.ceil(number / length))
        left = 1 - min(number, length) / length
        return (base - self.end_learning_rate) * left**self.power + self.end_learning_rate


class PiecewiseConstantDecay(Schedule):
    """One rate up to and with each boundary, another after the last.

    Parameters
    ----------
    boundaries : list of int
        Increasing.
    values : list of float
        One more than boundaries.
    by : {"epoch", "step"}

    Examples
    --------
    >>> from pyggml import schedules
    >>> rate = schedules.PiecewiseConstantDecay([2, 5], [0.1, 0.01, 0.001])
    >>> [rate(n) for n in (0, 2, 3, 6)]
    [0.1, 0.1, 0.01, 0.001]
    """

    def __init__(self, boundaries, values, by="epoch") -> None:
        self.boundaries = [count(b, "boundaries") for b in boundaries]
        self.values = [_rate(v, "values") for v in values]
        if sorted(set(self.boundaries)) != self.boundaries:
            raise ValueError(f"boundaries must increase, got {self.boundaries}")
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(f"values must be one more than the {len(self.boundaries)} boundaries, "
                             f"got {len(self.values)}")
        super().__init__(self.values[0], by)

    def rate_at(self, number, base, period):
        return self.values[bisect.bisect_left(self.boundaries, number)]


class OneCycle(Schedule):
    """Up to ``max_lr`` and down far below the start, of Smith and Topin (2018).

    Parameters
    ----------
    max_lr : float
    total_steps : int, optional
        By default the whole run.
    pct_start : float
        Share of the steps that go up, in (0, 1).
    div_factor : float
        The rate starts at ``max_lr / div_factor``.
    final_div_factor : float
        It ends at the start divided by this.
    anneal : {"cos", "linear"}
    by : {"step", "epoch"}

    Notes
    -----
    After ``total_steps`` the rate stays at its end. Turning points lie at
    ``pct_start * total_steps - 1`` and ``total_steps - 1``.

    Examples
    --------
    >>> from pyggml import schedules
    >>> rate = schedules.OneCycle(1.0, total_steps=100, pct_start=0.5)
    >>> round(rate(0), 6)
    0.04
    """

    def __init__(self, max_lr, total_steps=None, pct_start=0.3, div_factor=25.0,
                 final_div_factor=1e4, anneal="cos", by="step") -> None:
        self.max_lr = _positive(max_lr, "max_lr")
        self.total_steps = None if total_steps is None else positive_int(total_steps,
                                                                         "total_steps")
        self.pct_start = number(pct_start, "pct_start")
        if not 0 < self.pct_start < 1:
            raise ValueError(f"pct_start must be in (0, 1), got {pct_start}")
        self.div_factor = _positive(div_factor, "div_factor")
        self.final_div_factor = _positive(final_div_factor, "final_div_factor")
        if anneal not in ("cos", "linear"):
            raise ValueError(f"anneal must be 'cos' or 'linear', got {anneal!r}")
        self.anneal = anneal
        super().__init__(self.max_lr / self.div_factor, by)

    def rate_at(self, number, base, period):
        total = self.total_steps or period
        if total is None:
            raise ValueError("OneCycle needs total_steps where the length of the run is unknown")
        up = self.pct_start * total - 1
        down = total - 1
        end = base / self.final_div_factor
        if number <= up:
            return self._between(base, self.max_lr, number / up if up > 0 else 1.0)
        return self._between(self.max_lr, end,
                             min(1.0, (number - up) / (down - up) if down > up else 1.0))

    def _between(self, first, last, share):
        if self.anneal == "cos":
            share = (1 - math.cos(math.pi * share)) / 2
        return first + (last - first) * share


class CyclicLR(Schedule):
    """Up and down between two rates, of Smith, "Cyclical learning rates" (2017).

    Parameters
    ----------
    max_lr : float
    step_size : int
        Half a cycle.
    mode : {"triangular", "triangular2", "exp_range"}
        The amplitude stays, is halved every cycle, or falls as ``gamma ** n``.
    gamma : float
        For "exp_range".
    initial_learning_rate : float, optional
        The lower rate.
    by : {"step", "epoch"}

    Examples
    --------
    >>> from pyggml import schedules
    >>> rate = schedules.CyclicLR(0.5, 10, initial_learning_rate=0.1)
    >>> round(rate(10), 6)
    0.5
    """

    def __init__(self, max_lr, step_size=2000, mode="triangular", gamma=0.99994,
                 initial_learning_rate=None, by="step") -> None:
        super().__init__(initial_learning_rate, by)
        self.max_lr = _positive(max_lr, "max_lr")
        self.step_size = positive_int(step_size, "step_size")
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError("mode must be 'triangular', 'triangular2' or 'exp_range', got "
                             f"{mode!r}")
        self.mode = mode
        self.gamma = _positive(gamma, "gamma")

    def rate_at(self, number, base, period):
        cycle, at = divmod(number, 2 * self.step_size)
        share = 1 - abs(at / self.step_size - 1)
        if self.mode == "triangular2":
            share /= 2**cycle
        elif self.mode == "exp_range":
            share *= self.gamma**number
        return base + (self.max_lr - base) * share


class LearningRateScheduler(_RateSetter):
    """Sets the learning rate from a function.

    Parameters
    ----------
    schedule : callable
        From the number of the epoch, counted from 0, or of the step, to the rate. One that can
        take a second argument by position gets the current rate, even if the argument has a
        default, as in Keras: make constants keyword-only. Or a :class:`Schedule`.
    verbose : int
        Whether to say so at every epoch.
    by : {"epoch", "step"}

    Examples
    --------
    >>> import pyggml
    >>> halve = pyggml.callbacks.LearningRateScheduler(lambda epoch: 0.1 * 0.5**epoch)
    """

    def __init__(self, schedule, verbose=0, by=None) -> None:
        if not callable(schedule):
            raise TypeError(f"schedule must be callable, got {type(schedule).__name__}")
        inner = schedule if isinstance(schedule, Schedule) else None
        super().__init__(by or (inner.by if inner is not None else "epoch"))
        self.schedule = schedule
        self.verbose = verbose
        self._inner = inner
        self._arguments = 1 if inner is not None else _positional(schedule)

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        if self._inner is not None:
            self._inner.by = self.by
            self._inner.set_model(self.model)
            self._inner.set_params(self.params)
            self._inner.on_train_begin(logs)

    def rate_for(self, number):
        rate = self.model.optimizer.learning_rate
        found = self.schedule(number, rate) if self._arguments > 1 else self.schedule(number)
        try:
            found = float(found)
        except (TypeError, ValueError):
            raise TypeError("schedule must return a number, got "
                            f"{type(found).__name__}") from None
        if self.verbose and self.by == "epoch":
            print(f"epoch {number + 1}: learning rate {found:.3g}")
        return found

    def get_state(self):
        """Return what a resumed run needs."""
        inner = None if self._inner is None else self._inner.get_state()
        return {"steps": self._steps, "inner": inner}

    def set_state(self, state):
        """Take over :meth:`get_state`'s value.

        Parameters
        ----------
        state : dict
        """
        self._steps = state["steps"]
        if self._inner is not None:
            self._inner.set_state(state["inner"])


def _positional(function):
    """Return how many arguments a function takes by position, those with a default included."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # built-in functions need not have a signature
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return 2
    return sum(p.kind in kinds for p in parameters)
