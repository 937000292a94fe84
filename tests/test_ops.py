"""Operations on tensors: values against NumPy, gradients against central differences in double."""

import numpy as np
import pytest
from reference.gradcheck import normal, numerical_gradient, relative_error

import pyggml
from pyggml import layers, ops, opt


class Function(layers.Layer):
    """Applies a function to the input plus a weight, so that the input has a gradient."""

    def __init__(self, function, shape, **kwargs):
        super().__init__(**kwargs)
        self.function = function
        self.row = shape[1:]

    def build(self, input_shape):
        self.shift = self.add_weight("shift", self.row, "zeros", axes=range(len(self.row)))

    def call(self, x):
        return self.function(ops.add(x, self.shift))


def values_and_gradient(function, x, w):
    """Return f(x), and the gradient of sum(w * f(x)) with respect to a shift of all rows."""
    inputs = pyggml.Input(x.shape[1:])
    layer = Function(function, x.shape)
    outputs = layer(inputs)
    model = pyggml.Model(inputs, outputs)
    model.compile("sgd", lambda y, p: ops.affine(ops.multiply(p, y), float(w.size)))
    trainer = pyggml.Trainer(model, len(x))
    (gradient,) = trainer.gradients(x, w).values()
    return model.predict(x, batch_size=len(x)), gradient


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ONE = {
    "negative": (ops.negative, np.negative), "absolute": (ops.absolute, np.abs),
    "square": (ops.square, np.square), "exp": (ops.exp, np.exp), "sin": (ops.sin, np.sin),
    "cos": (ops.cos, np.cos), "relu": (ops.relu, lambda x: np.maximum(x, 0)),
    "softplus": (ops.softplus, lambda x: np.log1p(np.exp(x))), "sigmoid": (ops.sigmoid, sigmoid),
    "tanh": (ops.tanh, np.tanh), "softmax": (ops.softmax, softmax),
    "log_softmax": (ops.log_softmax, lambda x: np.log(softmax(x))),
    "sqrt": (lambda x: ops.sqrt(ops.add(ops.square(x), 1.0)), lambda x: np.sqrt(x * x + 1)),
    "log": (lambda x: ops.log(ops.add(ops.square(x), 1.0)), lambda x: np.log(x * x + 1)),
    "affine": (lambda x: ops.affine(x, 2.0, -3.0), lambda x: 2 * x - 3),
    "number minus tensor": (lambda x: 1.0 - x, lambda x: 1 - x),
    "number over tensor": (lambda x: 2.0 / (ops.exp(x) + 1.0), lambda x: 2 / (np.exp(x) + 1)),
    "clip": (lambda x: ops.clip(x, -0.5, 0.8), lambda x: np.clip(x, -0.5, 0.8)),
    "max_last": (ops.max_last, lambda x: x.max(-1, keepdims=True)),
    "sum of the last axis": (lambda x: ops.sum(x, -1, True), lambda x: x.sum(-1, keepdims=True)),
    "mean of the last axis": (lambda x: ops.mean(x, -1), lambda x: x.mean(-1)),
    "shifted by its own mean": (lambda x: x - ops.mean(x, -1, True),
                                lambda x: x - x.mean(-1, keepdims=True)),
    "divided by its own sum": (lambda x: ops.exp(x) / ops.sum(ops.exp(x), -1, True), softmax),
    "multiplied by a part": (lambda x: ops.mean(x, -1, True) * x,
                             lambda x: x.mean(-1, keepdims=True) * x),
    "maximum": (lambda x: ops.maximum(x, ops.negative(x)), np.abs),
    "minimum": (lambda x: ops.minimum(x, ops.affine(x, 2.0)), lambda x: np.minimum(x, 2 * x)),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 33), (2, 3, 4, 17)])
def test_values_and_gradients(name, shape):
    function, reference = ONE[name]
    x = normal(*shape, seed=3)
    x += 0.05 * np.sign(x)  # away from kinks
    x = x.astype(np.float32).astype(np.float64)
    w = normal(*reference(x).shape, seed=4).astype(np.float32)
    got, gradient = values_and_gradient(function, x, w)
    assert relative_error(got, reference(x)) < 1e-5
    shift = np.zeros(shape[1:])
    wanted = numerical_gradient(lambda: (w * reference(x + shift)).sum(), shift)
    assert np.abs(gradient - wanted).max() < 1e-4 * max(np.abs(wanted).max(), 1e-2)


