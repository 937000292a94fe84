"""What every random program begins with; a failing one is written out with it as a script."""

import copy  # noqa: F401
import faulthandler
import gc  # noqa: F401
import itertools  # noqa: F401
import os
import pickle
import tempfile
import threading
import warnings

import numpy as np

import pyggml
from pyggml import (  # noqa: F401
    callbacks,
    checkpoints,
    data,
    hpc,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    opt,
    optimizers,
    regularizers,
    schedules,
)


class Boom(Exception):
    """What callbacks and arrays of the program raise on purpose."""


# What the documentation promises for mistakes, and what programs raise themselves; pickle's own
# for functions without a name.
EXPECTED = (ValueError, TypeError, RuntimeError, MemoryError, IndexError, OSError, Boom,
            pickle.PicklingError)

folder = tempfile.mkdtemp(prefix="pyggml-fuzz-")
faulthandler.enable()
warnings.simplefilter("ignore")


def attempt(code):
    """Run one statement of the program; True if it went through."""
    try:
        exec(code, globals())
    except EXPECTED:
        return False
    return True


def pickled(item):
    try:
        return pickle.loads(pickle.dumps(item))
    except AttributeError as error:  # Python's, until 3.13, for functions inside functions
        if "local object" in str(error):
            raise pickle.PicklingError(str(error)) from error
        raise


def path(name):
    return os.path.join(folder, name)


def arr(seed, shape, dtype="float32", layout="c", low=None, high=None):
    """An array of a shape in some type and memory layout, always the same for a seed."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=shape) if high is None else rng.integers(low, high, shape)
    with np.errstate(all="ignore"):
        value = np.asarray(value).astype(dtype)
    if layout == "f":
        return np.asfortranarray(value)
    if layout == "strided" and value.ndim:
        wide = np.zeros((*value.shape[:-1], 3 * value.shape[-1]), value.dtype)
        wide[..., ::3] = value
        return wide[..., ::3]
    if layout == "reversed" and value.ndim:
        return value[::-1].copy()[::-1]
    if layout == "transposed":
        return value.T.copy().T
    if layout == "broadcast" and value.ndim:
        return np.broadcast_to(value[:1], value.shape)
    if layout == "readonly":
        value.flags.writeable = False
    if layout == "swapped":
        return value.astype(value.dtype.newbyteorder())
    if layout == "unaligned" and value.ndim:
        raw = np.zeros(value.nbytes + 1, np.uint8)
        view = raw[1:1 + value.nbytes].view(value.dtype).reshape(value.shape)
        view[...] = value
        return view
    if layout == "list":
        return value.tolist()
    if layout == "memmap" and value.size:
        name = path(f"{seed}.bin")
        value.tofile(name)
        return np.memmap(name, value.dtype, "r", shape=value.shape)
    if layout == "subclass":
        return value.view(type("Sub", (np.ndarray,), {}))
    if layout == "nan" and value.dtype.kind == "f" and value.size:
        value.flat[seed % value.size] = np.nan
    if layout == "huge" and value.dtype.kind == "f":
        value = value * np.finfo(value.dtype).max
    return value


class Scale(layers.Layer):
    """A layer of the user's, with a weight of its own."""

    def build(self, input_shape):
        self.factor = self.add_weight("factor", (input_shape[-1],), "ones", regularizer="l2")

    def call(self, x, training=False):
        return ops.multiply(x, self.factor)


class Batches:
    """A sequence of batches with a hook at the end of each epoch and a place that is kept."""

    def __init__(self, batches, hook=None):
        self.batches = batches
        self.hook = hook
        self.epochs = 0

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, i):
        return self.batches[i]

    def on_epoch_end(self):
        self.epochs += 1
        if self.hook is not None:
            exec(self.hook, globals())

    def get_state(self):
        return {"epochs": self.epochs}

    def set_state(self, state):
        self.epochs = state["epochs"]


