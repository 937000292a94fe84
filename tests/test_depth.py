"""Networks of any depth and length train: a graph too large for ggml-opt takes another form."""

import threading

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import _training, layers, ops


@pytest.fixture
def large():
    """A function that trains a model in ggml-opt's form and in the large one."""
    def both(make, x, y, steps=3, weights=None, **options):
        found = []
        for room in (2048, 0):
            _training.set_static_room(room)
            pyggml.set_seed(3)
            model = make()
            with pyggml.Trainer(model, len(x), **options) as trainer:
                losses = [trainer.step(x, y, weights) for _ in range(steps)]
                found.append((losses, trainer.model().get_weights(), trainer.predict(x)))
        return found

    yield both
    _training.set_static_room()


def compiled(stack, optimizer="adam", loss="mse"):
    model = pyggml.Sequential(stack)
    model.compile(optimizer, loss)
    return model


CASES = {
    "dense": lambda: compiled([pyggml.Input((6,)), layers.Dense(9, "gelu"), layers.Dense(2)]),
    "sgd with decay": lambda: compiled(
        [pyggml.Input((6,)), layers.Dense(9, "tanh"), layers.Dense(2)],
        pyggml.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1)),
    "ggml's sgd": lambda: compiled(
        [pyggml.Input((6,)), layers.Dense(9, "tanh"), layers.Dense(2)], "sgd"),
    "clipped": lambda: compiled(
        [pyggml.Input((6,)), layers.Dense(9, "relu"), layers.Dense(2)],
        pyggml.optimizers.Adam(0.01, global_clipnorm=0.1)),
    "dropout and penalty": lambda: compiled(
        [pyggml.Input((6,)), layers.Dense(9, "relu", kernel_regularizer="l2"),
         layers.Dropout(0.4), layers.Dense(2)]),
    "images": lambda: compiled(
        [pyggml.Input((6,)), layers.Reshape((1, 2, 3)), layers.Conv2D(4, 2, padding="same"),
         layers.BatchNormalization(momentum=0.9), layers.MaxPooling2D((1, 3)), layers.Flatten(),
         layers.Dense(2)]),
    "sequences": lambda: compiled(
        [pyggml.Input((6,)), layers.Reshape((3, 2)), layers.LSTM(4, return_sequences=True),
         layers.GRU(3, activation="relu"), layers.LayerNormalization(), layers.Dense(2)]),
    "frozen": lambda: compiled(
        [pyggml.Input((6,)), layers.Dense(9, trainable=False), layers.Dense(2)]),
}


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_large_form_trains_as_ggml_opt_does_bit_for_bit(case, accumulate, large, rng):
    x = rng.normal(size=(8, 6)).astype("f")
    y = rng.normal(size=(8, 2)).astype("f")
    options = {"nbatch_logical": 16} if accumulate else {}
    (losses, weights, p), (other_losses, other_weights, q) = large(CASES[case], x, y, 5, **options)
    assert losses == other_losses
    assert all(np.array_equal(a, b) for a, b in zip(weights, other_weights, strict=True))
    np.testing.assert_array_equal(p, q)
    assert losses[0] != losses[4]


def test_the_large_form_gives_gradients_and_weighs_as_ggml_opt_does(large, rng):
    x = rng.normal(size=(8, 6)).astype("f")
    y = rng.normal(size=(8, 2)).astype("f")
    y[3] = np.nan
    weights = np.array([1, 2, 0.5, 0, 1, 1, 3, 0], "f")
    (losses, _, _), (other, _, _) = large(CASES["dense"], x, y, 4, weights, loss_mask=1)
    assert losses == other and np.isfinite(losses).all()
    found = []
    for room in (2048, 0):
        _training.set_static_room(room)
        pyggml.set_seed(3)
        with pyggml.Trainer(CASES["images"](), 8) as trainer:
            found.append(trainer.gradients(x, y * 0))
    for gradient, other in zip(*(g.values() for g in found), strict=True):
        np.testing.assert_array_equal(gradient, other)


# ---- deep and long ------------------------------------------------------------------------------

def residual(depth, width=6):
    x = y = pyggml.Input((width,))
    for _ in range(depth):
        small = pyggml.initializers.RandomNormal(0, 0.05)
        y = layers.Add()([y, layers.Dense(width, "tanh", kernel_initializer=small)(y)])
    model = pyggml.Model(x, layers.Dense(1)(y))
    model.compile("adam", "mse")
    return model


def test_a_network_of_500_layers_learns(rng):
    x = rng.normal(size=(64, 6)).astype("f")
    y = x.sum(axis=1)
    pyggml.set_seed(0)
    model = residual(500)
    history = model.fit(x, y, batch_size=16, epochs=12, verbose=0)
    assert history.history["loss"][-1] < 0.2 * history.history["loss"][0]
    assert model.evaluate(x, y) == pytest.approx(
        np.mean((model.predict(x)[:, 0].astype("d") - y) ** 2), rel=1e-5)


def test_gradients_of_a_deep_plain_network_are_those_of_its_formula(rng):
    """500 layers of one scalar weight each: dy/dw_i is the product of the others."""
    pyggml.set_seed(0)
    depth = 500
    model = pyggml.Sequential([pyggml.Input((1,))] + [
        layers.Dense(1, use_bias=False, name=f"d{i}") for i in range(depth)])
    w = rng.uniform(0.98, 1.02, depth)
    model.set_weights([np.full((1, 1), v) for v in w])
    model.compile("sgd", loss="output")
    w = np.array([v[0, 0] for v in model.get_weights()], "d")
    with pyggml.Trainer(model, 1) as trainer:
        gradients = trainer.gradients(np.ones((1, 1)), None)
    got = np.array([gradients[f"d{i}/kernel"][0, 0] for i in range(depth)])
    np.testing.assert_allclose(got, w.prod() / w, rtol=1e-4)


