"""The same small model in Keras and in pyggml, with the same weights."""

import os
import warnings

import numpy as np
import pytest
from layer_check import random

import pyggml

os.environ.setdefault("KERAS_BACKEND", "jax")
# What is compiled here runs once.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 "
                                   "--xla_llvm_disable_expensive_passes=true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("jax")
    keras = pytest.importorskip("keras")

LIBRARIES = (keras, pyggml)


def pair(make, shapes, dtypes=None):
    """Return both models: ``make(library, *inputs)`` gives the outputs; weights are random."""
    dtypes = dtypes or ["float32"] * len(shapes)
    models = []
    for library in LIBRARIES:
        inputs = [library.Input(shape, dtype=dtype)
                  for shape, dtype in zip(shapes, dtypes, strict=True)]
        models.append(library.Model(inputs, make(library, *inputs)))
    theirs, ours = models
    variables = [v for v in theirs.weights if "seed" not in v.path]  # of dropout
    values = [random(*v.shape, seed=i, scale=0.5) for i, v in enumerate(variables)]
    for variable, value in zip(variables, values, strict=True):
        if "variance" in variable.name:
            value = np.abs(value) + 0.5
        variable.assign(value)
    ours.set_weights([numpy(v) for v in variables])
    theirs.compared = variables
    return theirs, ours


def numpy(value):
    return np.asarray(keras.ops.convert_to_numpy(value))


def close(theirs, ours, rtol=2e-5, atol=None):
    """Compare two arrays, or lists of them, by the size of the largest element."""
    theirs, ours = (x if isinstance(x, (list, tuple)) else [x] for x in (theirs, ours))
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours, strict=True):
        a, b = np.float64(numpy(a)), np.float64(b)
        assert a.shape == b.shape
        size = np.abs(a).max(initial=0.0) if atol is None else atol / rtol
        np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol * size)


def fit(models, x, y, optimizers=None, loss="mse", rtol=1e-4, compile_with=(), **arguments):
    """Train both and compare histories and weights; returns the histories."""
    theirs, ours = models
    optimizers = optimizers or [library.optimizers.SGD(0.05) for library in LIBRARIES]
    losses = loss if isinstance(loss, tuple) else (loss, loss)
    arguments = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0} | arguments
    callbacks = arguments.pop("callbacks", lambda library: [])
    theirs.compile(optimizers[0], losses[0], run_eagerly=True, **dict(compile_with))
    ours.compile(optimizers[1], losses[1], **dict(compile_with))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        histories = [model.fit(x, y, callbacks=callbacks(library), **arguments).history
                     for model, library in zip(models, LIBRARIES, strict=True)]
    assert set(histories[0]) == set(histories[1])
    for key, values in histories[0].items():
        close(np.array(values), np.array(histories[1][key]), rtol)
    close([numpy(v) for v in theirs.compared], ours.get_weights(), 2 * rtol)
    return histories
