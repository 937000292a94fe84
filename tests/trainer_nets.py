"""Small networks, data and child processes for the tests of the trainer."""


import numpy as np

import pyggml
from pyggml import layers


def dense(sizes=(4, 8, 2), activation="tanh", last=None, loss="mse", optimizer="adam", seed=1,
          dropout=0.0):
    """A compiled Sequential of Dense layers."""
    pyggml.set_seed(seed)
    model = pyggml.Sequential([pyggml.Input((sizes[0],))])
    for size in sizes[1:-1]:
        model.add(layers.Dense(size, activation))
        if dropout:
            model.add(layers.Dropout(dropout))
    model.add(layers.Dense(sizes[-1], last))
    model.compile(optimizer, loss)
    return model


def zero(outputs=1, use_bias=True, loss="mse", optimizer="sgd"):
    """A model of one Dense layer whose weights are 0."""
    model = pyggml.Sequential([
        pyggml.Input((1,)),
        layers.Dense(outputs, use_bias=use_bias, kernel_initializer="zeros")])
    model.compile(optimizer, loss)
    return model


def batch(rows=8, inputs=4, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, inputs)).astype(np.float32),
            rng.normal(size=(rows, outputs)).astype(np.float32))


def same(a, b):
    """Whether two lists of arrays are equal bit for bit."""
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
