"""Train neural networks from NumPy arrays on ggml, with the training loop in your hands."""

import sys

if sys.platform == "win32":
    from pyggml import _dlls  # noqa: F401 - tells Windows where the libraries lie

from pyggml._runtime import check_cpu, check_ggml_version, get_num_threads, set_num_threads

check_ggml_version()
check_cpu()

from pyggml import (  # noqa: E402 - only after the library is known to fit
    activations,
    checkpoints,
    hpc,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
    saving,
)
from pyggml._random import set_seed  # noqa: E402
from pyggml._snapshot import Snapshot, snapshot_free  # noqa: E402
from pyggml._trainer import Trainer  # noqa: E402
from pyggml._variable import Variable  # noqa: E402
from pyggml.config import config, show_config  # noqa: E402
from pyggml.foreign import load_keras_weights, load_torch_state_dict  # noqa: E402
from pyggml.history import History  # noqa: E402
from pyggml.layers.input import Input  # noqa: E402
from pyggml.models import Model, Sequential  # noqa: E402
from pyggml.saving import FileFormatError, load_model  # noqa: E402

__all__ = [
    "FileFormatError", "History", "Input", "Model", "Sequential", "Snapshot", "Trainer",
    "Variable", "activations", "checkpoints", "config", "get_num_threads", "hpc", "initializers",
    "layers", "load_keras_weights", "load_model", "load_torch_state_dict", "losses", "metrics",
    "ops", "optimizers", "regularizers", "saving", "set_num_threads", "set_seed", "show_config",
    "snapshot_free",
]
