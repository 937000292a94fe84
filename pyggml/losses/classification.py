"""Losses of classes and probabilities."""

import math

from pyggml import ops
from pyggml._scalars import number
from pyggml.losses.base import EPSILON, Loss, share


class Hinge(Loss):
    """``max(1 - y p, 0)``, averaged over all elements.

    Labels are -1 and 1. A batch that holds only 0 and 1 is taken for -1 and 1, as in Keras.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("hinge")
    Hinge()
    """

    name = "hinge"

    def values(self, y_true, y_pred):
        # 1 where any label is neither 0 nor 1: then labels stay as they are
        signed = ops.step(ops.sum(ops.absolute(ops.subtract(ops.square(y_true), y_true)),
                                  keepdims=True))
        shift = ops.multiply(ops.affine(y_true, 1.0, -1.0), ops.affine(signed, -1.0, 1.0))
        y_true = ops.add(y_true, shift)
        return ops.relu(ops.affine(ops.multiply(y_true, y_pred), -1.0, 1.0))


class BinaryCrossentropy(Loss):
    """``-y log(p) - (1 - y) log(1 - p)``, averaged over all elements.

    Parameters
    ----------
    from_logits : bool
        Whether predictions are logits. An output made by the sigmoid activation is computed
        from its logits in any case.
    label_smoothing : float
        In [0, 1): labels are moved by this share towards 1/2.

    Notes
    -----
    Probabilities are kept within [1e-7, 1 - 1e-7], as in Keras.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.BinaryCrossentropy(label_smoothing=0.1)
    BinaryCrossentropy(from_logits=False, label_smoothing=0.1)
    """

    name = "binary_crossentropy"
    link = "sigmoid"

    def __init__(self, from_logits=False, label_smoothing=0.0) -> None:
        self.from_logits = bool(from_logits)
        self.label_smoothing = share(label_smoothing, "label_smoothing")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        return self._crossentropy(self._smooth(y_true), y_pred)

    def values_linked(self, y_true, x):
        return ops.subtract(ops.softplus(x), ops.multiply(x, self._smooth(y_true)))

    @staticmethod
    def _crossentropy(y, p):
        one = ops.log(ops.clip(p, EPSILON, 1 - EPSILON))
        zero = ops.log(ops.clip(ops.subtract(1.0, p), EPSILON, 1 - EPSILON))
        return ops.negative(ops.add(ops.multiply(y, one),
                                    ops.multiply(ops.subtract(1.0, y), zero)))

    def _smooth(self, y_true):
        if not self.label_smoothing:
            return y_true
        return ops.affine(y_true, 1 - self.label_smoothing, self.label_smoothing / 2)


class BinaryFocalCrossentropy(BinaryCrossentropy):
    """Binary cross-entropy times ``(1 - p_t)**gamma``, p_t being the probability of the label.

    Lin et al., "Focal loss for dense object detection" (2017).

    Parameters
    ----------
    apply_class_balancing : bool
        Whether to multiply by ``alpha`` where the label is 1 and by ``1 - alpha`` where it is 0.
    alpha : float
        In [0, 1).
    gamma : float
        Not negative; 0 makes it :class:`BinaryCrossentropy`.
    from_logits, label_smoothing
        As for :class:`BinaryCrossentropy`.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("binary_focal_crossentropy").gamma
    2.0
    """

    name = "binary_focal_crossentropy"

    def __init__(self, apply_class_balancing=False, alpha=0.25, gamma=2.0, from_logits=False,
                 label_smoothing=0.0) -> None:
        super().__init__(from_logits, label_smoothing)
        self.apply_class_balancing = bool(apply_class_balancing)
        self.alpha = share(alpha, "alpha")
        self.gamma = _exponent(gamma, "gamma")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        y = self._smooth(y_true)
        return self._weigh(y, self._crossentropy(y, y_pred), y_pred, ops.subtract(1.0, y_pred))

    def values_linked(self, y_true, x):
        y = self._smooth(y_true)
        return self._weigh(y, super().values_linked(y_true, x), ops.sigmoid(x),
                           ops.sigmoid(ops.negative(x)))

    def _weigh(self, y, crossentropy, one, zero):
        other = ops.subtract(1.0, y)
        wrong = ops.add(ops.multiply(y, zero), ops.multiply(other, one))
        factor = _power(wrong, self.gamma)
        values = crossentropy if factor is None else ops.multiply(crossentropy, factor)
        if self.apply_class_balancing:
            values = ops.multiply(values, ops.affine(y, 2 * self.alpha - 1, 1 - self.alpha))
        return values


