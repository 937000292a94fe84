"""The trainer's lines of the contract, R1 to R17, but those with a file of their own.

R7 is in test_trainer_loss_mask, R10 to R12 and R14 in test_trainer_copies, R16 in
test_trainer_batch_norm.
"""

import math
import re

import numpy as np
import pytest
from trainer_nets import batch, dense, same, zero

import pyggml
from pyggml import layers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


# ---- R1: models ---------------------------------------------------------------------------

def test_r1_an_uncompiled_model_is_refused_with_a_word_on_compile():
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(1)])
    with pytest.raises(ValueError, match="not compiled"):
        pyggml.Trainer(model)


@pytest.mark.parametrize("thing", [None, "model", 3, layers.Dense(2)])
def test_r1_what_is_no_model_is_a_type_error(thing):
    with pytest.raises(TypeError, match="Sequential or a Model"):
        pyggml.Trainer(thing)


def test_r1_a_model_without_trainable_weights_is_refused():
    model = dense()
    model.trainable = False
    with pytest.raises(ValueError, match="no trainable weights"):
        pyggml.Trainer(model)


def two_by_two():
    """Two inputs, two outputs."""
    pyggml.set_seed(3)
    a, b = pyggml.Input((3,), name="a"), pyggml.Input((2,), name="b")
    both = layers.Dense(4, "tanh")(a)
    model = pyggml.Model([a, b], {"left": layers.Dense(1)(both), "right": layers.Dense(2)(b)})
    model.compile("sgd", "mse", loss_weights=[1.0, 0.5])
    return model


def test_r1_several_inputs_and_outputs_take_lists_and_dicts():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    left, right = rng.normal(size=(6, 1)), rng.normal(size=(6, 2))
    model = two_by_two()
    p, q = model.predict([a, b])
    wanted = np.mean((p - left) ** 2) + 0.5 * np.mean((q - right) ** 2)
    with pyggml.Trainer(model, 6) as one, pyggml.Trainer(model, 6) as two:
        assert one.eval([a, b], [left, right]) == pytest.approx(wanted, rel=1e-6)
        x, y = {"b": b, "a": a}, {"right": right, "left": left}
        index = np.tile(np.arange(6), (3, 1))
        losses = [one.step([a, b], [left, right]) for _ in range(3)]
        assert losses[0] == pytest.approx(wanted, rel=1e-6)
        assert two.step_many(x, y, index).tolist() == losses
        assert same(one.predict(x), two.predict([a, b]))
        with pytest.raises(ValueError, match="2 arrays"):
            one.step([a], [left, right])
        with pytest.raises(ValueError, match="keys"):
            one.step([a, b], {"left": left})


