"""Normalisation against the references, and what batch normalisation keeps and moves."""

import numpy as np
import pytest
from layer_check import Case, check, check_gradients, check_outputs, product, random
from reference import norm

import pyggml
from pyggml import layers

# A trainer of momentum=None says so, once; tests of the trainer promise that.
pytestmark = pytest.mark.filterwarnings("ignore:steps do not move the moving statistics")


def training_check(layer, x, reference):
    case = Case(layer, [x])
    out, backward = reference(np.asarray(x, np.float64), **{
        k: v for k, v in case.weights.items() if not k.startswith("moving")})
    check_outputs(case.training_outputs(), [out])
    expected = backward(case.douts()[0])
    expected["xs"] = [expected.pop("x")]
    check_gradients(case.gradients(), expected)


@pytest.mark.parametrize("sizes,axis", [
    ((7, 1), 1), ((17, 3), 1), ((3, 2, 13), 1), ((3, 5, 2), -1), ((2, 3, 5, 7), 1),
    ((2, 5, 7, 3), 3), ((1, 3, 5, 7), 1), ((3, 5, 4, 2), 2),
], ids=str)
@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": False, "epsilon": 1e-5}],
                         ids=str)
def test_batch_norm_in_training(sizes, axis, options):
    epsilon = options.get("epsilon", 1e-3)
    training_check(layers.BatchNormalization(axis, **options), 3 * random(*sizes) + 2,
                   lambda x, **w: norm.batch_norm(x, **w, axis=axis, epsilon=epsilon))


def statistics(channels):
    return {"moving_mean": random(channels, seed=3),
            "moving_variance": random(channels, seed=4) ** 2 + 0.1}


@pytest.mark.parametrize("sizes,axis", [((1, 3), 1), ((2, 3, 5, 7), 1), ((2, 5, 3), 2)], ids=str)
def test_batch_norm_in_evaluation(sizes, axis):
    layer = layers.BatchNormalization(axis)
    case = Case(layer, [random(*sizes)], weights=statistics(3))
    out, _ = norm.batch_norm(case.xs[0], **case.weights, axis=axis, training=False)
    check_outputs(case.forward(), [out])


def test_frozen_statistics_serve_training_and_gamma_goes_on_training():
    layer = layers.BatchNormalization(momentum=0.5)
    layer.freeze_stats = True
    case = Case(layer, [random(4, 3, 5)], weights=statistics(3))
    out, backward = norm.batch_norm(case.xs[0].astype(np.float64), **case.weights,
                                    training=False)
    check_outputs(case.training_outputs(), [out])
    expected = backward(case.douts()[0])
    expected["xs"] = [expected.pop("x")]
    check_gradients(case.gradients(), expected)
    model = stepped(case)
    for name in ("moving_mean", "moving_variance"):
        assert np.array_equal(value(model, name), case.weights[name])


def value(model, name):
    return next(v for v in model.weights if v.name == name).numpy()


def stepped(case, steps=1, rate=0.0, nbatch_logical=None):
    case.model.compile(pyggml.optimizers.SGD(rate), product)
    with pyggml.Trainer(case.model, case.n, nbatch_logical) as trainer:
        for _ in range(steps):
            trainer.step(case.zeros, case.douts()[0])
        return trainer.model()


@pytest.mark.parametrize("momentum", [0.99, 0.5, 0.0, 1.0])
def test_a_number_as_momentum_moves_the_statistics_every_step(momentum):
    case = Case(layers.BatchNormalization(momentum=momentum), [random(4, 3, 5) + 1],
                weights=statistics(3))
    batch = norm.batch_statistics(case.xs[0])
    mean, variance = case.weights["moving_mean"], case.weights["moving_variance"]
    for _ in range(3):
        mean = norm.running_average(mean, batch[0], momentum)
        variance = norm.running_average(variance, batch[1], momentum)
    model = stepped(case, 3)
    np.testing.assert_allclose(value(model, "moving_mean"), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(model, "moving_variance"), variance, rtol=1e-5)


