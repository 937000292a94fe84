"""Checked by mypy, not run: what type checkers and editors know of a script like this."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import pyggml
from pyggml import layers, ops


class Scale(layers.Layer):
    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.factor = self.add_weight("factor", (3,), "ones")

    def call(self, x: ops.Tensor) -> ops.Tensor:
        return ops.tanh(x * self.factor + 1.0) / 2


def loss(y_true: ops.Tensor, y_pred: ops.Tensor) -> ops.Tensor:
    return ops.square(ops.subtract(y_true, y_pred))


def functional() -> pyggml.Model:
    x = pyggml.Input((3,))
    return pyggml.Model(x, {"y": layers.Dense(2)(Scale()(x))})


def main() -> None:
    x, y = np.ones((8, 3)), np.zeros((8, 2))
    model = pyggml.Sequential([pyggml.Input((3,)), Scale(), layers.Dense(2, "softmax")])
    model.compile(pyggml.optimizers.Adam(1e-3, clipnorm=1.0), loss, metrics=["mae"])
    model.summary()
    assert_type(model.copy(), pyggml.Sequential)
    assert_type(model.fit(x, y, epochs=2, verbose=0), pyggml.History)
    assert_type(model.fit(x, y).history["loss"][0], float)
    assert_type(model.weights[0].numpy(), NDArray[np.float32])
    assert_type(model.layers, list[layers.Layer])
    print(model.predict(x).argmax(axis=1), model.predict_classes(x).shape)
    with pyggml.Trainer(model, batch_size=8, loss_mask=1) as trainer:
        assert_type(trainer.step(x, y, sample_weight=np.ones(8)), float)
        assert_type(trainer.step_many(x, y, idx=np.arange(8)), NDArray[np.float64])
        assert_type(trainer.gradients(x, y), dict[str, NDArray[np.float32]])
        assert_type(trainer.n_steps, int)
        target = trainer.snapshot()
        trainer.update_target(target, tau=0.5)
        assert_type(target.get_weights(), list[NDArray[np.float32]])
        trainer.lr = 1e-4
        assert_type(trainer.model(), pyggml.Model)
    model.save("model.gguf", quantize="q8_0")
    assert_type(pyggml.load_model("model.gguf"), pyggml.Model)
    assert_type(pyggml.config(), dict[str, Any])
    pyggml.set_num_threads(pyggml.get_num_threads())


def low_level() -> None:
    graph = pyggml.opt.Graph(4, training=True)
    x = graph.input((4, 3))
    kernel = pyggml.Variable((3, 1), "kernel", axes=(1, 0))
    with pyggml.opt.Dataset(3, 1, 8) as dataset:
        assert_type(dataset.data, NDArray[np.float32])
        context = pyggml.opt.OptContext(ops.relu(x), ops.linear(x, kernel), "mse", "sgd")
        assert_type(context.get_lr(), float)
        dataset.shuffle(context)
    pyggml.utils.plot_model(functional())
    pyggml.hpc.PreemptionHandler()
