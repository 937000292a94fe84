"""Runs code that could crash, hang or print in a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# Under tools/sanitize.py everything takes several times as long.
STRETCH = 10 if "PYGGML_SANITIZER" in os.environ else 1


def run_child(code, timeout=120, env=None):
    """Run Python code and return what it printed; a signal, an error or noise fails the test."""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=timeout * STRETCH, check=False,
        cwd=Path(__file__).parent,  # not where the package lies uncompiled
        env=None if env is None else os.environ | env)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stderr[-4000:]}"
    assert result.stderr == "", result.stderr[-4000:]
    return result.stdout