MOVES = {
    "reshape": (lambda x: ops.reshape(x, (x.shape[0], -1)), lambda x: x.reshape(len(x), -1)),
    "transpose of three": (lambda x: ops.transpose(x, (0, 2, 1)), lambda x: x.transpose(0, 2, 1)),
    "sum of the middle": (lambda x: ops.sum(x, 1), lambda x: x.sum(1)),
    "sum of two": (lambda x: ops.sum(x, (1, 2), True), lambda x: x.sum((1, 2), keepdims=True)),
    "mean of the middle": (lambda x: ops.mean(x, 1), lambda x: x.mean(1)),
    "matmul with its transpose": (lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))),
                                  lambda x: x @ x.transpose(0, 2, 1)),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 17, 3)])
def test_moves_and_reductions(name, shape):
    function, reference = MOVES[name]
    x = normal(*shape, seed=5).astype(np.float32).astype(np.float64)
    w = normal(*reference(x).shape, seed=6).astype(np.float32)
    got, gradient = values_and_gradient(function, x, w)
    assert relative_error(got, reference(x)) < 1e-5
    shift = np.zeros(shape[1:])
    wanted = numerical_gradient(lambda: (w * reference(x + shift)).sum(), shift)
    assert np.abs(gradient - wanted).max() < 1e-4 * max(np.abs(wanted).max(), 1e-2)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "softmax", "log_softmax", "relu"])
def test_extreme_inputs_give_finite_values_and_gradients(name):
    x = np.array([[-1e4, -50.0, 0.0, 50.0, 1e4]])
    got, gradient = values_and_gradient(ONE[name][0], x, np.ones_like(x, dtype=np.float32))
    assert np.isfinite(got).all()
    assert np.isfinite(gradient).all()


PICKED = {
    "maximum": (lambda x: ops.maximum(x, -1e9), lambda x: np.maximum(x, -1e9)),
    "maximum of a number": (lambda x: ops.maximum(1e-3, x), lambda x: np.maximum(1e-3, x)),
    "minimum": (lambda x: ops.minimum(x, 1e9), lambda x: np.minimum(x, 1e9)),
    "clip": (lambda x: ops.clip(x, 1e-7, 1.0), lambda x: np.clip(x, 1e-7, 1.0)),
    "wide clip": (lambda x: ops.clip(x, -1e9, 1e9), lambda x: np.clip(x, -1e9, 1e9)),
    "two tensors": (lambda x: ops.maximum(x, ops.affine(x, -1e9)),
                    lambda x: np.maximum(x, np.float32(-1e9) * x)),
    "smaller of two": (lambda x: ops.minimum(x, ops.affine(x, -1e9)),
                       lambda x: np.minimum(x, np.float32(-1e9) * x)),
}


@pytest.mark.parametrize("name", PICKED)
def test_what_is_picked_is_not_rounded(form, name):
    function, reference = PICKED[name]
    x = np.float32([[-3e20, -7.0, -1e-3, 2e-7, 1.3e-5, 0.1, 0.7, 3.0, 1e10, 3e20]])
    got, gradient = values_and_gradient(function, x, np.ones_like(x))
    np.testing.assert_allclose(got, reference(x), rtol=1e-6)
    step = np.float32(1e-3) * np.abs(x)
    slope = (reference((x + step).astype(np.float64)) - reference((x - step).astype(np.float64)))
    wanted = slope / ((x + step).astype(np.float64) - (x - step))
    np.testing.assert_allclose(gradient, wanted[0], rtol=1e-3)


def test_bounds_hold_for_infinity_and_not_for_nan(form):
    x = np.float32([[-np.inf, np.inf, np.nan]])
    if form == "kernels":
        for low, high in ((-2.0, 3.0), (-np.inf, np.inf)):
            got = ops.evaluate(lambda x, low=low, high=high: ops.clip(x, low, high), x)
            np.testing.assert_array_equal(got, np.clip(x, low, high))
        two = np.float32([[1.0, 1.0, 1.0]])
        np.testing.assert_array_equal(ops.evaluate(ops.maximum, x, two), np.maximum(x, two))
        np.testing.assert_array_equal(ops.evaluate(ops.minimum, x, two), np.minimum(x, two))
    assert np.isnan(ops.evaluate(lambda x: ops.clip(x, -1.0, 1.0), x)[0, 2])


