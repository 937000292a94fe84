"""Metrics: computed over a whole epoch in double, not as means of batch means."""

from pyggml._lookup import lookup
from pyggml.metrics.accuracy import (
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
)
from pyggml.metrics.base import FunctionMetric, Metric, WeightedMean, match, spread_weights
from pyggml.metrics.counts import AUC, F1Score, Precision, Recall
from pyggml.metrics.errors import (
    CosineSimilarity,
    MeanAbsoluteError,
    MeanSquaredError,
    R2Score,
    RootMeanSquaredError,
)

__all__ = [
    "AUC", "BinaryAccuracy", "CategoricalAccuracy", "CosineSimilarity", "F1Score",
    "FunctionMetric", "MeanAbsoluteError", "MeanSquaredError", "Metric", "Precision", "R2Score",
    "Recall", "RootMeanSquaredError", "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy", "TopKCategoricalAccuracy", "WeightedMean", "get", "match",
    "spread_weights",
]


_classes = {
    "binary_accuracy": BinaryAccuracy,
    "categorical_accuracy": CategoricalAccuracy,
    "sparse_categorical_accuracy": SparseCategoricalAccuracy,
    "top_k_categorical_accuracy": TopKCategoricalAccuracy,
    "sparse_top_k_categorical_accuracy": SparseTopKCategoricalAccuracy,
    "precision": Precision,
    "recall": Recall,
    "f1": F1Score,
    "f1_score": F1Score,
    "auc": AUC,
    "mse": MeanSquaredError,
    "mean_squared_error": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mean_absolute_error": MeanAbsoluteError,
    "rmse": RootMeanSquaredError,
    "root_mean_squared_error": RootMeanSquaredError,
    "r2": R2Score,
    "r2_score": R2Score,
    "cosine": CosineSimilarity,
    "cosine_similarity": CosineSimilarity,
}


def get(identifier, loss=None, output_shape=None, logits=False):
    """Return a new metric by name, or the object itself.

    Parameters
    ----------
    identifier : str, Metric or callable
        ``"accuracy"`` is the accuracy that fits the loss.
    loss : Loss, optional
    output_shape : tuple of int, optional
        Its last size is looked at.
    logits : bool
        Whether the predictions are logits, which a binary accuracy splits at 0, not at 1/2.

    Returns
    -------
    Metric

    Raises
    ------
    ValueError
        An unknown name; the message lists the known ones.

    Examples
    --------
    >>> from pyggml import losses, metrics
    >>> type(metrics.get("accuracy", losses.get("sparse_categorical_crossentropy"))).__name__
    'SparseCategoricalAccuracy'
    """
    if isinstance(identifier, Metric):
        return identifier
    if identifier in ("accuracy", "acc"):
        if loss is not None and loss.labels == "classes":
            chosen = SparseCategoricalAccuracy
        elif (output_shape or ())[-1:] == (1,) or getattr(loss, "link", None) == "sigmoid":
            return BinaryAccuracy(0.0 if logits else 0.5, name=identifier)
        else:
            chosen = CategoricalAccuracy
        return chosen(name=identifier)
    found = lookup(identifier, _classes | {"accuracy": None, "acc": None}, "metric")
    if isinstance(found, type):
        return found(name=identifier) if isinstance(identifier, str) else found()
    return FunctionMetric(found)