def test_momentum_none_leaves_the_statistics_alone():
    case = Case(layers.BatchNormalization(), [random(4, 3, 5)], weights=statistics(3))
    model = stepped(case, 3)
    for name in ("moving_mean", "moving_variance"):
        assert np.array_equal(value(model, name), case.weights[name])


def test_every_micro_step_of_an_accumulation_moves_the_statistics():
    case = Case(layers.BatchNormalization(momentum=0.5), [random(4, 3)])
    mean = np.zeros(3)
    for _ in range(3):
        mean = norm.running_average(mean, norm.batch_statistics(case.xs[0])[0], 0.5)
    model = stepped(case, 3, nbatch_logical=8)
    np.testing.assert_allclose(value(model, "moving_mean"), mean, rtol=1e-5, atol=1e-6)


def test_many_steps_at_once_move_the_statistics_as_single_ones_do():
    x, y = random(12, 3) + 1, random(12, 3, seed=1)
    index = np.arange(12).reshape(3, 4)
    pyggml.set_seed(0)
    model = pyggml.Sequential([pyggml.Input((3,)), layers.BatchNormalization(momentum=0.5)])
    model.compile(pyggml.optimizers.SGD(0.1), "mse")
    with pyggml.Trainer(model, 4) as one, pyggml.Trainer(model, 4) as many:
        for rows in index:
            one.step(x[rows], y[rows])
        many.step_many(x, y, index)
        pairs = zip(one.model().get_weights(), many.model().get_weights(), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
        assert not np.array_equal(value(many.model(), "moving_mean"), np.zeros(3))


def test_a_trainer_calibrates_its_own_statistics_only():
    x = random(30, 3) * 2 + 1
    model = pyggml.Sequential([pyggml.Input((3,)), layers.BatchNormalization()])
    model.compile("sgd", "mse")
    with pyggml.Trainer(model, 4) as trainer:
        trainer.calibrate_bn(x)
        mean, variance = norm.batch_statistics(x)
        np.testing.assert_allclose(value(trainer.model(), "moving_mean"), mean, rtol=1e-5)
        np.testing.assert_allclose(value(trainer.model(), "moving_variance"), variance, rtol=1e-5)
    assert np.array_equal(value(model, "moving_mean"), np.zeros(3))


def test_gradients_do_not_move_the_statistics():
    case = Case(layers.BatchNormalization(momentum=0.5), [random(4, 3)])
    with case.trainer() as trainer:
        trainer.gradients(case.zeros, case.douts()[0])
        assert np.array_equal(value(trainer.model(), "moving_mean"), np.zeros(3))


def test_a_layer_used_twice_moves_its_statistics_by_both_batches_in_turn():
    case = Case(layers.BatchNormalization(momentum=0.5), [random(4, 3) + 1],
                call=lambda layer, given: layer(layer(given[0])))
    first, _ = norm.batch_norm(case.xs[0].astype(np.float64), case.weights["gamma"],
                               case.weights["beta"])
    mean = np.zeros(3)
    for x in (case.xs[0], first):
        mean = norm.running_average(mean, norm.batch_statistics(x)[0], 0.5)
    np.testing.assert_allclose(value(stepped(case), "moving_mean"), mean, rtol=1e-5, atol=1e-6)


def test_a_frozen_layer_keeps_every_weight():
    layer = layers.BatchNormalization(momentum=0.5, trainable=False)
    case = Case(layer, [random(4, 3)])
    model = stepped(case, 2, rate=0.1)
    for name, kept in case.weights.items():
        assert np.array_equal(value(model, name), kept)


def test_a_batch_of_one_row_is_finite_and_keeps_the_variance():
    case = Case(layers.BatchNormalization(momentum=0.5), [random(1, 3)], weights=statistics(3))
    assert np.array_equal(case.training_outputs()[0][0], case.weights["beta"])
    assert all(np.isfinite(g).all() for g in case.gradients()["xs"])
    model = stepped(case)
    assert np.array_equal(value(model, "moving_variance"), case.weights["moving_variance"])
    np.testing.assert_allclose(
        value(model, "moving_mean"),
        (case.weights["moving_mean"] + case.xs[0][0]) / 2, rtol=1e-6)


def test_the_statistics_do_not_change_what_is_learned():
    """The moving averages hang on the loss's node; neither loss nor gradients feel it."""
    losses = []
    for momentum in (None, 0.9):
        case = Case(layers.BatchNormalization(momentum=momentum), [random(8, 3)])
        case.model.compile(pyggml.optimizers.SGD(0.1), product)
        with pyggml.Trainer(case.model, 8) as trainer:
            losses.append([trainer.step(case.zeros, case.douts()[0]) for _ in range(5)])
    assert losses[0] == losses[1]


def test_a_network_trained_by_fit_predicts_well_with_its_moving_statistics():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    x, y = digits.images[:600, None].astype(np.float32) / 16, digits.target[:600]
    pyggml.set_seed(0)
    inputs = pyggml.Input((1, 8, 8))
    a = layers.Conv2D(8, 3, padding="same", use_bias=False)(inputs)
    a = layers.Activation("relu")(layers.BatchNormalization(momentum=0.9)(a))
    b = layers.Conv2D(8, 3, padding="same", use_bias=False)(a)
    a = layers.Add()([a, layers.BatchNormalization(momentum=0.9)(b)])
    a = layers.MaxPooling2D()(layers.Activation("relu")(a))
    model = pyggml.Model(inputs, layers.Dense(10, "softmax")(layers.Flatten()(a)))
    model.compile(pyggml.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=50, epochs=6, verbose=0)
    assert (model.predict(x).argmax(axis=1) == y).mean() > 0.9


def test_weights_of_batch_norm_are_not_decayed_and_statistics_not_trained():
    layer = layers.BatchNormalization()
    layer(pyggml.Input((3,)))
    assert not any(v.decay for v in layer.weights)
    assert [v.trainable for v in layer.weights] == [True, True, False, False]
    layer.trainable = False
    layer.trainable = True
    assert [v.trainable for v in layer.weights] == [True, True, False, False]


AXES = [((1, 1), -1), ((3, 17), -1), ((2, 3, 33), -1), ((2, 3, 5), 1), ((2, 3, 5, 7), (1, 3)),
        ((2, 3, 5, 7), (1, 2, 3)), ((3, 4, 5, 2), -2)]


@pytest.mark.parametrize("sizes,axis", AXES, ids=str)
@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": False, "epsilon": 1e-5}],
                         ids=str)
