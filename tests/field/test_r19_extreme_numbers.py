"""R19: cross-entropy stays finite for extreme outputs, and a NaN does not pass unseen.

Documented choices: probabilities are clipped to [1e-7, 1 - 1e-7]; arrays are not scanned, a loss
that is NaN or infinite is returned as it is, with one ``RuntimeWarning`` a trainer.
"""

import math
import warnings

import numpy as np
import pytest

import pyggml
from pyggml import _kernels, _lowering, activations, callbacks, layers, losses

CE = "sparse_categorical_crossentropy"
ONE = np.ones((1, 1), np.float32)


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def isa(request, monkeypatch, form):
    """Every set of kernels that this machine can run; once without them."""
    if form == "composed" and request.param != "baseline":
        pytest.skip("has no kernels")
    if not _kernels.isa_available(request.param):
        pytest.skip("not on this CPU")
    with monkeypatch.context() as m:
        m.setenv("PYGGML_ISA", request.param)
        _kernels.init()
        assert _kernels.isa_name() == request.param
        yield request.param
    _kernels.init()


def biased(bias, loss, activation=None, optimizer="sgd"):
    """Dense with zero kernel: its bias is the output, whatever x is."""
    model = pyggml.Sequential([
        pyggml.Input((1,)), layers.Dense(len(bias), activation, kernel_initializer="zeros")])
    model.compile(optimizer, loss)
    model.set_weights([np.zeros((1, len(bias))), np.array(bias, np.float32)])
    return model


def loss_and_gradient(model, y):
    """The loss from every path, which agree, and the gradient on the bias."""
    with pyggml.Trainer(model, 1) as trainer:
        loss = trainer.eval(ONE, y)
        gradient = trainer.gradients(ONE, y)[model.layers[0].name + "/bias"]
        assert trainer.step(ONE, y) == pytest.approx(loss, rel=1e-5)
    assert model.evaluate(ONE, y) == pytest.approx(loss, rel=1e-5)
    return loss, gradient


# ---- a: extreme outputs ------------------------------------------------------------------------

SOFTMAX = [
    (losses.SparseCategoricalCrossentropy(from_logits=True), None, False),
    (losses.SparseCategoricalCrossentropy(), "softmax", False),
    (losses.CategoricalCrossentropy(from_logits=True), None, True),
    (losses.CategoricalCrossentropy(), "softmax", True),
]


@pytest.mark.parametrize(("loss", "activation", "one_hot"), SOFTMAX)
def test_r19a_crossentropy_of_logits_a_thousand_apart(loss, activation, one_hot, form, isa):
    found = []
    for label in range(3):
        y = np.eye(3)[[label]] if one_hot else np.array([label])
        found.append(loss_and_gradient(biased([1000, 0, -1000], loss, activation), y))
    assert [value for value, _ in found] == [pytest.approx(v, rel=1e-5, abs=1e-6)
                                             for v in (0, 1000, 2000)]
    np.testing.assert_allclose([g for _, g in found],
                               [[0, 0, 0], [1, -1, 0], [1, 0, -1]], atol=1e-6)


@pytest.mark.parametrize(("loss", "activation"), [
    (losses.BinaryCrossentropy(from_logits=True), None), (losses.BinaryCrossentropy(), "sigmoid")])
@pytest.mark.parametrize("logit", [1000.0, -1000.0])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_r19a_binary_crossentropy_of_logits_of_a_thousand(loss, activation, logit, label, form,
                                                          isa):
    value, gradient = loss_and_gradient(biased([logit], loss, activation), np.array([[label]]))
    right = (logit > 0) == (label == 1)
    assert value == pytest.approx(0 if right else 1000, rel=1e-5, abs=1e-6)
    assert gradient[0] == pytest.approx(0 if right else math.copysign(1, logit), abs=1e-6)


