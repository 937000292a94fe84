"""R05: per-element weights have a checked shape and really switch elements off."""

import numpy as np
import pytest
from _models import zero_model

X = np.ones((2, 1), np.float32)
Y = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
W = np.array([[1, 1, 0], [0, 1, 0]], np.float32)


def trained(y, w):
    model = zero_model(n_out=3)
    before = model.evaluate(X, y, sample_weight=w)
    history = model.fit(X, y, sample_weight=w, verbose=0).history
    assert history["loss"][0] == pytest.approx(before, rel=1e-6)
    return before, model.get_weights()[0]


def test_r05a_an_element_of_weight_0_changes_no_bit():
    far = Y.copy()
    far[0, 2] = 1e6
    loss, weights = trained(Y, W)
    loss_far, weights_far = trained(far, W)
    assert loss == pytest.approx(30 / 6, abs=1e-6)
    assert loss_far == loss
    assert weights_far.tobytes() == weights.tobytes()
    assert weights[0, 2] == 0


def test_r05b_one_weight_a_row_and_its_elements_agree():
    rows, _ = trained(Y, np.array([1, 0]))
    elements, _ = trained(Y, np.array([[1, 1, 1], [0, 0, 0]]))
    assert rows == pytest.approx(14 / 6, abs=1e-6)
    assert elements == pytest.approx(14 / 6, abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (3,), (2, 3, 1), (2, 4)])
def test_r05c_other_shapes_are_refused_by_name(shape):
    model = zero_model(n_out=3)
    w = np.ones(shape)
    for call in (lambda: model.fit(X, Y, sample_weight=w, verbose=0),
                 lambda: model.evaluate(X, Y, sample_weight=w),
                 lambda: model.fit_generator(iter([(X, Y, w)]), batch_size=2, verbose=0)):
        with pytest.raises(ValueError) as caught:
            call()
        for text in (str(shape), "(2,)", "(2, 3)"):
            assert text in str(caught.value)
    assert not model.get_weights()[0].any()


def test_r05c_a_square_case_is_per_row():
    y = np.arange(9, dtype=np.float32).reshape(3, 3)
    model = zero_model(n_out=3)
    loss = model.evaluate(np.ones((3, 1)), y, sample_weight=[1, 0, 0])
    assert loss == pytest.approx((y[0] ** 2).sum() / 9, abs=1e-6)
