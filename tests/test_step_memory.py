"""A step copies a batch once and allocates nothing of its size."""

import tracemalloc

import numpy as np

import pyggml
from pyggml import layers


def model_of(features, units):
    model = pyggml.Sequential([pyggml.Input((features,)), layers.Dense(units, "relu"),
                               layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def peak_of(call):
    call()
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_step_allocates_nothing_of_the_size_of_a_batch():
    x, y = np.ones((256, 1000), np.float32), np.ones((256, 1), np.float32)
    trainer = pyggml.Trainer(model_of(1000, 4), 256)
    assert x.nbytes > 1_000_000
    assert peak_of(lambda: trainer.step(x, y)) < 10_000


def test_a_step_on_another_type_or_stride_makes_no_copy_either():
    trainer = pyggml.Trainer(model_of(1000, 4), 256)
    y = np.ones(256)
    for x in (np.ones((256, 1000)), np.ones((1000, 256), np.float32).T,
              np.ones((512, 1000), np.float32)[::2], np.ones((256, 1000), np.uint8)):
        assert peak_of(lambda x=x: trainer.step(x, y)) < 10_000


def test_fit_makes_no_second_copy_of_the_data():
    # Shuffling costs 8 bytes a row; the data are 4000 or 8000 bytes a row.
    model = model_of(1000, 4)
    y = np.ones(2000)
    for x in (np.ones((2000, 1000), np.float32), np.ones((1000, 2000)).T):
        peak = peak_of(lambda x=x: model.fit(x, y, batch_size=50, verbose=0))
        assert peak < 200_000


def test_the_input_tensor_is_the_only_room_for_a_batch():
    # Doubling the features doubles what the graph holds for them, by one float32 batch.
    rows = 128

    def held(features):
        pyggml.set_seed(0)
        trainer = pyggml.Trainer(model_of(features, 4), rows)
        text = repr(trainer)
        total = int(text.split(" bytes")[0].split()[-1])
        weights = 4 * (features * 4 + 4 + 4 + 1)
        return total - weights

    batch = 4 * rows * 10_000
    grown = held(20_000) - held(10_000)
    gradient = 4 * 4 * 10_000  # of the first kernel
    assert batch <= grown <= batch + 2 * gradient
