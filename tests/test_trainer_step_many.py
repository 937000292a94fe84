"""step_many: the same as many steps, whatever the arrays are."""

import textwrap
import threading
import time

import numpy as np
import pytest
from child import run_child
from trainer_nets import dense, same

import pyggml

ROWS = 50


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(ROWS, 4)).astype(np.float32),
            rng.normal(size=(ROWS, 2)).astype(np.float32),
            rng.integers(0, ROWS, (40, 8)))


def pair(model, **arguments):
    """Two trainers with the same dropout masks."""
    made = []
    for _ in range(2):
        pyggml.set_seed(9)
        made.append(pyggml.Trainer(model, 8, **arguments))
    return made


@pytest.mark.parametrize("logical", [None, 16, 24, 40])
@pytest.mark.parametrize("mask", [None, 1, 2])
@pytest.mark.parametrize("given", [True, False])
def test_it_equals_steps_bit_for_bit(data, logical, mask, given):
    x, y, idx = data
    w = None
    if mask and given:
        w = np.random.default_rng(1).uniform(0, 2, (ROWS, 2))
        w[::3] = 0
        w = w[:, 0] if mask == 1 else w
    a, b = pair(dense(dropout=0.3), nbatch_logical=logical, loss_mask=mask, weight_decay=0.1)
    wanted = [a.step(x[i], y[i], None if w is None else w[i]) for i in idx]
    losses = b.step_many(x, y, idx, w)
    assert losses.dtype == np.float64 and losses.shape == (40,)
    assert losses.tolist() == wanted
    assert same(a.get_weights(), b.get_weights())
    assert (a.n_steps, a.n_updates) == (b.n_steps, b.n_updates)
    for i in idx[:5]:  # and both go on alike
        assert a.step(x[i], y[i]) == b.step(x[i], y[i])


def test_more_steps_than_it_makes_at_once(data):
    x, y, _ = data
    idx = np.random.default_rng(3).integers(0, ROWS, (1500, 8))
    for logical in (None, 8 * 700):
        a, b = pair(dense((4, 2)), nbatch_logical=logical)
        losses = np.concatenate([a.step_many(x, y, idx[i:i + 100]) for i in range(0, 1500, 100)])
        assert np.array_equal(b.step_many(x, y, idx), losses)
        assert a.n_updates == b.n_updates == (1500 if logical is None else 2)


def test_integer_labels(data):
    x, _, idx = data
    y = np.random.default_rng(2).integers(0, 2, ROWS).astype(np.uint8)
    a, b = pair(dense(last="softmax", loss="sparse_categorical_crossentropy"))
    assert b.step_many(x, y, idx).tolist() == [a.step(x[i], y[i]) for i in idx]


@pytest.mark.parametrize("change", [
    lambda a: a.astype(np.float64), lambda a: a.astype(">f4"), np.asfortranarray,
    lambda a: np.repeat(a, 2, axis=0)[::2], lambda a: a[::-1].copy()[::-1],
    lambda a: np.concatenate([a, a], axis=1)[:, :a.shape[1]], lambda a: a.tolist(),
])
def test_the_layout_of_arrays_does_not_matter(data, change):
    x, y, idx = data
    a, b = pair(dense())
    assert np.array_equal(a.step_many(x, y, idx), b.step_many(change(x), change(y), idx))
    assert same(a.get_weights(), b.get_weights())


def test_a_memory_map_is_read_in_place(data, tmp_path):
    x, y, idx = data
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    a, b = pair(dense())
    assert np.array_equal(a.step_many(x, y, idx), b.step_many(mapped, y, idx))


@pytest.mark.parametrize("idx", [np.zeros((3, 7), int), np.zeros(8, int), 3, np.zeros((1, 2, 8))])
def test_the_shape_of_idx_is_checked(data, idx):
    x, y, _ = data
    with pyggml.Trainer(dense(), 8) as trainer, pytest.raises(ValueError, match=r"\(k, 8\)"):
        trainer.step_many(x, y, idx)


@pytest.mark.parametrize(("value", "error"), [(ROWS, IndexError), (-1, IndexError)])
def test_rows_that_do_not_exist_are_refused(data, value, error):
    x, y, idx = data
    idx[3, 2] = value
    with pyggml.Trainer(dense(), 8) as trainer:
        before = trainer.get_weights()
        with pytest.raises(error, match=f"row {value}"):
            trainer.step_many(x, y, idx)
        with pytest.raises(TypeError, match="integers"):
            trainer.step_many(x, y, idx.astype(float))
        assert trainer.n_steps == 0 and same(trainer.get_weights(), before)


