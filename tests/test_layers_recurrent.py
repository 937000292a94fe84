"""Recurrent layers against backpropagation through time in float64."""


import numpy as np
import pytest
from child import run_child
from layer_check import Case, check, check_gradients, check_outputs, random
from reference import recurrent

import pyggml
from pyggml import _lowering, layers, ops

KINDS = [(layers.SimpleRNN, recurrent.simple_rnn, {}),
         (layers.LSTM, recurrent.lstm, {}),
         (layers.GRU, recurrent.gru, {}),
         (layers.GRU, recurrent.gru, {"reset_after": False})]
IDS = ["simple", "lstm", "gru", "gru_before"]


def sequence_reference(function, **options):
    def reference(x, **weights):
        (y, _), backward = function(x, **weights, **options)
        return y, backward

    return reference


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
@pytest.mark.parametrize("sizes,units", [((1, 1, 1), 1), ((3, 5, 1), 3), ((2, 4, 7), 7),
                                         ((1, 3, 3), 17), ((2, 2, 5), 33)], ids=str)
@pytest.mark.parametrize("how", [
    {}, {"return_sequences": True}, {"go_backwards": True, "return_sequences": True},
], ids=str)
def test_recurrent_layers(form, kind, function, extra, sizes, units, how):
    check(kind(units, **extra, **how), random(*sizes),
          sequence_reference(function, **extra, **how))


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
def test_without_bias_and_with_other_activations(kind, function, extra):
    names = {"activation": "relu"}
    reference = {"activation_name": "relu"}
    if kind is not layers.SimpleRNN:
        names["recurrent_activation"] = reference["recurrent_activation"] = "sigmoid"
    check(kind(5, use_bias=False, **names, **extra), random(2, 4, 3),
          sequence_reference(function, **reference, **extra))


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
@pytest.mark.parametrize("return_sequences", [False, True])
def test_initial_and_final_states(form, kind, function, extra, return_sequences):
    units = 3
    layer = kind(units, return_state=True, return_sequences=return_sequences, **extra)
    xs = [random(2, 4, 5), *(random(2, units, seed=i) for i in range(layer.n_states))]
    case = Case(layer, xs, call=lambda layer, given: layer(given[0], initial_state=given[1:]))
    (y, states), backward = function(
        np.float64(xs[0]), **case.weights, initial_state=xs[1:],
        return_sequences=return_sequences, **extra)
    check_outputs(case.forward(), [y, *states])
    dy, *dstates = case.douts()
    expected = backward(dy, dstates)
    expected["xs"] = [expected.pop("x"), *expected.pop("initial_state")]
    check_gradients(case.gradients(), expected)


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
def test_a_sequence_of_300_steps_is_predicted(form, kind, function, extra):
    case = Case(kind(3, return_sequences=True, **extra), [random(2, 300, 2)])
    (y, _), _ = function(np.float64(case.xs[0]), **case.weights, return_sequences=True, **extra)
    check_outputs(case.forward(), [y])


@pytest.mark.skipif(not _lowering.enabled(), reason="needs the kernels")
@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
@pytest.mark.parametrize("how", [{}, {"return_sequences": True, "go_backwards": True}], ids=str)
def test_a_sequence_of_300_steps_is_trained(kind, function, extra, how):
    check(kind(3, **extra, **how), random(2, 300, 2), sequence_reference(function, **extra, **how))


