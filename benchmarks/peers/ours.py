"""pyggml: a Trainer's steps, and the methods of models."""

import numpy as np

from benchmarks import networks as nets
from benchmarks.contest import Contestant, training

NAME = "pyggml"
PACKAGES = ("pyggml",)
LOSSES = {"mse": "mse", "crossentropy": "sparse_categorical_crossentropy"}


def configure(threads):
    import pyggml

    pyggml.set_num_threads(threads)


def build(network, data_format="channels_first"):
    """A compiled model with the network's weights; class probabilities come from a softmax."""
    import pyggml
    from pyggml import layers

    shapes = network.shapes()
    images = len(network.input) == 3
    first = images and data_format == "channels_first"
    shape = network.input
    inputs = x = pyggml.Input((shape[2], *shape[:2]) if first else shape)
    form = {"data_format": data_format} if images else {}
    arrays = []
    for i, (layer, shape, weights) in enumerate(zip(network.layers, shapes, network.weights(),
                                                    strict=True)):
        match layer:
            case nets.Dense(units, activation):
                if layer is network.layers[-1] and network.loss == "crossentropy":
                    activation = "softmax"
                x = layers.Dense(units, activation)(x)
                if first and i and isinstance(network.layers[i - 1], nets.Flatten):
                    weights = (channels_first_rows(weights[0], shapes[i - 1]), weights[1])
            case nets.Conv(filters):
                x = layers.Conv2D(filters, 3, padding="same", activation="relu", **form)(x)
            case nets.Pool():
                x = layers.MaxPooling2D(2, **form)(x)
            case nets.Flatten():
                x = layers.Flatten()(x)
            case nets.LSTM(units):
                x = layers.LSTM(units)(x)
            case nets.GRU(units):
                x = layers.GRU(units)(x)
            case nets.Block(heads, hidden):
                size = shape[-1]
                attended = layers.MultiHeadAttention(heads, size // heads)(x, x)
                x = layers.LayerNormalization()(layers.Add()([x, attended]))
                inner = layers.Dense(size)(layers.Dense(hidden, "relu")(x))
                x = layers.LayerNormalization()(layers.Add()([x, inner]))
            case nets.MeanOverTime():
                x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
        arrays += weights
    model = pyggml.Model(inputs, x)
    model.compile(pyggml.optimizers.Adam(network.rate, epsilon=1e-8), LOSSES[network.loss])
    model.set_weights(arrays)
    return model


def channels_first_rows(kernel, shape):
    """The kernel after a Flatten, for images of this channels-last shape kept channels-first."""
    return np.ascontiguousarray(
        kernel.reshape(*shape, -1).transpose(2, 0, 1, 3).reshape(kernel.shape))


def arrange(x, network, data_format="channels_first"):
    if len(network.input) == 3 and data_format == "channels_first":
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return x


def contestants(workload, compiled):
    if workload.kind == "step":
        yield "Trainer.step", lambda: stepping(workload.network)
        if len(workload.network.input) == 3:
            yield ("Trainer.step, channels_last",
                   lambda: stepping(workload.network, "channels_last"))
    elif workload.kind == "predict":
        yield "Model.predict", lambda: predicting(workload, lambda model: model)
        yield "Trainer.predict", lambda: predicting(workload, trainer)
    else:
        yield "Model.fit", lambda: fitting(workload)


def trainer(model, batch=32):
    import pyggml

    return pyggml.Trainer(model, batch_size=batch)


def stepping(network, data_format="channels_first"):
    from benchmarks.contest import BATCHES

    model = trainer(build(network, data_format), network.batch)
    batches = [(arrange(x, network, data_format), y) for x, y in network.batches(BATCHES)]
    form = "Trainer.step" if data_format == "channels_first" else f"Trainer.step, {data_format}"
    return training(NAME, form, model.step, batches)


def predicting(workload, prepare):
    predictor = prepare(build(workload.network))
    x, _ = workload.network.rows(workload.rows)

    def run(count):
        for _ in range(count):
            predictor.predict(x)

    form = f"{type(predictor).__name__}.predict"
    return Contestant(NAME, form, lambda: predictor.predict(x), run)


def fitting(workload):
    network = workload.network
    model = build(network)
    x, y = network.rows(workload.rows)

    def check():
        history = model.fit(x, y, batch_size=network.batch, epochs=1, shuffle=False, verbose=0)
        return [history.history["loss"][0]]

    def run(count):
        for _ in range(count):
            model.fit(x, y, batch_size=network.batch, epochs=1, verbose=0)

    return Contestant(NAME, "Model.fit", check, run)
