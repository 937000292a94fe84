"""Train neural networks from NumPy arrays on ggml, with the training loop in your hands."""

import sys

if sys.platform == "win32":
    from pyggml import _dlls  # noqa: F401

from pyggml._runtime import check_cpu, check_ggml_version, get_num_threads, set_num_threads

check_ggml_version()
check_cpu()

from pyggml import (
    activations,
    callbacks,
    checkpoints,
    data,
    hpc,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    opt,
    optimizers,
    regularizers,
    saving,
    schedules,
    utils,
)
from pyggml._random import set_seed
from pyggml._snapshot import Snapshot, snapshot_free
from pyggml._trainer import Trainer
from pyggml._variable import Variable
from pyggml.config import config, show_config
from pyggml.foreign import load_keras_weights, load_torch_state_dict
from pyggml.history import History
from pyggml.layers.input import Input
from pyggml.models import Model, Sequential
from pyggml.saving import FileFormatError, load_model

__all__ = [
    "FileFormatError", "History", "Input", "Model", "Sequential", "Snapshot", "Trainer",
    "Variable", "activations", "callbacks", "checkpoints", "config", "data", "fit_generator",
    "get_num_threads", "hpc", "initializers", "layers", "load_keras_weights", "load_model",
    "load_torch_state_dict", "losses", "metrics", "ops", "opt", "optimizers", "regularizers",
    "saving", "schedules", "set_num_threads", "set_seed", "show_config", "snapshot_free", "utils",
]


def fit_generator(model, generator, **arguments):
    """Train a model on batches that a generator makes; see :meth:`pyggml.Model.fit_generator`."""
    return model.fit_generator(generator, **arguments)