def test_layer_norm(sizes, axis, options):
    epsilon = options.get("epsilon", 1e-3)
    check(layers.LayerNormalization(axis, **options), 3 * random(*sizes) + 2,
          lambda x, **w: norm.layer_norm(x, **w, axis=axis, epsilon=epsilon))


@pytest.mark.parametrize("sizes,axis", AXES, ids=str)
def test_rms_norm(sizes, axis):
    check(layers.RMSNormalization(axis), random(*sizes) + 0.5,
          lambda x, **w: norm.rms_norm(x, **w, axis=axis))


@pytest.mark.parametrize("layer", [layers.LayerNormalization, layers.RMSNormalization,
                                   layers.BatchNormalization])
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_extreme_inputs_stay_finite(layer, scale):
    case = Case(layer(), [random(3, 17, scale=scale)])
    assert np.isfinite(case.forward()[0]).all()
    assert np.isfinite(case.training_outputs()[0]).all()
    grads = case.gradients()
    assert all(np.isfinite(g).all() for g in [*grads.pop("xs"), *grads.values()])


@pytest.mark.parametrize("layer", [layers.LayerNormalization, layers.RMSNormalization])
@pytest.mark.parametrize("size", [8, 32])
def test_a_layer_is_not_used_on_more_or_fewer_features_than_it_has_weights(layer, size):
    norm = layer(name="norm")
    norm(pyggml.Input((16,)))
    with pytest.raises(ValueError, match=rf"'norm' was built for \(16,\).*\(None, {size}\)"):
        norm(pyggml.Input((size,)))
