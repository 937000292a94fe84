"""R07: class labels are range-checked before anything is computed."""

import numpy as np
import pytest
from _models import softmax_model, state

import pyggml

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
GOOD = np.array([0, 1, 2])


def calls(model, y):
    yield lambda: model.fit(X, y, verbose=0)
    yield lambda: model.evaluate(X, y)
    yield lambda: model.evaluate(iter([(X, y)]))
    yield lambda: model.fit(X, GOOD, validation_data=(X, y), verbose=0)


@pytest.mark.parametrize(("labels", "error", "named"), [
    ([0, 1, 3], ValueError, "3"), ([0, -1, 2], ValueError, "-1"),
    ([0, 2**31, 1], ValueError, str(2**31)), ([0, 1.5, 2], ValueError, "1.5"),
    ([0, np.nan, 1], ValueError, "nan"), (["a", "b", "c"], TypeError, "real numbers"),
])
def test_r07a_a_bad_label_is_named_and_nothing_changes(labels, error, named):
    model = softmax_model()
    model.fit(X, GOOD, verbose=0)
    before = state(model)
    for call in calls(model, labels):
        with pytest.raises(error) as caught:
            call()
        assert named in str(caught.value)
        if error is ValueError:
            assert "[0, 3)" in str(caught.value)
        assert state(model) == before
    with pyggml.Trainer(model, 3) as trainer:
        weights = [w.tobytes() for w in trainer.get_weights()]
        with pytest.raises(error):
            trainer.step(X, labels)
        assert [w.tobytes() for w in trainer.get_weights()] == weights
        assert trainer.n_steps == 0


def test_r07a_a_bad_label_in_the_second_batch_of_a_generator():
    model = softmax_model()
    with pytest.raises(ValueError, match=r"y holds 3 in row 2; .*\[0, 3\)"):
        model.fit_generator(iter([(X, GOOD), (X, [0, 1, 3])]), batch_size=3, verbose=0)
    one = softmax_model()
    one.fit_generator(iter([(X, GOOD)]), batch_size=3, verbose=0)
    assert state(model) == state(one)


@pytest.mark.parametrize("dtype", [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
])
def test_r07a_every_type_of_whole_numbers_gives_the_same(dtype):
    expected = softmax_model()
    expected.fit(X, GOOD, shuffle=False, verbose=0)
    model = softmax_model()
    model.fit(X, GOOD.astype(dtype), shuffle=False, verbose=0)
    assert state(model) == state(expected)


def test_r07a_bool_labels():
    expected, model = softmax_model(), softmax_model()
    expected.fit(X, np.array([0, 1, 1]), shuffle=False, verbose=0)
    model.fit(X, np.array([False, True, True]), shuffle=False, verbose=0)
    assert state(model) == state(expected)


def test_r07b_one_hot_rows_for_the_integer_loss_and_the_other_way_round():
    with pytest.raises(ValueError, match="use loss 'categorical_crossentropy'"):
        softmax_model().fit(X, np.eye(3), verbose=0)
    with pytest.raises(ValueError, match="use loss 'sparse_categorical_crossentropy'"):
        softmax_model("categorical_crossentropy").fit(X, GOOD, verbose=0)


@pytest.mark.parametrize("total", [0, 2])
def test_r07b_one_hot_rows_need_not_sum_to_1(total):
    # Documented: the loss is -sum(y log(p)), whatever y sums to.
    model = softmax_model("categorical_crossentropy")
    y = np.eye(3) * total
    expected = -(y * np.log(model.predict(X).astype(float))).sum() / 3
    assert model.evaluate(X, y) == pytest.approx(expected, rel=1e-5, abs=1e-6)