class Evil:
    """Something like an array that does other things while it is converted."""

    def __init__(self, value, action):
        self.value = value
        self.action = action
        self.shape = np.shape(value)

    def __array__(self, dtype=None, copy=None):  # noqa: F811
        attempt(self.action)
        return np.asarray(self.value, dtype)


def harmless(value, action):
    """What stands for an Evil where results are compared."""
    return value


class Meddler(callbacks.Callback):
    """Runs a statement at one moment of training."""

    def __init__(self, when, code):
        super().__init__()
        self.when = when
        self.code = code

    def _do(self, when):
        if when == self.when:
            exec(self.code, globals())

    def on_train_begin(self, logs=None):
        self._do("train_begin")

    def on_epoch_end(self, epoch, logs=None):
        self._do("epoch_end")

    def on_train_batch_end(self, batch, logs=None):
        self._do("batch_end")

    def on_train_batch_begin(self, batch, logs=None):
        self._do("batch_begin")

    def on_epoch_begin(self, epoch, logs=None):
        self._do("epoch_begin")

    def on_test_begin(self, logs=None):
        self._do("test_begin")

    def on_predict_batch_end(self, batch, logs=None):
        self._do("predict")

    def on_train_end(self, logs=None):
        self._do("train_end")


def same(a, b):
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def refused_unchanged(trainer, code):
    """Run code; if it was refused before it began, the trainer is as it was."""
    try:
        before = trainer.get_weights(), trainer.n_steps, trainer.n_updates
    except RuntimeError:  # it was freed
        attempt(code)
        return
    try:
        exec(code, globals())
    except (ValueError, TypeError, IndexError):
        try:
            after = trainer.get_weights(), trainer.n_steps, trainer.n_updates
        except RuntimeError:
            return
        assert after[1:] == before[1:], (before[1:], after[1:])
        assert same(before[0], after[0]), "weights were changed by a call that was refused"
        raise


def nothing_moves(model, code):
    """Run code that only looks; weights stay, bit for bit."""
    before = model.get_weights()
    try:
        exec(code, globals())
    finally:
        assert same(before, model.get_weights()), "weights were moved by looking"


def frozen_stay(model, code):
    """Run code that trains; what is frozen, or the model where it was refused, stays."""
    frozen = [v for v in model.weight_names if v not in model.trainable_weights
              and "moving" not in v.name]
    kept = [v.numpy() for v in frozen]
    before = model.get_weights()
    try:
        exec(code, globals())
    except (ValueError, TypeError):
        # What callbacks and metrics of the program raise comes after steps.
        made = []
        if model.compiled is not None and model.compiled.criterion is not None:
            made = model.compiled.make_metrics()
        if "callbacks" not in code and not any(
                isinstance(metric, metrics.FunctionMetric) for _, _, metric in made):
            assert same(before, model.get_weights()), "a call that was refused moved weights"
        raise
    finally:
        assert same(kept, [v.numpy() for v in frozen]), "frozen weights were moved"


def deterministic(thing, x):
    """Two predictions agree bit for bit, own their memory and are float32."""
    a, b = thing.predict(x), thing.predict(x)
    for p, q in zip(a if isinstance(a, list) else [a], b if isinstance(b, list) else [b],
                    strict=True):
        assert p.dtype == np.float32 and p.flags.owndata and p.flags.writeable
        assert p.tobytes() == q.tobytes(), "two predictions differ"


def round_trip(model, x):
    """What is saved and loaded predicts the same."""
    model.save(path("model"))
    other = pyggml.load_model(path("model"))
    for p, q in zip(np.atleast_1d(*[model.predict(x)]), np.atleast_1d(*[other.predict(x)]),
                    strict=True):
        assert np.asarray(p).tobytes() == np.asarray(q).tobytes(), "a loaded model differs"


def at_once(*codes):
    """Run statements in threads of their own at the same time."""
    found = []

    def run(code):
        try:
            attempt(code)
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(code,)) for code in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if found:
        raise found[0]
