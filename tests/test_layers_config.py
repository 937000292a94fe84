"""Every layer: rebuilt from its configuration, copied, pickled, frozen, refused."""

import inspect
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from layer_check import Case, random
from reference.regularizers import penalty

import pyggml
from pyggml import initializers, layers, ops, regularizers


def double(x, factor=2.0):
    return ops.affine(x, factor)


IMAGE, SEQUENCE, ROW = (3, 5, 7), (4, 6), (5,)
EVERY = [
    (layers.Activation("tanh"), ROW),
    (layers.AveragePooling1D(2, 1, "same", "channels_last"), SEQUENCE),
    (layers.AveragePooling2D((2, 3), 1, "same"), IMAGE),
    (layers.BatchNormalization(momentum=0.9, epsilon=1e-4, center=False), IMAGE),
    (layers.Bidirectional(layers.LSTM(3, return_sequences=True), "ave"), SEQUENCE),
    (layers.Conv1D(2, 3, 2, "causal", "channels_last", activation="relu"), SEQUENCE),
    (layers.Conv2D(2, (2, 3), 2, "same", dilation_rate=1, use_bias=False), IMAGE),
    (layers.Conv2DTranspose(2, 3, 2, "same", output_padding=1), IMAGE),
    (layers.Dense(3, "relu", kernel_regularizer="l2"), ROW),
    (layers.DepthwiseConv2D(2, depth_multiplier=2), IMAGE),
    (layers.Dropout(0.3), ROW),
    (layers.Flatten(), IMAGE),
    (layers.GRU(3, reset_after=False, go_backwards=True), SEQUENCE),
    (layers.GlobalAveragePooling1D("channels_last"), SEQUENCE),
    (layers.GlobalAveragePooling2D(keepdims=True), IMAGE),
    (layers.GlobalMaxPooling1D(), SEQUENCE),
    (layers.GlobalMaxPooling2D(), IMAGE),
    (layers.LSTM(3, unit_forget_bias=False, return_sequences=True, dropout=0.1,
                 recurrent_dropout=0.2), SEQUENCE),
    (layers.Lambda(double, {"factor": 3.0}), ROW),
    (layers.LayerNormalization((1, 2), scale=False), SEQUENCE),
    (layers.MaxPooling1D(3), SEQUENCE),
    (layers.MaxPooling2D(2, 3), IMAGE),
    (layers.PaddingMask(1.0), SEQUENCE),
    (layers.Permute((2, 1)), SEQUENCE),
    (layers.RMSNormalization(epsilon=1e-3), SEQUENCE),
    (layers.Reshape((2, -1)), SEQUENCE),
    (layers.SimpleRNN(3, activation="relu"), SEQUENCE),
    (layers.UpSampling2D((2, 1), interpolation="bilinear"), IMAGE),
    (layers.ZeroPadding2D(((1, 0), (0, 2))), IMAGE),
]
PAIRS = [layers.Add(), layers.Average(), layers.Concatenate(1), layers.Dot(1, True),
         layers.Maximum(), layers.Multiply(), layers.Subtract()]


def name_of(value):
    return type(value).__name__ if isinstance(value, layers.Layer) else str(value)


def test_the_lists_here_hold_every_layer():
    listed = {type(layer).__name__ for layer, _ in EVERY} | {type(p).__name__ for p in PAIRS}
    special = {"Embedding", "MultiHeadAttention", "Input", "InputLayer", "Layer"}
    assert listed | special == set(layers.__all__)


@pytest.mark.parametrize("layer,shape", EVERY, ids=name_of)
def test_a_layer_made_anew_from_its_configuration_computes_the_same(layer, shape):
    x = random(3, *shape)
    other = type(layer).from_config(layer.get_config() | {"name": layer.name + "_again"})
    assert {k: v for k, v in layer.get_config().items() if "layer" not in k and k != "name"} == {
        k: v for k, v in other.get_config().items() if "layer" not in k and k != "name"}
    a = pyggml.Sequential([pyggml.Input(shape), layer])
    b = pyggml.Sequential([pyggml.Input(shape), other])
    b.set_weights(a.get_weights())
    assert np.array_equal(a.predict(x), b.predict(x))
    assert a.output_shape[1:] == a.predict(x).shape[1:]


