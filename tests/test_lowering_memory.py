"""What kernels make superfluous takes no memory: carriers, pre-activations, large gradients."""

import pytest
from pyggml._forward import ForwardGraph
from pyggml._training import StepParams, TrainGraph

import pyggml
from pyggml import _lowering, layers

pytestmark = pytest.mark.skipif(not _lowering.enabled(), reason="is about lowered graphs")

SLACK = 1 << 16  # bytes for what is small, and for alignment


@pytest.fixture(autouse=True)
def all_rules_after():
    yield
    _lowering.set_enabled(True)


def compiled(outputs, inputs):
    model = pyggml.Model(inputs, outputs)
    model.compile("sgd", "mse")
    return model


def forward_bytes(model, batch, setting="1"):
    _lowering.configure(setting)
    return ForwardGraph(model.program, batch, {}).nbytes


def training_bytes(model, batch, setting="1"):
    _lowering.configure(setting)
    trainer = pyggml.Trainer(model, batch)
    slots = dict.fromkeys(model.program.variables, ())
    return TrainGraph(model.program, trainer.criterion, batch, {}, "sgd", (None, 0.0), slots,
                      StepParams()).nbytes


def test_a_large_gradient_that_is_applied_at_once_takes_no_memory():
    x = pyggml.Input((1024,))
    model = compiled(layers.Dense(2048, use_bias=False)(x), x)
    gradient = 4 * 1024 * 2048
    assert training_bytes(model, 8) < gradient / 8
    assert training_bytes(model, 8, "-update") > gradient


def test_a_convolution_takes_input_and_output_and_nothing_beside():
    x = pyggml.Input((3, 64, 64))
    y = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    model = compiled(layers.Dense(3)(layers.Flatten()(y)), x)
    x_bytes, y_bytes = 4 * 8 * 3 * 64 * 64, 4 * 8 * 16 * 64 * 64
    assert forward_bytes(model, 8) < x_bytes + y_bytes + SLACK
    assert forward_bytes(model, 8, "-fuse") > x_bytes + 2 * y_bytes
    # its gradient, and that before the activation; the kernel of Dense is as large as y's rows
    assert training_bytes(model, 8) < 2 * x_bytes + 3 * y_bytes + 2 * (3 * y_bytes // 8) + SLACK
    assert training_bytes(model, 8) <= training_bytes(model, 8, "-fuse") - y_bytes


def test_attention_keeps_no_scores_in_evaluation_and_one_set_in_training():
    x = pyggml.Input((128, 64))
    model = compiled(layers.MultiHeadAttention(4, 16)(x, x), x)
    row, scores = 4 * 8 * 128 * 64, 4 * 8 * 4 * 128 * 128
    assert forward_bytes(model, 8) < 6 * row + SLACK  # input, three projections, result, output
    assert forward_bytes(model, 8, "-attention") > 2 * scores
    assert training_bytes(model, 8) < training_bytes(model, 8, "-attention") - scores
