"""Activation functions on tensors of a graph.

All are composed of operations that have a gradient, in forms that stay finite wherever the
function does. Where a function has a kink, its derivative there is that of the lower side.
"""

import functools
import inspect
import math

from pyggml import ops
from pyggml._fused import fused_activation
from pyggml._lookup import lookup


def _kernel(name, parameter=0.0):
    """Let a kernel compute the activation where there is one; the body is what it stands for.

    ``parameter`` is a number, or the name and default of the argument that the kernel takes.
    """

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def activation(x, *args, **kwargs):
            value = parameter
            given = signature.bind(x, *args, **kwargs)  # what the function does not take is refused
            if isinstance(parameter, tuple):
                key, value = parameter
                value = given.arguments.get(key, value)
            fused = fused_activation(x, name, value)
            return function(x, *args, **kwargs) if fused is None else fused

        return activation

    return decorate


def linear(x):
    """Return x as it is.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.linear, [[2.0]]).tolist()
    [[2.0]]
    """
    return x


relu = ops.relu
sigmoid = ops.sigmoid
tanh = ops.tanh
softmax = ops.softmax
log_softmax = ops.log_softmax
softplus = ops.softplus
silu = ops.silu
swish = silu
exponential = ops.exp


def _parts(x):
    """Return max(x, 0) and min(x, 0); at 0 the second has the gradient, so x gets all of it."""
    above = ops.relu(x)
    return above, ops.subtract(x, above)


@_kernel("relu6")
def relu6(x):
    """Return ``min(max(x, 0), 6)`` (Krizhevsky, "Convolutional deep belief networks", 2010).

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.relu6, [[8.0]]).tolist()
    [[6.0]]
    """
    below = ops.step(ops.subtract(6.0, x))  # not at 6, where the derivative is 0
    return ops.add(ops.multiply(ops.relu(x), below), ops.affine(below, -6.0, 6.0))


@_kernel("leaky_relu", ("negative_slope", 0.2))
def leaky_relu(x, negative_slope=0.2):
    """Return x where x > 0, else ``negative_slope * x`` (Maas et al., 2013).

    Parameters
    ----------
    x : Tensor
    negative_slope : float
        Keras' default.

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(lambda x: activations.leaky_relu(x, 0.5), [[-1.0]]).tolist()
    [[-0.5]]
    """
    above, below = _parts(x)
    return ops.add(above, ops.affine(below, negative_slope))


@_kernel("elu", ("alpha", 1.0))
def elu(x, alpha=1.0):
    """Return x where x > 0, else ``alpha * (exp(x) - 1)`` (Clevert et al., 2016).

    Parameters
    ----------
    x : Tensor
    alpha : float

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.elu, [[2.0]]).tolist()
    [[2.0]]
    """
    above, below = _parts(x)
    return ops.add(above, ops.affine(ops.expm1(below), alpha))


# Klambauer et al., "Self-normalizing neural networks" (2017)
_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772


@_kernel("selu")
def selu(x):
    """Return the scaled ELU of Klambauer et al., "Self-normalizing neural networks" (2017).

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.selu, [[0.0]]).tolist()
    [[0.0]]
    """
    return ops.affine(elu(x, _SELU_ALPHA), _SELU_SCALE)


# Press et al., "Numerical recipes", section 6.2: for z >= 0
# erfc(z) = t exp(-z^2 + c0 + c1 t + ...) with t = 1 / (1 + z / 2), to 1.2e-7 of its value.
_ERFC = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
         1.48851587, -0.82215223, 0.17087277)


def _erfc(z):
    t = ops.divide(1.0, ops.affine(z, 0.5, 1.0))
    p = ops.affine(t, _ERFC[9], _ERFC[8])
    for c in _ERFC[7::-1]:
        p = ops.affine(ops.multiply(p, t), 1.0, c)
    return ops.multiply(t, ops.exp(ops.subtract(p, ops.square(z))))


def gelu(x, approximate=False):
    """Return ``x * Phi(x)``, Phi being the normal distribution function.

    Hendrycks and Gimpel, "Gaussian error linear units" (2016).

    Parameters
    ----------
    x : Tensor
    approximate : bool
        Whether to take the paper's form with tanh, which differs by up to 5e-4. The exact form
        uses an approximation of erfc that is good to single precision.

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.gelu, [[0.0]]).tolist()
    [[0.0]]
    """
    fused = fused_activation(x, "gelu_tanh" if approximate else "gelu")
    if fused is not None:
        return fused
    if approximate:
        # (1 + tanh(u)) / 2 = sigmoid(2 u)
        k = 2 * math.sqrt(2 / math.pi)
        inner = ops.multiply(x, ops.affine(ops.square(x), 0.044715 * k, k))
        return ops.multiply(x, ops.sigmoid(inner))
    # max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2, for both signs; |x| = 2 max(x, 0) - x
    above = ops.relu(x)
    size = ops.subtract(ops.affine(above, 2.0), x)
    tail = _erfc(ops.affine(size, math.sqrt(0.5)))
    return ops.subtract(above, ops.affine(ops.multiply(size, tail), 0.5))