@pytest.mark.parametrize("layer,shape", EVERY, ids=name_of)
def test_a_copied_or_pickled_model_computes_the_same(layer, shape):
    x = random(3, *shape)
    layer = type(layer).from_config(layer.get_config())
    model = pyggml.Sequential([pyggml.Input(shape), layer])
    for other in (model.copy(), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(model.predict(x), other.predict(x))
        assert not {id(v) for v in model.weights} & {id(v) for v in other.weights}


@pytest.mark.parametrize("layer", PAIRS, ids=name_of)
def test_a_merging_layer_made_anew_computes_the_same(layer):
    symbols = [pyggml.Input((4, 4)), pyggml.Input((4, 4))]
    other = type(layer).from_config(layer.get_config() | {"name": "again"})
    model = pyggml.Model(symbols, [layer(symbols), other(symbols)])
    a, b = model.predict([random(3, 4, 4), random(3, 4, 4, seed=1)])
    assert np.array_equal(a, b)


def test_attention_and_embedding_made_anew_compute_the_same():
    words = pyggml.Input((5,), dtype="int32")
    table = layers.Embedding(7, 4, "ones")
    attention = layers.MultiHeadAttention(2, 3, value_dim=2, output_shape=5)
    outs = []
    for e, m in ((table, attention),
                 (layers.Embedding.from_config(table.get_config() | {"name": "e"}),
                  layers.MultiHeadAttention.from_config(attention.get_config() | {"name": "m"}))):
        x = e(words)
        outs.append(m(x, x, use_causal_mask=True, attention_mask=np.ones((5, 5))))
    model = pyggml.Model(words, outs)
    layer = model.layers[-1]
    layer.set_weights(attention.get_weights())
    x = np.arange(10).reshape(2, 5) % 7
    a, b = model.predict(x)
    assert a.shape == (2, 5, 5)
    assert np.array_equal(a, b)
    c, _ = pickle.loads(pickle.dumps(model)).predict(x)
    assert np.array_equal(a, c)


@pytest.mark.parametrize("layer,shape", EVERY, ids=name_of)
def test_frozen_weights_stay(form, layer, shape):
    layer = type(layer).from_config(layer.get_config())
    model = pyggml.Sequential([pyggml.Input(shape), layer, layers.Flatten(), layers.Dense(1)])
    layer.trainable = False
    before = layer.get_weights()
    model.compile(pyggml.optimizers.SGD(0.1), "mse")
    model.fit(random(8, *shape), random(8, 1), epochs=2, verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, layer.get_weights(), strict=True))


def test_every_public_layer_documents_itself_with_an_example():
    for name in layers.__all__:
        text = inspect.getdoc(getattr(layers, name)) or ""
        assert len(text) > 40, name
        if name != "InputLayer":
            assert ">>>" in text, name


# ---- regularizers, initializers ---------------------------------------------------------------

@pytest.mark.parametrize("given,l1,l2", [
    ("l1", 0.01, 0.0), ("l2", 0.0, 0.01), (regularizers.L1(0.3), 0.3, 0.0),
    (regularizers.L1L2(0.2, 0.1), 0.2, 0.1), (regularizers.L1L2(), 0.0, 0.0),
    (lambda w: ops.affine(ops.sum(ops.square(w)), 0.5), 0.0, 0.5),
], ids=str)
def test_penalties_are_added_to_loss_and_gradient(given, l1, l2):
    x = random(3, 2, 5, 7)
    plain = Case(layers.Conv2D(3, 3), [x])
    penalised = Case(layers.Conv2D(3, 3, kernel_regularizer=given), [x], weights=plain.weights)
    value, slope = penalty(plain.weights["kernel"], l1, l2)
    losses = []
    for case in (plain, penalised):
        with case.trainer() as trainer:
            losses.append(trainer.step(case.zeros, case.douts()[0]))
    assert losses[1] - losses[0] == pytest.approx(value, rel=1e-4, abs=1e-6)
    apart = penalised.gradients()["kernel"] - plain.gradients()["kernel"]
    size = plain.douts()[0].size
    np.testing.assert_allclose(apart / size, slope, rtol=1e-3, atol=1e-5)


