"""Small models whose losses can be worked out by hand."""

import numpy as np

import pyggml


def zero_model(n_in=1, n_out=1, bias=False, optimizer=None, loss="mse", metrics=None, value=0.0):
    """One Dense layer with all weights 0, or ``value``."""
    layer = pyggml.layers.Dense(n_out, use_bias=bias, kernel_initializer="zeros")
    model = pyggml.Sequential([pyggml.Input((n_in,)), layer])
    model.compile(pyggml.optimizers.SGD(0.1) if optimizer is None else optimizer, loss, metrics)
    if value:
        model.set_weights([np.full((n_in, n_out), value)] + [np.zeros(n_out)] * bias)
    return model


def softmax_model(loss="sparse_categorical_crossentropy", n_in=4, classes=3, **arguments):
    """Dense(classes, softmax) with fixed weights."""
    model = pyggml.Sequential([
        pyggml.Input((n_in,)), pyggml.layers.Dense(classes, activation="softmax")])
    model.compile(arguments.pop("optimizer", "adam"), loss, arguments.pop("metrics", None))
    weights = np.linspace(-1, 1, n_in * classes).reshape(n_in, classes)
    model.set_weights([weights, np.zeros(classes)])
    return model


def weight(model):
    """The first element of the first weight."""
    return float(model.get_weights()[0].ravel()[0])


def state(model):
    """Everything that an update could have changed."""
    trainer = model.compiled.trainer
    steps = None if trainer is None else (trainer.n_steps, trainer.n_updates)
    return [w.tobytes() for w in model.get_weights()], steps