class CategoricalCrossentropy(Loss):
    """``-sum(y log(p))`` over the classes, averaged over rows, for one-hot or soft labels.

    Parameters
    ----------
    from_logits : bool
        Whether predictions are logits. An output made by the softmax activation is computed
        from its logits in any case.
    label_smoothing : float
        In [0, 1): this share of the labels is spread evenly over the classes.

    Notes
    -----
    Probabilities are divided by their sum and kept within [1e-7, 1 - 1e-7], as in Keras; where
    the sum is 0 (ReLU as the last activation may give rows of zeros) the loss is NaN. Label rows
    need not sum to 1.

    A logit of minus infinity masks its class: the loss of other labels and all gradients are
    finite, that of its own label is infinite. Without kernels (``PYGGML_LOWERING=0``) the loss is
    NaN there; mask with a large number such as -1e9.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.CategoricalCrossentropy(from_logits=True)
    CategoricalCrossentropy(from_logits=True, label_smoothing=0.0)
    """

    name = "categorical_crossentropy"
    per_row = True
    link = "softmax"

    def __init__(self, from_logits=False, label_smoothing=0.0) -> None:
        self.from_logits = bool(from_logits)
        self.label_smoothing = share(label_smoothing, "label_smoothing")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        return ops.negative(ops.multiply(ops.log(self._probabilities(y_pred)),
                                         self._smooth(y_true)))

    def values_linked(self, y_true, x):
        return ops.negative(ops.multiply(ops.log_softmax(x), self._smooth(y_true)))

    @staticmethod
    def _probabilities(p):
        p = ops.divide(p, ops.sum(p, axis=-1, keepdims=True))
        return ops.clip(p, EPSILON, 1 - EPSILON)

    def _smooth(self, y_true):
        if not self.label_smoothing:
            return y_true
        return ops.affine(y_true, 1 - self.label_smoothing,
                          self.label_smoothing / y_true.shape[-1])


class SparseCategoricalCrossentropy(CategoricalCrossentropy):
    """``-log(p[label])``, averaged over rows, for integer labels from 0 to classes - 1.

    Parameters
    ----------
    from_logits : bool
    label_smoothing : float
        As for :class:`CategoricalCrossentropy`.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("sparse_categorical_crossentropy").labels
    'classes'
    """

    name = "sparse_categorical_crossentropy"
    labels = "classes"

    def __init__(self, from_logits=False, *, label_smoothing=0.0) -> None:
        super().__init__(from_logits, label_smoothing)  # in Keras the second is ignore_class


class CategoricalFocalCrossentropy(CategoricalCrossentropy):
    """``-sum(alpha (1 - p)**gamma y log(p))`` over the classes, averaged over rows.

    Lin et al., "Focal loss for dense object detection" (2017).

    Parameters
    ----------
    alpha : float
        In [0, 1).
    gamma : float
        Not negative.
    from_logits, label_smoothing
        As for :class:`CategoricalCrossentropy`.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("categorical_focal_crossentropy").alpha
    0.25
    """

    name = "categorical_focal_crossentropy"

    def __init__(self, alpha=0.25, gamma=2.0, from_logits=False, label_smoothing=0.0) -> None:
        super().__init__(from_logits, label_smoothing)
        self.alpha = share(alpha, "alpha")
        self.gamma = _exponent(gamma, "gamma")

    def values(self, y_true, y_pred):
        if self.from_logits:
            return self.values_linked(y_true, y_pred)
        p = self._probabilities(y_pred)
        return self._weigh(y_true, ops.log(p), ops.subtract(1.0, p))

    def values_linked(self, y_true, x):
        logs = ops.log_softmax(x)
        return self._weigh(y_true, logs, ops.negative(ops.expm1(logs)))

    def _weigh(self, y_true, logs, wrong):
        values = ops.multiply(logs, ops.affine(self._smooth(y_true), -self.alpha))
        factor = _power(wrong, self.gamma)
        return values if factor is None else ops.multiply(values, factor)


class KLDivergence(Loss):
    """``sum(y log(y / p))`` over the last axis, averaged over rows.

    Kullback and Leibler, "On information and sufficiency" (1951). Labels and predictions are
    probabilities and kept within [1e-7, 1], as in Keras.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("kl_divergence")
    KLDivergence()
    """

    name = "kl_divergence"
    per_row = True

    def values(self, y_true, y_pred):
        y = ops.clip(y_true, EPSILON, 1.0)
        p = ops.clip(y_pred, EPSILON, 1.0)
        return ops.multiply(y, ops.subtract(ops.log(y), ops.log(p)))


def _exponent(value, name):
    value = number(value, name)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value


def _power(x, exponent):
    """``x**exponent`` for x from 0 on; None stands for 1."""
    if exponent == 0:
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return ops.square(x)
    return ops.exp(ops.affine(ops.log(ops.maximum(x, 1e-30)), exponent))