class ColumnNorms(regularizers.Regularizer):
    def __call__(self, w):
        return ops.affine(ops.sum(ops.sqrt(ops.sum(ops.square(w), 0))), self.l2)


@pytest.mark.parametrize("given", [
    ColumnNorms(l2=0.5), lambda w: ops.affine(ops.sum(ops.sqrt(ops.sum(ops.square(w), 0))), 0.5)])
def test_a_penalty_sees_a_weight_in_the_shape_that_users_see(given):
    x = random(5, 3)
    plain = Case(layers.Dense(4), [x])
    penalised = Case(layers.Dense(4, kernel_regularizer=given), [x], weights=plain.weights)
    kernel = plain.weights["kernel"].astype(np.float64)
    losses = []
    for case in (plain, penalised):
        with case.trainer() as trainer:
            losses.append(trainer.step(case.zeros, case.douts()[0]))
    norms = np.sqrt((kernel**2).sum(axis=0))
    assert losses[1] - losses[0] == pytest.approx(0.5 * norms.sum(), rel=1e-4)
    apart = penalised.gradients()["kernel"] - plain.gradients()["kernel"]
    np.testing.assert_allclose(apart / plain.douts()[0].size, 0.5 * kernel / norms,
                               rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("make,error", [
    (lambda: regularizers.L1(-1), ValueError), (lambda: regularizers.L2(float("nan")), ValueError),
    (lambda: regularizers.L2("a"), TypeError), (lambda: regularizers.get("l3"), ValueError),
    (lambda: layers.Conv2D(1, 1, kernel_regularizer=3), TypeError),
])
def test_bad_regularizers_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_initializers_set_the_weights():
    layer = layers.Conv2D(2, 3, kernel_initializer="ones",
                          bias_initializer=initializers.Constant(3.0))
    layer(pyggml.Input((1, 5, 7)))
    assert np.array_equal(layer.kernel.numpy(), np.ones((3, 3, 1, 2)))
    assert np.array_equal(layer.bias.numpy(), [3, 3])


@pytest.mark.parametrize("layer,shapes", [
    (layers.Conv1D(4, 3), [(3, 2, 4), (4,)]),
    (layers.Conv2D(4, (3, 5)), [(3, 5, 2, 4), (4,)]),
    (layers.DepthwiseConv2D((3, 5), depth_multiplier=3), [(3, 5, 2, 3), (6,)]),
    (layers.Conv2DTranspose(4, (3, 5)), [(3, 5, 4, 2), (4,)]),
    (layers.LSTM(3), [(2, 12), (3, 12), (12,)]),
    (layers.GRU(3), [(2, 9), (3, 9), (2, 9)]),
    (layers.SimpleRNN(3), [(2, 3), (3, 3), (3,)]),
    (layers.BatchNormalization(), [(2,)] * 4),
], ids=name_of)
def test_weights_have_the_order_and_shapes_of_keras(layer, shapes):
    rank = {"Conv1D": (2, 9), "LSTM": (9, 2), "GRU": (9, 2), "SimpleRNN": (9, 2)}
    layer(pyggml.Input(rank.get(type(layer).__name__, (2, 9, 9))))
    assert [w.shape for w in layer.get_weights()] == shapes


# ---- what is refused --------------------------------------------------------------------------

REFUSED = """
layers.Dense(-3)
layers.Dense(2.5)
layers.Conv2D(0, 3)
layers.Conv2D(2, 0)
layers.Conv2D(2, (3, 3, 3))
layers.Conv2D(2, 3, strides=0)
layers.Conv2D(2, 3, dilation_rate=0)
layers.Conv2D(2, 3, padding="causal")
layers.Conv2D(2, 3, data_format="last")
layers.Conv2D(2, 6)(image)
layers.Conv2D(2, 3, dilation_rate=3)(image)
layers.Conv2D(2, 3, strides=2**40, padding="same")(image)
layers.Conv2D(2, 3)(row)
layers.Conv2D(2, 3)(sequence)
layers.Conv1D(2, 3)(image)
layers.Conv1D(2, 7)(sequence)
layers.DepthwiseConv2D(6)(image)
layers.DepthwiseConv2D(3, depth_multiplier=0)
layers.Conv2DTranspose(2, 3, 2, output_padding=2)
layers.Conv2DTranspose(2, 3, 2, output_padding=-1)
layers.Conv2DTranspose(2, 3)(row)
layers.MaxPooling2D(0)
layers.MaxPooling2D(2, 0)
layers.MaxPooling2D(6)(image)
layers.MaxPooling1D(7)(sequence)
layers.MaxPooling2D(2)(sequence)
layers.AveragePooling2D(2**40)(image)
layers.AveragePooling2D(2, padding="full")
layers.GlobalMaxPooling2D()(sequence)
layers.UpSampling2D(0)
layers.UpSampling2D(2, interpolation="cubic")
layers.ZeroPadding2D(-1)
layers.ZeroPadding2D((1, 2, 3))
layers.ZeroPadding2D(2**40)(image)
layers.Reshape((4, -1))(row)
layers.Reshape((0, 5))
layers.Reshape((-1, -1))
layers.Reshape((1, 1, 1, 5))
layers.Permute((1, 3))
layers.Permute((2, 1))(row)
layers.Embedding(0, 3)
layers.Embedding(3, -1)
layers.BatchNormalization(axis=0)(row)
layers.BatchNormalization(axis=2)(row)
layers.BatchNormalization(momentum=2)
layers.BatchNormalization(epsilon=0)
layers.LayerNormalization(axis=0)(row)
layers.LayerNormalization(axis=(1, 1))(row)
layers.LayerNormalization(axis=4)(image)
layers.RMSNormalization(epsilon=-1)
layers.LSTM(0)
layers.LSTM(3)(row)
layers.LSTM(3)(image)
layers.LSTM(3)(sequence, initial_state=row)
layers.GRU(3)(sequence, initial_state=row)
layers.GRU(3, activation="nothing")
layers.Bidirectional(layers.Dense(3))
layers.Bidirectional(layers.GRU(3), "max")
layers.Bidirectional(layers.GRU(3), backward_layer=layers.GRU(3))
layers.MultiHeadAttention(0, 3)
layers.MultiHeadAttention(2, 3, dropout=1)
layers.MultiHeadAttention(2, 3)(sequence)
layers.MultiHeadAttention(2, 3)(row, row)
layers.MultiHeadAttention(2, 3)(sequence, sequence, attention_mask=[1, 1])
layers.Add()(row)
layers.Add()([row])
layers.Add()([row, sequence])
layers.Add()([row, pyggml.Input((4,))])
layers.Subtract()([row, row, row])
layers.Concatenate()([sequence, image])
layers.Concatenate(0)
layers.Concatenate(-2)([row, row])
layers.Concatenate(5)([row, row])
layers.Dot(0)
layers.Dot(1)([row, pyggml.Input((4,))])
layers.Dot(3)([row, row])
layers.Dot((1, 1))([image, image])
layers.Lambda(3)
layers.Lambda(lambda x: ops.slice(x, (0, 3), (x.shape[0], 9)))(row)
layers.Lambda(lambda x: ops.slice(x, (0, -1), (x.shape[0], 2)))(row)
layers.Lambda(lambda x: ops.split(x, 2))(row)
layers.Lambda(lambda x: ops.pad(x, [(0, 0)]))(row)
layers.Lambda(lambda x: ops.take(x, [99]))(row)
layers.Lambda(lambda x: ops.take(x, [0.5]))(row)
layers.Lambda(lambda x: ops.flip(x, 2))(row)
layers.Lambda(lambda x: ops.repeat(x, 0, 1))(row)
layers.Lambda(lambda x: ops.constant(x, "a"))(row)
layers.Lambda(lambda x: ops.rms_normalize(x, 0))(row)
layers.Lambda(lambda x: ops.matmul_transposed(x, x[0]))(row)
"""


def test_bad_arguments_are_python_errors_and_the_process_lives():
    """In a child, since what is forgotten here ends the process."""
    script = textwrap.dedent("""
        import sys
        import pyggml
        from pyggml import layers, ops
        row, sequence, image = (pyggml.Input(s) for s in ((5,), (4, 6), (3, 5, 7)))
        wrong = []
        for line in sys.stdin.read().split("\\n"):
            if not line:
                continue
            print(line, file=sys.stderr)
            try:
                eval(line)
            except (TypeError, ValueError) as error:
                if len(str(error)) < 15:
                    wrong.append((line, "says only", str(error)))
            except Exception as error:
                wrong.append((line, "raised", repr(error)))
            else:
                wrong.append((line, "was taken"))
        assert not wrong, wrong
    """)
    done = subprocess.run([sys.executable, "-c", script], input=REFUSED, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("make, name", [
    (lambda: layers.LayerNormalization(1.5), "axis"), (lambda: layers.Dot("a"), "axes"),
    (lambda: layers.BatchNormalization(epsilon="a"), "epsilon"),
    (lambda: layers.BatchNormalization(momentum="a"), "momentum"),
    (lambda: layers.Reshape(12), "target_shape"), (lambda: layers.Permute(1), "dims"),
    (lambda: layers.ZeroPadding2D(-1), "padding"), (lambda: layers.PaddingMask("a"), "value"),
    (lambda: layers.Conv2DTranspose(1, 3, 2, output_padding=2), "output_padding"),
    (lambda: layers.Dense(2, {"name": "elu", "alfa": 0.5}), r"'elu' .*\['alfa'\].*alpha"),
    (lambda: pyggml.Input((None, 3)), "size in shape.*batch"),
    (lambda: pyggml.initializers.RandomUniform(1, -1), "minval"),
    (lambda: pyggml.initializers.RandomNormal(stddev=-1), "stddev"),
    (lambda: pyggml.initializers.VarianceScaling(0), "scale"),
    (lambda: pyggml.initializers.Constant("a"), "value"),
    (lambda: regularizers.L2("a"), "l2"),
    (lambda: pyggml.losses.Huber("a"), "delta"),
    (lambda: pyggml.losses.BinaryCrossentropy(label_smoothing="a"), "label_smoothing"),
    (lambda: pyggml.metrics.Precision("a"), "threshold"),
])
def test_a_wrong_argument_is_named(make, name):
    with pytest.raises((TypeError, ValueError), match=name):
        make()


def test_numbers_of_numpy_are_numbers():
    one, half = np.int64(1), np.float32(0.5)
    x, image = pyggml.Input((3, 4)), pyggml.Input((1, 3, 4))
    for layer in (layers.LayerNormalization(one, half), layers.RMSNormalization((one,)),
                  layers.BatchNormalization(one, half, half), layers.Permute(np.array([2, 1])),
                  layers.Reshape(np.array([2, 6])), layers.Dropout(half),
                  layers.Dense(one, kernel_regularizer=regularizers.L2(half))):
        again = type(layer).from_config(layer.get_config())
        assert again(x).shape == layer(x).shape
    assert layers.Concatenate(one)([x, x]).shape == (None, 6, 4)
    assert layers.Dot((one, one))([x, x]).shape == (None, 4, 4)
    assert layers.ZeroPadding2D(one)(image).shape == (None, 1, 5, 6)
    assert layers.Conv2DTranspose(1, 3, 2, output_padding=one)(image).shape == (None, 1, 8, 10)