class Unrolled(layers.Layer):
    """``h = sin(h @ kernel + x_t)`` step by step, written with operations."""

    def build(self, input_shape):
        self.kernel = self.add_weight("kernel", (input_shape[-1],) * 2, "orthogonal")

    def call(self, x):
        steps = ops.split(ops.reshape(x, (x.shape[0], -1)), x.shape[1])
        h = steps[0]
        for step in steps[1:]:
            h = ops.sin(ops.add(ops.linear(h, self.kernel), step))
        return h


def test_a_network_unrolled_over_300_steps_learns_and_its_gradient_is_right(rng):
    x = (0.3 * rng.normal(size=(4, 300, 3))).astype("f")
    y = rng.normal(size=(4, 3)).astype("f")
    pyggml.set_seed(1)
    model = pyggml.Sequential([pyggml.Input((300, 3)), Unrolled(name="unrolled")])
    model.compile("adam", "mse")
    kernel = 0.9 * model.get_weights()[0].astype("d")
    model.set_weights([kernel])
    kernel = model.get_weights()[0].astype("d")

    hs = [x[:, 0].astype("d")]
    for t in range(1, 300):
        hs.append(np.sin(hs[-1] @ kernel + x[:, t]))
    dh = 2 * (hs[-1] - y) / y.size
    want = np.zeros((3, 3))
    for t in range(299, 0, -1):
        dz = dh * np.cos(hs[t - 1] @ kernel + x[:, t])
        want += hs[t - 1].T @ dz
        dh = dz @ kernel.T
    with pyggml.Trainer(model, 4) as trainer:
        got = trainer.gradients(x, y)["unrolled/kernel"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
        losses = [trainer.step(x, y) for _ in range(30)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("layer", [
    lambda: layers.LSTM(3, "softmax"), lambda: layers.GRU(3, "relu", reset_after=False),
    lambda: layers.SimpleRNN(3, "sigmoid")])
def test_recurrent_layers_of_any_activation_train_over_500_steps(layer, rng):
    model = compiled([pyggml.Input((500, 2)), layer()], "adam")
    x, y = rng.normal(size=(4, 500, 2)), rng.uniform(size=(4, 3))
    history = model.fit(x, y, batch_size=2, epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_a_deep_network_is_trained_predicted_copied_and_saved_without_a_crash():
    assert run_child("""
        import pickle
        import numpy as np, pyggml
        pyggml.set_num_threads(1)
        x = y = pyggml.Input((2,))
        for i in range(3000):
            y = pyggml.layers.Dense(2, kernel_initializer="identity")(y)
        model = pyggml.Model(x, y)
        p = model.predict(np.ones((1, 2)))
        assert model.copy().predict(np.ones((1, 2))).tobytes() == p.tobytes()
        assert pickle.loads(pickle.dumps(model)).predict(np.ones((1, 2))).tobytes() == p.tobytes()
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 2)), np.ones((4, 2)), batch_size=2, verbose=0)
        print("done")
        """) == "done\n"


def test_a_deep_network_does_not_run_over_the_small_stack_of_a_thread():
    assert run_child("""
        import threading
        import numpy as np, pyggml
        threading.stack_size(256 * 1024)
        model = pyggml.Sequential([pyggml.Input((2,))] + [
            pyggml.layers.Dense(2, kernel_initializer="identity") for _ in range(3000)])
        model.compile("sgd", "mse")
        def work():
            with pyggml.Trainer(model, 1) as trainer:
                loss = trainer.step(np.ones((1, 2)), np.ones((1, 2)))
                print(loss, trainer.predict(np.ones((1, 2))).tolist())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """) == "0.0 [[1.0, 1.0]]\n"


def test_more_gaps_in_memory_than_ggml_plans_for_are_planned():
    """Each layer leaves something larger than all before it: 256 gaps end the process in ggml."""
    assert run_child("""
        import numpy as np, pyggml
        from pyggml import layers, ops

        class Growing(layers.Layer):
            def call(self, x):
                kept = []
                for n in range(1, 1201):
                    wide = ops.sin(ops.broadcast_to(x, (x.shape[0], 16 * n)))
                    kept.append(ops.sum(ops.cos(wide), -1, keepdims=True))
                total = kept[-1]
                for t in reversed(kept[:-1]):
                    total = ops.add(total, t)
                return total

        model = pyggml.Sequential([pyggml.Input((1,)), Growing()])
        x = np.array([[0.5], [1.0]])
        want = sum(16 * n for n in range(1, 1201)) * np.cos(np.sin(x))
        np.testing.assert_allclose(model.predict(x), want, rtol=1e-4)
        print("planned")
        """) == "planned\n"


def test_two_threads_train_large_networks_at_once(rng):
    x = rng.normal(size=(4, 6)).astype("f")
    y = x.sum(axis=1)
    pyggml.set_seed(0)
    model = residual(150)
    alone = pyggml.Trainer(model, 4)
    want = [alone.step(x, y) for _ in range(20)]
    trainers = [pyggml.Trainer(model, 4) for _ in range(2)]
    found = [None, None]

    def work(i):
        found[i] = [trainers[i].step(x, y) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want, want]
