"""Networks described without any library, with the weights and the data that all of them get.

Weights are NumPy arrays in Keras' order and shapes, images are channels-last.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dense:
    units: int
    activation: str | None = None


@dataclass(frozen=True)
class Conv:
    """3x3, same padding, ReLU."""

    filters: int


@dataclass(frozen=True)
class Pool:
    """The largest of each 2x2."""


@dataclass(frozen=True)
class Flatten:
    """All axes but the first in one."""


@dataclass(frozen=True)
class LSTM:
    """The last output of a sequence."""

    units: int


@dataclass(frozen=True)
class GRU:
    """The last output of a sequence; the reset gate acts after the product, with two biases."""

    units: int


@dataclass(frozen=True)
class Block:
    """A transformer block: attention and two dense layers, each added to its input and normalised.

    Layer norm has an epsilon of 1e-3.
    """

    heads: int
    hidden: int


@dataclass(frozen=True)
class MeanOverTime:
    """The mean over axis 1."""


@dataclass(frozen=True)
class Network:
    """Layers over an input; the loss is "mse" or, on class numbers and logits, "crossentropy".

    rate is Adam's. Large networks have a small one: where the first steps overshoot, rounding grows
    into differences that could hide true ones.
    """

    name: str
    input: tuple
    layers: tuple
    loss: str
    batch: int
    rate: float = 1e-3

    @property
    def outputs(self):
        return self.layers[-1].units

    def shapes(self):
        """The shape that each layer takes, without the batch."""
        shape, found = self.input, []
        for layer in self.layers:
            found.append(shape)
            match layer:
                case Dense(units) | LSTM(units) | GRU(units):
                    shape = (units,)
                case Conv(filters):
                    shape = (*shape[:2], filters)
                case Pool():
                    shape = (shape[0] // 2, shape[1] // 2, shape[2])
                case Flatten():
                    shape = (math.prod(shape),)
                case MeanOverTime():
                    shape = shape[1:]
        return found

    def weights(self):
        """One tuple of arrays a layer, the same at every call."""
        rng = np.random.default_rng(1)
        return [_draw(layer, shape, rng) for layer, shape in zip(self.layers, self.shapes(),
                                                                 strict=True)]

    def rows(self, n, seed=2):
        """Return n rows and their targets."""
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, *self.input)).astype(np.float32)
        return x, self._targets(rng, n)

    def batches(self, n):
        """Return n batches: the second half has the inputs of the first with other targets.

        So no network can learn them by heart, and gradients stay of one size however long it is
        timed.
        """
        rng = np.random.default_rng(3)
        shape = (self.batch, *self.input)
        inputs = [rng.normal(size=shape).astype(np.float32) for _ in range(n // 2)]
        return [(x, self._targets(rng, self.batch)) for x in inputs + inputs]

    def _targets(self, rng, n):
        if self.loss == "mse":
            return rng.normal(size=(n, self.outputs)).astype(np.float32)
        return rng.integers(self.outputs, size=n)


def dense(sizes, batch, loss="crossentropy", rate=1e-3):
    """Dense layers, all but the last with ReLU."""
    layers = [Dense(n, "relu") for n in sizes[1:-1]] + [Dense(sizes[-1])]
    return Network("-".join(map(str, sizes)), (sizes[0],), tuple(layers), loss, batch, rate)


def cnn(size, filters, batch, rate=1e-3):
    """A convolution and a pooling for each number of filters, then a dense layer to 10 classes."""
    layers = [part for n in filters for part in (Conv(n), Pool())]
    return Network("CNN " + "x".join(map(str, size)) + ": " + "-".join(map(str, filters)), size,
                   (*layers, Flatten(), Dense(10)), "crossentropy", batch, rate)


def recurrent(kind, steps, inputs, units, batch):
    """One recurrent layer over a sequence, then a dense layer to 10 classes."""
    return Network(f"{kind.__name__}: {steps} steps of {inputs}, {units} units", (steps, inputs),
                   (kind(units), Dense(10)), "crossentropy", batch)


def transformer(steps, size, heads, hidden, batch):
    """One block, the mean over time, then a dense layer to 10 classes."""
    return Network(f"transformer block: {steps} steps of {size}, {heads} heads", (steps, size),
                   (Block(heads, hidden), MeanOverTime(), Dense(10)), "crossentropy", batch)


def _draw(layer, shape, rng):
    def kernel(*shape, fan):
        limit = math.sqrt(3 / fan)
        return rng.uniform(-limit, limit, shape).astype(np.float32)

    def bias(*shape):
        return rng.uniform(-0.1, 0.1, shape).astype(np.float32)

    size = shape[-1]
    match layer:
        case Dense(units):
            return kernel(size, units, fan=size), bias(units)
        case Conv(filters):
            return kernel(3, 3, size, filters, fan=9 * size), bias(filters)
        case LSTM(units):
            return (kernel(size, 4 * units, fan=size), kernel(units, 4 * units, fan=units),
                    bias(4 * units))
        case GRU(units):
            return (kernel(size, 3 * units, fan=size), kernel(units, 3 * units, fan=units),
                    bias(2, 3 * units))
        case Block(heads, hidden):
            each = (heads, size // heads)
            return (kernel(size, *each, fan=size), bias(*each),      # query
                    kernel(size, *each, fan=size), bias(*each),      # key
                    kernel(size, *each, fan=size), bias(*each),      # value
                    kernel(*each, size, fan=size), bias(size),       # output
                    1 + bias(size), bias(size),                      # layer norm
                    kernel(size, hidden, fan=size), bias(hidden),
                    kernel(hidden, size, fan=hidden), bias(size),
                    1 + bias(size), bias(size))                      # layer norm
    return ()
