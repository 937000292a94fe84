"""Penalties on weights, added to the loss in training."""

import math

from pyggml import ops
from pyggml._lookup import lookup
from pyggml._scalars import number
from pyggml._settings import Settled


class Regularizer(Settled):
    """Base of all penalties: ``l1 * sum(|w|) + l2 * sum(w^2)``, as in Keras' documentation.

    A regularizer is called with a weight as a tensor and returns a term of the loss, of shape
    (1,). Penalties are part of the loss that training steps return and follow; weights that are
    frozen add none.

    Parameters
    ----------
    l1, l2 : float
        Not negative.

    Raises
    ------
    ValueError
        A factor is negative or not finite.

    Examples
    --------
    >>> from pyggml import regularizers
    >>> regularizers.get("l2").get_config()
    {'l2': 0.01}
    """

    def __init__(self, l1=0.0, l2=0.0) -> None:
        self.l1, self.l2 = _factor(l1, "l1"), _factor(l2, "l2")

    @property
    def any_order(self):
        """Whether the order of the elements does not matter, so that none has to be made."""
        return type(self).__call__ is Regularizer.__call__

    def __call__(self, w):
        """Return the penalty of a weight.

        Parameters
        ----------
        w : Tensor

        Returns
        -------
        Tensor of shape (1,)
        """
        terms = []
        if self.l1:
            terms.append(ops.affine(ops.sum(ops.absolute(w)), self.l1))
        if self.l2 or not terms:
            terms.append(ops.affine(ops.sum(ops.square(w)), self.l2))
        return terms[0] if len(terms) == 1 else ops.add(*terms)

    def get_config(self):
        """Return the arguments of the constructor."""
        return {"l1": self.l1, "l2": self.l2}

    def __repr__(self):
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self):
        return hash((type(self), self.l1, self.l2))


class L1(Regularizer):
    """``l1 * sum(|w|)``; its gradient where a weight is 0 is 0.

    Parameters
    ----------
    l1 : float

    Examples
    --------
    >>> from pyggml import regularizers
    >>> regularizers.L1(0.1).get_config()
    {'l1': 0.1}
    """

    def __init__(self, l1=0.01) -> None:
        super().__init__(l1=l1)

    def get_config(self):
        return {"l1": self.l1}


class L2(Regularizer):
    """``l2 * sum(w^2)``.

    Parameters
    ----------
    l2 : float

    Examples
    --------
    >>> from pyggml import regularizers
    >>> regularizers.L2(0.1).get_config()
    {'l2': 0.1}
    """

    def __init__(self, l2=0.01) -> None:
        super().__init__(l2=l2)

    def get_config(self):
        return {"l2": self.l2}


class L1L2(Regularizer):
    """``l1 * sum(|w|) + l2 * sum(w^2)``.

    Parameters
    ----------
    l1, l2 : float

    Examples
    --------
    >>> from pyggml import regularizers
    >>> regularizers.L1L2(0.1, 0.2).get_config()
    {'l1': 0.1, 'l2': 0.2}
    """


def _factor(value, name):
    value = number(value, name)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value


_classes = {"l1": L1, "l2": L2, "l1_l2": L1L2}


def get(identifier):
    """Return a regularizer by name, or the object itself; None is none.

    Parameters
    ----------
    identifier : {"l1", "l2", "l1_l2"}, Regularizer, callable or None
        A callable takes a weight as a tensor, in the shape that ``get_weights`` gives, and
        returns a tensor of shape (1,).

    Returns
    -------
    callable or None

    Examples
    --------
    >>> from pyggml import regularizers
    >>> regularizers.get("l2").get_config()
    {'l2': 0.01}
    """
    if identifier is None:
        return None
    found = lookup(identifier, _classes, "regularizer")
    return found() if isinstance(found, type) else found
