"""R12: initial_epoch, schedules and history agree after a restart."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyggml
from pyggml import layers, optimizers

X = np.ones((6, 1), np.float32)
Y = np.full((6, 1), 3, np.float32)

callbacks = getattr(pyggml, "callbacks", None)
schedules = getattr(pyggml, "schedules", None)
needs_callbacks = pytest.mark.skipif(callbacks is None or schedules is None,
                                     reason="there are no callbacks yet")


def _model(rate=0.1):
    model = pyggml.Sequential([pyggml.Input((1,)),
                               layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer=optimizers.SGD(rate), loss="mse")
    return model


class Rates:
    """What the optimizer's rate was at every step, and which epochs callbacks saw."""

    def __init__(self):
        self.rates, self.epochs = [], []

    def callback(self, model):
        return callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: self.rates.append(
                model.optimizer.learning_rate),
            on_epoch_begin=lambda epoch, logs: self.epochs.append(epoch))


def _fit(model, schedule, seen, **arguments):
    watch = [schedule] if isinstance(schedule, callbacks.Callback) else []
    return model.fit(X, Y, batch_size=2, verbose=0, callbacks=[*watch, seen.callback(model)],
                     **arguments)


def _halve(number):
    return 0.1 * 0.5 ** number


@needs_callbacks
@pytest.mark.parametrize("by", ["epoch", "step", "optimizer"])
def test_a_a_schedule_goes_on_after_a_restart(by, tmp_path):
    def schedule():
        return schedules.ExponentialDecay(0.5, initial_learning_rate=0.1,
                                          by="step" if by == "step" else "epoch")

    def make():
        return _model(schedule() if by == "optimizer" else 0.1)

    watch = None if by == "optimizer" else schedule()
    straight, seen = make(), Rates()
    _fit(straight, watch, seen, epochs=4)
    wanted = [_halve(i // 3 if by == "epoch" else i) for i in range(12)]
    assert seen.rates == pytest.approx(wanted, rel=1e-12)
    model = make()
    _fit(model, watch, Rates(), epochs=2)
    model.save(tmp_path / "model")
    again, later = pyggml.load_model(tmp_path / "model"), Rates()
    history = _fit(again, None if by == "optimizer" else schedule(), later, initial_epoch=2,
                   epochs=2)
    assert later.rates == seen.rates[6:]
    assert later.epochs == history.epoch == [2, 3]
    assert again.get_weights()[0] == straight.get_weights()[0]


@needs_callbacks
def test_b_a_plateau_stays_cut_after_load(tmp_path):
    model = _model(0.1)
    plateau = callbacks.ReduceLROnPlateau(monitor="loss", factor=0.1, patience=1, min_delta=100)
    model.fit(X, Y, batch_size=6, epochs=2, verbose=0, callbacks=[plateau])
    assert model.optimizer.learning_rate == pytest.approx(0.01)
    model.save(tmp_path / "model")
    again, seen = pyggml.load_model(tmp_path / "model"), Rates()
    assert again.optimizer.learning_rate == model.optimizer.learning_rate
    _fit(again, None, seen, initial_epoch=2, epochs=1)
    assert set(seen.rates) == {model.optimizer.learning_rate}


@needs_callbacks
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("kills", [(3, -14, 9), (-1, 25)])
def test_a_fit_that_is_killed_ends_with_the_same_weights_and_history(kills, tmp_path):
    job = Path(__file__).parent / "r12_job.py"

    def start(folder, kill):
        folder.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, str(job), str(folder / "run.ckpt"),
                               str(folder / "out.json"), str(kill)], check=False)
        return done.returncode

    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert start(straight, 0) == 0
    for kill in kills:
        assert start(stopped, kill) == (pyggml.hpc.EXIT_REQUEUE if kill > 0 else -signal.SIGKILL)
    assert start(stopped, 0) == 0
    wanted, found = (json.loads((f / "out.json").read_text()) for f in (straight, stopped))
    assert found["batches"] < wanted["batches"]
    for key in ("weights", "epoch", "history"):
        assert found[key] == wanted[key], key


def test_b_a_rate_that_was_cut_stays_cut_after_load(tmp_path):
    model = _model()
    model.fit(X, Y, batch_size=2, epochs=3, verbose=0)
    model.optimizer.learning_rate = 0.01
    model.fit(X, Y, batch_size=2, epochs=1, verbose=0)
    model.save(tmp_path / "model")
    again = pyggml.load_model(tmp_path / "model")
    assert again.optimizer.learning_rate == 0.01
    model.fit(X, Y, batch_size=2, epochs=2, verbose=0, shuffle=False)
    again.fit(X, Y, batch_size=2, epochs=2, verbose=0, shuffle=False)
    assert again.optimizer.learning_rate == 0.01
    assert again.get_weights()[0] == model.get_weights()[0]


def test_b_a_trainers_rate_stays_after_load(tmp_path):
    with pyggml.Trainer(_model(), 6) as trainer:
        trainer.step(X, Y)
        trainer.set_lr(0.01)
        trainer.save_checkpoint(tmp_path / "run")
        again = pyggml.Trainer.from_checkpoint(tmp_path / "run")
        assert again.lr == 0.01
        trainer.step(X, Y)
        again.step(X, Y)
        assert again.get_weights()[0] == trainer.get_weights()[0]


def test_c_no_epochs_is_no_training_and_negative_numbers_are_refused():
    model = _model()
    history = model.fit(X, Y, initial_epoch=4, epochs=0, verbose=0)
    assert history.epoch == [] and model.get_weights()[0] == 0
    with pytest.raises(ValueError, match="initial_epoch"):
        model.fit(X, Y, initial_epoch=-1, verbose=0)
    with pytest.raises(ValueError, match="epochs"):
        model.fit(X, Y, epochs=-1, verbose=0)
