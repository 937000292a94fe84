"""FIELD-CASES R17 (use after free), R20 (threads) and R24 (inputs of RL loops)."""

import numpy as np
import pytest
from child import run_child
from trainer_nets import batch, dense, same

import pyggml


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


# ---- R17: use after free ------------------------------------------------------------------

def test_r17a_arrays_from_predict_and_snapshot_outlive_free():
    x = batch()[0]
    trainer = pyggml.Trainer(dense(), 8)
    outputs, snapshot = trainer.predict(x), trainer.snapshot()
    kept = outputs.copy()
    trainer.free()
    trainer.free()
    assert np.array_equal(outputs, kept) and outputs.flags.owndata
    assert np.array_equal(snapshot.predict(x), kept)


def test_r17b_models_from_before_the_free_still_predict():
    x = batch()[0]
    original = dense()
    trainer = pyggml.Trainer(original, 8)
    model, wanted = trainer.model(), trainer.predict(x)
    trainer.free()
    assert np.array_equal(model.predict(x), wanted)
    assert np.array_equal(original.predict(x), wanted)
    with pytest.raises(RuntimeError, match="freed"):
        trainer.model()


def test_r17b_two_trainers_on_one_model_one_freed():
    x, y = batch()
    model = dense()
    a, b = pyggml.Trainer(model, 8), pyggml.Trainer(model, 8)
    b.step(x, y)
    a.free()
    assert b.step(x, y) < np.inf
    b.free()


def test_r17b_free_while_a_step_runs_waits():
    out = run_child("""
        import threading
        import numpy as np
        import pyggml
        from trainer_nets import dense
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(64, 64)), rng.normal(size=(64, 2))
        for many in (False, True):
            for _ in range(5):
                trainer = pyggml.Trainer(dense((64, 128, 128, 2)), 64)
                started, ended = threading.Event(), []

                def work():
                    try:
                        while True:
                            started.set()
                            if many:
                                trainer.step_many(x, y, np.tile(np.arange(64), (20, 1)))
                            else:
                                trainer.step(x, y)
                    except RuntimeError as error:
                        ended.append(str(error))

                thread = threading.Thread(target=work)
                thread.start()
                started.wait()
                trainer.free()
                thread.join()
                assert ended == ["this trainer was freed"], ended
        print("done")
    """)
    assert out == "done\n"


def test_r17b_a_thousand_trainers_leave_no_memory_behind():
    out = run_child("""
        import gc
        import numpy as np
        import pyggml
        from trainer_nets import batch, dense

        def resident():
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * 4096

        gc.disable()
        pyggml.set_num_threads(1)
        model = dense()
        x, y = batch()
        for i in range(1000):
            trainer = pyggml.Trainer(model, 8, nbatch_logical=16)
            trainer.step(x, y)
            trainer.step_many(x, y, [range(8)])
            trainer.predict(x)
            snapshot = trainer.snapshot()
            trainer.update_target(snapshot, 0.5)
            if i % 2:
                snapshot.free()
                trainer.free()
            if i == 100:
                start = resident()
        grown = resident() - start
        assert grown < 8 << 20, grown
        print("done")
    """)
    assert out == "done\n"


# ---- R20: threads -------------------------------------------------------------------------

def test_r20a_concurrent_predicts_give_the_serial_numbers():
    out = run_child("""
        import sys, threading
        import numpy as np
        import pyggml
        from trainer_nets import batch, dense
        sys.setswitchinterval(1e-5)
        pyggml.set_num_threads(1)
        x, y = batch(50)
        trainer = pyggml.Trainer(dense(), 50)
        other = pyggml.Trainer(dense(seed=5), 50)
        wanted = {n: trainer.predict(x[:n]) for n in range(1, 51)}
        wrong, done = [], threading.Event()

        def predict(seed):
            rng = np.random.default_rng(seed)
            for n in rng.integers(1, 51, 300):
                if not np.array_equal(trainer.predict(x[:n]), wanted[n]):
                    wrong.append(n)

        def disturb():
            while not done.is_set():
                other.step(x, y)
                other.predict(x[:3])

        threads = [threading.Thread(target=predict, args=(i,)) for i in range(8)]
        extra = threading.Thread(target=disturb)
        extra.start()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        done.set()
        extra.join()
        assert not wrong, wrong
        print("done")
    """)
    assert out == "done\n"


