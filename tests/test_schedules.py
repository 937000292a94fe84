"""Schedules against their formulas, and all ways to use them."""

import math

import numpy as np
import pytest

import pyggml
from pyggml import callbacks, layers, optimizers, schedules


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


N = np.arange(40)


def rates(schedule, n=N):
    return np.array([schedule(int(i)) for i in n])


def test_step_decay():
    assert rates(schedules.StepDecay(initial_learning_rate=2.0)) == pytest.approx(
        2.0 * 0.1 ** (N // 10))


@pytest.mark.parametrize("staircase", [False, True])
def test_exponential_decay(staircase):
    found = rates(schedules.ExponentialDecay(0.5, 4, staircase, 2.0))
    assert found == pytest.approx(2.0 * 0.5 ** (N // 4 if staircase else N / 4))


def test_cosine_decay():
    found = rates(schedules.CosineDecay(0.1, 30, initial_learning_rate=1.1))
    t = np.minimum(N, 30)
    assert found == pytest.approx(0.1 + (1 + np.cos(np.pi * t / 30)) / 2)
    assert found[0] == pytest.approx(1.1) and found[30:] == pytest.approx(0.1)


@pytest.mark.parametrize("t_mult", [1.0, 1.0 + 1e-9, 1.01, 2.0])
def test_restarts_take_no_longer_after_very_many_steps(t_mult):
    """The rate of a step does not cost a turn for every restart before it."""
    schedule = schedules.CosineDecay(0.0, 3, restarts=True, t_mult=t_mult, by="step",
                                     initial_learning_rate=1.0)
    for number in (2**40, 2**61, 10**7):
        assert 0 <= schedule(number) <= 1
    want, t, length = [], 0, 3.0
    for number in range(3000):
        if number - t >= length:
            t, length = t + length, length * t_mult
        want.append((1 + math.cos(math.pi * (number - t) / length)) / 2)
    np.testing.assert_allclose([schedule(n) for n in range(3000)], want, atol=1e-9)


def test_cosine_with_warm_up_and_restarts():
    schedule = schedules.CosineDecay(0.0, 4, warmup=5, warmup_start=0.5, restarts=True, t_mult=2,
                                     initial_learning_rate=1.0)
    found = rates(schedule)
    assert found[:5] == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9])
    # cycles of 4, 8, 16 and 32 begin at 5, 9, 17 and 33
    for start, length in ((5, 4), (9, 8), (17, 16), (33, 32)):
        t = np.arange(min(length, 40 - start))
        assert found[start:start + len(t)] == pytest.approx(
            (1 + np.cos(np.pi * t / length)) / 2)


@pytest.mark.parametrize("cycle", [False, True])
def test_polynomial_decay(cycle):
    found = rates(schedules.PolynomialDecay(0.1, 8, 2.0, cycle, initial_learning_rate=1.1))
    length = 8 * np.maximum(1, np.ceil(N / 8)) if cycle else 8
    expected = (1 - np.minimum(N, length) / length) ** 2 + 0.1
    assert found == pytest.approx(expected)


def test_piecewise_constant_decay():
    found = rates(schedules.PiecewiseConstantDecay([3, 7], [1.0, 0.5, 0.1]))
    assert found == pytest.approx(np.where(N <= 3, 1.0, np.where(N <= 7, 0.5, 0.1)))


@pytest.mark.parametrize("anneal", ["cos", "linear"])
def test_one_cycle(anneal):
    found = rates(schedules.OneCycle(1.0, total_steps=30, anneal=anneal))
    up, down = 0.3 * 30 - 1, 29

    def between(a, b, share):
        return a + (b - a) * ((1 - math.cos(math.pi * share)) / 2 if anneal == "cos" else share)

    expected = [between(1 / 25, 1.0, n / up) if n <= up
                else between(1.0, 1 / 25 / 1e4, min(1, (n - up) / (down - up))) for n in N]
    assert found == pytest.approx(expected)
    assert found.argmax() == 8 and found[29:] == pytest.approx(4e-6)


@pytest.mark.parametrize("mode", ["triangular", "triangular2", "exp_range"])
def test_cyclic(mode):
    found = rates(schedules.CyclicLR(1.0, 5, mode, gamma=0.9, initial_learning_rate=0.2))
    share = 1 - np.abs((N % 10) / 5 - 1)
    scale = {"triangular": 1, "triangular2": 0.5 ** (N // 10), "exp_range": 0.9**N}[mode]
    assert found == pytest.approx(0.2 + 0.8 * share * scale)


@pytest.mark.parametrize(("make", "name"), [
    (lambda: schedules.StepDecay(0), "step_size"), (lambda: schedules.StepDecay(gamma=-1), "gamma"),
    (lambda: schedules.CosineDecay(t_max=0), "t_max"),
    (lambda: schedules.CosineDecay(restarts=True), "t_max"),
    (lambda: schedules.CosineDecay(t_max=3, t_mult=0.5), "t_mult"),
    (lambda: schedules.PiecewiseConstantDecay([3, 2], [1, 1, 1]), "boundaries"),
    (lambda: schedules.PiecewiseConstantDecay([3], [1]), "values"),
    (lambda: schedules.OneCycle(1.0, pct_start=1), "pct_start"),
    (lambda: schedules.CyclicLR(1.0, mode="x"), "mode"),
    (lambda: schedules.StepDecay(by="batch"), "by"),
    (lambda: schedules.StepDecay(initial_learning_rate=math.nan), "initial_learning_rate"),
    (lambda: schedules.StepDecay()(0), "initial_learning_rate"),
    (lambda: schedules.CosineDecay(initial_learning_rate=1)(0), "t_max"),
    (lambda: callbacks.LearningRateScheduler(0.1), "schedule"),
])
def test_bad_arguments_are_refused_by_name(make, name):
    with pytest.raises((TypeError, ValueError), match=name):
        make()


def model_of(optimizer=None):
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1)])
    model.compile(optimizer or optimizers.SGD(0.1), "mse")
    return model


X, Y = np.ones((6, 1), np.float32), np.ones(6, np.float32)


def test_a_run_gives_its_length_and_its_optimizer_the_base():
    history = model_of().fit(X, Y, epochs=4, verbose=0, callbacks=[schedules.CosineDecay()])
    assert history.history["learning_rate"] == pytest.approx(
        [0.1 * (1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)])


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_every_optimizer_follows(name):
    model = model_of(optimizers.get(name))
    model.fit(X, Y, epochs=3, verbose=0, callbacks=[schedules.StepDecay(1, 0.5)])
    assert model.optimizer.learning_rate == pytest.approx(1e-3 * 0.25)


def test_a_schedule_begins_with_the_rate_of_the_optimizer_it_is_used_on():
    schedule = schedules.StepDecay(1, 0.5)

    def seen(model, **options):
        history = model.fit(X, Y, epochs=2, verbose=0, callbacks=[schedule], **options)
        return history.history["learning_rate"]

    first, second = model_of(optimizers.SGD(0.1)), model_of(optimizers.SGD(0.01))
    assert seen(first) == pytest.approx([0.1, 0.05])
    assert seen(first, initial_epoch=2) == pytest.approx([0.025, 0.0125])
    assert seen(second) == pytest.approx([0.01, 0.005])
    second.compile(optimizers.SGD(0.4), "mse")
    assert seen(second) == pytest.approx([0.4, 0.2])
    resumed = schedules.StepDecay(1, 0.5)  # in another process, with an optimizer made anew
    resumed.set_state(schedule.get_state())
    history = model_of(optimizers.SGD(0.3)).fit(X, Y, epochs=1, initial_epoch=2, verbose=0,
                                                callbacks=[resumed])
    assert history.history["learning_rate"] == pytest.approx([0.1])


def test_by_step_in_a_run():
    seen = []
    model = model_of()
    model.fit(X, Y, batch_size=2, epochs=2, verbose=0, callbacks=[
        schedules.OneCycle(1.0),
        callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: seen.append(
            model.optimizer.learning_rate))])
    assert seen == pytest.approx(rates(schedules.OneCycle(1.0, 6), range(6)))


