"""The trainer's line R7 of the contract: weights and masks of the loss."""

import math
import re

import numpy as np
import pytest
from trainer_nets import batch, dense, same, zero

import pyggml


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


LOSSES = {
    "mse": None, "mae": None, "huber": None, "log_cosh": None, "hinge": None,
    "poisson": "softplus", "binary_crossentropy": "sigmoid",
    "binary_focal_crossentropy": "sigmoid", "categorical_crossentropy": "softmax",
    "sparse_categorical_crossentropy": "softmax", "categorical_focal_crossentropy": "softmax",
    "kl_divergence": "softmax", "cosine_similarity": None,
}
# Of these a row has one value, not one an output.
OF_ROWS = {"categorical_crossentropy", "sparse_categorical_crossentropy", "kl_divergence",
           "categorical_focal_crossentropy", "cosine_similarity"}


def labels(loss, rows=6):
    rng = np.random.default_rng(4)
    if loss == "hinge":
        return rng.choice([-1.0, 1.0], (rows, 3))
    if loss == "poisson":
        return rng.integers(0, 4, (rows, 3)).astype(float)
    if loss == "sparse_categorical_crossentropy":
        return rng.integers(0, 3, rows)
    if loss.startswith(("categorical", "kl")):
        return np.eye(3)[rng.integers(0, 3, rows)]
    if loss.startswith("binary"):
        return rng.integers(0, 2, (rows, 3)).astype(float)
    return rng.normal(size=(rows, 3))


def weighted(loss, mask):
    return pyggml.Trainer(dense((4, 5, 3), last=LOSSES[loss], loss=loss), 6, loss_mask=mask)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mask", [1, 3])
def test_r7_ones_equal_no_weights_and_zeros_give_nothing(loss, mask):
    x, y = batch(6)[0], labels(loss)
    shape = (6,) if mask == 1 else (6, 3)
    with weighted(loss, None) as plain, weighted(loss, mask) as trainer:
        wanted, gradients = plain.eval(x, y), plain.gradients(x, y)
        for w in (None, np.ones(shape)):
            assert trainer.eval(x, y, w) == wanted
            assert same(list(trainer.gradients(x, y, w).values()), list(gradients.values()))
        before = trainer.get_weights()
        assert trainer.step(x, y, np.zeros(shape)) == 0
        assert same(trainer.get_weights(), before)
        assert not any(g.any() for g in trainer.gradients(x, y, np.zeros(shape)).values())


@pytest.mark.parametrize("loss", LOSSES)
def test_r7_row_weights_are_never_renormalised(loss):
    x, y = batch(6)[0], labels(loss)
    w = np.array([0.5, 0, 2, 0, 1, 3])
    with weighted(loss, 1) as trainer:
        alone = []
        for i in range(6):
            one = np.zeros(6)
            one[i] = 1
            alone.append(trainer.eval(x, y, one))  # l_i / N
        assert trainer.eval(x, y) == pytest.approx(sum(alone), rel=1e-5)
        assert trainer.eval(x, y, w) == pytest.approx(np.dot(w, alone), rel=1e-5)
        assert trainer.eval(x, y, w[:, None]) == trainer.eval(x, y, w)
        assert trainer.step(x, y, 2 * w) == pytest.approx(2 * np.dot(w, alone), rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_r7_a_zero_removes_a_rows_gradient_exactly(loss):
    """Whatever stands in that row; NaN too."""
    x, y = batch(6)[0], labels(loss)
    w = np.array([1.0, 0, 2, 1, 0, 1])
    other_x, other_y = x.copy(), y.copy()
    other_x[w == 0] = np.nan
    if loss != "sparse_categorical_crossentropy":  # labels that are no labels are refused
        other_y[w == 0] = np.nan
    with weighted(loss, 1) as trainer:
        gradients = trainer.gradients(x, y, w)
        assert any(g.any() for g in gradients.values())
        found = trainer.gradients(other_x, other_y, w)
        assert same(list(gradients.values()), list(found.values()))
        assert trainer.eval(other_x, other_y, w) == trainer.eval(x, y, w)


@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in OF_ROWS])
def test_r7_a_zero_removes_an_elements_gradient_exactly(loss):
    x, y = batch(6)[0], labels(loss)
    w = np.ones((6, 3))
    w[:, 1] = 0
    w[2, 0] = 0
    other = y.copy()
    other[w == 0] = np.nan
    with weighted(loss, 3) as trainer:
        gradients = trainer.gradients(x, y, w)
        assert same(list(gradients.values()), list(trainer.gradients(x, other, w).values()))
        kernel, bias = list(gradients.values())[-2:]
        assert not kernel[:, 1].any() and not bias[1]  # only column 1 needs them
        assert kernel[:, 0].any() and bias[2]


def test_r7_masked_mse_is_the_documented_sum():
    y = np.array([[1.0, 2, 3], [4, 5, 6]])
    w = np.array([[1.0, 1, 0], [0, 1, 0]])
    with pyggml.Trainer(zero(3), 2, loss_mask=3) as trainer:
        assert trainer.eval(np.ones((2, 1)), y, w) == pytest.approx(5.0, abs=1e-6)
        y[0, 2] = 1e6
        assert trainer.step(np.ones((2, 1)), y, w) == pytest.approx(5.0, abs=1e-6)


def test_r7_one_action_a_row_trains_a_q_network():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 4))
    actions = rng.integers(0, 2, 32)
    value = x[np.arange(32), actions]
    w = np.eye(2)[actions]
    y = w * value[:, None]
    model = dense((4, 32, 2), optimizer=pyggml.optimizers.Adam(0.01))
    with pyggml.Trainer(model, 32, loss_mask=2) as trainer:
        for _ in range(300):
            trainer.step(x, y, w)
        q = trainer.predict(x)
        assert np.abs(q[np.arange(32), actions] - value).max() < 0.1


@pytest.mark.parametrize("mask", [0, -1, 2.5, True, 4])
def test_r7_other_widths_are_refused(mask):
    with pytest.raises((TypeError, ValueError), match="loss_mask"):
        pyggml.Trainer(dense((4, 5, 3)), 6, loss_mask=mask)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (3,), (2, 3, 1), (2, 4)])
def test_r7_other_shapes_are_refused(shape):
    with pyggml.Trainer(zero(3), 2, loss_mask=3) as trainer:
        with pytest.raises(ValueError, match=re.escape(str(shape)) + r"|rows"):
            trainer.step(np.ones((2, 1)), np.ones((2, 3)), np.ones(shape))
        assert trainer.n_steps == 0


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_r7_weights_that_are_negative_or_not_finite_are_refused(bad):
    w = np.array([1.0, bad])
    with pyggml.Trainer(zero(), 2, loss_mask=1) as trainer:
        for call in (trainer.step, trainer.eval, trainer.gradients):
            with pytest.raises(ValueError, match="finite and not negative"):
                call(np.ones((2, 1)), np.ones((2, 1)), w)
        assert trainer.n_steps == 0


def test_r7_weights_need_a_mask():
    with pyggml.Trainer(zero(), 2) as trainer:
        with pytest.raises(ValueError, match="loss_mask"):
            trainer.step(np.ones((2, 1)), np.ones((2, 1)), np.ones(2))
        with pytest.raises(ValueError, match="loss_mask"):
            trainer.step_many(np.ones((2, 1)), np.ones((2, 1)), [[0, 1]], np.ones(2))
