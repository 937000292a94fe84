"""Read handwritten digits with a small residual network.

The data are scikit-learn's 1797 real digits of 8 x 8 pixels. The network is a ResNet (He et al.,
"Deep residual learning for image recognition", 2016) of three blocks with batch norm; its batches
are shifted and changed in contrast at random while it trains. Prints the accuracy on digits that
training never saw; draws the learning curves and the digits that are hardest for it.

    python examples/cnn_digits.py [--epochs N] [--output FILE]
"""

import argparse
import time

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pyggml
from pyggml import layers, schedules

BATCH = 32


def block(x, filters, strides=1):
    """Two convolutions beside a way around them."""
    y = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(x)
    y = layers.BatchNormalization(momentum=0.9)(y)
    y = layers.Activation("relu")(y)
    y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
    # Starting at 0, a block changes nothing at first.
    y = layers.BatchNormalization(momentum=0.9, gamma_initializer="zeros")(y)
    if strides != 1 or x.shape[1] != filters:
        x = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.Activation("relu")(layers.Add()([x, y]))


def network():
    """Return the network: images (1, 8, 8) to probabilities of 10 digits."""
    image = pyggml.Input((1, 8, 8))
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(image)
    x = layers.BatchNormalization(momentum=0.9)(x)
    x = layers.Activation("relu")(x)
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        x = block(x, filters, strides)
    x = layers.GlobalAveragePooling2D()(x)
    return pyggml.Model(image, layers.Dense(10, activation="softmax")(x), name="resnet")


class Varied:
    """Batches of one epoch, the images a little different every time."""

    def __init__(self, images, labels, seed):
        self.images, self.labels = images, labels
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.images) // BATCH

    def __iter__(self):
        order = self.rng.permutation(len(self.images))
        for i in range(len(self)):
            rows = order[i * BATCH:(i + 1) * BATCH]
            yield self.vary(self.images[rows]), self.labels[rows]

    def vary(self, images):
        """Shift by up to a pixel each way, and change the contrast."""
        n = len(images)
        padded = np.pad(images[:, 0], ((0, 0), (1, 1), (1, 1)))
        down, right = self.rng.choice(3, (2, n), p=(0.15, 0.7, 0.15))
        rows = down[:, None, None] + np.arange(8)[None, :, None]
        columns = right[:, None, None] + np.arange(8)[None, None, :]
        shifted = padded[np.arange(n)[:, None, None], rows, columns]
        return (shifted * self.rng.uniform(0.8, 1.2, (n, 1, 1)))[:, None]


def draw(history, images, truth, probabilities, path):
    """Learning curves beside the digits that the network is least sure of."""
    matplotlib.use("Agg")  # needs no screen
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(7.5, 2.6), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.15, 1.15, 1))
    epochs = np.arange(1, len(history.epoch) + 1)
    log = {k: np.array(v) for k, v in history.history.items()}
    ax = left.subplots()
    ax.plot(epochs, log["loss"], label="training, varied")
    ax.plot(epochs, log["val_loss"], label="test")
    ax.set_yscale("log")
    ax.set_ylabel("cross-entropy")
    ax.legend(frameon=False, fontsize=9)
    other = middle.subplots()
    other.plot(epochs, 100 * (1 - log["accuracy"]))
    other.plot(epochs, 100 * (1 - log["val_accuracy"]))
    other.set_yscale("symlog", linthresh=1)
    other.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    other.set_ylabel("misread digits (%)")
    for place in (ax, other):
        place.set_xlabel("epoch")
        place.spines[["top", "right"]].set_visible(False)

    found = probabilities.argmax(axis=1)
    certain = probabilities[np.arange(len(truth)), truth]
    right.suptitle(f"hardest of {len(truth)} test digits", fontsize=10)
    for ax, i in zip(right.subplots(2, 3).flat, np.argsort(certain)[:6], strict=True):
        ax.imshow(images[i, 0], cmap="gray_r")
        ax.axis("off")
        ax.set_title(f"{truth[i]} read as {found[i]}", fontsize=7, pad=2,
                     color="C3" if found[i] != truth[i] else "black")
    figure.savefig(path, dpi=200)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output", default="cnn_digits.png", help="file for the plot")
    arguments = parser.parse_args()

    pyggml.set_seed(0)
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    x, x_test, y, y_test = train_test_split(
        images, digits.target, test_size=0.2, random_state=0, stratify=digits.target)

    model = network()
    model.compile(optimizer=pyggml.optimizers.AdamW(5e-3, weight_decay=0.05, decay_biases=False),
                  loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.summary()

    started = time.perf_counter()
    history = model.fit_generator(
        Varied(x, y, seed=0), batch_size=BATCH, epochs=arguments.epochs, workers=1,
        validation_generator=[(x_test, y_test)], verbose=2,
        callbacks=[schedules.CosineDecay()])
    seconds = time.perf_counter() - started
    probabilities = model.predict(x_test)
    accuracy = np.mean(probabilities.argmax(axis=1) == y_test)
    print(f"trained in {seconds:.1f} s; test accuracy {accuracy:.4f}")
    draw(history, x_test, y_test, probabilities, arguments.output)
    print(f"plot in {arguments.output}")


if __name__ == "__main__":
    main()
