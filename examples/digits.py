"""Learn to read handwritten digits.

The data are scikit-learn's 1797 real digits of 8 x 8 pixels. Prints the accuracy on digits that
training never saw, and draws the learning curve.

    python examples/digits.py [--epochs N] [--output FILE]
"""

import argparse
import time

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pyggml
from pyggml import layers


def main():
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", default="digits.png", help="file for the learning curve")
    arguments = parser.parse_args()

    pyggml.set_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    x, x_test, y, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels)

    model = pyggml.Sequential([
        pyggml.Input((64,)),
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(64, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ])
    model.compile(optimizer=pyggml.optimizers.Adam(2e-3),
                  loss=pyggml.losses.SparseCategoricalCrossentropy(label_smoothing=0.1),
                  metrics=["accuracy"])
    model.summary()

    started = time.perf_counter()
    history = model.fit(x, y, batch_size=32, epochs=arguments.epochs,
                        validation_data=(x_test, y_test))
    seconds = time.perf_counter() - started
    loss, accuracy = model.evaluate(x_test, y_test)
    print(f"trained in {seconds:.1f} s; test loss {loss:.4f}, test accuracy {accuracy:.4f}")

    matplotlib.use("Agg")  # needs no screen
    figure = history.plot()
    figure.savefig(arguments.output, dpi=150)
    print(f"learning curve in {arguments.output}")


if __name__ == "__main__":
    main()