def test_r1_a_loss_without_labels_takes_none():
    model = pyggml.Sequential([pyggml.Input((2,)), layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "output")
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    with pyggml.Trainer(model, 2) as trainer:
        assert trainer.eval(x) == 5
        assert trainer.step(x) == 5
        assert trainer.step(x, None) < 5
        assert trainer.step_many(x, idx=[[0, 1]])[0] < 5
        kernel, bias = trainer.gradients(x).values()
        assert kernel.ravel().tolist() == [2, 3] and bias.tolist() == [1]
        with pytest.raises(ValueError, match="y must be None"):
            trainer.step(x, np.zeros((2, 1)))


# ---- R2 to R5: steps ----------------------------------------------------------------------

def test_r2_the_model_stays_as_it_was():
    model = dense()
    before = model.get_weights()
    x, y = batch()
    with pyggml.Trainer(model, 8) as trainer:
        trainer.step(x, y)
        assert not same(trainer.get_weights(), before)
        assert same(model.get_weights(), before)


def test_r3_another_batch_size_is_refused_naming_both():
    with pyggml.Trainer(dense(), 8) as trainer:
        before = trainer.get_weights()
        for rows in (7, 9, 0, 16):
            with pytest.raises(ValueError, match=rf"\b{rows} rows.*\b8\b|no rows"):
                trainer.step(*batch(rows))
            with pytest.raises(ValueError, match=rf"\b{rows}\b"):
                trainer.eval(*batch(rows))
        assert trainer.n_steps == 0
        assert same(trainer.get_weights(), before)


def test_r4_steps_lower_the_loss_and_are_counted():
    batches = [batch(8, seed=i) for i in range(4)]
    with pyggml.Trainer(dense(optimizer=pyggml.optimizers.Adam(0.01)), 8) as trainer:
        losses = [trainer.step(*batches[i % 4]) for i in range(16)]
        assert all(type(loss) is float for loss in losses)
        assert losses[0] != losses[4]
        assert np.mean(losses[-4:]) < np.mean(losses[:4])
        assert trainer.n_steps == trainer.n_updates == 16


def test_r4_the_loss_is_that_before_the_update():
    x, y = batch()
    model = dense()
    wanted = np.mean((model.predict(x) - y) ** 2)
    with pyggml.Trainer(model, 8) as trainer:
        assert trainer.step(x, y) == pytest.approx(wanted, rel=1e-6)


def test_r5_eval_changes_nothing():
    x, y = batch()
    with pyggml.Trainer(dense(dropout=0.5), 8) as trainer:
        trainer.step(x, y)
        before = trainer.get_weights()
        assert trainer.eval(x, y) == trainer.eval(x, y)
        assert trainer.eval(x, y) == pytest.approx(np.mean((trainer.predict(x) - y) ** 2), rel=1e-6)
        assert trainer.n_steps == 1
        assert same(trainer.get_weights(), before)


# ---- R6: accumulation ---------------------------------------------------------------------

def test_r6_weights_move_only_at_the_end_of_a_period():
    x, y = batch()
    with pyggml.Trainer(dense(), 8, nbatch_logical=16) as trainer:
        losses, updates = [], []
        for _ in range(4):
            losses.append(trainer.step(x, y))
            updates.append(trainer.n_updates)
        assert losses[0] == losses[1] != losses[2]
        assert updates == [0, 1, 1, 2]
        assert trainer.n_steps == 4


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_r6_accumulated_steps_equal_one_large_batch(optimizer):
    x, y = batch(24)
    with pyggml.Trainer(dense(optimizer=optimizer), 8, nbatch_logical=24) as small, \
            pyggml.Trainer(dense(optimizer=optimizer), 24) as large:
        for _ in range(3):
            for i in range(0, 24, 8):
                small.step(x[i:i + 8], y[i:i + 8])
            large.step(x, y)
        for a, b in zip(small.get_weights(), large.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_r6_logical_batches_are_multiples():
    with pytest.raises(ValueError, match=r"multiple.*12.*8"):
        pyggml.Trainer(dense(), 8, nbatch_logical=12)


def test_r6_a_window_that_ends_early_is_averaged_over_its_own_steps():
    x, y = batch()
    with pyggml.Trainer(dense(), 8, nbatch_logical=32) as cut, \
            pyggml.Trainer(dense(), 8) as whole:
        cut.step(x, y)
        cut.step(x, y)
        cut._finish_window()  # what fit does at the end of an epoch
        whole.step(x, y)
        assert cut.n_updates == 1
        for a, b in zip(cut.get_weights(), whole.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        for _ in range(4):  # and the next window starts empty
            cut.step(x, y)
        assert cut.n_updates == 2


def test_r6_eval_predict_and_gradients_leave_an_open_window_alone():
    x, y = batch()
    with pyggml.Trainer(dense(), 8, nbatch_logical=16) as a, \
            pyggml.Trainer(dense(), 8, nbatch_logical=16) as b:
        for trainer in (a, b):
            trainer.step(x, y)
        a.eval(x, y)
        a.predict(x)
        a.gradients(x, y)
        a.snapshot()
        for trainer in (a, b):
            trainer.step(x, y)
        assert same(a.get_weights(), b.get_weights())


@pytest.mark.parametrize("many", [False, True])
def test_r6_a_step_that_fails_at_the_end_of_a_window_can_be_repeated(many):
    """Its gradient is not in the window yet: a window is never longer than was asked for."""
    x, y = batch()
    broken = []

    def schedule(update):
        if broken:
            raise ZeroDivisionError("no rate")
        return 0.1

    def step(trainer, n):
        if many:
            return trainer.step_many(x, y, idx=np.tile(np.arange(8), (n, 1)))[-1]
        return [trainer.step(x, y) for _ in range(n)][-1]

    with pyggml.Trainer(dense(optimizer=pyggml.optimizers.Adam(schedule)), 8, 32) as a, \
            pyggml.Trainer(dense(optimizer="adam"), 8, 32) as b:
        b.set_lr(0.1)
        for updates in (1, 2):
            step(a, 3)
            broken.append(True)
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    step(a, 2)
            broken.clear()
            assert (a.n_steps, a.n_updates) == (4 * updates - 1, updates - 1)
            assert step(a, 1) == step(b, 4)
            assert a.n_updates == b.n_updates == updates
        assert same(a.get_weights(), b.get_weights())


# ---- R8: weight decay ---------------------------------------------------------------------

def test_r8_weight_decay_is_decoupled():
    model = zero(use_bias=False)
    model.compile(pyggml.optimizers.SGD(0.5), "mse")
    model.set_weights([np.ones((1, 1))])
    x, y = np.ones((1, 1)), np.ones((1, 1))  # no gradient: the loss is 0
    with pyggml.Trainer(model, 1, weight_decay=0.1) as trainer:
        trainer.step(x, y)
        assert trainer.get_weights()[0][0, 0] == pytest.approx(1 - 0.5 * 0.1, rel=1e-6)
        assert trainer.weight_decay == 0.1


def test_r8_none_takes_what_compile_was_given():
    model = dense(optimizer=pyggml.optimizers.AdamW(weight_decay=0.25))
    assert pyggml.Trainer(model).weight_decay == 0.25
    assert pyggml.Trainer(model, weight_decay=0).weight_decay == 0


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_r8_weight_decay_is_from_0_to_1(bad):
    with pytest.raises(ValueError, match="weight_decay"):
        pyggml.Trainer(dense(), weight_decay=bad)


def test_r8_frozen_weights_are_not_decayed():
    model = dense()
    model.layers[0].trainable = False
    with pyggml.Trainer(model, 8, weight_decay=1.0) as trainer:
        trainer.step(*batch())
        after = trainer.get_weights()
    assert same(after[:2], model.get_weights()[:2])
    assert not np.array_equal(after[2], model.get_weights()[2])


# ---- R9: predict --------------------------------------------------------------------------

def test_r9_predict_uses_the_current_weights_without_dropout():
    x, y = batch()
    with pyggml.Trainer(dense(dropout=0.5), 8) as trainer:
        first = trainer.predict(x)
        assert np.array_equal(first, trainer.predict(x))
        trainer.step(x, y)
        assert not np.array_equal(first, trainer.predict(x))
        assert np.array_equal(trainer.model().predict(x), trainer.predict(x))


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 9, 33])
def test_r9_any_number_of_rows(rows):
    x = batch(40)[0]
    with pyggml.Trainer(dense(), 8) as trainer:
        whole = trainer.predict(x, batch_size=1)
        for size in (None, 1, 3, 64):
            found = trainer.predict(x[:rows], batch_size=size)
            assert found.shape == (rows, 2) and found.dtype == np.float32
            np.testing.assert_allclose(found, whole[:rows], rtol=1e-5, atol=1e-6)


def test_r9_numbers_of_rows_in_any_order_on_one_trainer():
    """What was computed before, by the same graph or by another, leaves no trace."""
    x = batch(40)[0]
    with pyggml.Trainer(dense(), 8) as trainer:
        whole = np.concatenate([trainer.predict(row[None]) for row in x])
        for rows in (1, 1, 8, 33, 40, 8, 7, 1, 5, 0, 5, 6, 8, 3, 40):
            for given in (x[:rows], np.asfortranarray(x[:rows]), x[:rows].astype(float)):
                found = trainer.predict(given)
                assert found.shape == (rows, 2) and found.flags.owndata
                np.testing.assert_allclose(found, whole[:rows], rtol=1e-5, atol=1e-6)
        with pytest.raises(ValueError, match=r"\(n, 4\)"):
            trainer.predict(np.ones((1, 3), np.float32))
        with pytest.raises(ValueError, match=r"\(n, 4\)"):
            trainer.predict(np.ones((1, 4, 1), np.float32))


def test_r9_several_outputs_and_axes_in_any_order():
    inputs = pyggml.Input((4,))
    hidden = layers.Dense(6, "tanh")(inputs)
    model = pyggml.Model(inputs, [layers.Dense(2)(hidden), layers.Reshape((3, 2))(hidden)])
    model.compile("sgd", "mse")
    x = batch(20)[0]
    with pyggml.Trainer(model, 8) as trainer:
        wanted = [np.concatenate(rows) for rows in zip(*[trainer.predict(row[None]) for row in x],
                                                       strict=True)]
        assert [w.shape for w in wanted] == [(20, 2), (20, 3, 2)]
        for rows in (8, 8, 3, 4, 4, 1, 1, 20, 20):
            for a, b in zip(trainer.predict(x[:rows]), wanted, strict=True):
                np.testing.assert_allclose(a, b[:rows], rtol=1e-5, atol=1e-6)


def test_r9_predicting_does_not_disturb_the_training():
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as quiet, pyggml.Trainer(dense(), 8) as busy:
        for i in range(5):
            a = quiet.step(x, y)
            b = busy.step(x, y)
            assert a == b
            busy.predict(x[:i + 1])
        assert same(quiet.get_weights(), busy.get_weights())


def test_r9_matmul_precision_is_checked():
    x = batch()[0]
    with pyggml.Trainer(dense(), 8) as trainer:
        for name in (None, "default", "float32"):
            assert np.array_equal(trainer.predict(x, matmul_precision=name), trainer.predict(x))
        with pytest.raises(ValueError, match="matmul_precision"):
            trainer.predict(x, matmul_precision="tf32")


# ---- R13: the learning rate ---------------------------------------------------------------

def test_r13_set_lr_takes_effect_at_the_next_step():
    x, y = batch()
    losses = {}
    for rate in (1e-4, 1e-1):
        with pyggml.Trainer(dense(), 8) as trainer:
            trainer.set_lr(rate)
            assert trainer.lr == rate
            losses[rate] = [trainer.step(x, y) for _ in range(3)]
    assert losses[1e-4][0] == losses[1e-1][0]
    assert losses[1e-4][1] != losses[1e-1][1]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_r13_a_rate_of_0_leaves_the_weights_bit_for_bit(optimizer):
    with pyggml.Trainer(dense(optimizer=optimizer), 8, weight_decay=0.5) as trainer:
        trainer.step(*batch())
        before = trainer.get_weights()
        trainer.lr = 0
        trainer.step(*batch())
        assert same(trainer.get_weights(), before)
        assert trainer.n_updates == 2


@pytest.mark.parametrize("bad", [-1e-3, math.nan, math.inf])
def test_r13_bad_rates_are_refused(bad):
    with pyggml.Trainer(dense(), 8) as trainer:
        with pytest.raises(ValueError, match="lr"):
            trainer.set_lr(bad)
        with pytest.raises(TypeError, match="lr"):
            trainer.set_lr("fast")
        assert trainer.lr == 1e-3


def test_r13_the_models_optimizer_keeps_its_rate():
    model = dense()
    with pyggml.Trainer(model, 8) as trainer:
        trainer.set_lr(0.5)
    assert model.optimizer.learning_rate == 1e-3


# ---- R15: dropout -------------------------------------------------------------------------

def test_r15_dropout_masks_are_redrawn_before_every_step():
    x, y = batch()
    model = dense(dropout=0.5)
    with pyggml.Trainer(model, 8) as trainer:
        trainer.set_lr(0)
        losses = [trainer.step(x, y) for _ in range(6)]
    assert len(set(losses)) == 6


def test_r15_masks_follow_from_the_seed():
    x, y = batch()
    runs = []
    for seed in (5, 5, 6):
        model = dense(dropout=0.5)
        pyggml.set_seed(seed)
        with pyggml.Trainer(model, 8) as trainer:
            runs.append([trainer.step(x, y) for _ in range(4)])
    assert runs[0] == runs[1] != runs[2]


# ---- R17: cross-entropy on logits ---------------------------------------------------------

def test_r17_softmax_with_cross_entropy_works_on_logits():
    model = pyggml.Sequential([pyggml.Input((1,)),
                               layers.Dense(3, "softmax", kernel_initializer="zeros")])
    model.compile("sgd", "categorical_crossentropy")
    model.set_weights([np.zeros((1, 3)), np.array([1000.0, 0, -1000])])
    x = np.ones((1, 1))
    with pyggml.Trainer(model, 1) as trainer:
        for i, wanted in enumerate([0, 1000, 2000]):
            assert trainer.eval(x, np.eye(3)[[i]]) == pytest.approx(wanted, rel=1e-5)
        gradients = trainer.gradients(x, np.eye(3)[[2]])
        bias = next(g for name, g in gradients.items() if name.endswith("bias"))
        np.testing.assert_allclose(bias, [1, 0, -1], atol=1e-6)
        assert trainer.predict(x).tolist() == [[1, 0, 0]]  # probabilities


def test_r17_a_classifier_learns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4))
    y = (x[:, 0] > 0).astype(int)
    model = dense((4, 16, 2), last="softmax", loss="sparse_categorical_crossentropy",
                  optimizer=pyggml.optimizers.Adam(0.02))
    with pyggml.Trainer(model, 64) as trainer:
        for _ in range(200):
            trainer.step(x, y)
        p = trainer.predict(x)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert (p.argmax(axis=1) == y).mean() > 0.95


