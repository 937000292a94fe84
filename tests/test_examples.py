"""The examples run, and learn what they say they learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from child import STRETCH

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name, tmp_path, *arguments, timeout=600):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, "--output", picture, *arguments],
        cwd=tmp_path, timeout=timeout * STRETCH, capture_output=True, text=True, check=False)
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


def run_plain(name, folder, *arguments, timeout=600):
    pytest.importorskip("sklearn")
    result = subprocess.run([sys.executable, EXAMPLES / name, *arguments], cwd=folder,
                            timeout=timeout, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def test_a_file_is_learned_through_a_memory_map_and_removed(tmp_path):
    printed = run_plain("bigger_than_memory.py", tmp_path, "--gigabytes", "0.05", "--epochs", "2",
                        "--folder", tmp_path)
    rows, accuracy = re.search(r"([\d,]+) rows.*accuracy ([\d.]+)", printed, re.DOTALL).groups()
    assert int(rows.replace(",", "")) * 4 * 24 * 24 == pytest.approx(0.05 * 2**30, rel=1e-3)
    assert float(accuracy) > 0.8
    assert list(tmp_path.iterdir()) == []


def test_augmentation_by_a_generator_generalises_better(tmp_path):
    printed = run_plain("generator_augmentation.py", tmp_path)
    plain, augmented = (float(re.search(rf"^{name} .*accuracy ([\d.]+)", printed,
                                        re.MULTILINE).group(1))
                        for name in ("as they are", "augmented"))
    assert augmented > plain > 0.8
    assert "300 epochs of 6 batches" in printed


def test_a_residual_network_reads_digits(tmp_path):
    result = run_example("cnn_digits.py", tmp_path)
    accuracy = float(re.search(r"test accuracy ([\d.]+)", result.stdout).group(1))
    assert accuracy >= 0.985


def perplexities(text):
    found = dict(re.findall(r"^(\w+) +perplexity +([\d.]+)", text, re.MULTILINE))
    return {name: float(value) for name, value in found.items()}


def test_a_character_model_beats_counting_pairs_and_writes(tmp_path):
    result = run_example("sequence.py", tmp_path, "--epochs", "2", "--characters", "100000")
    found = perplexities(result.stdout)
    assert found["network"] < found["bigram"] < found["unigram"]
    after_one = float(re.search(r"([\d.]+) after the first epoch", result.stdout).group(1))
    assert found["network"] < after_one
    assert len(result.stdout.split("The statement ")[1]) >= 390


def test_two_outputs_are_predicted_no_worse_than_by_linear_models(tmp_path):
    result = run_example("multi_output.py", tmp_path)
    reported, summed = re.search(r"loss ([\d.]+) = ([\d.]+)", result.stdout).groups()
    assert float(reported) == pytest.approx(float(summed), abs=2e-4)
    (_, auc, explained), (_, other_auc, other_explained) = (
        [float(v) for v in re.search(
            rf"^{name} +accuracy ([\d.]+), AUC ([\d.]+), explained ([\d.]+)", result.stdout,
            re.MULTILINE).groups()] for name in ("pyggml", "scikit-learn"))
    assert auc >= other_auc
    assert explained > other_explained
