"""What this copy of pyggml is made of and what it found on this machine."""

from __future__ import annotations

import platform
import sys
from typing import Any, TextIO

import numpy as np

from pyggml import _config, _library, _lowering, _runtime


def config() -> dict[str, Any]:
    """Return what :func:`show_config` prints, as a dict of dicts of strings.

    Returns
    -------
    dict

    Examples
    --------
    >>> import pyggml
    >>> sorted(pyggml.config())
    ['blas', 'build', 'cpu', 'devices', 'ggml', 'threads', 'versions']
    """
    features = _library.cpu_features()
    return {
        "versions": {
            "pyggml": _config.VERSION,
            "python": platform.python_version(),
            "free threading": _free_threading(),
            "numpy": np.__version__,
        },
        "build": {
            "compiler": _config.COMPILER,
            "type": _config.BUILD_TYPE,
            "cython": _config.CYTHON_VERSION,
            "numpy": _config.NUMPY_VERSION,
        },
        "ggml": {
            "version": _library.ggml_version(),
            "compiled against": _library.ggml_version_compiled(),
            "from": _config.GGML_DESCRIPTION,
        },
        "blas": {"from": _config.BLAS_DESCRIPTION},
        "devices": {
            d["name"]: f"{d['description']}, {d['memory_total'] / 2**30:.1f} GiB"
            for d in _library.devices()
        },
        "cpu": {
            "machine": platform.machine(),
            "used by ggml": " ".join(features) or "baseline",
            "used by kernels": _lowering.isa() if _lowering.enabled() else "none",
        },
        "threads": {"used": str(_runtime.get_num_threads())},
    }


def _free_threading():
    """Whether this Python has a global lock, which importing pyggml turns on again."""
    import sysconfig  # for this alone

    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "not in this Python"
    if sys._is_gil_enabled():
        return "not supported: the global lock is on"
    return "not supported: the global lock was turned off by hand"


def show_config(file: TextIO | None = None) -> None:
    """Print versions, where ggml and BLAS came from, devices, CPU features and threads.

    Parameters
    ----------
    file : file object, optional
        By default standard output.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.show_config()  # doctest: +ELLIPSIS
    versions
      pyggml ...
    """
    file = sys.stdout if file is None else file
    for section, entries in config().items():
        print(section, file=file)
        for key, value in entries.items():
            print(f"  {key}  {value}", file=file)
