"""R03: an error raised by the user's generator reaches the user, promptly."""

import threading
import time

import numpy as np
import pytest
from _models import zero_model

X, Y = np.ones((2, 1), np.float32), np.ones(2, np.float32)


class BadRow(ValueError):
    pass


def failing():
    yield X, Y
    yield X, Y
    raise BadRow("bad row 3")


class Sequence:
    def __init__(self, fails_in_hook=False):
        self.fails_in_hook = fails_in_hook

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i == 2 and not self.fails_in_hook:
            raise BadRow("bad row 3")
        return X, Y

    def on_epoch_end(self):
        raise BadRow("bad row 3")


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("source", [failing, lambda: Sequence(), lambda: Sequence(True)],
                         ids=["generator", "item", "hook"])
def test_r03a_the_exception_itself_comes_out(source, workers):
    model = zero_model()
    threads = threading.active_count()
    began = time.monotonic()
    with pytest.raises(BadRow, match=r"^bad row 3$"):
        model.fit_generator(source(), batch_size=2, verbose=0, workers=workers)
    assert time.monotonic() - began < 5
    assert threading.active_count() == threads
    model.fit(X, Y, verbose=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_r03a_from_validation_data_too(workers):
    model = zero_model()
    threads = threading.active_count()
    with pytest.raises(BadRow, match=r"^bad row 3$"):
        model.fit(X, Y, validation_generator=failing(), verbose=0, workers=workers)
    assert threading.active_count() == threads
    model.fit(X, Y, verbose=0)


@pytest.mark.parametrize("batch", [(X,), (X, Y, None, None), X, {"x": X}, 3])
def test_r03a_a_batch_of_another_form_says_what_was_expected(batch):
    with pytest.raises(ValueError, match=r"must give \(x, y\) or \(x, y, sample_weight\)"):
        zero_model().fit_generator(iter([batch]), batch_size=2, verbose=0)


def test_r03b_a_generator_that_ends_early_warns_with_both_numbers():
    model = zero_model()
    with pytest.warns(RuntimeWarning, match="gave 3 batches in epoch 0, but steps_per_epoch is 5"):
        history = model.fit_generator(iter([(X, Y)] * 3), steps_per_epoch=5, batch_size=2,
                                      verbose=0)
    assert history.epoch == [0]
    assert model.compiled.trainer.n_steps == 3
