"""One network with several inputs and outputs: a diagnosis and ten measurements at once.

The data are scikit-learn's 569 real tumours. Ten properties of cell nuclei were measured in many
cells of each; known are their means, their standard errors, and their worst values. From means
and errors, two inputs, the network tells whether the tumour is malignant and how large the worst
values are, two outputs with a loss each. Both are compared, on tumours that training never saw,
with scikit-learn's linear models of the same numbers.

    python examples/multi_output.py [--epochs N] [--output FILE]
"""

import argparse

import matplotlib
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import pyggml
from pyggml import layers, schedules


def network():
    """Return the network: ``mean`` and ``error`` to ``malignant`` and ``worst``."""
    mean = pyggml.Input((10,), name="mean")
    error = pyggml.Input((10,), name="error")
    joined = layers.Concatenate()([layers.Dense(32, activation="relu")(mean),
                                   layers.Dense(16, activation="relu")(error)])
    x = layers.Dropout(0.2)(layers.Dense(32, activation="relu")(joined))
    malignant = layers.Dense(1, activation="sigmoid", name="malignant")(x)
    # The worst value is the mean and something more: only that has to be learnt.
    worst = layers.Add(name="worst")([mean, layers.Dense(10)(x)])
    return pyggml.Model([mean, error], {"malignant": malignant, "worst": worst}, name="tumours")


def split(seed):
    """Return standardised parts of training and of testing, and the names of the properties."""
    data = load_breast_cancer()
    parts = train_test_split(data.data, 1 - data.target, test_size=0.3, random_state=seed,
                             stratify=data.target)
    x, x_test, y, y_test = parts
    middle, deviation = x.mean(axis=0), x.std(axis=0)
    found = []
    for values, labels in ((x, y), (x_test, y_test)):
        values = ((values - middle) / deviation).astype(np.float32)
        found.append(({"mean": values[:, :10], "error": values[:, 10:20]},
                      {"malignant": labels.astype(np.float32), "worst": values[:, 20:]}))
    return *found, [name.removeprefix("mean ") for name in data.feature_names[:10]]


def linear(x, y, x_test):
    """Return what scikit-learn's linear models predict."""
    rows, rows_test = (np.concatenate([v["mean"], v["error"]], axis=1) for v in (x, x_test))
    diagnosis = LogisticRegression(max_iter=1000).fit(rows, y["malignant"])
    return {"malignant": diagnosis.predict_proba(rows_test)[:, 1],
            "worst": Ridge(1.0).fit(rows, y["worst"]).predict(rows_test)}


def explained(truth, found):
    """Return the share of the variance that is explained, a property each."""
    return 1 - np.mean((truth - found) ** 2, axis=0) / np.var(truth, axis=0)


def draw(history, names, ours, theirs, path):
    matplotlib.use("Agg")  # needs no screen
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    epochs = np.arange(1, len(history.epoch) + 1)
    for i, (output, label) in enumerate((("malignant", "diagnosis (cross-entropy)"),
                                         ("worst", "worst values (squared error)"))):
        left.plot(epochs, history.history[f"{output}_loss"], color=f"C{i}", label=label)
        left.plot(epochs, history.history[f"val_{output}_loss"], color=f"C{i}", linestyle="--")
    left.plot([], [], color="0.3", linestyle="--", label="on test data")
    left.set_yscale("log")
    left.yaxis.set_minor_formatter("")
    left.set_xlabel("epoch")
    left.set_ylabel("loss")
    left.legend(frameon=False, fontsize=8)
    order = np.argsort(ours)
    places = np.arange(len(order))
    right.barh(places + 0.2, ours[order], 0.4, label="pyggml")
    right.barh(places - 0.2, theirs[order], 0.4, color="0.7", label="ridge regression")
    right.set_yticks(places, [names[i] for i in order], fontsize=8)
    right.set_xlabel("explained variance of worst values")
    right.set_xlim(0, 1)
    right.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=2)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=200)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--output", default="multi_output.png", help="file for the plot")
    arguments = parser.parse_args()

    pyggml.set_seed(0)
    (x, y), (x_test, y_test), names = split(seed=0)
    model = network()
    model.compile(optimizer=pyggml.optimizers.AdamW(3e-3, weight_decay=0.05),
                  loss={"malignant": "binary_crossentropy", "worst": "mse"},
                  loss_weights={"malignant": 1.0, "worst": 0.5},
                  metrics={"malignant": ["accuracy", "auc"], "worst": ["r2"]})
    model.summary()
    history = model.fit(x, y, batch_size=32, epochs=arguments.epochs, verbose=0,
                        validation_data=(x_test, y_test), callbacks=[schedules.CosineDecay()])
    logs = model.evaluate(x_test, y_test, return_dict=True)
    total = logs["malignant_loss"] + 0.5 * logs["worst_loss"]
    print(f"loss {logs['loss']:.4f} = {total:.4f}, the weighted sum of the outputs' losses")

    other = linear(x, y, x_test)
    truth = y_test["malignant"]
    theirs = explained(y_test["worst"], other["worst"])
    malignant, worst = model.predict(x_test)
    ours = explained(y_test["worst"], worst)
    print(f"pyggml        accuracy {logs['malignant_accuracy']:.3f}, "
          f"AUC {roc_auc_score(truth, malignant[:, 0]):.4f}, explained {ours.mean():.4f}")
    print(f"scikit-learn  accuracy {np.mean((other['malignant'] > 0.5) == truth):.3f}, "
          f"AUC {roc_auc_score(truth, other['malignant']):.4f}, explained {theirs.mean():.4f}")
    draw(history, names, ours, theirs, arguments.output)
    print(f"plot in {arguments.output}")


if __name__ == "__main__":
    main()
