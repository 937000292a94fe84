"""R12: initial_epoch, schedules and history agree after a restart."""

import numpy as np
import pytest
from _models import zero_model

import pyggml
from pyggml import callbacks, optimizers, schedules

X, Y = np.ones((6, 1), np.float32), np.arange(6, dtype=np.float32)


class Rates(callbacks.Callback):
    """Works out the rate really used from how far the weight moved."""

    def __init__(self):
        self.epochs, self.steps = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(epoch)

    def on_train_batch_begin(self, batch, logs=None):
        self.before = float(self.model.get_weights()[0][0, 0])

    def on_train_batch_end(self, batch, logs=None):
        after = float(self.model.get_weights()[0][0, 0])
        gradient = 2 * (self.before - Y[2 * batch:2 * batch + 2]).mean()
        self.steps.append((self.before - after) / gradient)


def run(make, runs, resume=False):
    model = zero_model(optimizer=optimizers.SGD(0.1))
    rates, epochs = Rates(), []
    for first, n in runs:
        schedule = make()
        if not isinstance(schedule, callbacks.Callback):
            if first == 0:
                model.optimizer.learning_rate = schedule
            used = [rates]
        else:
            used = [schedule, rates]
        history = model.fit(X, Y, batch_size=2, shuffle=False, verbose=0, callbacks=used,
                            initial_epoch=first, epochs=n)
        epochs += history.epoch
        assert len(history.history["loss"]) == n
    assert epochs == rates.epochs == list(range(4))
    return rates.steps


HALVES = [0.1, 0.05, 0.025, 0.0125]


@pytest.mark.parametrize("make", [
    lambda: callbacks.LearningRateScheduler(lambda e: 0.1 * 0.5**e),
    lambda: callbacks.LearningRateScheduler(schedules.StepDecay(1, 0.5, 0.1)),
    lambda: schedules.StepDecay(1, 0.5, initial_learning_rate=0.1),
], ids=["function", "scheduler", "schedule"])
@pytest.mark.parametrize("runs", [[(0, 4)], [(0, 2), (2, 2)]], ids=["straight", "restarted"])
def test_r12a_rates_by_epoch_go_on(make, runs):
    expected = np.repeat(HALVES, 3)
    assert run(make, runs) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("make", [
    lambda: callbacks.LearningRateScheduler(lambda n: 0.1 * 0.9**n, by="step"),
    lambda: schedules.ExponentialDecay(0.9, initial_learning_rate=0.1, by="step"),
    lambda: (lambda n: 0.1 * 0.9**n),
], ids=["function", "schedule", "optimizer"])
@pytest.mark.parametrize("runs", [[(0, 4)], [(0, 2), (2, 2)]], ids=["straight", "restarted"])
def test_r12a_rates_by_step_go_on(make, runs):
    assert run(make, runs) == pytest.approx(0.1 * 0.9 ** np.arange(12), rel=2e-3)


def test_r12a_a_schedule_that_cannot_know_its_start_says_so():
    model = zero_model()
    with pytest.raises(ValueError, match="give initial_learning_rate, or restore its state"):
        model.fit(X, Y, initial_epoch=2, verbose=0, callbacks=[schedules.StepDecay(1, 0.5)])
    first = schedules.StepDecay(1, 0.5)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[first])
    second = schedules.StepDecay(1, 0.5)
    second.set_state(first.get_state())
    history = model.fit(X, Y, initial_epoch=2, epochs=2, verbose=0, callbacks=[second])
    assert history.history["learning_rate"] == pytest.approx(HALVES[2:])


def test_r12b_a_reduced_rate_stays_reduced():
    model = zero_model(optimizer=optimizers.SGD(0.1))
    plateau = callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=1e9)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[plateau])
    assert model.optimizer.learning_rate == pytest.approx(0.01)
    model = model.copy()
    history = model.fit(X, Y, initial_epoch=2, verbose=0,
                        callbacks=[callbacks.ReduceLROnPlateau("loss")])
    assert history.history["learning_rate"] == [pytest.approx(0.01)]
    assert model.optimizer.learning_rate == pytest.approx(0.01)


def test_r12c_no_epochs_and_negative_numbers():
    model = zero_model()
    history = model.fit(X, Y, initial_epoch=4, epochs=0, verbose=0)
    assert history.epoch == [] and history.history == {}
    assert not model.get_weights()[0].any()
    for bad in ({"initial_epoch": -1}, {"epochs": -1}):
        with pytest.raises(ValueError, match="must not be negative"):
            model.fit(X, Y, verbose=0, **bad)


def test_initial_epoch_only_shifts_numbers():
    seen = []
    pyggml_callback = callbacks.LambdaCallback(on_epoch_begin=lambda e, logs: seen.append(e))
    history = zero_model().fit(X, Y, initial_epoch=10, epochs=3, verbose=0,
                               callbacks=[pyggml_callback])
    assert history.epoch == seen == [10, 11, 12]
    assert isinstance(history, pyggml.History)
