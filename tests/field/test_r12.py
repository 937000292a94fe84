"""R12: initial_epoch, schedules and history agree after a restart."""

import numpy as np
import pytest

import pyggml
from pyggml import layers, optimizers

X = np.ones((6, 1), np.float32)
Y = np.full((6, 1), 3, np.float32)

callbacks = getattr(pyggml, "callbacks", None)
schedules = getattr(pyggml, "schedules", None)


def _model(rate=0.1):
    model = pyggml.Sequential([pyggml.Input((1,)),
                               layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer=optimizers.SGD(rate), loss="mse")
    return model


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
