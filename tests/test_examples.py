"""The examples run, and learn what they say they learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name, tmp_path, timeout=120):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, "--output", picture], cwd=tmp_path, timeout=timeout,
        capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    assert picture.read_bytes().startswith(b"\x89PNG")
    return result


def test_digits_are_read_and_progress_is_shown(tmp_path):
    result = run_example("digits.py", tmp_path)
    accuracy = float(re.search(r"test accuracy ([\d.]+)", result.stdout).group(1))
    assert accuracy >= 0.97
    assert "epoch 1/" in result.stderr


def test_diabetes_is_predicted_no_worse_than_by_scikit_learn(tmp_path):
    result = run_example("regression_diabetes.py", tmp_path)
    ours, theirs = (float(re.search(rf"^{name}\s+mean squared error +([\d.]+)", result.stdout,
                                    re.MULTILINE).group(1)) for name in ("pyggml", "scikit-learn"))
    assert ours <= theirs
