"""Compares a layer with a float64 reference: outputs, and gradients of inputs and weights."""

import numpy as np
from pyggml._feed import read
from reference.gradcheck import relative_error

import pyggml
from pyggml import ops

FORWARD, GRADIENT = 1e-5, 1e-4


class Given(pyggml.layers.Layer):
    """Adds a trainable array to its input, so that the gradient of an input can be read."""

    def __init__(self, value, **kwargs):
        super().__init__(**kwargs)
        self.value = np.asarray(value, np.float32)

    def build(self, input_shape):
        self.offset = self.add_weight("offset", self.value.shape, "zeros",
                                      axes=tuple(range(self.value.ndim)))
        self.offset.assign(self.value)

    def call(self, x):
        offset = self.offset
        if x.shape[0] < offset.shape[0]:  # graphs of one row are made to look at
            shape = (x.shape[0], *offset.shape[1:])
            offset = ops.slice(x.graph.weight(offset), [0] * len(shape), shape)
        return ops.add(x, offset)

    def compute_output_shape(self, input_shape):
        return input_shape


def product(y_true, y_pred):
    return ops.multiply(y_true, y_pred)


def random(*shape, seed=0, scale=1.0):
    """Normal numbers that float32 holds exactly."""
    rng = np.random.default_rng([seed, *shape])
    return (scale * rng.standard_normal(shape)).astype(np.float32)


class Case:
    """A layer in a model whose inputs are trainable arrays.

    ``call(layer, symbols)`` connects it; by default with the symbol, or the list of several.
    """

    def __init__(self, layer, xs, call=None, weights=None):
        pyggml.set_num_threads(1)
        self.layer, self.xs = layer, [np.asarray(x, np.float32) for x in xs]
        self.n = len(self.xs[0])
        symbols = [pyggml.Input(x.shape[1:]) for x in self.xs]
        given = [Given(x, name=f"given_{i}_{layer.name}")(s)
                 for i, (x, s) in enumerate(zip(self.xs, symbols, strict=True))]
        out = (layer(given if len(given) > 1 else given[0]) if call is None
               else call(layer, given))
        self.outputs = out if isinstance(out, list) else [out]
        self.model = pyggml.Model(symbols, self.outputs)
        for i, v in enumerate(layer.weights):
            if weights is not None and v.name in weights:
                v.assign(weights[v.name])
            elif v.trainable:
                v.assign(random(*v.shape, seed=100 + i, scale=0.5))
        self.weights = {v.name: v.numpy() for v in layer.weights}
        self.zeros = [np.zeros_like(x) for x in self.xs]
        if len(self.zeros) == 1:
            self.zeros = self.zeros[0]

    def forward(self):
        """The outputs in evaluation mode."""
        found = self.model.predict(self.zeros, batch_size=self.n)
        return found if isinstance(found, list) else [found]

    def trainer(self, rate=0.0):
        self.model.compile(pyggml.optimizers.SGD(rate), [product] * len(self.outputs))
        return pyggml.Trainer(self.model, batch_size=self.n)

    def douts(self):
        return [random(self.n, *o.shape[1:], seed=7 + i) for i, o in enumerate(self.outputs)]

    def gradients(self):
        """Gradients of sum(out * dout), by name: weights, and the list under "xs"."""
        douts = self.douts()
        size = {d.size for d in douts}
        # Each output's loss is a mean over its elements; the labels undo that.
        labels = [d * d.size / max(size) for d in douts]
        labels = labels if len(labels) > 1 else labels[0]
        with self.trainer(1.0) as trainer:
            found = trainer.gradients(self.zeros, labels)
            trainer.step(self.zeros, labels)
            self._check_step(found, trainer.model())
        found = {key: value * max(size) for key, value in found.items()}
        grads = {v.name: found[self.model.weight_names[v]] for v in self.layer.weights
                 if v.trainable}
        grads["xs"] = [found[f"given_{i}_{self.layer.name}/offset"] for i in range(len(self.xs))]
        return grads

    def _check_step(self, gradients, after):
        """A step is made in another graph, without accumulators: it must go the same way."""
        names = self.model.weight_names
        for v, moved in zip(self.model.program.variables, after.program.variables, strict=True):
            if v.trainable:
                gradient = gradients[names[v]]
                rounding = 1e-6 * np.abs(v.numpy()).max() + 1e-5 * np.abs(gradient).max()
                np.testing.assert_allclose(v.numpy() - moved.numpy(), gradient,
                                           rtol=1e-4, atol=1e-9 + rounding)

    def training_outputs(self):
        """The outputs that a training step computes."""
        with self.trainer() as trainer:
            douts = self.douts()
            feed = trainer._feed(self.zeros, douts if len(douts) > 1 else douts[0], None)
            _, built = trainer._step_rows(feed, None, 0, self.n)
            return [read(t).copy() for t, _ in built.predictions]


def check_outputs(found, expected, tolerance=FORWARD):
    for a, b in zip(found, expected, strict=True):
        assert np.isfinite(a).all()
        assert relative_error(a, b) <= tolerance, relative_error(a, b)


def check_gradients(found, expected, tolerance=GRADIENT):
    """``expected`` holds "xs" (a list) and the weights by name."""
    for i, (a, b) in enumerate(zip(found["xs"], expected["xs"], strict=True)):
        assert relative_error(a, b, tiny=1e-3) <= tolerance, ("input", i, relative_error(a, b))
    assert set(found) == set(expected)
    for name in set(found) - {"xs"}:
        error = relative_error(found[name], expected[name], tiny=1e-3)
        assert error <= tolerance, (name, error)


def check(layer, x, reference, call=None, weights=None, tolerance=FORWARD, gradient=GRADIENT):
    """One input, one output: ``reference(x, **weights)`` gives the output and its backward."""
    case = Case(layer, [x], call, weights)
    out, backward = reference(np.asarray(x, np.float64), **case.weights)
    check_outputs(case.forward(), [out], tolerance)
    expected = backward(case.douts()[0].astype(np.float64))
    expected["xs"] = [expected.pop("x")]
    check_gradients(case.gradients(), expected, gradient)
    return case
