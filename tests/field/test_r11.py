"""R11: save, load, go on: the same numbers as never having stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyggml
from pyggml import layers, optimizers

JOB = Path(__file__).parent / "r11_job.py"
sys.path.insert(0, str(JOB.parent))

import r11_job

X, Y = np.ones((1, 1), np.float32), np.full((1, 1), 3, np.float32)


@pytest.fixture(autouse=True)
def _one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def _elsewhere(case, first, last, checkpoint, folder):
    out = folder / f"{first}.json"
    subprocess.run([sys.executable, str(JOB), case, str(first), str(last), str(checkpoint),
                    str(out)], check=True)
    found = json.loads(out.read_text())
    assert found["pid"] != os.getpid()
    return found


def test_a_adam_counts_on_from_the_saved_step(tmp_path):
    with pyggml.Trainer(r11_job.scalar(optimizers.Adam(0.1)), 1) as straight:
        for _ in range(10):
            straight.step(X, Y)
        wanted = straight.get_weights()[0]
        assert wanted[0, 0] == pytest.approx(0.98581, abs=1e-4)
    with pyggml.Trainer(r11_job.scalar(optimizers.Adam(0.1)), 1) as first:
        for _ in range(5):
            first.step(X, Y)
        first.save_checkpoint(tmp_path / "run")
    with pyggml.Trainer.from_checkpoint(tmp_path / "run") as second:
        for _ in range(5):
            second.step(X, Y)
        assert second.get_weights()[0].tobytes() == wanted.tobytes()
        assert second.n_steps == second.n_updates == 10


@pytest.mark.parametrize("stop", [5, 7])
@pytest.mark.parametrize("case", sorted(r11_job.CASES))
def test_a_resumed_in_a_new_process_equals_straight_bit_for_bit(case, stop, tmp_path):
    if r11_job.missing(case):
        pytest.skip(r11_job.missing(case))
    straight = r11_job.run(case, 0, 16, tmp_path / "straight")
    before = r11_job.run(case, 0, stop, tmp_path / "run")
    after = _elsewhere(case, stop, 16, tmp_path / "run", tmp_path)
    for key in ("losses", "orders"):
        assert before[key] + after[key] == straight[key]
    for key in ("weights", "lr", "n_steps", "n_updates", "stream"):
        assert after[key] == straight[key], key
    assert after["n_steps"] == 16


def test_a_the_whole_state_is_in_the_file(tmp_path):
    """Two checkpoints of equal trainers are equal files, moments and streams included."""
    case = "accumulation_dropout"
    r11_job.run(case, 0, 16, tmp_path / "straight")
    r11_job.run(case, 0, 7, tmp_path / "run")
    r11_job.run(case, 7, 16, tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == (tmp_path / "straight").read_bytes()


def test_b_weights_alone_start_with_a_fresh_optimizer(tmp_path):
    model = r11_job.scalar(optimizers.Adam(0.1))
    with pyggml.Trainer(model, 1) as trainer:
        for _ in range(5):
            trainer.step(X, Y)
        trained = trainer.model()
    trained.save_weights(tmp_path / "weights")
    fresh = r11_job.scalar(optimizers.Adam(0.1))
    fresh.load_weights(tmp_path / "weights")
    assert fresh.get_weights()[0] == trained.get_weights()[0]
    with pyggml.Trainer(fresh, 1) as trainer:
        assert trainer.n_steps == trainer.n_updates == 0
        assert "0 steps, 0 updates" in repr(trainer)
        start = float(trainer.get_weights()[0][0, 0])
        trainer.step(X, Y)
        # Adam's first step has the size of the learning rate.
        assert float(trainer.get_weights()[0][0, 0]) - start == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("include, moved", [(True, False), (False, True)])
def test_b_a_model_saved_without_optimizer_state_starts_with_a_fresh_one(include, moved,
                                                                        tmp_path):
    model = r11_job.scalar(optimizers.Adam(0.1))
    model.fit(X, Y, epochs=5, verbose=0)
    model.save(tmp_path / "model", include_optimizer=include)
    again = pyggml.load_model(tmp_path / "model")
    before = float(again.get_weights()[0][0, 0])
    again.fit(X, Y, verbose=0)
    model.fit(X, Y, verbose=0)
    step = float(again.get_weights()[0][0, 0]) - before
    assert (again.get_weights()[0] == model.get_weights()[0]) is not moved
    assert (abs(step - 0.1) < 1e-5) is moved
    assert again.compiled.trainer.n_updates == (1 if moved else 6)


def test_b_another_optimizer_is_refused(tmp_path):
    with pyggml.Trainer(r11_job.scalar("adam"), 1) as trainer:
        trainer.step(X, Y)
        trainer.save_checkpoint(tmp_path / "run")
    for other in ("sgd", optimizers.Adam(beta_1=0.8), optimizers.AdamW()):
        with pytest.raises(ValueError, match="Adam"):
            pyggml.Trainer.from_checkpoint(tmp_path / "run", r11_job.scalar(other))
    other = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1, name="other")])
    other.compile("adam", "mse")
    with pytest.raises(ValueError, match="other/kernel"):
        pyggml.Trainer.from_checkpoint(tmp_path / "run", other)
