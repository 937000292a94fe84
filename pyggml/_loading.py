"""Weights of a model that is being built from a file: not drawn, and not more than there are.

A layer's ``add_weight`` draws values, which takes longer than reading them and moves the random
stream; and what an architecture asks for may be far more than the file holds. Inside
:func:`from_file` weights have undefined values and have to fit into a budget.
"""

import contextlib
import contextvars
import math

_budget = contextvars.ContextVar("pyggml_loading_budget", default=None)


class OverBudget(ValueError):
    """The architecture has more weights than the file."""


@contextlib.contextmanager
def from_file(n_elements):
    """Build layers whose weights hold at most ``n_elements`` elements together."""
    token = _budget.set([n_elements])
    try:
        yield
    finally:
        _budget.reset(token)


def drawn(shape):
    """Whether a weight of this shape, about to be made, shall be given initial values.

    Raises
    ------
    OverBudget
        A file is being loaded that cannot hold it.
    """
    left = _budget.get()
    if left is None:
        return True
    left[0] -= math.prod(shape)
    if left[0] < 0:
        raise OverBudget(f"the architecture has more weights than the file: a weight of shape "
                         f"{tuple(shape)} has no room")
    return False