def test_an_optimizer_asks_its_schedule_before_every_update():
    schedule = schedules.ExponentialDecay(0.5, initial_learning_rate=0.1)
    model = model_of(optimizers.SGD(schedule))
    with pyggml.Trainer(model, 6) as trainer:
        found = []
        for _ in range(3):
            trainer.step(X, Y)
            found.append(trainer.lr)
        assert found == pytest.approx([0.1, 0.05, 0.025])
        trainer.set_lr(0.7)  # ends the schedule
        trainer.step(X, Y)
        assert trainer.lr == 0.7
    assert model.optimizer.schedule is schedule or model.optimizer.schedule == schedule


def test_an_optimizer_with_a_schedule_tells_it_as_its_argument():
    schedule = schedules.StepDecay(3, 0.5, initial_learning_rate=0.1)
    adam = optimizers.Adam(schedule)
    assert adam.get_config()["learning_rate"] is schedule
    assert optimizers.Adam(**adam.get_config()).schedule is schedule
    with pytest.raises(ValueError, match="learning_rate must be finite"):
        optimizers.Adam(lambda n: -1.0)


@pytest.mark.parametrize("schedule", [
    schedules.StepDecay(3, 0.5, 0.1), schedules.CosineDecay(0.1, 7, 2, 0.0, True, 2, 0.3),
    schedules.PiecewiseConstantDecay([1], [2, 3]), schedules.OneCycle(0.5, 9),
    schedules.CyclicLR(1, 4, initial_learning_rate=0.1), schedules.PolynomialDecay(0.1, 3, 2, True),
    schedules.ExponentialDecay(0.5, 2, True, 0.1, "step"),
], ids=lambda s: type(s).__name__)
def test_configs_make_the_same_schedule_and_states_go_over(schedule):
    other = type(schedule)(**schedule.get_config())
    assert other == schedule and repr(other) == repr(schedule)
    other.set_state(schedule.get_state())
    assert other.get_state() == schedule.get_state()