def test_a_long_sequence_is_predicted_on_a_small_stack():
    """In a child: ggml walks a graph by recursion, which must not be as deep as the sequence."""
    script = """
import threading
import numpy as np
import pyggml
pyggml.set_num_threads(1)
model = pyggml.Sequential([pyggml.Input((2500, 1)), pyggml.layers.GRU(2, "relu")])
found = []
threading.stack_size(512 * 1024)
thread = threading.Thread(
    target=lambda: found.append(model.predict(np.ones((1, 2500, 1)), batch_size=1)))
thread.start()
thread.join()
assert np.isfinite(found[0]).all()
"""
    run_child(script)


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
def test_extreme_inputs_stay_finite(form, kind, function, extra):
    case = Case(kind(3, **extra), [random(2, 3, 5, scale=1e4)])
    assert np.isfinite(case.forward()[0]).all()
    grads = case.gradients()
    assert all(np.isfinite(g).all() for g in [*grads.pop("xs"), *grads.values()])


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave"])
@pytest.mark.parametrize("return_sequences", [False, True])
def test_bidirectional(form, kind, function, extra, mode, return_sequences):
    layer = layers.Bidirectional(kind(3, return_sequences=return_sequences, **extra), mode)
    case = Case(layer, [random(2, 4, 5)])
    half = len(layer.weights) // 2
    sides = [{v.name: v.numpy() for v in part}
             for part in (layer.weights[:half], layer.weights[half:])]
    (y, _), backward = recurrent.bidirectional(
        np.float64(case.xs[0]), *sides, function, mode, return_sequences, **extra)
    check_outputs(case.forward(), [y])
    expected = backward(case.douts()[0])
    with case.trainer() as trainer:
        found = trainer.gradients(case.zeros, case.douts()[0])
    names = case.model.weight_names
    size = case.douts()[0].size
    both = {**{v: expected["forward_weights"][v.name] for v in layer.weights[:half]},
            **{v: expected["backward_weights"][v.name] for v in layer.weights[half:]}}
    for v, wanted in both.items():
        np.testing.assert_allclose(found[names[v]] * size, wanted, rtol=1e-4,
                                   atol=1e-4 * np.abs(wanted).max())
    np.testing.assert_allclose(found[f"given_0_{layer.name}/offset"] * size, expected["x"],
                               rtol=1e-4, atol=1e-4 * np.abs(expected["x"]).max())


def test_bidirectional_returns_the_states_of_both_directions():
    layer = layers.Bidirectional(layers.LSTM(3, return_state=True))
    case = Case(layer, [random(2, 4, 5)])
    half = len(layer.weights) // 2
    sides = [{v.name: v.numpy() for v in part}
             for part in (layer.weights[:half], layer.weights[half:])]
    (y, states), _ = recurrent.bidirectional(np.float64(case.xs[0]), *sides)
    check_outputs(case.forward(), [y, *states])


def test_the_forget_gate_starts_open():
    layer = layers.LSTM(2)
    layer(pyggml.Input((3, 4)))
    assert layer.bias.numpy().tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("steps", [40, 300, 5000])
def test_sequences_of_any_length_train_with_any_activation(steps):
    model = pyggml.Sequential([pyggml.Input((steps, 2)), layers.LSTM(3, "softmax")])
    model.compile("sgd", "mse")
    x = np.random.default_rng(1).normal(size=(2, steps, 2))
    with pyggml.Trainer(model, 2) as trainer:
        loss = trainer.step(x, np.ones((2, 3)))
        assert trainer.step(x, np.ones((2, 3))) < loss


# ---- masks and dropout --------------------------------------------------------------------------

MASK = np.array([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 1, 1, 0]], np.float32)


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
@pytest.mark.parametrize("how", [
    {}, {"return_sequences": True}, {"return_sequences": True, "go_backwards": True}], ids=str)
def test_masked_steps_keep_state_and_output(form, kind, function, extra, how):
    layer = kind(3, return_state=True, **how, **extra)
    case = Case(layer, [random(3, 5, 2), MASK],
                call=lambda layer, given: layer(given[0], mask=given[1]))
    (y, states), backward = function(np.float64(case.xs[0]), **case.weights, mask=MASK, **how,
                                     **extra)
    check_outputs(case.forward(), [y, *states])
    dy, *dstates = case.douts()
    expected = backward(dy, dstates)
    expected["xs"] = [expected.pop("x"), np.zeros_like(MASK)]
    check_gradients(case.gradients(), expected)


def test_bidirectional_passes_over_padding_in_both_directions():
    pyggml.set_seed(0)
    words = pyggml.Input((4,), dtype="int32")
    vectors = layers.Embedding(10, 3)(words)
    mask = layers.PaddingMask()(words)
    out = layers.Bidirectional(layers.LSTM(2))(vectors, mask=mask)
    model = pyggml.Model(words, out)
    padded = model.predict(np.array([[4, 7, 0, 0], [4, 7, 3, 0]]))
    plain = pyggml.Input((2,), dtype="int32")
    short = pyggml.Model(plain, model.layers[-1](model.get_layer(model.layers[1].name)(plain)))
    np.testing.assert_allclose(padded[:1], short.predict(np.array([[4, 7]])), rtol=1e-6)
    again = pyggml.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again.predict(np.array([[4, 7, 0, 0], [4, 7, 3, 0]])), padded)