PROBABILITIES = {
    "binary_crossentropy": [[0], [1]],
    "binary_focal_crossentropy": [[0], [1]],
    "categorical_crossentropy": [[1, 0], [0, 1]],
    "categorical_focal_crossentropy": [[1, 0], [0, 1]],
    "kl_divergence": [[1, 0], [0, 1]],
    "poisson": [[0], [1]],
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_r19a_probabilities_of_exactly_0_and_1_are_finite(name, form, isa):
    cases = PROBABILITIES[name]
    for p in cases:
        for y in cases:
            loss, gradient = loss_and_gradient(biased(p, name), np.array([y], np.float32))
            assert math.isfinite(loss) and np.isfinite(gradient).all(), (p, y)
            if name.endswith("al_crossentropy") or name == "binary_crossentropy":
                if p == y:
                    assert loss == pytest.approx(0, abs=1e-5)
                elif "focal" not in name:  # -log(1e-7)
                    assert loss == pytest.approx(16.118, abs=0.2)


@pytest.mark.parametrize("label", [0, 1])
def test_r19a_sparse_probabilities_of_exactly_0_and_1_are_finite(label, form, isa):
    loss, gradient = loss_and_gradient(biased([1, 0], CE), np.array([label]))
    assert loss == pytest.approx(16.118 * label, abs=0.2) and np.isfinite(gradient).all()


# ---- b: a class that is masked out by -inf -----------------------------------------------------

@pytest.mark.parametrize(("loss", "activation", "one_hot"), SOFTMAX)
def test_r19b_a_class_masked_by_minus_infinity(loss, activation, one_hot, form, isa):
    y = np.eye(3)[[0]] if one_hot else np.array([0])
    # Without kernels it is a NaN, see below: there, mask by a large number.
    masked = -np.inf if form == "kernels" else -1e9
    model = biased([0, masked, 0], loss, activation)
    value, gradient = loss_and_gradient(model, y)
    assert value == pytest.approx(math.log(2), abs=1e-6)
    np.testing.assert_allclose(gradient, [-0.5, 0, 0.5], atol=1e-6)
    assert gradient[1] == 0


@pytest.mark.parametrize(("loss", "activation", "one_hot"), SOFTMAX)
def test_r19b_the_masked_class_as_label_is_an_infinite_loss(loss, activation, one_hot, form, isa):
    y = np.eye(3)[[1]] if one_hot else np.array([1])
    model = biased([0, -np.inf, 0], loss, activation)
    before = [w.tobytes() for w in model.get_weights()]
    assert model.evaluate(ONE, y) == math.inf
    assert [w.tobytes() for w in model.get_weights()] == before
    with pyggml.Trainer(model, 1) as trainer:
        assert trainer.eval(ONE, y) == math.inf
        with pytest.warns(RuntimeWarning, match="the loss is inf at step 1"):
            assert trainer.step(ONE, y) == math.inf
        assert not any(np.isnan(w).any() for w in trainer.get_weights())


@pytest.mark.parametrize(("loss", "activation", "one_hot"), SOFTMAX)
def test_r19b_without_kernels_a_logit_of_minus_infinity_is_a_nan_that_is_seen(
        loss, activation, one_hot):
    """Documented: 0 * inf is NaN where ggml's own operations compute the loss."""
    kept = _lowering.enabled()
    _lowering.set_enabled(False)
    try:
        model = biased([0, -np.inf, 0], loss, activation)
        y = np.eye(3)[[0]] if one_hot else np.array([0])
        assert math.isnan(model.evaluate(ONE, y))
        with pyggml.Trainer(model, 1) as trainer, \
                pytest.warns(RuntimeWarning, match="the loss is nan at step 1"):
            assert math.isnan(trainer.step(ONE, y))
    finally:
        _lowering.set_enabled(kept)


@pytest.mark.parametrize(("loss", "activation", "one_hot"), SOFTMAX)
def test_r19b_an_infinite_loss_updates_the_weights_and_restore_takes_it_back(
        loss, activation, one_hot, isa):
    """Documented: a step whose loss is infinite warns and updates all the same, by the gradient."""
    y = np.eye(3)[[1]] if one_hot else np.array([1])
    model = biased([0, -np.inf, 0], loss, activation, pyggml.optimizers.SGD(0.5))
    with pyggml.Trainer(model, 1) as trainer:
        before = trainer.snapshot()
        with pytest.warns(RuntimeWarning, match="the loss is inf at step 1"):
            assert trainer.step(ONE, y) == math.inf
        assert (trainer.n_steps, trainer.n_updates) == (1, 1)
        np.testing.assert_allclose(trainer.get_weights()[1], [-0.25, -np.inf, -0.25], rtol=1e-5)
        trainer.restore(before)
        assert [a.tobytes() for a in trainer.get_weights()] == [
            b.tobytes() for b in before.get_weights()]
        with pytest.warns(RuntimeWarning, match="the loss is inf at step 2"):  # as if new
            trainer.step(ONE, y)


# ---- c: NaN and infinity in the data -----------------------------------------------------------

# At minus and plus infinity.
LIMITS = {
    "elu": (-1, np.inf), "exponential": (0, np.inf), "gelu": (0, np.inf), "gelu_tanh": (0, np.inf),
    "hard_sigmoid": (0, 1), "hard_swish": (0, np.inf), "leaky_relu": (-np.inf, np.inf),
    "mish": (0, np.inf), "relu": (0, np.inf), "relu6": (0, 6), "selu": (-1.7580993, np.inf),
    "sigmoid": (0, 1), "silu": (0, np.inf), "softplus": (0, np.inf), "softsign": (-1, 1),
    "tanh": (-1, 1),
}


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_r19_activations_have_their_limits_at_infinity(name, form, isa):
    """Without kernels an infinity may become a NaN, never another number."""
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Activation(name)])
    found = model.predict(np.array([[-np.inf], [np.inf]])).ravel()
    for value, limit in zip(found, LIMITS[name], strict=True):
        if form == "composed" and math.isnan(value):
            continue
        assert value == pytest.approx(limit, rel=1e-6)

