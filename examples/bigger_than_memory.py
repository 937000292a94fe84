"""Train on a file that is larger than the memory the process uses.

Handwritten digits (scikit-learn's, 8 x 8 pixels) are shifted, scaled and blurred at random into a
file of any size; fit then reads it through a memory map, in a new random order every epoch. What
is read is given back to the system as training goes on, so that memory does not grow with the
file.

    python examples/bigger_than_memory.py --gigabytes 2
"""

import argparse
import os
import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pyggml
from pyggml import layers

SIDE = 24


def write(path, images, labels, rows, rng):
    """Write so many rows of varied images into a file, a block at a time; returns labels."""
    chosen = rng.integers(0, len(images), rows)
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, SIDE * SIDE)}
    with open(path, "wb") as f:
        np.lib.format.write_array_header_1_0(f, header)
        for start in range(0, rows, 4096):
            vary(images[chosen[start:start + 4096]], rng).astype("<f4").tofile(f)
    return labels[chosen]


def vary(images, rng):
    """Return larger images with the digits doubled in size, shifted, and in other contrast."""
    n = len(images)
    large = images.reshape(n, 8, 8).repeat(2, axis=1).repeat(2, axis=2)
    canvas = np.zeros((n, SIDE, SIDE), np.float32)
    down, right = rng.integers(0, SIDE - 15, (2, n))
    rows = down[:, None, None] + np.arange(16)[None, :, None]
    columns = right[:, None, None] + np.arange(16)[None, None, :]
    canvas[np.arange(n)[:, None, None], rows, columns] = large
    return (canvas * rng.uniform(0.5, 1.5, (n, 1, 1))).reshape(n, -1).astype(np.float32)


def peak_memory():
    """Return the most memory that the process had, in MB, or None where it is not known."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", default=None, help="where the file lies while this runs")
    arguments = parser.parse_args()

    pyggml.set_seed(0)
    rng = np.random.default_rng(0)
    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, digits.target, test_size=0.25, random_state=0)
    rows = max(4096, int(arguments.gigabytes * 2**30 / (4 * SIDE * SIDE)))

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = os.path.join(folder, "digits.npy")
        y = write(path, train_images, train_labels, rows, rng)
        print(f"{rows:,} rows, {os.path.getsize(path) / 2**30:.2f} GB")
        before = peak_memory()
        x = np.load(path, mmap_mode="r")
        model = pyggml.Sequential([
            pyggml.Input((SIDE * SIDE,)),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x, y, batch_size=128, epochs=arguments.epochs)
        loss, accuracy = model.evaluate(vary(test_images, rng), test_labels)
        print(f"digits never seen: loss {loss:.3f}, accuracy {accuracy:.3f}")
        if before is not None:
            print(f"memory: {before:.0f} MB before training, at most {peak_memory():.0f} MB")
        del x  # some systems cannot remove a file that is mapped


if __name__ == "__main__":
    main()
