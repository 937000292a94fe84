"""gradients() and apply_gradients(): clipping, frozen weights, weights of the loss, moments."""

import numpy as np
import pytest
from trainer_nets import batch, dense, same

import pyggml
from pyggml import layers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def clipped(gradients, clip):
    """What an optimizer makes of gradients before its step, in float64."""
    g = {name: value.astype(float) for name, value in gradients.items()}
    (kind, limit), = clip.items()
    if kind == "clipvalue":
        return {name: np.clip(value, -limit, limit) for name, value in g.items()}
    norms = {name: np.sqrt((value**2).sum()) for name, value in g.items()}
    if kind == "global_clipnorm":
        whole = np.sqrt(sum(norm**2 for norm in norms.values()))
        norms = dict.fromkeys(g, whole)
    return {name: value * min(1.0, limit / norms[name]) for name, value in g.items()}


CLIPS = [{"clipvalue": 0.01}, {"clipnorm": 0.02}, {"global_clipnorm": 0.05},
         {"global_clipnorm": 100.0}]


@pytest.mark.parametrize("clip", CLIPS, ids=str)
def test_gradients_are_those_of_the_loss_and_the_optimizer_clips_what_it_is_given(clip):
    x, y = batch()
    plain = dense(optimizer="sgd")
    model = dense(optimizer=pyggml.optimizers.SGD(0.5, **clip))
    with pyggml.Trainer(plain, 8) as reference, pyggml.Trainer(model, 8) as trainer, \
            pyggml.Trainer(model, 8) as stepped:
        gradients = trainer.gradients(x, y)
        assert same(list(gradients.values()), list(reference.gradients(x, y).values()))
        before = trainer.get_weights()
        trainer.apply_gradients(gradients)
        stepped.step(x, y)
        for w, old, own, g in zip(trainer.get_weights(), before, stepped.get_weights(),
                                  clipped(gradients, clip).values(), strict=True):
            np.testing.assert_allclose(w, old - 0.5 * g, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(w, own, rtol=1e-6, atol=1e-7)


def test_what_is_given_stays_as_it_was():
    x, y = batch()
    model = dense(optimizer=pyggml.optimizers.Adam(global_clipnorm=1e-3))
    with pyggml.Trainer(model, 8) as trainer:
        gradients = trainer.gradients(x, y)
        kept = {name: g.copy() for name, g in gradients.items()}
        trainer.apply_gradients(gradients)
        assert all(np.array_equal(gradients[name], kept[name]) for name in kept)
        again = trainer.gradients(x, y)
        assert all(np.array_equal(gradients[name], kept[name]) for name in kept)
        assert not same(list(again.values()), list(kept.values()))


def test_frozen_weights_have_no_gradient_and_none_is_taken():
    x, y = batch()
    model = dense((4, 8, 6, 2), optimizer="adam")
    model.layers[1].trainable = False
    with pyggml.Trainer(model, 8) as trainer:
        gradients = trainer.gradients(x, y)
        frozen = f"{model.layers[1].name}/kernel"
        assert len(gradients) == 4 and frozen not in gradients
        before = trainer.get_weights()
        with pytest.raises(ValueError, match=rf"unknown \['{frozen}'\]"):
            trainer.apply_gradients(gradients | {frozen: np.zeros((8, 6))})
        assert same(trainer.get_weights(), before)
        trainer.apply_gradients(gradients)
        after = trainer.get_weights()
        assert same(after[2:4], before[2:4])
        assert not any(np.array_equal(after[i], before[i]) for i in (0, 1, 4, 5))


def test_the_mean_of_workers_gradients_is_the_gradient_of_all_their_rows():
    x, y = batch(32)
    with pyggml.Trainer(dense(), 32) as whole, pyggml.Trainer(dense(), 8) as part:
        for _ in range(5):
            shares = [part.gradients(x[i::4], y[i::4]) for i in range(4)]
            part.apply_gradients({name: np.mean([g[name] for g in shares], axis=0)
                                  for name in shares[0]})
            whole.step(x, y)
        assert part.n_updates == 5
        for a, b in zip(part.get_weights(), whole.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_gradients_carry_weights_of_the_loss():
    x, y = batch()
    w = np.arange(8) / 4
    with pyggml.Trainer(dense(), 8, loss_mask=1) as trainer:
        parts = []
        for i in range(8):
            one = np.zeros(8)
            one[i] = 1
            parts.append(trainer.gradients(x, y, one))
        for name, g in trainer.gradients(x, y, w).items():
            np.testing.assert_allclose(g, sum(w[i] * parts[i][name] for i in range(8)),
                                       rtol=1e-4, atol=1e-6)


def test_applied_and_own_steps_share_moments_and_counters():
    """A step, an applied gradient, a step: as three steps."""
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as mixed, pyggml.Trainer(dense(), 8) as steady:
        for i in range(9):
            if i % 3 == 1:
                mixed.apply_gradients(mixed.gradients(x, y))
            else:
                mixed.step(x, y)
            steady.step(x, y)
        assert (mixed.n_steps, mixed.n_updates, steady.n_updates) == (6, 9, 9)
        for a, b in zip(mixed.get_weights(), steady.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_of_dropout_are_those_of_the_next_step():
    x, y = batch()
    model = dense(dropout=0.5, optimizer=pyggml.optimizers.SGD(1.0))
    with pyggml.Trainer(model, 8) as trainer:
        for _ in range(3):
            gradients, before = trainer.gradients(x, y), trainer.get_weights()
            trainer.step(x, y)
            for old, new, g in zip(before, trainer.get_weights(), gradients.values(),
                                   strict=True):
                np.testing.assert_allclose(old - g, new, rtol=1e-6, atol=1e-7)


def test_gradients_of_weights_used_twice_are_added_up():
    pyggml.set_seed(0)
    a, b = pyggml.Input((3,), name="a"), pyggml.Input((3,), name="b")
    shared = layers.Dense(2, use_bias=False, name="shared")
    model = pyggml.Model([a, b], layers.Add()([shared(a), shared(b)]))
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5, 3)), rng.normal(size=(5, 2))
    kernel = model.get_weights()[0].astype(float)
    error = 2 * ((x[0] + x[1]) @ kernel - y) / y.size
    with pyggml.Trainer(model, 5) as trainer:
        found = trainer.gradients({"a": x[0], "b": x[1]}, y)
        np.testing.assert_allclose(found["shared/kernel"], (x[0] + x[1]).T @ error, rtol=1e-4,
                                   atol=1e-6)
