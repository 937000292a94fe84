"""Initial values of weights.

An initializer is called with the shape of the weight and a NumPy generator and returns an
array. Fans are counted as in Keras: for a kernel (..., inputs, outputs) the product of the
leading sizes multiplies both. The kernels of attention are matrices whose rows or columns are
divided among the heads, and count as such.
"""

import math

import numpy as np

from pyggml._lookup import lookup
from pyggml._random import new_generator
from pyggml._scalars import number


def _fans(shape):
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


class Initializer:
    """Base of all initializers.

    Parameters
    ----------
    seed : int, optional
        A stream of its own; by default values come from the stream of :func:`pyggml.set_seed`.

    Examples
    --------
    >>> from pyggml import initializers
    >>> class Diagonal(initializers.Initializer):
    ...     def draw(self, shape, rng):
    ...         return np.eye(*shape)
    >>> Diagonal()((2, 2), None).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, seed=None) -> None:
        self.seed = seed

    def __call__(self, shape, rng):
        """Return float32 values.

        Parameters
        ----------
        shape : tuple of int
        rng : numpy.random.Generator
            Used unless the initializer has a seed.

        Returns
        -------
        numpy.ndarray of float32
        """
        if self.seed is not None:
            rng = new_generator(self.seed)
        return np.asarray(self.draw(tuple(shape), rng), dtype=np.float32)

    def draw(self, shape, rng):
        """Return the values; subclasses write this.

        Parameters
        ----------
        shape : tuple of int
        rng : numpy.random.Generator

        Returns
        -------
        array_like
        """
        raise NotImplementedError(f"{type(self).__name__}.draw")

    def get_config(self):
        """Return the arguments of the constructor."""
        return dict(vars(self))


class Constant(Initializer):
    """One value everywhere.

    Parameters
    ----------
    value : float

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.Constant(0.5)((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self, value=0.0) -> None:
        super().__init__()
        self.value = number(value, "value")

    def draw(self, shape, rng):
        return np.full(shape, self.value)

    def get_config(self):
        return {"value": self.value}


class Zeros(Constant):
    """0 everywhere.

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.Zeros()((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self) -> None:
        super().__init__(0.0)

    def get_config(self):
        return {}


class Ones(Constant):
    """1 everywhere.

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.Ones()((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self) -> None:
        super().__init__(1.0)

    def get_config(self):
        return {}


class RandomNormal(Initializer):
    """Normal distribution.

    Parameters
    ----------
    mean, stddev : float
    seed : int, optional

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.RandomNormal(stddev=0.1)((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self, mean=0.0, stddev=0.05, seed=None) -> None:
        super().__init__(seed)
        self.mean, self.stddev = number(mean, "mean"), number(stddev, "stddev")
        if not 0 <= self.stddev < math.inf:
            raise ValueError(f"stddev must be finite and not negative, got {stddev}")

    def draw(self, shape, rng):
        return rng.normal(self.mean, self.stddev, shape)


class RandomUniform(Initializer):
    """Uniform distribution on [minval, maxval).

    Parameters
    ----------
    minval, maxval : float
    seed : int, optional

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.RandomUniform(-1, 1)((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self, minval=-0.05, maxval=0.05, seed=None) -> None:
        super().__init__(seed)
        self.minval, self.maxval = number(minval, "minval"), number(maxval, "maxval")
        if not -math.inf < self.minval <= self.maxval < math.inf:
            raise ValueError(f"minval must not be above maxval, and both finite, got {minval} and "
                             f"{maxval}")

    def draw(self, shape, rng):
        return rng.uniform(self.minval, self.maxval, shape)


class TruncatedNormal(RandomNormal):
    """Normal distribution without what lies beyond two standard deviations.

    Parameters
    ----------
    mean, stddev : float
    seed : int, optional

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.TruncatedNormal()((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def draw(self, shape, rng):
        values = rng.standard_normal(shape)
        while (outside := np.abs(values) > 2).any():
            values[outside] = rng.standard_normal(int(outside.sum()))
        return self.mean + self.stddev * values


class VarianceScaling(Initializer):
    """Variance ``scale / n`` with n the fan chosen by ``mode``.

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks" (2010), and He et al., "Delving deep into rectifiers" (2015).

    Parameters
    ----------
    scale : float
        Positive.
    mode : {"fan_in", "fan_out", "fan_avg"}
    distribution : {"truncated_normal", "untruncated_normal", "uniform"}
    seed : int, optional

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.VarianceScaling(2.0)((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    # Standard deviation of a unit normal cut off at +-2, which truncation has to make up for.
    _truncated_stddev = 0.87962566103423978

    def __init__(self, scale=1.0, mode="fan_in", distribution="truncated_normal",
                 seed=None) -> None:
        super().__init__(seed)
        scale = number(scale, "scale")
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be positive and finite, got {scale}")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(f"mode must be 'fan_in', 'fan_out' or 'fan_avg', got {mode!r}")
        if distribution not in ("truncated_normal", "untruncated_normal", "uniform"):
            raise ValueError("distribution must be 'truncated_normal', 'untruncated_normal' or "
                             f"'uniform', got {distribution!r}")
        self.scale = scale
        self.mode = mode
        self.distribution = distribution

    def draw(self, shape, rng):
        fan_in, fan_out = _fans(shape)
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, n)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return rng.uniform(-limit, limit, shape)
        if self.distribution == "truncated_normal":
            stddev = math.sqrt(variance) / self._truncated_stddev
            return TruncatedNormal(stddev=stddev).draw(shape, rng)
        return rng.normal(0.0, math.sqrt(variance), shape)


def _scaled(name, scale, mode, distribution, doc):
    class Scaled(VarianceScaling):
        def __init__(self, seed=None) -> None:
            super().__init__(scale, mode, distribution, seed)

        def get_config(self):
            return {"seed": self.seed}

    Scaled.__name__ = Scaled.__qualname__ = name
    Scaled.__doc__ = f"""{doc}

    Parameters
    ----------
    seed : int, optional

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.{name}(seed=0)((2, 3), None).shape
    (2, 3)
    """
    return Scaled


GlorotUniform = _scaled("GlorotUniform", 1.0, "fan_avg", "uniform",
                        "Uniform on +-sqrt(6 / (fan_in + fan_out)).")
GlorotNormal = _scaled("GlorotNormal", 1.0, "fan_avg", "truncated_normal",
                       "Truncated normal of variance 2 / (fan_in + fan_out).")
HeUniform = _scaled("HeUniform", 2.0, "fan_in", "uniform", "Uniform on +-sqrt(6 / fan_in).")
HeNormal = _scaled("HeNormal", 2.0, "fan_in", "truncated_normal",
                   "Truncated normal of variance 2 / fan_in.")
LecunUniform = _scaled("LecunUniform", 1.0, "fan_in", "uniform", "Uniform on +-sqrt(3 / fan_in).")
LecunNormal = _scaled("LecunNormal", 1.0, "fan_in", "truncated_normal",
                      "Truncated normal of variance 1 / fan_in.")


class _OfMatrix(Initializer):
    """An initializer whose fans are those of a matrix, for a weight that has more axes.

    ``rows`` is the number of leading axes that are its inputs.
    """

    def __init__(self, initializer, rows) -> None:
        super().__init__()
        self.initializer, self.rows = initializer, rows

    def __call__(self, shape, rng):
        matrix = (math.prod(shape[:self.rows]), math.prod(shape[self.rows:]))
        return self.initializer(matrix, rng).reshape(shape)


def _of_matrix(initializer, rows):
    """Return what draws a weight whose first axes, so many, are inputs and the others outputs."""
    scaled = isinstance(initializer, VarianceScaling)  # others do not look at fans
    return _OfMatrix(initializer, rows) if scaled else initializer


class Orthogonal(Initializer):
    """An orthogonal matrix, of the weight seen as (everything else, last axis).

    Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks" (2014).

    Parameters
    ----------
    gain : float
    seed : int, optional

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.Orthogonal()((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self, gain=1.0, seed=None) -> None:
        super().__init__(seed)
        self.gain = number(gain, "gain")

    def draw(self, shape, rng):
        if len(shape) < 2:
            raise ValueError(f"Orthogonal needs at least two axes, got shape {shape}")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        q *= np.sign(np.diag(r))
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


class Identity(Initializer):
    """``gain`` times the identity matrix; what is no square of it is 0.

    Parameters
    ----------
    gain : float

    Raises
    ------
    ValueError
        The weight does not have two axes.

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import initializers
    >>> initializers.Identity(2.0)((2, 3), np.random.default_rng(0)).tolist()
    [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    """

    def __init__(self, gain=1.0):
        super().__init__()
        self.gain = number(gain, "gain")

    def draw(self, shape, rng):
        if len(shape) != 2:
            raise ValueError(f"Identity needs two axes, got shape {shape}")
        return self.gain * np.eye(*shape)

    def get_config(self):
        return {"gain": self.gain}


_classes = {
    "zeros": Zeros, "ones": Ones, "constant": Constant, "random_normal": RandomNormal,
    "random_uniform": RandomUniform, "truncated_normal": TruncatedNormal,
    "variance_scaling": VarianceScaling, "glorot_uniform": GlorotUniform,
    "glorot_normal": GlorotNormal, "he_uniform": HeUniform, "he_normal": HeNormal,
    "lecun_uniform": LecunUniform, "lecun_normal": LecunNormal, "orthogonal": Orthogonal,
    "identity": Identity,
}


def get(identifier):
    """Return an initializer by name, or the object itself.

    Parameters
    ----------
    identifier : str, Initializer or callable
        A callable is called as ``identifier(shape, rng)``.

    Returns
    -------
    Initializer or callable

    Examples
    --------
    >>> from pyggml import initializers
    >>> initializers.get("zeros").__class__.__name__
    'Zeros'
    """
    found = lookup(identifier, _classes, "initializer")
    return found() if isinstance(found, type) else found
