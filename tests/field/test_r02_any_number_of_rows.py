"""R02: any number of rows works with any batch size; none at all is an error."""

import numpy as np
import pytest
from _models import state, weight, zero_model

import pyggml

X = np.ones((4, 1), np.float32)
Y = np.array([1, 1, 1, 3], np.float32)


class Weights(pyggml.callbacks.Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(weight(self.model))


def test_r02a_the_short_batch_is_averaged_over_its_own_rows():
    model, weights = zero_model(), Weights()
    model.fit(X, Y, batch_size=3, shuffle=False, verbose=0, callbacks=[weights])
    assert weights.seen == [pytest.approx(0.2, abs=1e-6), pytest.approx(0.76, abs=1e-6)]


def test_r02a_the_same_by_windows():
    model = zero_model()
    model.fit(X, Y, batch_size=1, nbatch_logical=3, shuffle=False, verbose=0)
    assert weight(model) == pytest.approx(0.76, abs=1e-6)
    assert model.compiled.trainer.n_updates == 2


@pytest.mark.parametrize("n", [1, 3])
def test_r02b_fewer_rows_than_a_batch(n):
    x, y = X[:n], Y[-n:]
    found = []
    for size in (8, n):
        model = zero_model()
        model.fit(x, y, batch_size=size, shuffle=False, verbose=0)
        outputs = model.predict(x, batch_size=size)
        assert outputs.shape == (n, 1)
        found.append([weight(model), model.evaluate(x, y, batch_size=size), *outputs[:, 0]])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_r02c_no_rows_is_an_error_that_changes_nothing():
    model = zero_model()
    model.fit(X, Y, verbose=0)
    before = state(model)
    none = np.empty((0, 1), np.float32)
    with pytest.raises(ValueError, match="no rows"):
        model.fit(none, np.empty(0), verbose=0)
    with pytest.raises(ValueError, match="no rows"):
        model.evaluate(none, np.empty(0))
    with pytest.raises(ValueError, match="no rows"):
        model.fit_generator(lambda: None, batch_size=2, verbose=0)
    with pytest.raises(ValueError, match="no rows"):
        model.fit_generator(iter(()), batch_size=2, verbose=0)
    with pytest.raises(ValueError, match="no rows"):
        model.evaluate(iter(()))
    with pytest.raises(ValueError, match="leaves 0 rows to train on"):
        model.fit(X, Y, validation_split=0.9, verbose=0)
    with pyggml.Trainer(model, 4) as trainer, pytest.raises(ValueError):
        trainer.step(none, np.empty(0))
    assert state(model) == before
    assert model.predict(none).shape == (0, 1)
    model.fit(X, Y, verbose=0)
