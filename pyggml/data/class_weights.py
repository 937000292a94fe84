"""Weights by class."""

import numpy as np


class ClassWeights:
    """Weights by class, as one weight a row.

    Parameters
    ----------
    class_weight : dict of int to float
    criterion : Criterion
        With one output.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import data
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> criterion = model.compiled.criterion
    >>> weights = data.ClassWeights({0: 1.0, 1: 3.0}, criterion)
    >>> weights.apply(np.array([0, 1, 1]), None).tolist()
    [1.0, 3.0, 3.0]
    """

    def __init__(self, class_weight, criterion):
        if not isinstance(class_weight, dict) or not class_weight:
            raise TypeError("class_weight must be a dict from class to weight, got "
                            f"{class_weight!r}")
        if len(criterion.losses) > 1:
            names = criterion.output_names
            raise ValueError(f"class_weight needs a model of one output, this one has {names}")
        for label, weight in class_weight.items():
            if isinstance(label, bool) or not hasattr(label, "__index__") or label < 0:
                raise ValueError(f"class_weight must have classes 0, 1, ... as keys, got {label!r}")
            if not (np.isscalar(weight) and np.isfinite(weight) and weight >= 0):
                raise ValueError(f"class_weight must be finite and not negative, got {weight!r} "
                                 f"for class {label}")
        self.table = np.full(max(class_weight) + 1, np.nan)
        for label, weight in class_weight.items():
            self.table[label] = weight
        self.criterion = criterion
        self.sparse = criterion.losses[0].labels == "classes"

    def apply(self, y, sample_weight):
        """Return the product of sample weights and class weights.

        Parameters
        ----------
        y : array_like of shape (n,), (n, 1) or (n, classes), alone or in a dict
            Of one-hot rows, or probabilities, the largest counts.
        sample_weight : array_like of shape (n,) or (n, outputs), or dict of it, or None

        Raises
        ------
        ValueError
            A class that has no weight, rows with several labels or none, or other numbers of
            rows.
        """
        y = np.asarray(self.criterion.split_labels(y)[0])
        if not self.sparse and y.ndim == 2 and y.shape[1] > 1:
            one_hot, y = y, y.argmax(axis=1)
            several = np.nonzero((one_hot == one_hot.max(axis=1, keepdims=True)).sum(axis=1) != 1)
            if len(several[0]):
                row = several[0][0]
                raise ValueError(f"class_weight needs one label a row, y has {one_hot[row]} in row "
                                 f"{row}")
        elif y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise ValueError(f"class_weight needs one label a row, y has shape {y.shape}")
        known = np.nonzero(~np.isnan(self.table))[0]
        bad = ~np.isin(y, known)
        if bad.any():
            raise ValueError(f"class_weight has no weight for class {y[bad][0]}; it has "
                             f"{known.tolist()}")
        weights = self.table[y.astype(np.int64)]
        if sample_weight is None:
            return weights
        given = np.asarray(self.criterion.split_weights(sample_weight)[0])
        if given.shape[:1] != y.shape:
            raise ValueError(f"sample_weight must have an entry for each of the {len(y)} rows, got "
                             f"shape {given.shape}")
        return given * weights.reshape((-1,) + (1,) * (given.ndim - 1))
