"""Losses.

Every loss is a contribution of each element; what is minimised is ``sum(w * l) / N``. The
weights w are never renormalised, and N counts the elements of the batch, or its rows where the
loss is one of rows (cross-entropies).
"""

from pyggml._lookup import lookup
from pyggml.losses.base import FunctionLoss, Loss, ModelOutput
from pyggml.losses.classification import (
    BinaryCrossentropy,
    BinaryFocalCrossentropy,
    CategoricalCrossentropy,
    CategoricalFocalCrossentropy,
    Hinge,
    KLDivergence,
    SparseCategoricalCrossentropy,
)
from pyggml.losses.regression import (
    CosineSimilarity,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanSquaredError,
    Poisson,
)

__all__ = [
    "BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy", "CosineSimilarity", "FunctionLoss", "Hinge", "Huber",
    "KLDivergence", "LogCosh", "Loss", "MeanAbsoluteError", "MeanSquaredError", "ModelOutput",
    "Poisson", "SparseCategoricalCrossentropy", "get",
]


_classes = {
    "mean_squared_error": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "huber": Huber,
    "log_cosh": LogCosh,
    "binary_crossentropy": BinaryCrossentropy,
    "binary_focal_crossentropy": BinaryFocalCrossentropy,
    "categorical_crossentropy": CategoricalCrossentropy,
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
    "categorical_focal_crossentropy": CategoricalFocalCrossentropy,
    "hinge": Hinge,
    "kl_divergence": KLDivergence,
    "poisson": Poisson,
    "cosine_similarity": CosineSimilarity,
    "output": ModelOutput,
}
_aliases = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "huber_loss": "huber",
    "logcosh": "log_cosh",
    "binary_cross_entropy": "binary_crossentropy",
    "bce": "binary_crossentropy",
    "crossentropy": "categorical_crossentropy",
    "cross_entropy": "categorical_crossentropy",
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "cosine": "cosine_similarity",
}


def get(identifier):
    """Return a loss by name, by object, or around a function.

    Parameters
    ----------
    identifier : str, Loss or callable

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        An unknown name.

    Examples
    --------
    >>> from pyggml import losses
    >>> losses.get("cross_entropy").name
    'categorical_crossentropy'
    """
    if isinstance(identifier, Loss):
        return identifier
    table = _classes | {alias: _classes[name] for alias, name in _aliases.items()}
    found = lookup(identifier, table, "loss")
    if isinstance(found, type) and issubclass(found, Loss):
        return found()
    return FunctionLoss(found)
