"""scikit-learn's MLPClassifier and MLPRegressor: dense layers with ReLU, nothing else."""

import numpy as np

from benchmarks import networks as nets
from benchmarks.contest import BATCHES, Contestant, Unsupported, training

NAME = "scikit-learn"
PACKAGES = ("scikit-learn", "threadpoolctl")


def configure(threads):
    import sklearn.neural_network  # noqa: F401 - the limit holds for libraries that are loaded
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)


def contestants(workload, compiled):
    if workload.kind == "step":
        yield "partial_fit", lambda: stepping(workload.network)
    elif workload.kind == "predict":
        yield "predict_proba", lambda: predicting(workload)
    else:
        yield "partial_fit", lambda: fitting(workload)


def build(network, rows=None, **options):
    """An estimator with the network's weights, and Adam at its first step."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    *hidden, last = network.layers
    if not all(isinstance(layer, nets.Dense) and layer.activation == "relu" for layer in hidden):
        raise Unsupported("has dense layers only")
    regression = network.loss == "mse"
    kind = MLPRegressor if regression else MLPClassifier
    if not regression and last.units < 3:
        raise Unsupported("has one output for two classes")
    estimator = kind(hidden_layer_sizes=[layer.units for layer in hidden], solver="adam",
                     alpha=0.0, learning_rate_init=network.rate, epsilon=1e-8,
                     batch_size=network.batch, **options)
    # The first call makes the arrays, in the type of the data.
    x, y = network.rows(rows or network.batch)
    learn(estimator, network)(x, y)
    for i, (kernel, bias) in enumerate(network.weights()):
        estimator.coefs_[i][...] = kernel
        estimator.intercepts_[i][...] = bias
    del estimator._optimizer        # the next call begins with moments of 0
    return estimator


def learn(estimator, network):
    if network.loss == "mse":
        return estimator.partial_fit
    classes = np.arange(network.outputs)
    return lambda x, y: estimator.partial_fit(x, y, classes=classes)


def stepping(network):
    estimator = build(network, shuffle=False)
    call = learn(estimator, network)
    scale = 2 if network.loss == "mse" else 1      # its loss is half of the mean square

    def step(x, y):
        call(x, y)
        return scale * estimator.loss_

    return training(NAME, "partial_fit", step, network.batches(BATCHES))


def predicting(workload):
    estimator = build(workload.network)
    x, _ = workload.network.rows(workload.rows)

    def run(count):
        for _ in range(count):
            estimator.predict_proba(x)

    return Contestant(NAME, "predict_proba", lambda: estimator.predict_proba(x), run)


def fitting(workload):
    network = workload.network
    estimator = build(network, workload.rows, shuffle=False)
    x, y = network.rows(workload.rows)
    call = learn(estimator, network)

    def check():
        call(x, y)
        estimator.set_params(shuffle=True)
        return [estimator.loss_]

    def run(count):
        for _ in range(count):
            call(x, y)

    return Contestant(NAME, "partial_fit", check, run)