def test_r20b_each_predict_sees_weights_before_or_after_a_change():
    """Weights are all 1 or all 2, exchanged by update_target; a mixture would show."""
    out = run_child("""
        import sys, threading
        import numpy as np
        import pyggml
        from pyggml import layers
        sys.setswitchinterval(1e-5)
        pyggml.set_num_threads(2)
        model = pyggml.Sequential([pyggml.Input((64,)), layers.Dense(64), layers.Dense(64)])
        model.compile("sgd", "mse")
        trainer = pyggml.Trainer(model, 4)
        target = trainer.snapshot()
        x = np.ones((4, 64), np.float32)
        allowed, done, bad = [], threading.Event(), []

        def fill(value):
            for view in trainer.get_weights(copy=False):
                view[...] = value

        for value in (1, 2):
            fill(value)
            trainer.update_target(target)
            allowed.append(target.predict(x))

        def predict():
            while not done.is_set():
                got = target.predict(x)
                if not any(np.array_equal(got, a) for a in allowed):
                    bad.append(got)

        threads = [threading.Thread(target=predict) for _ in range(3)]
        for t in threads:
            t.start()
        for i in range(1000):
            fill(1 + i % 2)
            trainer.update_target(target)
        done.set()
        for t in threads:
            t.join()
        assert not bad
        print("done")
    """)
    assert out == "done\n"


def test_r20b_steps_of_two_threads_are_serialised():
    """Equal batches: whatever the order, the losses are those of one thread."""
    out = run_child("""
        import sys, threading
        import pyggml
        from trainer_nets import batch, dense, same
        sys.setswitchinterval(1e-5)
        pyggml.set_num_threads(1)
        x, y = batch()
        serial = pyggml.Trainer(dense(), 8)
        wanted = [serial.step(x, y) for _ in range(400)]
        trainer = pyggml.Trainer(dense(), 8)
        losses = []

        def work():
            for _ in range(100):
                losses.append(trainer.step(x, y))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert trainer.n_steps == 400
        assert sorted(losses) == sorted(wanted)
        assert same(trainer.get_weights(), serial.get_weights())
        print("done")
    """)
    assert out == "done\n"


# ---- R24: what comes from environments ----------------------------------------------------

@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.uint8, np.bool_, "list"])
def test_r24a_any_dtype_equals_float32(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (8, 4))
    y = batch()[1].astype(np.float64)
    w = rng.uniform(size=8)
    x = [row.astype(np.float64) for row in x] if dtype == "list" else x.astype(dtype)
    same_x = np.asarray(x).astype(np.float32)
    with pyggml.Trainer(dense(), 8, loss_mask=1) as a, pyggml.Trainer(dense(), 8, loss_mask=1) as b:
        for _ in range(3):
            assert a.step(x, y, w) == b.step(
                same_x, y.astype(np.float32), w.astype(np.float32))
            assert np.array_equal(a.predict(x), b.predict(same_x))
        assert same(a.get_weights(), b.get_weights())


def test_r24a_255_is_255():
    pyggml.set_seed(0)
    model = pyggml.Sequential([
        pyggml.Input((1,)), pyggml.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse")
    with pyggml.Trainer(model, 1) as trainer:
        assert trainer.predict(np.array([[255]], np.uint8)).tolist() == [[255.0]]


def test_r24b_a_single_observation_is_a_batch_of_one_row():
    x = batch()[0]
    with pyggml.Trainer(dense(), 8) as trainer:
        whole = trainer.predict(x)
        assert trainer.predict(x[:1]).shape == (1, 2)
        np.testing.assert_allclose(trainer.predict(x[:1]), whole[:1], rtol=1e-5, atol=1e-6)
        assert trainer.predict(x[:4]).shape == (4, 2)
        for wrong in (x[0], x[0][:, None], np.float32(1)):
            with pytest.raises(ValueError, match=r"x must have shape \(n, 4\)"):
                trainer.predict(wrong)
            with pytest.raises(ValueError, match=r"x must have shape \(n, 4\)"):
                trainer.step(wrong, batch()[1])


def test_r24b_one_feature_takes_a_flat_array_of_rows():
    """(4,) for a model of one feature is four rows, in step and in predict."""
    x = np.arange(4.0)
    with pyggml.Trainer(dense((1, 3, 1)), 4) as a, pyggml.Trainer(dense((1, 3, 1)), 4) as b:
        assert np.array_equal(a.predict(x), a.predict(x[:, None]))
        assert a.step(x, x) == b.step(x[:, None], x[:, None])


def test_r24c_results_belong_to_the_caller():
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        first = trainer.predict(x)
        kept = first.copy()
        second = trainer.predict(-x)
        assert np.array_equal(first, kept)
        assert first.dtype == np.float32 and first.flags.owndata and first.flags.writeable
        before = trainer.get_weights()
        first[...] = 7
        second[...] = 7
        assert same(trainer.get_weights(), before)
        assert np.array_equal(trainer.predict(x), kept)
        snapshot = trainer.snapshot()
        results = [trainer.predict(x[i % 8:i % 8 + 1]) for i in range(1000)]
        losses = [trainer.step(x, y) for _ in range(10)]
        assert len(set(losses)) == 10
        for i, result in enumerate(results):
            assert np.array_equal(result, results[i % 8])
        assert np.array_equal(snapshot.predict(x), kept)