def test_only_labels_that_are_used_are_checked(data):
    x, _, idx = data
    y = np.zeros(ROWS, int)
    y[7] = 5
    idx[idx == 7] = 8
    model = dense(last="softmax", loss="sparse_categorical_crossentropy")
    with pyggml.Trainer(model, 8) as trainer:
        trainer.step_many(x, y, idx)
        before, steps = trainer.get_weights(), trainer.n_steps
        idx[-1, -1] = 7
        with pytest.raises(ValueError, match=r"5.*row 7.*\[0, 2\)"):
            trainer.step_many(x, y, idx)
        assert trainer.n_steps == steps and same(trainer.get_weights(), before)


def test_weights_that_are_used_are_checked(data):
    x, y, idx = data
    w = np.ones(ROWS)
    w[7] = -1
    idx[idx == 7] = 8
    with pyggml.Trainer(dense(), 8, loss_mask=1) as trainer:
        trainer.step_many(x, y, idx, w)
        idx[0, 0] = 7
        with pytest.raises(ValueError, match="not negative"):
            trainer.step_many(x, y, idx, w)


def test_what_has_weight_0_cannot_spread_a_nan(data):
    x, y, idx = data
    w = np.ones((ROWS, 2))
    w[::5] = 0
    w[1, 1] = 0
    bad_x, bad_y = x.copy(), y.copy()
    bad_x[::5] = np.nan
    bad_y[w == 0] = np.inf
    a, b = pair(dense(), loss_mask=2)
    assert np.array_equal(a.step_many(x, np.where(w == 0, 0, y), idx, w),
                          b.step_many(bad_x, bad_y, idx, w))
    assert same(a.get_weights(), b.get_weights())


def test_rows_of_arrays_must_agree(data):
    x, y, idx = data
    with pyggml.Trainer(dense(), 8) as trainer:
        with pytest.raises(ValueError, match=r"50 rows.*49"):
            trainer.step_many(x, y[:-1], idx % 49)
        with pytest.raises(ValueError, match=r"x must have shape"):
            trainer.step_many(x[:, :3], y, idx)


def test_no_steps_at_all(data):
    x, y, idx = data
    with pyggml.Trainer(dense(), 8) as trainer:
        assert trainer.step_many(x, y, idx[:0]).shape == (0,)
        assert trainer.n_steps == 0


def test_a_nan_is_told_with_its_step(data):
    x, y, idx = data
    x[7] = np.nan
    idx[idx == 7] = 8
    idx[4, 0] = 7
    with pyggml.Trainer(dense(), 8) as trainer:
        with pytest.warns(RuntimeWarning, match="nan at step 5"):
            losses = trainer.step_many(x, y, idx)
        assert np.isfinite(losses[:4]).all() and np.isnan(losses[4])
        assert trainer.n_steps == 40


def test_other_python_threads_run_meanwhile(data):
    x, y, idx = data
    with pyggml.Trainer(dense((4, 64, 64, 2)), 8) as trainer:
        done, counted = threading.Event(), []

        def count():
            while not done.is_set():
                counted.append(1)
                time.sleep(0)

        thread = threading.Thread(target=count)
        thread.start()
        trainer.step_many(x, y, np.tile(idx, (2000, 1)))
        done.set()
        thread.join()
    assert len(counted) > 100


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="needs POSIX timers")
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_it_between_two_steps(threads):
    out = run_child(f"THREADS = {threads}\n" + textwrap.dedent("""
        import signal, time
        import numpy as np
        import pyggml
        from trainer_nets import dense, batch
        pyggml.set_num_threads(THREADS)
        trainer = pyggml.Trainer(dense((4, 64, 64, 2)), 8)
        x, y = batch()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        idx = np.zeros((1_000_000, 8), int)
        try:
            trainer.step_many(x, y, idx)
        except KeyboardInterrupt:
            n = trainer.n_steps
            assert 0 < n < len(idx) and trainer.n_updates == n
            trainer.step(x, y)
            assert np.isfinite(trainer.predict(x)).all()
            print("interrupted")
    """))
    assert out == "interrupted\n"
