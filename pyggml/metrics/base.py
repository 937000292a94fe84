"""What metrics share."""

import numpy as np


class Metric:
    """Base of all metrics.

    A metric adds up what it needs in :meth:`update` and gives its value in :meth:`result`.

    Parameters
    ----------
    name : str, optional

    Examples
    --------
    >>> from pyggml import metrics
    >>> class Largest(metrics.Metric):
    ...     name = "largest"
    ...
    ...     def reset(self):
    ...         self.value = 0.0
    ...
    ...     def update(self, y_true, y_pred, sample_weight=None):
    ...         self.value = max(self.value, np.abs(y_true - y_pred).max())
    ...
    ...     def result(self):
    ...         return float(self.value)
    >>> metric = Largest()
    >>> metric.update(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    >>> metric.result()
    3.0
    """

    name = "metric"

    def __init__(self, name=None) -> None:
        if name is not None:
            if not isinstance(name, str):
                raise TypeError(f"name must be a string, got {name!r}")
            self.name = name
        self.reset()

    def reset(self):
        """Forget everything seen."""
        raise NotImplementedError(f"{type(self).__name__}.reset")

    def update(self, y_true, y_pred, sample_weight=None):
        """Take in one batch.

        Parameters
        ----------
        y_true, y_pred : numpy.ndarray of shape (n, ...)
        sample_weight : numpy.ndarray of shape (n, ...), optional
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def result(self):
        """Return the value over everything seen, as a float."""
        raise NotImplementedError(f"{type(self).__name__}.result")

    def get_config(self):
        """Return the arguments of the constructor."""
        return {"name": self.name}


class WeightedMean(Metric):
    """A mean of one value a sample; subclasses write :meth:`samples`.

    Parameters
    ----------
    name : str, optional

    Attributes
    ----------
    normalised : bool
        Whether weighted sums are divided by the sum of the weights. Errors are not: like losses
        they are ``sum(w * v) / N``.

    Examples
    --------
    >>> from pyggml import metrics
    >>> class Bias(metrics.WeightedMean):
    ...     name = "bias"
    ...
    ...     def samples(self, y_true, y_pred):
    ...         return y_pred - y_true
    >>> metric = Bias()
    >>> metric.update(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    >>> metric.result()
    1.5
    """

    normalised = True

    def reset(self):
        self.total = 0.0
        self.count = 0.0

    def samples(self, y_true, y_pred):
        """Return one value a sample, as an array with the batch first.

        Parameters
        ----------
        y_true, y_pred : numpy.ndarray of shape (n, ...)

        Returns
        -------
        array_like of shape (n, ...)
        """
        raise NotImplementedError(f"{type(self).__name__}.samples")

    def update(self, y_true, y_pred, sample_weight=None):
        values = np.asarray(self.samples(y_true, y_pred), dtype=np.float64)
        if sample_weight is None:
            self.total += values.sum()
            self.count += values.size
            return
        w = spread_weights(sample_weight, values.shape)
        self.total += np.where(w != 0, values, 0.0).ravel() @ w.ravel()
        self.count += w.sum() if self.normalised else w.size

    def result(self):
        return float(self.total / self.count) if self.count else 0.0


def spread_weights(weights, shape):
    """Return float64 weights for values of a shape.

    Parameters
    ----------
    weights : array_like
        One a row, or one an element. Where values have lost the last axis, a row counts with the
        mean of its elements' weights.
    shape : tuple of int

    Returns
    -------
    numpy.ndarray of float64, of that shape

    Raises
    ------
    ValueError
        They fit neither the rows nor the elements.

    Examples
    --------
    >>> from pyggml import metrics
    >>> metrics.spread_weights([1.0, 2.0], (2, 2)).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim > len(shape):
        w = w.mean(axis=tuple(range(len(shape), w.ndim)))
    w = w.reshape(w.shape + (1,) * (len(shape) - w.ndim))
    if any(have not in (1, want) for have, want in zip(w.shape, shape, strict=True)) \
            or w.shape[:1] != shape[:1]:
        raise ValueError(f"sample_weight of shape {np.shape(weights)} does not fit values of "
                         f"shape {shape}")
    return np.broadcast_to(w, shape)


def match(y_true, y_pred):
    """Return labels and predictions as arrays of one shape; nothing is broadcast.

    Parameters
    ----------
    y_true, y_pred : array_like

    Returns
    -------
    tuple of two numpy.ndarray

    Raises
    ------
    ValueError
        The shapes differ by more than a last axis of size 1.

    Examples
    --------
    >>> from pyggml import metrics
    >>> [a.shape for a in metrics.match([1.0, 2.0], [[1.0], [3.0]])]
    [(2, 1), (2, 1)]
    """
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    if y_true.shape != y_pred.shape:
        if y_true.shape not in (y_pred.shape[:-1], (*y_pred.shape, 1)) or (
                y_true.size != y_pred.size):
            raise ValueError(f"labels of shape {y_true.shape} do not fit predictions of shape "
                             f"{y_pred.shape}")
        y_true = y_true.reshape(y_pred.shape)
    return y_true, y_pred


class FunctionMetric(WeightedMean):
    """A metric written by the user: ``function(y_true, y_pred)`` on NumPy arrays.

    Parameters
    ----------
    function : callable
        Returns one value a sample or an element; the metric is their mean over the epoch, with
        weights ``sum(w * v) / sum(w)``. Labels have the shape of the predictions, or one integer
        a row.

    Examples
    --------
    >>> from pyggml import metrics
    >>> def largest_error(y_true, y_pred):
    ...     return np.abs(y_true - y_pred).max(axis=-1)
    >>> metrics.get(largest_error).name
    'largest_error'
    """

    def __init__(self, function) -> None:
        self.function = function
        super().__init__(getattr(function, "__name__", type(function).__name__))

    def samples(self, y_true, y_pred):
        return self.function(y_true, y_pred)

    def get_config(self):
        return {"function": self.function}
