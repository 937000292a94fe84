"""R14: 'restore the best weights' works however training ends."""

import numpy as np
import pytest
from _models import weight, zero_model

from pyggml import callbacks, optimizers

X, Y = np.ones((4, 1), np.float32), np.ones(4, np.float32)
VALIDATION = (X, np.full(4, 0.5, np.float32))


def trained(stopping, *others, epochs=4, validation=VALIDATION):
    model = zero_model(optimizer=optimizers.SGD(0.25))
    model.fit(X, Y, epochs=epochs, verbose=0, validation_data=validation,
              callbacks=[stopping, *others])
    return model


def best(**arguments):
    return callbacks.EarlyStopping(restore_best_weights=True, **arguments)


class StopIn(callbacks.Callback):
    def __init__(self, epoch, error=None):
        self.epoch, self.error = epoch, error

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.epoch:
            self.model.stop_training = True
            if self.error is not None:
                raise self.error


def test_r14a_at_the_last_epoch():
    stopping = best(patience=10)
    model = trained(stopping)
    assert weight(model) == 0.5
    assert stopping.best_epoch == 0 and stopping.best == 0
    assert model.history.history["val_loss"] == pytest.approx(
        [0, 0.0625, 0.140625, 0.19140625])


def test_r14b_by_another_callback():
    stopping = best(patience=10)
    model = trained(stopping, StopIn(2))
    assert weight(model) == 0.5
    assert model.history.epoch == [0, 1, 2]


def test_r14b_by_patience():
    stopping = best(patience=2)
    model = trained(stopping)
    assert weight(model) == 0.5
    assert stopping.stopped_epoch == 2
    assert model.history.epoch == [0, 1, 2]


@pytest.mark.parametrize("error", [OSError("disk is full"), KeyboardInterrupt()])
def test_r14b_by_an_exception_which_comes_out(error):
    model = zero_model(optimizer=optimizers.SGD(0.25))
    with pytest.raises(type(error)) as caught:
        model.fit(X, Y, epochs=4, verbose=0, validation_data=VALIDATION,
                  callbacks=[best(patience=10), StopIn(2, error)])
    assert caught.value is error
    assert weight(model) == 0.5
    assert model.history.epoch == [0, 1]
    model.fit(X, Y, verbose=0)


def test_r14b_of_equal_values_the_earlier():
    class Constant(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_loss"] = [1.0, 0.5, 0.5, 2.0][epoch]

    stopping = best(patience=10)
    model = zero_model(optimizer=optimizers.SGD(0.25))
    model.fit(X, Y, epochs=4, verbose=0, validation_data=VALIDATION,
              callbacks=[Constant(), stopping])
    assert stopping.best_epoch == 1
    assert weight(model) == 0.75


@pytest.mark.parametrize("monitor", ["val_los", "val_accuracy"])
def test_r14b_a_monitor_that_never_exists_is_an_error_in_epoch_0(monitor):
    with pytest.raises(ValueError, match=rf"'{monitor}', which is not among loss, val_loss"):
        trained(best(monitor=monitor))


def test_r14b_so_is_validation_that_was_not_asked_for():
    with pytest.raises(ValueError, match="there is no validation data"):
        trained(best(), validation=None)