def test_a_function_may_take_the_current_rate():
    history = model_of().fit(X, Y, epochs=3, verbose=0, callbacks=[
        callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)])
    assert history.history["learning_rate"] == pytest.approx([0.05, 0.025, 0.0125])
    with pytest.raises(TypeError, match="must return a number"):
        model_of().fit(X, Y, verbose=0, callbacks=[
            callbacks.LearningRateScheduler(lambda epoch: None)])


def _halved(epoch, rate=9.0):
    return rate / 2


def _last_halved(*numbers):
    return numbers[-1] / 2


@pytest.mark.parametrize("function", [_halved, _last_halved, lambda *n: _halved(*n)])
def test_a_function_that_can_take_the_current_rate_gets_it(function):
    history = model_of().fit(X, Y, epochs=3, verbose=0,
                             callbacks=[callbacks.LearningRateScheduler(function)])
    assert history.history["learning_rate"] == pytest.approx([0.05, 0.025, 0.0125])


def test_a_constant_of_a_function_is_keyword_only():
    def decayed(epoch, *, base=0.5):
        return base / (epoch + 1)

    history = model_of().fit(X, Y, epochs=2, verbose=0,
                             callbacks=[callbacks.LearningRateScheduler(decayed)])
    assert history.history["learning_rate"] == pytest.approx([0.5, 0.25])


def test_a_resumed_schedule_by_step_without_a_known_length_says_so():
    with pytest.raises(ValueError, match="needs steps_per_epoch"):
        model_of().fit_generator(iter([(X, Y)] * 3), batch_size=6, initial_epoch=2, verbose=0,
                                 callbacks=[schedules.OneCycle(1.0, 9)])