def unseen(model, x, y):
    """Whether a NaN in the data leaves the loss of a step, or of an evaluation, finite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pyggml.Trainer(model, len(x)) as trainer:
            return [name for name, loss in (
                ("eval", trainer.eval(x, y)), ("step", trainer.step(x, y)),
                ("evaluate", model.evaluate(x, y))) if math.isfinite(loss)]


@pytest.mark.parametrize("name", sorted(activations._functions))
def test_r19c_no_activation_hides_a_nan(name, form, isa):
    model = pyggml.Sequential([
        pyggml.Input((40,)), layers.Dense(40, name), layers.Activation(name), layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 40), np.float32)
    x[3, 2] = np.nan
    assert unseen(model, x, np.zeros(8)) == []
    alone = pyggml.Sequential([pyggml.Input((40,)), layers.Activation(name)])
    found = alone.predict(x)
    assert np.isnan(found[3, 2]) and np.isfinite(found[:3]).all()


NAN_LAYERS = {
    "MaxPooling1D": ((3, 8), lambda: layers.MaxPooling1D(2)),
    "MaxPooling1D_3": ((3, 8), lambda: layers.MaxPooling1D(3, 1)),
    "MaxPooling2D": ((3, 8, 8), lambda: layers.MaxPooling2D(2)),
    "MaxPooling2D_3": ((3, 8, 8), lambda: layers.MaxPooling2D(3, 1)),
    "MaxPooling2D_last": ((8, 8, 3), lambda: layers.MaxPooling2D(2, data_format="channels_last")),
    "GlobalMaxPooling1D": ((3, 8), layers.GlobalMaxPooling1D),
    "GlobalMaxPooling2D": ((3, 8, 8), layers.GlobalMaxPooling2D),
    "AveragePooling2D": ((3, 8, 8), lambda: layers.AveragePooling2D(2)),
    "GlobalAveragePooling2D": ((3, 8, 8), layers.GlobalAveragePooling2D),
    "Conv1D": ((3, 8), lambda: layers.Conv1D(2, 3, activation="relu")),
    "Conv2D": ((3, 8, 8), lambda: layers.Conv2D(2, 3, activation="relu")),
    "Conv2D_pool": ((3, 8, 8), lambda: pyggml.Sequential([
        layers.Conv2D(2, 3, activation="relu"), layers.MaxPooling2D(2)])),
    "Conv2DTranspose": ((3, 4, 4), lambda: layers.Conv2DTranspose(2, 3, activation="relu")),
    "DepthwiseConv2D": ((3, 8, 8), lambda: layers.DepthwiseConv2D(3, activation="relu")),
    "BatchNormalization": ((5,), layers.BatchNormalization),
    "LayerNormalization": ((5,), layers.LayerNormalization),
    "RMSNormalization": ((5,), layers.RMSNormalization),
    "SimpleRNN": ((4, 3), lambda: layers.SimpleRNN(5, activation="relu")),
    "LSTM": ((4, 3), lambda: layers.LSTM(5)),
    "GRU": ((4, 3), lambda: layers.GRU(5)),
    "MultiHeadAttention": ((4, 6), lambda: _SelfAttention()),
    "UpSampling2D": ((3, 4, 4), lambda: layers.UpSampling2D(2)),
    "Dropout": ((5,), lambda: layers.Dropout(0.0)),
}


class _SelfAttention(layers.Layer):
    def build(self, input_shape):
        self.inner = layers.MultiHeadAttention(2, 3)

    def call(self, x):
        return self.inner(x, x)


@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("name", NAN_LAYERS)
def test_r19c_no_layer_hides_a_nan(name, where, form, isa):
    shape, make = NAN_LAYERS[name]
    model = pyggml.Sequential([pyggml.Input(shape), make(), layers.Flatten(), layers.Dense(1)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.compile("sgd", "mse")
        x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
        flat = x[1].reshape(-1)
        flat[{"first": 0, "middle": flat.size // 2, "last": flat.size - 1}[where]] = np.nan
        if name == "Conv2DTranspose" or "pool" not in name.lower() or where != "last":
            assert unseen(model, x, np.zeros(4)) == []
        out = model.predict(x)
    assert np.isfinite(out[[0, 2, 3]]).all()  # a row does not spread in evaluation


@pytest.mark.parametrize("name", ["Maximum", "Add", "Average", "Multiply", "Subtract",
                                  "Concatenate", "Dot"])
@pytest.mark.parametrize("side", [0, 1])
def test_r19c_no_merging_hides_a_nan(name, side, form, isa):
    a, b = pyggml.Input((9,)), pyggml.Input((9,))
    layer = layers.Dot(1) if name == "Dot" else getattr(layers, name)()
    model = pyggml.Model([a, b], layers.Dense(1)(layer([a, b])))
    x = [np.ones((4, 9), np.float32), np.full((4, 9), 2.0, np.float32)]
    x[side][1, 4] = np.nan
    out = model.predict(x)
    assert np.isnan(out[1]).all() and np.isfinite(out[[0, 2, 3]]).all()


DENSE_LOSSES = sorted({losses.get(name).name for name in losses._classes
                       if losses.get(name).labels == "dense"})


@pytest.mark.parametrize("name", DENSE_LOSSES)
@pytest.mark.parametrize("where", ["x", "y"])
@pytest.mark.parametrize("last", [None, "softmax", "sigmoid"])
def test_r19c_no_loss_hides_a_nan(name, where, last, form, isa):
    model = pyggml.Sequential([pyggml.Input((40,)), layers.Dense(40, last)])
    model.compile("sgd", name)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(8, 40)), rng.uniform(size=(8, 40))
    (x if where == "x" else y)[5, 33] = np.nan
    assert unseen(model, x, y) == []


@pytest.mark.parametrize("clip", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_r19c_clipping_hides_no_nan(clip, form, isa):
    """Whatever becomes of the weights, the loss tells."""
    model = biased([0.0, 0.0], "mse", optimizer=pyggml.optimizers.SGD(0.1, **{clip: 1.0}))
    trainer = pyggml.Trainer(model, 1)
    with pytest.warns(RuntimeWarning, match="the loss is nan at step 1"):
        assert math.isnan(trainer.step([[1.0]], [[np.nan, 1.0]]))


@pytest.mark.parametrize(("x", "y"), [(np.nan, 0.0), (np.inf, 0.0), (-np.inf, 0.0), (1.0, np.nan),
                                      (1.0, np.inf)])
def test_r19c_step_warns_once_and_returns_the_loss(x, y, form):
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1)])
    model.compile("adam", "mse")
    with pyggml.Trainer(model, 1) as trainer:
        with pytest.warns(RuntimeWarning, match=r"the loss is (nan|inf) at step 1"):
            assert not math.isfinite(trainer.step([[x]], [[y]]))
        trainer.step([[x]], [[y]])  # once only: warnings are errors here


@pytest.mark.parametrize(("x", "y"), [(np.nan, 0.0), (np.inf, 0.0), (1.0, np.nan)])
def test_r19c_fit_warns_shows_nan_and_terminate_on_nan_stops(x, y, form):
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1)])
    model.compile("adam", "mse")
    xs, ys = np.ones((12, 1)), np.zeros(12)
    xs[5], ys[5] = x, y
    with pytest.warns(RuntimeWarning, match="the loss is"):
        history = model.fit(xs, ys, batch_size=2, epochs=3, verbose=0, shuffle=False).history
    assert len(history["loss"]) == 3 and not np.isfinite(history["loss"]).any()
    assert not math.isfinite(model.evaluate(xs, ys))
    assert np.isnan(model.predict(np.ones((1, 1)))).all()

    model.compile("adam", "mse")
    model.set_weights([np.ones((1, 1)), np.zeros(1)])
    stop, seen = callbacks.TerminateOnNaN(), []

    class Counts(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)

    with pytest.warns(RuntimeWarning, match="the loss is"):
        history = model.fit(xs, ys, batch_size=2, epochs=3, verbose=0, shuffle=False,
                            callbacks=[stop, Counts()]).history
    assert stop.stopped and seen == [0, 1, 2] and len(history["loss"]) == 1
    assert not np.isfinite(history["loss"]).any()


def test_r19c_the_best_weights_come_back_after_terminate_on_nan(form):
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1)])
    model.compile("adam", "mse")
    best = []

    class Breaks(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            best.append([w.copy() for w in self.model.get_weights()])
            if epoch == 1:
                xs[3] = np.nan

    xs, ys = np.ones((12, 1)), np.zeros(12)
    stop = callbacks.TerminateOnNaN()
    with pytest.warns(RuntimeWarning, match="is (nan|NaN)"):
        history = model.fit(xs, ys, batch_size=2, epochs=5, verbose=0, shuffle=False, callbacks=[
            Breaks(), stop, callbacks.EarlyStopping("loss", restore_best_weights=True)]).history
    assert stop.stopped and len(history["loss"]) == 3 and math.isnan(history["loss"][-1])
    assert all(a.tobytes() == b.tobytes()
               for a, b in zip(model.get_weights(), best[1], strict=True))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "adagrad", "lion",
                                       pyggml.optimizers.SGD(0.1, momentum=0.9),
                                       pyggml.optimizers.Adam(0.1, clipnorm=1.0)], ids=str)
@pytest.mark.parametrize("logical", [8, 16])
def test_r19c_a_trainer_that_met_a_nan_is_restored_from_a_snapshot(optimizer, logical, form):
    """Afterwards it goes on as a new trainer with the snapshot's weights, bit for bit."""
    def make():
        pyggml.set_seed(2)
        model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(6, "tanh", name="a"),
                                   layers.Dense(1, name="b")])
        model.compile(optimizer, "mse")
        return pyggml.Trainer(model, 8, nbatch_logical=logical)

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)), rng.normal(size=8)
    with make() as trainer, make() as fresh:
        for _ in range(4):
            trainer.step(x, y)
        good = trainer.snapshot()
        fresh.restore(good)
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trainer.step(x * np.nan, y)
        assert not all(np.isfinite(w).all() for w in trainer.get_weights())
        trainer.restore(good)
        assert (trainer.n_steps, trainer.n_updates) == (7, 0)
        assert np.array_equal(trainer.predict(x), good.predict(x))
        for _ in range(4):
            assert trainer.step(x, y) == fresh.step(x, y)
        for a, b in zip(trainer.get_weights(), fresh.get_weights(), strict=True):
            assert a.tobytes() == b.tobytes() and np.isfinite(a).all()
        with pytest.warns(RuntimeWarning, match="the loss is nan"):  # the next one is told again
            trainer.step(x * np.nan, y)


def test_r19c_restore_refuses_other_weights_and_changes_nothing():
    def make(size):
        model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(size, name="d")])
        model.compile("adam", "mse")
        return pyggml.Trainer(model, 1)

    with make(1) as trainer, make(2) as other:
        trainer.step(np.ones((1, 4)), [[1.0]])
        before = trainer.get_weights()
        with pytest.raises(ValueError, match="shape"):
            trainer.restore(other)
        with pytest.raises(TypeError, match="Snapshot"):
            trainer.restore(before)
        assert trainer.n_updates == 1
        for a, b in zip(trainer.get_weights(), before, strict=True):
            assert a.tobytes() == b.tobytes()