def gelu_tanh(x):
    """Return :func:`gelu` in its approximate form.

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.gelu_tanh, [[0.0]]).tolist()
    [[0.0]]
    """
    return gelu(x, approximate=True)


@_kernel("hard_sigmoid")
def hard_sigmoid(x):
    """Return ``min(max(x + 3, 0), 6) / 6`` (Howard et al., "Searching for MobileNetV3", 2019).

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.hard_sigmoid, [[3.0]]).tolist()
    [[1.0]]
    """
    return ops.affine(relu6(ops.affine(x, 1.0, 3.0)), 1 / 6)


@_kernel("hard_swish")
def hard_swish(x):
    """Return ``x * hard_sigmoid(x)`` (Howard et al., "Searching for MobileNetV3", 2019).

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.hard_swish, [[4.0]]).tolist()
    [[4.0]]
    """
    return ops.multiply(x, hard_sigmoid(x))


@_kernel("softsign")
def softsign(x):
    """Return ``x / (1 + |x|)`` (Glorot and Bengio, 2010).

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.softsign, [[1.0]]).tolist()
    [[0.5]]
    """
    return ops.divide(x, ops.affine(ops.absolute(x), 1.0, 1.0))


@_kernel("mish")
def mish(x):
    """Return ``x * tanh(softplus(x))`` (Misra, "Mish", 2019).

    Parameters
    ----------
    x : Tensor

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from pyggml import activations, ops
    >>> ops.evaluate(activations.mish, [[0.0]]).tolist()
    [[0.0]]
    """
    # With u = exp(x), tanh(log(1 + u)) = n / (n + 2) for n = u (u + 2), and 1 from 20 on.
    u = ops.exp(ops.subtract(20.0, ops.relu(ops.subtract(20.0, x))))
    n = ops.multiply(u, ops.affine(u, 1.0, 2.0))
    return ops.multiply(x, ops.divide(n, ops.affine(n, 1.0, 2.0)))


_functions = {
    "linear": linear, "relu": relu, "relu6": relu6, "leaky_relu": leaky_relu, "elu": elu,
    "selu": selu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "sigmoid": sigmoid,
    "hard_sigmoid": hard_sigmoid, "hard_swish": hard_swish, "tanh": tanh, "softplus": softplus,
    "softsign": softsign, "mish": mish, "exponential": exponential, "softmax": softmax,
    "log_softmax": log_softmax,
}
_aliases = {"swish": "silu", "hard_silu": "hard_swish", "exp": "exponential"}


def get(identifier):
    """Return an activation by name; None is the linear one.

    Parameters
    ----------
    identifier : str, callable, dict or None
        A callable takes a tensor and returns one of the same shape, made with
        :mod:`pyggml.ops`. A dict holds a ``name`` and further arguments of the function, as
        ``{"name": "leaky_relu", "negative_slope": 0.1}``.

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        An unknown name; the message lists the known ones.
    TypeError
        Neither a name nor callable, or a dict with arguments that the function does not take.

    Examples
    --------
    >>> from pyggml import activations
    >>> activations.get("relu") is activations.relu
    True
    >>> activations.serialize(activations.get({"name": "elu", "alpha": 0.5}))
    {'name': 'elu', 'alpha': 0.5}
    """
    if identifier is None:
        return linear
    table = _functions | {alias: _functions[name] for alias, name in _aliases.items()}
    if isinstance(identifier, dict):
        arguments = dict(identifier)
        if "name" not in arguments:
            raise ValueError(f"an activation given as a dict needs a 'name', got {identifier}")
        function = lookup(arguments.pop("name"), table, "activation")
        known = list(inspect.signature(function).parameters)[1:]
        unknown = sorted(set(arguments) - set(known))
        if unknown:
            raise TypeError(f"activation {identifier['name']!r} has no arguments {unknown}; it has "
                            f"{known}")
        return functools.partial(function, **arguments)
    return lookup(identifier, table, "activation")


def serialize(function):
    """Return what :func:`get` finds an activation by, or the function itself.

    Parameters
    ----------
    function : callable

    Returns
    -------
    str, dict or callable
        A dict for a ``functools.partial`` of a known function with keyword arguments.

    Examples
    --------
    >>> from pyggml import activations
    >>> activations.serialize(activations.get("relu"))
    'relu'
    """
    for name, known in _functions.items():
        if known is function:
            return name
    if isinstance(function, functools.partial) and not function.args:
        name = serialize(function.func)
        if isinstance(name, str):
            return {"name": name} | function.keywords
    return function