def test_a_number_over_infinity_is_zero():
    x = np.array([[np.inf, -np.inf, 4.0, 1e30]], np.float32)
    for got in (ops.evaluate(lambda x: 2.0 / x, x), values_and_gradient(
            lambda x: ops.divide(2.0, x), x, np.ones_like(x))[0]):
        np.testing.assert_allclose(got, 2 / x)


def test_dropout_where_nobody_draws_masks_is_refused():
    class Always(layers.Layer):
        def call(self, x):
            return ops.dropout(x, 0.5)

    symbol = pyggml.Input((3,))
    with pytest.raises(ValueError, match="'training'"):
        Always()(symbol)
    with pytest.raises(ValueError, match="'training'"):
        layers.Dropout(0.5)(symbol, training=True)
    graph = pyggml.opt.Graph(4, training=True)
    with pytest.raises(ValueError, match="Trainer"):
        ops.dropout(graph.input((4, 3)), 0.5)


def test_shapes_that_do_not_fit_are_refused_by_name():
    def build(function, *shapes):
        symbols = [pyggml.Input(s) for s in shapes]

        class Custom(layers.Layer):
            def call(self, x):
                return function(*x)

        return Custom()(symbols)

    with pytest.raises(ValueError, match=r"\(3, 4\) and \(3, 5\) cannot be broadcast"):
        build(ops.add, (4,), (5,))
    with pytest.raises(ValueError, match="cannot be multiplied"):
        build(ops.matmul, (2, 3), (4, 5))
    with pytest.raises(ValueError, match=r"cannot be reshaped to \(5,\)"):
        build(lambda a, b: ops.reshape(a, (5,)), (4,), (5,))
    with pytest.raises(ValueError, match="axes must be"):
        build(lambda a, b: ops.transpose(a, (0, 0)), (4,), (5,))
    with pytest.raises(TypeError, match="must be a tensor"):
        build(lambda a, b: ops.exp(3.0), (4,), (5,))


@pytest.mark.parametrize("by", [0, 0.0, -0.0])
def test_division_by_zero_is_as_in_ieee_754(by):
    with np.errstate(all="ignore"):
        want = np.array([[1.0, -2.0, 0.0]]) / by if isinstance(by, float) else [[np.inf, -np.inf,
                                                                                np.nan]]
    np.testing.assert_array_equal(
        ops.evaluate(lambda x: ops.divide(x, by), [[1.0, -2.0, 0.0]]), want)


def test_a_number_is_divided_by_what_is_infinite_or_zero():
    x = [[np.inf, -np.inf, 0.0, 2.0, np.nan]]
    np.testing.assert_array_equal(ops.evaluate(lambda x: ops.divide(3.0, x), x),
                                  [[0.0, -0.0, np.inf, 1.5, np.nan]])


@pytest.mark.parametrize("axes", [(1, 0), (0, 2, 1), (3, 1, 2, 0)])
def test_a_transpose_that_32_bits_do_not_hold_is_refused(axes):
    """ggml keeps sizes and strides of a permutation in int: larger ones would be wrapped."""
    graph = opt.Graph(1)
    shape = (1 << 13,) * (len(axes) - 1) + ((1 << 31 + 12) // (1 << 13 * (len(axes) - 1)) or 1,)
    large = ops.broadcast_to(graph.input((1,) * len(axes)), shape)
    with pytest.raises(ValueError, match="ggml keeps their distances in 32 bits"):
        ops.transpose(large, axes)
    assert ops.transpose(large, tuple(range(len(axes)))).shape == shape


def test_a_graph_that_is_full_says_so():
    graph = opt.Graph(2, training=True, capacity=8)
    x = graph.input((2, 3))
    with pytest.raises(RuntimeError, match="make it anew with a larger capacity"):
        for _ in range(100):
            x = ops.affine(x, 2.0)
