"""Starts the processes in which things are measured."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent

# The package is loaded from its own folder, not from the current one: beside it lies pyggml's
# source, which an import would take for the installed package.
_BOOT = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location(
    "benchmarks", {init!r}, submodule_search_locations=[{here!r}])
sys.modules["benchmarks"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from importlib import import_module
import_module("benchmarks.{module}").main(json.loads(sys.argv[1]))
"""


def environment(threads):
    """Variables that tell all libraries the number of threads, and none that slows one down."""
    # A variable that forces OpenBLAS to older kernels, say, would handicap some contestants only.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    n = str(threads)
    return kept | {
        "OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, "NPROC": n, "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "jax", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore",
    }


def run(module, options, threads, timeout=3600):
    """Run ``main(options)`` of a module in a child and return what it left in "out", or None.

    None after a child that ended otherwise; why is on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        try:
            done = subprocess.run(
                [sys.executable, "-c", boot(module), json.dumps(options | {"out": str(out)})],
                cwd=folder, env=environment(threads), timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            print(f"a child took more than {timeout} s", file=sys.stderr)
            return None
        if done.returncode or not out.exists():
            print(f"a child ended with status {done.returncode}", file=sys.stderr)
            return None
        return json.loads(out.read_text())


def boot(module):
    return _BOOT.format(init=str(_HERE / "__init__.py"), here=str(_HERE), module=module)
