"""Augment images while training: a generator makes every batch anew.

Handwritten digits (scikit-learn's) are shifted by a pixel and changed in contrast at random, in a
thread of its own ahead of the training step. The same network without it is trained for
comparison.

    python examples/generator_augmentation.py
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pyggml
from pyggml import layers, schedules


class Augmented:
    """Batches of images that are a little different every time: iterates over one epoch."""

    def __init__(self, images, labels, batch_size, seed):
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.images) // self.batch_size

    def __iter__(self):
        order = self.rng.permutation(len(self.images))
        for i in range(len(self)):
            rows = order[i * self.batch_size:(i + 1) * self.batch_size]
            yield self.vary(self.images[rows]), self.labels[rows]

    def vary(self, images):
        """Shift every third image by a pixel, and change contrast and every pixel a little."""
        n = len(images)
        padded = np.pad(images.reshape(n, 8, 8), ((0, 0), (1, 1), (1, 1)))
        down, right = 1 + self.rng.choice([-1, 0, 0, 0, 0, 0, 0, 1], (2, n))
        rows = down[:, None, None] + np.arange(8)[None, :, None]
        columns = right[:, None, None] + np.arange(8)[None, None, :]
        shifted = padded[np.arange(n)[:, None, None], rows, columns]
        shifted = shifted * self.rng.uniform(0.8, 1.2, (n, 1, 1))
        return (shifted + self.rng.normal(0, 0.1, shifted.shape)).reshape(n, -1)


def network():
    """Return a compiled network, the same one at every call."""
    pyggml.set_seed(0)
    model = pyggml.Sequential([
        pyggml.Input((64,)),
        layers.Dense(128, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rows", type=int, default=200, help="images to train on")
    arguments = parser.parse_args()

    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    x_train, x_test, y_train, y_test = train_test_split(
        x, digits.target, train_size=arguments.rows, random_state=0, stratify=digits.target)

    plain, augmented = network(), network()
    plain.fit(x_train, y_train, batch_size=32, epochs=arguments.epochs, verbose=0,
              callbacks=[schedules.CosineDecay()])
    history = augmented.fit_generator(
        Augmented(x_train, y_train, 32, seed=0), batch_size=32, epochs=arguments.epochs,
        workers=1, verbose=0, callbacks=[schedules.CosineDecay()])
    for name, model in (("as they are", plain), ("augmented", augmented)):
        loss, accuracy = model.evaluate(x_test, y_test)
        print(f"{name:12}  loss {loss:.3f}  accuracy {accuracy:.3f}")
    print(f"{len(history.epoch)} epochs of {len(x_train) // 32} batches")


if __name__ == "__main__":
    main()