@pytest.mark.parametrize("kind,function,extra", KINDS, ids=IDS)
@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave"])
def test_bidirectional_sequences_are_0_under_a_mask(form, kind, function, extra, mode):
    layer = layers.Bidirectional(kind(3, return_sequences=True, return_state=True, **extra), mode)
    case = Case(layer, [random(3, 5, 2), MASK],
                call=lambda layer, given: layer(given[0], mask=given[1]))
    half = len(layer.weights) // 2
    sides = [{v.name: v.numpy() for v in part}
             for part in (layer.weights[:half], layer.weights[half:])]
    (y, states), backward = recurrent.bidirectional(
        np.float64(case.xs[0]), *sides, function, mode, True, mask=MASK, **extra)
    found = case.forward()
    check_outputs(found, [y, *states])
    assert not found[0][MASK == 0].any()
    dy, *dstates = case.douts()
    expected = backward(dy, dstates)
    scale = max(d.size for d in case.douts())
    labels = [d * d.size / scale for d in case.douts()]
    with case.trainer() as trainer:
        grads = trainer.gradients(case.zeros, labels)
    names = case.model.weight_names
    for part, key in ((layer.weights[:half], "forward_weights"),
                      (layer.weights[half:], "backward_weights")):
        for v in part:
            wanted = expected[key][v.name]
            np.testing.assert_allclose(grads[names[v]] * scale, wanted, rtol=1e-4,
                                       atol=1e-4 * np.abs(wanted).max())
    np.testing.assert_allclose(grads[f"given_0_{layer.name}/offset"] * scale, expected["x"],
                               rtol=1e-4, atol=1e-4 * np.abs(expected["x"]).max())
    assert not grads[f"given_1_{layer.name}/offset"].any()


def test_padding_masks_of_indices_numbers_and_features():
    x = np.array([[[0, 0], [0, 1], [2, 0]]], np.float32)
    assert ops.evaluate(layers.PaddingMask(), x[:, :, 0]).tolist() == [[0, 0, 1]]
    features = pyggml.Input((3, 2))
    assert pyggml.Model(features, layers.PaddingMask()(features)).predict(x).tolist() == [[0, 1, 1]]
    assert pyggml.Model(features, layers.PaddingMask(2)(features)).predict(2 + 0 * x).tolist() == [
        [0, 0, 0]]
    with pytest.raises(NotImplementedError, match="PaddingMask"):
        layers.Embedding(10, 3, mask_zero=True)


@pytest.mark.parametrize("given", [(3, 4), (3,), (3, 5, 1)])
def test_masks_of_other_shapes_are_refused(given):
    x = pyggml.Input((5, 2))
    with pytest.raises(ValueError, match="mask must have shape"):
        layers.GRU(3)(x, mask=pyggml.Input(given[1:] or (1,)))


@pytest.mark.parametrize("kind", [layers.SimpleRNN, layers.LSTM, layers.GRU])
def test_dropout_in_recurrent_layers_is_for_training_and_the_same_at_every_step(kind):
    x = np.ones((64, 6, 8), np.float32)
    pyggml.set_seed(0)
    model = pyggml.Sequential([pyggml.Input((6, 8)), kind(4, dropout=0.5, return_sequences=True)])
    np.testing.assert_array_equal(model.predict(x), model.predict(x))
    assert np.ptp(model.predict(x), axis=0).max() == 0  # all rows are the same
    model.compile(pyggml.optimizers.SGD(0.0), "mse")
    target = model.predict(x)
    with pyggml.Trainer(model, 64) as trainer:
        losses = {trainer.step(x, target) for _ in range(4)}
        assert len(losses) == 4 and min(losses) > 0
        assert trainer.eval(x, target) < 1e-12
    recurrent_model = pyggml.Sequential([
        pyggml.Input((6, 8)), kind(4, recurrent_dropout=0.5, return_sequences=True)])
    recurrent_model.compile(pyggml.optimizers.SGD(0.0), "mse")
    target = recurrent_model.predict(x)
    with pyggml.Trainer(recurrent_model, 64) as trainer:
        assert trainer.step(x, target) > 0
        # The first step has no state to drop yet.
        first = np.concatenate([np.ones((64, 1, 4)), np.zeros((64, 5, 4))], axis=1)
    with pyggml.Trainer(recurrent_model, 64, loss_mask=24) as trainer:
        assert trainer.step(x, target, first) < 1e-12
    for bad in (1.0, -0.1):
        with pytest.raises(ValueError, match="dropout must be in"):
            kind(4, dropout=bad)
        with pytest.raises(ValueError, match="recurrent_dropout must be in"):
            kind(4, recurrent_dropout=bad)
