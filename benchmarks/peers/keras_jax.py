"""Keras 3 on JAX: its own methods, and a compiled step of one's own."""

import os

import numpy as np

from benchmarks import networks as nets
from benchmarks.contest import BATCHES, Contestant, training

NAME = "Keras on JAX"
PACKAGES = ("keras", "jax")


def configure(threads):
    os.environ["KERAS_BACKEND"] = "jax"


def contestants(workload, compiled):
    if workload.kind == "step":
        yield "train_on_batch", lambda: stepping(workload.network)
        yield "stateless step, jit", lambda: stateless(workload.network)
    elif workload.kind == "predict":
        if workload.rows > 1:
            yield "predict", lambda: predicting(workload, "predict")
        yield "predict_on_batch", lambda: predicting(workload, "predict_on_batch")
    else:
        yield "fit", lambda: fitting(workload)


def build(network, softmax=False):
    import keras
    from keras import layers

    inputs = x = keras.Input(network.input)
    for layer, shape in zip(network.layers, network.shapes(), strict=True):
        match layer:
            case nets.Dense(units, activation):
                x = layers.Dense(units, activation)(x)
            case nets.Conv(filters):
                x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
            case nets.Pool():
                x = layers.MaxPooling2D(2)(x)
            case nets.Flatten():
                x = layers.Flatten()(x)
            case nets.LSTM(units):
                x = layers.LSTM(units)(x)
            case nets.GRU(units):
                x = layers.GRU(units)(x)
            case nets.Block(heads, hidden):
                size = shape[-1]
                attended = layers.MultiHeadAttention(heads, size // heads)(x, x)
                x = layers.LayerNormalization(epsilon=1e-3)(layers.Add()([x, attended]))
                inner = layers.Dense(size)(layers.Dense(hidden, "relu")(x))
                x = layers.LayerNormalization(epsilon=1e-3)(layers.Add()([x, inner]))
            case nets.MeanOverTime():
                x = layers.GlobalAveragePooling1D()(x)
    if softmax:
        x = layers.Softmax()(x)
    model = keras.Model(inputs, x)
    # What was written down as arrays is in the order of the layers; the seeds of layers that draw
    # random numbers are not among them.
    for variable, array in zip(model.trainable_variables,
                               [a for w in network.weights() for a in w], strict=True):
        variable.assign(array)
    loss = ("mse" if network.loss == "mse"
            else keras.losses.SparseCategoricalCrossentropy(from_logits=not softmax))
    model.compile(keras.optimizers.Adam(network.rate, epsilon=1e-8), loss)
    return model


def stepping(network):
    model = build(network)
    return training(NAME, "train_on_batch", model.train_on_batch, network.batches(BATCHES))


def stateless(network):
    import jax
    from jax import numpy as jnp

    model = build(network)
    optimizer, criterion = model.optimizer, model.loss
    if network.loss == "mse":
        def criterion(y, found):
            return ((found - y) ** 2).mean()
    optimizer.build(model.trainable_variables)

    def loss_of(weights, fixed, x, y):
        found, fixed = model.stateless_call(weights, fixed, x, training=True)
        return criterion(y, found), fixed

    def update(state, x, y):
        weights, fixed, moments = state
        (loss, fixed), grads = jax.value_and_grad(loss_of, has_aux=True)(weights, fixed, x, y)
        weights, moments = optimizer.stateless_apply(moments, grads, weights)
        return (weights, fixed, moments), loss

    call = jax.jit(update, donate_argnums=0)
    state = tuple([v.value for v in variables] for variables in (
        model.trainable_variables, model.non_trainable_variables, optimizer.variables))

    def step(x, y):
        nonlocal state
        state, loss = call(state, x, y)
        return loss

    batches = [(jnp.asarray(x), jnp.asarray(y)) for x, y in network.batches(BATCHES)]
    return training(NAME, "stateless step, jit", step, batches,
                    lambda: jax.block_until_ready(state))


def predicting(workload, method):
    model = build(workload.network, softmax=True)
    x, _ = workload.network.rows(workload.rows)
    options = {"verbose": 0, "batch_size": 1024} if method == "predict" else {}

    def predict():
        return np.asarray(getattr(model, method)(x, **options))

    def run(count):
        for _ in range(count):
            predict()

    return Contestant(NAME, method, predict, run)


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

    return Contestant(NAME, "fit", check, run)