# ---- beyond the reference -----------------------------------------------------------------

def test_the_number_of_threads_may_change_between_steps():
    x, y = batch(32)
    with pyggml.Trainer(dense(), 32) as changing, pyggml.Trainer(dense(), 32) as steady:
        for n in (1, 2, 1, 3, 2):
            pyggml.set_num_threads(1)
            wanted = steady.step(x, y)
            pyggml.set_num_threads(n)
            assert changing.step(x, y) == pytest.approx(wanted, rel=1e-5)
            changing.predict(x)


def test_gradients_update_nothing_and_apply_gradients_is_an_update():
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as stepped, pyggml.Trainer(dense(), 8) as applied:
        before = applied.get_weights()
        for _ in range(3):
            gradients = applied.gradients(x, y)
            assert all(g.dtype == np.float32 for g in gradients.values())
            applied.apply_gradients(gradients)
            stepped.step(x, y)
        assert not same(applied.get_weights(), before)
        assert (applied.n_steps, applied.n_updates) == (0, 3)
        for a, b in zip(applied.get_weights(), stepped.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_apply_gradients_checks_before_it_changes_anything():
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        good = trainer.gradients(x, y)
        name = next(iter(good))
        before = trainer.get_weights()
        with pytest.raises(ValueError, match=rf"missing \['{name}'\]"):
            trainer.apply_gradients({k: v for k, v in good.items() if k != name})
        with pytest.raises(ValueError, match="unknown"):
            trainer.apply_gradients(good | {"other": np.zeros(1)})
        with pytest.raises(ValueError, match="shape"):
            trainer.apply_gradients(good | {name: np.zeros((3, 3))})
        with pytest.raises(TypeError, match="real numbers"):
            trainer.apply_gradients(good | {name: good[name].astype(complex)})
        with pytest.raises(TypeError, match="dict"):
            trainer.apply_gradients(list(good.values()))
        assert same(trainer.get_weights(), before)
        assert trainer.n_updates == 0


def test_gradients_are_those_of_finite_differences():
    x, y = batch()
    model = dense()
    with pyggml.Trainer(model, 8) as trainer:
        gradients = list(trainer.gradients(x, y).values())
        views = trainer.get_weights(copy=False)
        for view, g in zip(views, gradients, strict=True):
            i = np.unravel_index(np.abs(g).argmax(), g.shape)
            kept, h = view[i], 1e-2
            view[i] = kept + h
            up = trainer.eval(x, y)
            view[i] = kept - h
            down = trainer.eval(x, y)
            view[i] = kept
            assert (up - down) / (2 * h) == pytest.approx(g[i], rel=1e-2)


def test_a_nan_loss_is_returned_and_told_once():
    x, y = batch()
    x[0, 0] = np.nan
    with pyggml.Trainer(dense(), 8) as trainer:
        with pytest.warns(RuntimeWarning, match="the loss is nan at step 1") as found:
            assert math.isnan(trainer.step(x, y))
        assert found[0].filename == __file__
        assert math.isnan(trainer.step(x, y))  # warnings are errors here


def test_repr_says_what_the_trainer_holds():
    with pyggml.Trainer(dense(), 8) as trainer:
        trainer.step(*batch())
        text = repr(trainer)
        trainer.gradients(*batch())
        trainer.predict(np.ones((1, 4)))
        more = repr(trainer)
    for part in ("58 parameters (58 trainable)", "on CPU", "batch 8", "1 steps", "1 updates"):
        assert part in text
    held = [int(re.search(r"(\d+) bytes", r)[1]) for r in (text, more)]
    # Weights and two moments at least; then the graphs for gradients and predictions.
    assert 3 * 4 * 58 < held[0] < held[1]
    assert repr(trainer) == "<Trainer freed>"
