"""Runs a function of tensors on arrays and differentiates it, through a trainer."""

import numpy as np

import pyggml
from pyggml import layers, ops


class Shift(layers.Layer):
    """Adds a weight of the whole batch's shape, so that its gradient is the input's."""

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, input_shape):
        self.offset = self.add_weight("offset", self.start.shape, lambda shape, rng: self.start)

    def call(self, x):
        return ops.add(x, self.offset) if x.shape == self.start.shape else x

    def compute_output_shape(self, input_shape):
        return input_shape


class Apply(layers.Layer):
    """A function of tensors as a layer."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, x):
        return self.function(x)


def shifted_model(x, function, loss, optimizer="sgd"):
    """A model whose output on zeros is function(x), with x as its only weight."""
    model = pyggml.Sequential([pyggml.Input(x.shape[1:]), Shift(np.float32(x)), Apply(function)])
    model.compile(optimizer, loss)
    return model


def value_and_gradient(function, x, dy):
    """function(x), and the gradient of sum(dy * function(x)) with respect to x.

    Training graphs may use another form of the function: their sum has to be the same.
    """
    model = shifted_model(x, function, lambda y_true, y_pred: ops.multiply(y_true, y_pred))
    zeros = np.zeros(x.shape, np.float32)
    with pyggml.Trainer(model, batch_size=len(x)) as trainer:
        (gradient,) = trainer.gradients(zeros, np.float32(dy)).values()
        value = trainer.predict(zeros)
        trainer.set_lr(0)
        total = trainer.step(zeros, np.float32(dy)) * dy.size
    terms = value.astype(np.float64) * dy
    if np.isfinite(terms).all():
        np.testing.assert_allclose(total, terms.sum(), atol=1e-5 * np.abs(terms).sum() + 1e-9)
    return value, gradient * dy.size


def loss_and_gradient(loss, y, p, weights=None, activation="linear"):
    """The loss of predictions p as a step reports it, and its gradient with respect to p."""
    model = shifted_model(p, pyggml.activations.get(activation), loss)
    mask = None
    if weights is not None:
        mask = 1 if np.ndim(weights) == 1 else int(np.prod(p.shape[1:]))
    zeros = np.zeros(p.shape, np.float32)
    with pyggml.Trainer(model, batch_size=len(p), loss_mask=mask) as trainer:
        value = trainer.eval(zeros, y, weights)
        (gradient,) = trainer.gradients(zeros, y, weights).values()
        assert trainer.step(zeros, y, weights) == value
    return value, gradient
