"""Predict the progression of diabetes, beside scikit-learn's own neural network.

The data are scikit-learn's 442 real patients. Both networks have the same layers and see the
same five splits; prints the mean squared errors on patients that training never saw, and draws
predictions against truth for the last split.

    python examples/regression_diabetes.py [--output FILE]
"""

import argparse
import warnings

import matplotlib
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor

import pyggml
from pyggml import layers

EPOCHS = 60
UNITS = 32


def standardise(train, test):
    """Shift and scale both by the training part's mean and deviation."""
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / deviation, (test - mean) / deviation


def ours(x, y, x_test):
    model = pyggml.Sequential([
        pyggml.Input((x.shape[1],)),
        layers.Dense(UNITS, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(1),
    ])
    model.compile(optimizer=pyggml.optimizers.AdamW(3e-3, weight_decay=0.1), loss="mse")
    model.fit(x, y, batch_size=32, epochs=EPOCHS, verbose=0)
    return model.predict(x_test)[:, 0]


def theirs(x, y, x_test):
    # The number of epochs is fixed here as there, so scikit-learn's early end is switched off.
    model = MLPRegressor(
        hidden_layer_sizes=(UNITS,), learning_rate_init=3e-3, batch_size=32, max_iter=EPOCHS,
        n_iter_no_change=EPOCHS, tol=0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    return model.predict(x_test)


def main():
    parser = argparse.ArgumentParser(description="Predict the progression of diabetes.")
    parser.add_argument("--output", default="diabetes.png", help="file for the plot")
    arguments = parser.parse_args()

    pyggml.set_seed(0)
    x_all, y_all = load_diabetes(return_X_y=True)
    errors = {"pyggml": [], "scikit-learn": [], "mean": []}
    for train, test in KFold(5, shuffle=True, random_state=0).split(x_all):
        x, x_test = standardise(x_all[train], x_all[test])
        mean, deviation = y_all[train].mean(), y_all[train].std()
        y = (y_all[train] - mean) / deviation
        truth = y_all[test]
        found = ours(x, y, x_test) * deviation + mean
        other = theirs(x, y, x_test) * deviation + mean
        errors["pyggml"].append(np.mean((found - truth) ** 2))
        errors["scikit-learn"].append(np.mean((other - truth) ** 2))
        errors["mean"].append(np.mean((mean - truth) ** 2))
    for name, values in errors.items():
        print(f"{name:12}  mean squared error {np.mean(values):7.1f}")

    matplotlib.use("Agg")  # needs no screen
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
    ax.scatter(truth, other, s=14, label="scikit-learn", color="0.7")
    ax.scatter(truth, found, s=14, label="pyggml")
    ax.axline((150, 150), slope=1, color="0.3", linewidth=1)
    ax.set_xlabel("progression after a year")
    ax.set_ylabel("predicted")
    ax.legend(frameon=False)
    figure.savefig(arguments.output, dpi=150)
    print(f"plot in {arguments.output}")


if __name__ == "__main__":
    main()
