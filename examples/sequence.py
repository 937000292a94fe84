"""Model real text, character by character, with a recurrent layer and attention.

The text is the reference documentation that ships with Python itself (``pydoc_data.topics``).
The network sees a window of characters and gives, at each place, the probabilities of the next
one; what it learned is measured as perplexity, the exponential of the cross-entropy, on topics
that training never saw. Beside it stand what counting alone achieves: characters (unigram),
pairs (bigram) and triples (trigram). Then it writes some text of its own.

    python examples/sequence.py [--epochs N] [--output FILE]
"""

import argparse
import math
import time
from pydoc_data.topics import topics

import matplotlib
import numpy as np

import pyggml
from pyggml import layers, schedules

WINDOW = 96
BATCH = 32


def read():
    """Return the text of training and of testing as indices, and the characters they stand for."""
    names = sorted(topics)
    test = set(names[::10])
    parts = ["\n".join(topics[n] for n in names if (n in test) == held) for held in (False, True)]
    common = sorted(c for c in set(parts[0]) if parts[0].count(c) >= 20)
    characters = [*common, "\N{WHITE SQUARE}"]
    place = {c: i for i, c in enumerate(characters)}
    rare = len(characters) - 1
    return *(np.array([place.get(c, rare) for c in part], np.int32) for part in parts), characters


def counted_perplexity(train, test, n, k):
    """Perplexity of counting what follows n - 1 characters of k, mixed with shorter contexts.

    Witten and Bell's interpolation ("The zero-frequency problem", 1991).
    """
    p = np.full(len(test), 1 / k)
    for length in range(1, n + 1):
        table = np.zeros(k**length)
        powers = k ** np.arange(length)[::-1]
        grams = np.lib.stride_tricks.sliding_window_view
        np.add.at(table, grams(train, length) @ powers, 1.0)
        table = table.reshape(-1, k)
        total, kinds = table.sum(axis=1), (table > 0).sum(axis=1)
        code = grams(test, length) @ powers
        context, follows = code // k, code % k
        weight = total[context] / np.maximum(total[context] + kinds[context], 1)
        seen = table[context, follows] / np.maximum(total[context], 1)
        # The first characters have no context of this length: they keep the shorter one's.
        p[length - 1:] = weight * seen + (1 - weight) * p[length - 1:]
    return math.exp(-np.mean(np.log(p)))


def network(k):
    """Return the network: windows of indices to probabilities of the character that follows."""
    text = pyggml.Input((WINDOW,), dtype="int32")
    x = layers.Embedding(k, 48)(text)
    x = layers.GRU(160, return_sequences=True)(x)
    seen = layers.MultiHeadAttention(4, 24, dropout=0.1)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(layers.Add()([x, seen]))
    x = layers.Dense(160, activation="relu")(x)
    return pyggml.Model(text, layers.Dense(k, activation="softmax")(x), name="characters")


def windows(text):
    """Return all whole windows, one after the other, and what follows each of their places."""
    n = (len(text) - 1) // WINDOW
    return (text[:n * WINDOW].reshape(n, WINDOW), text[1:n * WINDOW + 1].reshape(n, WINDOW))


def shifted(text, rng):
    """Yield the batches of one epoch, whose windows begin elsewhere every time."""
    x, y = windows(text[rng.integers(WINDOW):])
    order = rng.permutation(len(x))
    for i in range(len(x) // BATCH):
        rows = order[i * BATCH:(i + 1) * BATCH]
        yield x[rows], y[rows]


class Epochs:
    """Batches for any number of epochs."""

    def __init__(self, text, seed):
        self.text, self.rng = text, np.random.default_rng(seed)

    def __iter__(self):
        return shifted(self.text, self.rng)


def write(model, characters, start, length, temperature, rng):
    """Let the network continue a text, drawing each character from its probabilities."""
    place = {c: i for i, c in enumerate(characters)}
    text = [place[c] for c in start]
    for _ in range(length):
        window = text[-WINDOW:]
        at = len(window) - 1
        padded = np.array([window + [0] * (WINDOW - len(window))], np.int32)
        p = model.predict(padded)[0, at].astype(np.float64) ** (1 / temperature)
        p[-1] = 0  # what stands for rare characters
        text.append(int(rng.choice(len(p), p=p / p.sum())))
    return "".join(characters[i] for i in text)


def draw(history, counted, path):
    matplotlib.use("Agg")  # needs no screen
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
    epochs = np.arange(1, len(history.epoch) + 1)
    ax.plot(epochs, np.exp(history.history["loss"]), marker="o", markersize=3, label="training")
    ax.plot(epochs, np.exp(history.history["val_loss"]), marker="o", markersize=3, label="test")
    for name, value in counted.items():
        ax.axhline(value, color="0.6", linewidth=0.8, linestyle="--")
        ax.annotate(name, (1, value), (0, 2), textcoords="offset points", color="0.4", fontsize=8,
                    xycoords=("axes fraction", "data"), ha="right")
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ticks = [3, 4, 6, 8, 12, 16, 24]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.set_xlabel("epoch")
    ax.set_ylabel("perplexity per character")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=2, loc="center", bbox_to_anchor=(0.55, 0.59))
    figure.savefig(path, dpi=200)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--characters", type=int, default=None,
                        help="how many to train on (default: all)")
    parser.add_argument("--output", default="sequence.png", help="file for the plot")
    arguments = parser.parse_args()

    pyggml.set_seed(0)
    train, test, characters = read()
    train = train[:arguments.characters]
    k = len(characters)
    print(f"{len(train):,} characters to train on, {len(test):,} to test, {k} different ones")
    names = ("unigram", "bigram", "trigram")
    counted = {name: counted_perplexity(train, test, n, k) for n, name in enumerate(names, 1)}
    for name, value in counted.items():
        print(f"{name:8} perplexity {value:6.2f}")

    model = network(k)
    model.compile(optimizer=pyggml.optimizers.Adam(4e-3, global_clipnorm=1.0),
                  loss="sparse_categorical_crossentropy")
    model.summary()
    started = time.perf_counter()
    history = model.fit_generator(
        Epochs(train, seed=0), batch_size=BATCH, epochs=arguments.epochs, verbose=2,
        validation_generator=[windows(test)], callbacks=[schedules.CosineDecay()])
    seconds = time.perf_counter() - started
    perplexity = np.exp(history.history["val_loss"])
    print(f"network  perplexity {perplexity[-1]:6.2f} after {seconds:.0f} s, "
          f"{perplexity[0]:.2f} after the first epoch")
    draw(history, counted, arguments.output)
    print(f"plot in {arguments.output}\n")
    rng = np.random.default_rng(0)
    print(write(model, characters, "The statement ", 400, 0.6, rng))


if __name__ == "__main__":
    main()
