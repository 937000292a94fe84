"""Train neural networks from NumPy arrays on ggml, with the training loop in your hands."""

import importlib
import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    from pyggml import _dlls  # noqa: F401

try:
    from pyggml._runtime import get_num_threads, set_num_threads
except ImportError as error:
    if "interpreter" not in str(error):
        raise
    raise ImportError(
        "pyggml cannot be imported into a sub-interpreter: its threads and ggml's log belong to "
        "the whole process; use threads or processes") from error

from pyggml._library import check_cpu, check_ggml_version

check_ggml_version()
check_cpu()

from pyggml import (
    activations,
    callbacks,
    checkpoints,
    data,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
    saving,
    schedules,
)
from pyggml._random import set_seed
from pyggml._snapshot import Snapshot, snapshot_free
from pyggml._trainer import Trainer
from pyggml._variable import Variable
from pyggml.config import config, show_config
from pyggml.history import History
from pyggml.layers.input import Input
from pyggml.models import Model, Sequential
from pyggml.saving import FileFormatError, load_model

if TYPE_CHECKING:
    from pyggml import hpc, opt, utils
    from pyggml.foreign import load_keras_weights, load_torch_state_dict

__all__ = [
    "FileFormatError", "History", "Input", "Model", "Sequential", "Snapshot", "Trainer",
    "Variable", "activations", "callbacks", "checkpoints", "config", "data", "fit_generator",
    "get_num_threads", "hpc", "initializers", "layers", "load_keras_weights", "load_model",
    "load_torch_state_dict", "losses", "metrics", "ops", "opt", "optimizers", "regularizers",
    "saving", "schedules", "set_num_threads", "set_seed", "show_config", "snapshot_free", "utils",
]


def fit_generator(model, generator, **arguments):
    """Train a model on batches that a generator makes; see :meth:`pyggml.Model.fit_generator`.

    Parameters
    ----------
    model : Model
    generator, **arguments
        As for the method.

    Returns
    -------
    History

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> def batch():
    ...     return np.ones((8, 2)), np.ones(8)
    >>> history = pyggml.fit_generator(model, batch, steps_per_epoch=3, batch_size=8, verbose=0)
    >>> history.epoch
    [0]
    """
    return model.fit_generator(generator, **arguments)


# Modules for special uses are imported when they are first asked for. What methods of models and
# trainers need is not: a process may have given up its rights by the time it saves.
_modules = {"hpc", "opt", "utils"}
_found_in = {"load_keras_weights": "foreign", "load_torch_state_dict": "foreign"}


if not TYPE_CHECKING:  # for it would let every name pass

    def __getattr__(name):
        if name not in _modules and name not in _found_in:
            raise AttributeError(f"module 'pyggml' has no attribute {name!r}")
        module = importlib.import_module(f"pyggml.{_found_in.get(name, name)}")
        value = module if name in _modules else getattr(module, name)
        globals()[name] = value
        return value


def __dir__():
    return sorted({*globals(), *__all__})
