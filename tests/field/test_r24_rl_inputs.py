"""R24: RL inputs as they come: dtypes, single observations, returned arrays.

Documented choices: a single observation without its axis of rows is an error, except for a model
of one feature, for which a flat array holds rows; step and predict agree on that.
"""

import numpy as np
import pytest
from trainer_nets import batch, dense, same

import pyggml

DTYPES = [np.float64, np.uint8, np.int64, np.bool_, np.float16, np.int8, np.uint32, ">f8"]


# ---- a: what environments give -----------------------------------------------------------------

def observations(dtype):
    rng = np.random.default_rng(0)
    if dtype in ("arrays", "nested"):
        rows = list(rng.normal(size=(8, 4)))
        return rows if dtype == "arrays" else [row.tolist() for row in rows]
    return rng.integers(0, 128 if dtype == np.int8 else 256, (8, 4)).astype(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, "arrays", "nested"], ids=str)
def test_r24a_any_dtype_equals_float32(dtype, form):
    x = observations(dtype)
    rng = np.random.default_rng(1)
    y, w = rng.normal(size=(8, 2)), rng.uniform(size=8)
    kept = np.array(x, copy=True)
    same_x = np.asarray(x).astype(np.float32)
    same_y, same_w = y.astype(np.float32), w.astype(np.float32)
    with pyggml.Trainer(dense(), 8, loss_mask=1) as a, pyggml.Trainer(dense(), 8, loss_mask=1) as b:
        for _ in range(3):
            assert a.step(x, y, w) == b.step(same_x, same_y, same_w)
            assert np.array_equal(a.predict(x), b.predict(same_x))
            assert a.eval(x, y, w) == b.eval(same_x, same_y, same_w)
        index = [range(8)]
        assert a.step_many(x, y, index, w) == b.step_many(same_x, same_y, index, same_w)
        assert same(a.get_weights(), b.get_weights())
        target = a.snapshot()
        assert np.array_equal(target.predict(x), b.predict(same_x))
    assert np.array_equal(np.asarray(x), kept)


@pytest.mark.parametrize("value", [np.uint8(255), np.int64(255), np.uint16(65535), np.int64(-7),
                                   np.float16(0.1), np.bool_(True)])
def test_r24a_values_are_neither_scaled_nor_wrapped(value, form):
    model = pyggml.Sequential([
        pyggml.Input((1,)), pyggml.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile("sgd", "mse")
    x = np.array([[value]])
    assert x.dtype == value.dtype
    with pyggml.Trainer(model, 1) as trainer:
        assert trainer.predict(x)[0, 0] == np.float32(value)
        assert trainer.step(x, np.zeros((1, 1))) == pytest.approx(float(value) ** 2)


# ---- b: single observations --------------------------------------------------------------------

def predictors(trainer):
    return {"trainer": trainer.predict, "model": trainer.model().predict,
            "snapshot": trainer.snapshot().predict}


def test_r24b_an_observation_needs_its_axis_of_rows(form):
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        whole = trainer.predict(x)
        for predict in predictors(trainer).values():
            assert predict(x[:1]).shape == (1, 2)
            np.testing.assert_allclose(predict(x[:1]), whole[:1], rtol=1e-5, atol=1e-6)
            assert predict(x[:4]).shape == (4, 2)
            for wrong in (x[0], x[0][:, None], np.float32(1), 1.0, x[:1, None], [1, 2, 3, 4]):
                with pytest.raises(ValueError, match=r"x must have shape \(n, 4\)"):
                    predict(wrong)
        before = trainer.get_weights()
        for wrong in (x[0], x[0][:, None], np.float32(1), 1.0, x[:1, None], [1, 2, 3, 4]):
            with pytest.raises(ValueError, match=r"x must have shape \(n, 4\)"):
                trainer.step(wrong, y)
        with pytest.raises(ValueError, match="x has 4 rows, but the batch size is 8"):
            trainer.step(x[:4], y[:4])
        assert same(trainer.get_weights(), before) and trainer.n_steps == 0


def test_r24b_one_feature_takes_a_flat_array_of_rows(form):
    """(4,) for a model of one feature is four rows, in step and in predict."""
    x = np.arange(4.0)
    with pyggml.Trainer(dense((1, 3, 1)), 4) as a, pyggml.Trainer(dense((1, 3, 1)), 4) as b:
        for flat, column in zip(predictors(a).values(), predictors(b).values(), strict=True):
            assert np.array_equal(flat(x), column(x[:, None]))
            assert flat(x).shape == (4, 1)
            for wrong in (x[None], np.float32(1), x[:, None, None]):
                with pytest.raises(ValueError, match=r"x must have shape \(n, 1\)"):
                    flat(wrong)
        assert a.step(x, x) == b.step(x[:, None], x[:, None])
        with pytest.raises(ValueError, match="x must have shape"):
            a.step(x[None], x)


# ---- c: what is returned -----------------------------------------------------------------------

def test_r24c_results_belong_to_the_caller(form):
    x, _ = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        for predict in predictors(trainer).values():
            first = predict(x)
            kept = first.copy()
            second = predict(-x)
            assert np.array_equal(first, kept) and not np.array_equal(first, second)
            for found in (first, second):
                assert type(found) is np.ndarray and found.dtype == np.float32
                assert found.flags.owndata and found.flags.writeable and found.flags.c_contiguous
            first[...] = 7
            second[...] = 7
            assert np.array_equal(predict(x), kept)
        assert same(trainer.get_weights(), pyggml.Trainer(dense(), 8).get_weights())


def test_r24c_a_thousand_results_are_kept():
    x, _ = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        wanted = [trainer.predict(x[i:i + 1]) for i in range(8)]
        results = [trainer.predict(x[i % 8:i % 8 + 1]) for i in range(1000)]
        for i, result in enumerate(results):
            assert np.array_equal(result, wanted[i % 8])
        assert len({result.ctypes.data for result in results}) == 1000


def test_r24c_snapshots_and_losses_do_not_follow_the_training(form):
    x, y = batch()
    with pyggml.Trainer(dense(), 8) as trainer:
        snapshot, model = trainer.snapshot(), trainer.model()
        weights, before = trainer.get_weights(), trainer.predict(x)
        losses = [trainer.step(x, y) for _ in range(10)]
        assert all(type(loss) is float for loss in losses) and len(set(losses)) == 10
        assert losses == sorted(losses, reverse=True)
        assert np.array_equal(snapshot.predict(x), before)
        assert np.array_equal(model.predict(x), before)
        assert same(snapshot.get_weights(), weights)
        assert not same(trainer.get_weights(), weights)
        many = trainer.step_many(x, y, [range(8)] * 3)
        kept = many.copy()
        trainer.step_many(x, y, [range(8)] * 3)
        assert np.array_equal(many, kept) and many.flags.owndata
