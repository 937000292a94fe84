"""R06: targets are matched to outputs explicitly, never broadcast."""

import numpy as np
import pytest
from _models import state, zero_model

import pyggml
from pyggml import ops

X = np.array([[1], [2], [3]], np.float32)


def own_loss(y_true, y_pred):
    return ops.square(ops.subtract(y_pred, y_true))


def own_metric(y_true, y_pred):
    return (y_true - y_pred) ** 2


def identity_model(loss="mse"):
    return zero_model(value=1.0, optimizer=pyggml.optimizers.SGD(0.0), loss=loss,
                      metrics=["mse", "mae", own_metric])


@pytest.mark.parametrize("loss", ["mse", own_loss])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("column", [False, True])
def test_r06a_a_flat_target_and_a_column_are_the_same(loss, n, column):
    x = X[:n]
    y = x if column else x[:, 0]
    model = identity_model(loss)
    assert model.evaluate(x, y) == [0, 0, 0, 0]
    assert model.evaluate(iter([(x, y)])) == [0, 0, 0, 0]
    history = model.fit(x, y, verbose=0, validation_data=(x, y)).history
    assert all(values == [0] for values in history.values())
    history = model.fit_generator(iter([(x, y)]), batch_size=n, verbose=0).history
    assert all(values == [0] for values in history.values())
    with pyggml.Trainer(model, n) as trainer:
        assert trainer.step(x, y) == 0
        assert trainer.eval(x, y) == 0


@pytest.mark.parametrize(("n_out", "shape"), [
    (2, (3,)), (2, (3, 1)), (2, (2, 3)), (2, (6,)), (1, (4, 1)), (1, (2,)), (1, (3, 3)),
])
def test_r06b_other_shapes_are_refused_before_any_update(n_out, shape):
    model = zero_model(n_out=n_out)
    model.fit(X, np.zeros((3, n_out)), verbose=0)
    before = state(model)
    y = np.ones(shape)
    for call in (lambda: model.fit(X, y, verbose=0),
                 lambda: model.evaluate(X, y),
                 lambda: model.fit(X, np.zeros((3, n_out)), validation_data=(X, y), verbose=0),
                 lambda: model.fit_generator(iter([(X, y)]), batch_size=3, verbose=0)):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(shape) in str(caught.value) or str(shape[0]) in str(caught.value)
    assert state(model) == before
