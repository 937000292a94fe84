"""Normalisation over the batch or within each row."""

import math

from pyggml import _fused, initializers, ops, regularizers
from pyggml._scalars import integer, number
from pyggml.layers.base import Layer

# Added to a variance before it is stored: nothing beside any other, but never 0.
SMALLEST_VARIANCE = 1e-30


def _over_last(axes, x):
    """Whether axes are the last one alone, over which kernels normalise.

    Of one element the gradient is exactly 0, which the kernel gives up to rounding.
    """
    return axes == (len(x.shape) - 1,) and x.shape[-1] > 1


def _epsilon(value):
    value = number(value, "epsilon")
    if not 0 < value < math.inf:
        raise ValueError(f"epsilon must be positive, got {value}")
    return value


class BatchNormalization(Layer):
    """Bring each channel to mean 0 and variance 1, then scale and shift it.

    Ioffe and Szegedy, "Batch normalization" (2015). Evaluation uses the moving statistics,
    training those of the batch (biased variance).

    Parameters
    ----------
    axis : int
        The axis of the channels. Default 1, as images are channels first (in Keras: -1).
    momentum : float or None
        How the moving statistics follow. None, the default and the behaviour of the reference:
        training steps leave them alone, and they are computed exactly from data afterwards (by
        ``fit``, or by ``Trainer.calibrate_bn``; ``train_on_batch`` does not). A number in [0, 1],
        as in Keras (0.99 there): every training step moves them,
        ``moving * momentum + batch * (1 - momentum)``.
    epsilon : float
        Added to the variance.
    center, scale : bool
        Whether there is a ``beta``, a ``gamma``.
    beta_initializer, gamma_initializer : str or Initializer
    moving_mean_initializer, moving_variance_initializer : str or Initializer
    beta_regularizer, gamma_regularizer : str or callable, optional
    name : str, optional
    trainable : bool
        False freezes gamma and beta, and the moving statistics with them. Training goes on
        normalising by the batch, unless ``freeze_stats`` is set.

    Attributes
    ----------
    freeze_stats : bool
        Whether training, too, normalises by the moving statistics and leaves them as they are.
        Takes effect where a trainer is made.

    Notes
    -----
    Weights: ``gamma``, ``beta``, ``moving_mean``, ``moving_variance``, each (channels,); none of
    them is decayed. A channel of which a training batch holds one element only (a batch of one
    row without spatial axes) has no variance: it is normalised with variance 0, and does not
    move the moving variance; nor does calibration from one element. Elements that are all equal
    have variance 0, of which 1e-30 is stored, so that a moving variance is always positive.

    Examples
    --------
    >>> import pyggml
    >>> norm = pyggml.layers.BatchNormalization(momentum=0.99)
    >>> norm(pyggml.Input((8, 5, 7))).shape
    (None, 8, 5, 7)
    >>> [v.name for v in norm.trainable_weights]
    ['gamma', 'beta']
    """

    def __init__(self, axis=1, momentum=None, epsilon=1e-3, center=True, scale=True,
                 beta_initializer="zeros", gamma_initializer="ones",
                 moving_mean_initializer="zeros", moving_variance_initializer="ones",
                 beta_regularizer=None, gamma_regularizer=None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.axis = integer(axis, "axis")
        if momentum is not None:
            momentum = number(momentum, "momentum")
            if not 0 <= momentum <= 1:
                raise ValueError(f"momentum must be in [0, 1], got {momentum}")
        self.momentum = momentum
        self.epsilon = _epsilon(epsilon)
        self.center, self.scale = bool(center), bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.freeze_stats = False

    def channel_axis(self, shape):
        """Return the axis of the channels for a shape, or raise ValueError.

        Parameters
        ----------
        shape : tuple

        Returns
        -------
        int
        """
        n = len(shape)
        if not -n < self.axis < n or self.axis == 0:
            raise ValueError(f"layer {self.name!r} has axis {self.axis}, which is no axis beside "
                             f"the batch of shape {shape}")
        return self.axis % n

    def build(self, input_shape):
        shape = (input_shape[self.channel_axis(input_shape)],)
        if self.scale:
            self.gamma = self.add_weight("gamma", shape, self.gamma_initializer, decay=False,
                                         regularizer=self.gamma_regularizer)
        if self.center:
            self.beta = self.add_weight("beta", shape, self.beta_initializer, decay=False,
                                        regularizer=self.beta_regularizer)
        self.moving_mean = self.add_weight("moving_mean", shape, self.moving_mean_initializer,
                                           trainable=False, decay=False)
        self.moving_variance = self.add_weight(
            "moving_variance", shape, self.moving_variance_initializer, trainable=False,
            decay=False)

    def call(self, x, training=False):
        """Return x normalised.

        Parameters
        ----------
        x : Tensor
        training : bool

        Returns
        -------
        Tensor

        Raises
        ------
        ValueError
            Another number of channels than the layer was built for.
        """
        graph = x.graph
        axis = self.channel_axis(x.shape)
        if x.shape[axis] != self.moving_mean.shape[0]:
            raise ValueError(f"layer {self.name!r} was built for {self.moving_mean.shape[0]} "
                             f"channels, got shape {x.shape}")
        if graph.taps is not None:
            graph.taps.setdefault(self, []).append(x)
        wide = [1] * len(x.shape)
        wide[axis] = -1

        def along(t):
            return ops.reshape(t, wide)

        mode = graph.trained  # of a trainer: what was frozen when it was made
        fixed = not training or (self.freeze_stats if mode is None else self in mode.fixed)
        if axis == 1 and self.scale and self.center:
            found = _fused.batch_norm(
                x, graph.weight(self.gamma), graph.weight(self.beta), self.epsilon,
                graph.current(self.moving_mean) if fixed else None,
                graph.current(self.moving_variance) if fixed else None)
            if found is not None:
                out, statistics = found
                if not fixed:
                    n = self.moving_mean.shape[0]
                    self._move(graph, ops.slice(statistics, (0,), (n,)),
                               ops.slice(statistics, (n,), (n,)), math.prod(x.shape) // n)
                return out
        if not fixed:
            mean = _channel_mean(x, axis)
            x = ops.add(x, ops.negative(along(mean)))
            variance = _channel_mean(ops.square(x), axis)
            self._move(graph, mean, variance, math.prod(x.shape) // x.shape[axis])
        else:
            variance = graph.current(self.moving_variance)
            x = ops.add(x, ops.negative(along(graph.current(self.moving_mean))))
        factor = ops.divide(1.0, ops.sqrt(ops.add(variance, self.epsilon)))
        if self.scale:
            factor = ops.multiply(factor, graph.weight(self.gamma))
        x = ops.multiply(x, along(factor))
        if self.center:
            x = ops.add(x, along(graph.weight(self.beta)))
        return x

    def _move(self, graph, mean, variance, elements):
        """Let the step that this graph is for move the moving statistics."""
        moves = self._trainable if graph.trained is None else self in graph.trained.moving
        if self.momentum is None or not moves:
            return
        for moving, batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            if moving is self.moving_variance and elements < 2:
                continue
            least = SMALLEST_VARIANCE if moving is self.moving_variance else 0.0
            share = 1 - self.momentum
            graph.update(moving, ops.add(ops.affine(graph.current(moving), self.momentum),
                                         ops.affine(batch, share, share * least)))

    def compute_output_shape(self, input_shape):
        self.channel_axis(input_shape)
        return tuple(input_shape)

    def get_config(self):
        return super().get_config() | {
            "axis": self.axis,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": self.beta_initializer,
            "gamma_initializer": self.gamma_initializer,
            "moving_mean_initializer": self.moving_mean_initializer,
            "moving_variance_initializer": self.moving_variance_initializer,
            "beta_regularizer": self.beta_regularizer,
            "gamma_regularizer": self.gamma_regularizer,
        }


def _channel_mean(x, axis):
    """Mean over all axes but one. What lies behind it is added up first: no large transpose."""
    n = math.prod(x.shape)
    channels = x.shape[axis]
    if axis < len(x.shape) - 1:
        x = ops.sum(x, tuple(range(axis + 1, len(x.shape))))
    x = ops.sum(ops.reshape(x, (-1, channels)), 0)
    return ops.affine(x, channels / n)


class _RowNormalization(Layer):
    """What normalisation within each row shares: the axes, moved to the end and back."""

    def _set_axes(self, axis):
        several = isinstance(axis, (tuple, list))
        self._axes = tuple(integer(a, "axis") for a in (axis if several else (axis,)))
        if not self._axes:
            raise TypeError(f"axis must be an integer or several, got {axis!r}")
        self.axis = self._axes if several else self._axes[0]

    def _resolve(self, shape):
        n = len(shape)
        axes = tuple(sorted(a % n for a in self._axes if -n <= a < n))
        if len(set(axes)) != len(self._axes) or 0 in axes:
            raise ValueError(f"layer {self.name!r} has axis {self.axis}, which are no axes beside "
                             f"the batch of shape {shape}")
        return axes

    def _weight_shape(self, shape):
        return tuple(shape[a] for a in self._resolve(shape))

    def _check_sizes(self, shape):
        """Refuse a shape that the weights do not fit: kernels read as many elements of them."""
        found = self._weight_shape(shape)
        for variable, _ in self._own:
            if variable.shape != found:
                raise ValueError(f"layer {self.name!r} was built for {variable.shape} along axis "
                                 f"{self.axis}, got shape {tuple(shape)}")

    def _over_rows(self, x, function):
        axes = self._resolve(x.shape)
        n = len(x.shape)
        order = [i for i in range(n) if i not in axes] + list(axes)
        moved = x if order == list(range(n)) else ops.transpose(x, order)
        shape = moved.shape
        rows = function(ops.reshape(moved, (-1, math.prod(x.shape[a] for a in axes))))
        back = ops.reshape(rows, shape)
        if order != list(range(n)):
            back = ops.transpose(back, [order.index(i) for i in range(n)])
        return back

    def _along(self, x, variable):
        """A weight over the axes, shaped to go with x."""
        axes = self._resolve(x.shape)
        return ops.reshape(x.graph.weight(variable),
                           [x.shape[i] if i in axes else 1 for i in range(len(x.shape))])

    def _weight(self, name, shape, initializer, regularizer):
        return self.add_weight(name, shape, initializer, decay=False, regularizer=regularizer,
                               axes=tuple(range(len(shape))))

    def compute_output_shape(self, input_shape):
        self._check_sizes(input_shape)
        return tuple(input_shape)

    def get_config(self):
        return super().get_config() | {"axis": self.axis, "epsilon": self.epsilon}


class LayerNormalization(_RowNormalization):
    """Bring each row to mean 0 and variance 1, then scale and shift it.

    Ba, Kiros and Hinton, "Layer normalization" (2016).

    Parameters
    ----------
    axis : int or tuple of int
        Over which axes; not the batch.
    epsilon : float
        Added to the variance.
    center, scale : bool
        Whether there is a ``beta``, a ``gamma``.
    beta_initializer, gamma_initializer : str or Initializer
    beta_regularizer, gamma_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Notes
    -----
    Weights ``gamma`` and ``beta`` have the sizes of the axes; they are not decayed.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.LayerNormalization()(pyggml.Input((10, 16))).shape
    (None, 10, 16)
    """

    def __init__(self, axis=-1, epsilon=1e-3, center=True, scale=True, beta_initializer="zeros",
                 gamma_initializer="ones", beta_regularizer=None, gamma_regularizer=None,
                 **kwargs) -> None:
        super().__init__(**kwargs)
        self._set_axes(axis)
        self.epsilon = _epsilon(epsilon)
        self.center, self.scale = bool(center), bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)

    def build(self, input_shape):
        shape = self._weight_shape(input_shape)
        if self.scale:
            self.gamma = self._weight("gamma", shape, self.gamma_initializer,
                                      self.gamma_regularizer)
        if self.center:
            self.beta = self._weight("beta", shape, self.beta_initializer, self.beta_regularizer)

    def call(self, x):
        self._check_sizes(x.shape)
        if _over_last(self._resolve(x.shape), x) and (self.scale or not self.center):
            out = _fused.layer_norm(x, x.graph.weight(self.gamma) if self.scale else None,
                                    x.graph.weight(self.beta) if self.center else None,
                                    self.epsilon)
            if out is not None:
                return out

        def standardise(rows):
            mean = ops.mean(rows, -1, keepdims=True)
            # NORM has no backward pass in ggml; RMS_NORM of what is centred is the same.
            return ops.rms_normalize(ops.add(rows, ops.negative(mean)), self.epsilon)

        out = self._over_rows(x, standardise)
        if self.scale:
            out = ops.multiply(out, self._along(x, self.gamma))
        if self.center:
            out = ops.add(out, self._along(x, self.beta))
        return out

    def get_config(self):
        return super().get_config() | {
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": self.beta_initializer,
            "gamma_initializer": self.gamma_initializer,
            "beta_regularizer": self.beta_regularizer,
            "gamma_regularizer": self.gamma_regularizer,
        }


class RMSNormalization(_RowNormalization):
    """Divide each row by its root mean square, ``x / sqrt(mean(x^2) + epsilon) * scale``.

    Zhang and Sennrich, "Root mean square layer normalization" (2019).

    Parameters
    ----------
    axis : int or tuple of int
        Over which axes; not the batch.
    epsilon : float
    scale_initializer : str or Initializer
    scale_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Notes
    -----
    The weight ``scale`` has the sizes of the axes; it is not decayed.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.RMSNormalization()(pyggml.Input((10, 16))).shape
    (None, 10, 16)
    """

    def __init__(self, axis=-1, epsilon=1e-6, scale_initializer="ones", scale_regularizer=None,
                 **kwargs) -> None:
        super().__init__(**kwargs)
        self._set_axes(axis)
        self.epsilon = _epsilon(epsilon)
        self.scale_initializer = initializers.get(scale_initializer)
        self.scale_regularizer = regularizers.get(scale_regularizer)

    def build(self, input_shape):
        self.scale = self._weight("scale", self._weight_shape(input_shape),
                                  self.scale_initializer, self.scale_regularizer)

    def call(self, x):
        self._check_sizes(x.shape)
        if _over_last(self._resolve(x.shape), x):
            out = _fused.layer_norm(x, x.graph.weight(self.scale), None, self.epsilon, True)
            if out is not None:
                return out
        out = self._over_rows(x, lambda rows: ops.rms_normalize(rows, self.epsilon))
        return ops.multiply(out, self._along(x, self.scale))

    def get_config(self):
        return super().get_config() | {"scale_initializer": self.scale_initializer,
                                       "scale_regularizer": self.scale_regularizer}
