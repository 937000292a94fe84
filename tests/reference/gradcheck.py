"""Error measure and central differences."""

import numpy as np


def relative_error(a, b, tiny=1e-12):
    """max|a - b| / max(max|b|, tiny), b the reference; shapes must agree, NaN stays NaN."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    if a.size == 0:
        return 0.0
    return float(np.max(np.abs(a - b)) / np.maximum(np.max(np.abs(b)), tiny))


def normal(*size, seed=0):
    """Standard normal numbers, the same for the same size and seed."""
    return np.random.default_rng([seed, *size]).standard_normal(size)


def numerical_gradient(function, x, step=1e-6):
    """Central differences of a scalar ``function()`` that reads the array x, changed in place."""
    grad = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        kept = x[index]
        x[index] = kept + step
        above = function()
        x[index] = kept - step
        below = function()
        x[index] = kept
        grad[index] = (above - below) / (2 * step)
    return grad


def leaves(tree, path=""):
    """All (path, array) of nested dictionaries, lists and tuples."""
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        return [(path, tree)]
    return [leaf for key, value in items for leaf in leaves(value, f"{path}/{key}")]


def _like(tree, make):
    if isinstance(tree, dict):
        return {key: _like(value, make) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_like(value, make) for value in tree)
    return make(np.shape(tree))


def gradient_errors(layer, arrays, /, step=1e-6, seed=0, floor=1e-2, **options):
    """Relative error of every gradient of ``layer(**arrays, **options)``, by argument name.

    ``arrays`` are the differentiable arguments (float64 arrays, or nests of them). Outputs are
    contracted with fixed random numbers. ``floor`` is the size below which gradients count as 0.
    """
    rng = np.random.default_rng(seed)
    out, backward = layer(**arrays, **options)
    weights = _like(out, rng.standard_normal)

    def scalar():
        now = leaves(layer(**arrays, **options)[0])
        return sum(np.sum(w * y) for (_, w), (_, y) in zip(leaves(weights), now, strict=True))

    grads = backward(*weights) if isinstance(out, tuple) else backward(weights)
    grads = dict(leaves(grads))
    return {
        path: relative_error(grads[path], numerical_gradient(scalar, x, step), tiny=floor)
        for path, x in leaves(arrays)
    }


def check_gradients(layer, arrays, /, tolerance=1e-6, **options):
    """Assert that every gradient agrees with central differences."""
    errors = gradient_errors(layer, arrays, **options)
    assert errors
    assert all(error < tolerance for error in errors.values()), errors
