"""Checkpoints: files that training goes on from as if it had never stopped.

A checkpoint is a model file (:func:`pyggml.load_model` reads it) with the rest of what the next
step depends on: moments, gradients of an unfinished accumulation window, counters, learning
rate, seeds and random streams, and the states of objects that the loop hands over.
"""

import functools
import os
from collections.abc import Mapping

from pyggml import _random, _serialize, _states
from pyggml._container import FileFormatError, write
from pyggml._engine import Engine
from pyggml._resumable import fit
from pyggml._variable import Variable, assign_checked
from pyggml.layers.base import positive_int
from pyggml.optimizers import Optimizer
from pyggml.saving import (
    Names,
    Stored,
    _broken,
    architecture,
    base_metadata,
    build,
    compile_arguments,
    dumps,
    filling,
    loads,
    open_file,
    record,
    stored_weights,
    weight_records,
)

__all__ = ["Checkpoint", "fit", "latest", "load", "save"]

_scalars = ("batch_size", "nbatch_logical", "mask", "weight_decay", "steps", "updates",
            "window_rows", "seed", "warned")


# ---- the trainer's state ------------------------------------------------------------------

def training_record(state, names, tensors, window=False):
    """Add moments, and gradients if ``window``, to a file's tensors; return the rest for JSON."""
    found = {key: state[key] for key in _scalars}
    found["optimizer"] = _serialize.serialize(state["optimizer"])
    for key in ("slots", "idle_slots"):
        found[key] = {
            name: [record(names, f"optimizer.{i}/{name}", v, tensors) for i, v in enumerate(slots)]
            for name, slots in state[key].items()}
    found["untrained"] = state["untrained"]
    found["gradients"] = {}
    if window:
        found["gradients"] = {name: record(names, f"gradient/{name}", v, tensors)
                              for name, v in state["gradients"].items()}
    else:
        found["window_rows"] = 0
    return found


def stored_training(container):
    """Return the state of a file, with Stored in place of Variables, or None."""
    saved = loads(container, "pyggml.training")
    if saved is None:
        return None
    try:
        state = {key: saved[key] for key in _scalars}
        for key in ("batch_size", "nbatch_logical", "steps", "updates", "window_rows", "seed"):
            if not isinstance(state[key], int):
                raise TypeError(f"{key} is {state[key]!r}")
        if state["mask"] not in (None, "rows", "elements"):
            raise ValueError(f"mask is {state['mask']!r}")
        state["warned"] = bool(state["warned"])
        state["weight_decay"] = float(state["weight_decay"])
        state["optimizer"] = _serialize.deserialize(saved["optimizer"], "optimizer")
        if not isinstance(state["optimizer"], Optimizer):
            raise TypeError(f"the optimizer is {state['optimizer']!r}")
        for key in ("slots", "idle_slots"):
            state[key] = {name: tuple(Stored(container, item) for item in items)
                          for name, items in saved[key].items()}
        state["gradients"] = {name: Stored(container, item)
                              for name, item in saved["gradients"].items()}
        state["untrained"] = [str(name) for name in saved["untrained"]]
    except FileFormatError:
        raise
    except _broken as error:
        raise FileFormatError(container.path,
                              f"its training state cannot be read: {error}") from error
    return state


def detach(state):
    """Give moments memory of their own instead of a file; return what to fill."""
    pairs = []
    for kind in ("slots", "idle_slots"):
        for name, slots in state[kind].items():
            own = tuple(Variable(s.shape, s.name, s.axes, trainable=False, clear=False)
                        for s in slots)
            pairs += zip(own, slots, strict=True)
            state[kind][name] = own
    state["gradients"], state["window_rows"], state["weights"] = {}, 0, None
    return pairs


def resume(trainer, state):
    """Give a trainer on a model's own weights the state that :func:`detach` left."""
    def assigning(pairs):
        return functools.partial(assign_checked, [variable for variable, _ in pairs],
                                 [source.numpy(copy=False) for _, source in pairs])

    trainer._set_state(state, assigning)


# ---- writing ------------------------------------------------------------------------------

def save(path, trainer, keep=1, objects=None, extra=None):
    """Save all that a trainer's next steps depend on.

    The file is written under another name and takes its own when it is on the disk; a process
    that is killed at any moment leaves the last good file at ``path``.

    Parameters
    ----------
    path : str or path-like
    trainer : Trainer
    keep : int
        How many files to keep: the ones before are at ``<path>.1``, ``<path>.2`` and so on.
    objects : dict of str to object, optional
        Saved with the trainer, to be handed to :meth:`Checkpoint.restore`: NumPy generators,
        and objects with ``get_state()`` and ``set_state(state)``. States are made of None,
        numbers, strings, bytes, arrays, and lists, tuples and dicts of them.
    extra : dict, optional
        The same kinds of values, read from :attr:`Checkpoint.extra`.

    Raises
    ------
    TypeError
        A state or a value that cannot be saved.
    OSError
        With the path; what was there is still there.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
    >>> model.compile(optimizer="adam", loss="mse")
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder, pyggml.Trainer(model, 8) as trainer:
    ...     path = os.path.join(folder, "run.ckpt")
    ...     loss = trainer.step(rng.normal(size=(8, 4)), rng.normal(size=(8, 1)))
    ...     trainer.save_checkpoint(path, objects={"rng": rng}, extra={"epoch": 3})
    ...     with pyggml.checkpoints.load(path) as saved:
    ...         again = saved.trainer()
    ...         saved.restore({"rng": rng})
    ...         epoch = saved.extra["epoch"]
    >>> again.n_steps, epoch
    (1, 3)
    """
    keep = positive_int(keep, "keep")
    if not isinstance(trainer, Engine):
        raise TypeError(f"trainer must be a Trainer, got {type(trainer).__name__}")
    if objects is not None and not isinstance(objects, Mapping):
        raise TypeError(f"objects must be a dict, got {type(objects).__name__}")
    model = trainer.compiled
    metadata = base_metadata("checkpoint", model)
    mode = trainer._training_mode()
    try:
        metadata |= architecture(model, mode) | {
            "pyggml.compile": dumps(compile_arguments(model, trainer._compiled_with()))}
    except TypeError as error:
        # The weights are what a long job cannot afford to lose; it can make its model itself.
        metadata["pyggml.model_error"] = f"it holds no model: {error}"

    def use(state):
        names, tensors = Names(), []
        encoder = _states.Encoder(names, tensors)
        metadata["pyggml.weights"] = dumps(
            weight_records(model, names, tensors, state["weights"], mode=mode))
        metadata["pyggml.training"] = dumps(training_record(state, names, tensors, window=True))
        metadata["pyggml.random"] = dumps(
            encoder.encode(_random.generator().bit_generator.state, "random"))
        metadata["pyggml.objects"] = dumps({
            str(name): encoder.encode(_states.get_state(item, name), f"objects/{name}")
            for name, item in (objects or {}).items()})
        metadata["pyggml.extra"] = dumps(encoder.encode(extra, "extra"))
        write(path, metadata, tensors, keep)

    trainer._get_state(use)


# ---- reading ------------------------------------------------------------------------------

class Checkpoint:
    """An open checkpoint; made by :func:`load`, closed by ``with`` or :meth:`close`.

    Parameters
    ----------
    path : str or path-like
    verify : bool
        False leaves the data unchecked until they are used, and ``extra`` unread.

    Attributes
    ----------
    path : str
    n_steps, n_updates : int
    extra : object
        What was given to :func:`save`.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import checkpoints
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> trainer = pyggml.Trainer(model, batch_size=4)
    >>> trainer.save_checkpoint("run.ckpt")
    >>> with checkpoints.load("run.ckpt") as saved:
    ...     saved.n_steps
    0
    """

    def __init__(self, path, verify=True):
        self._container = open_file(path, ("checkpoint",))
        try:
            self.path = self._container.path
            if verify:
                self._container.verify()
            training = loads(self._container, "pyggml.training")
            try:
                self.n_steps, self.n_updates = training["steps"], training["updates"]
            except (TypeError, KeyError) as error:
                self._container.fail(f"damaged: it has no training state ({error})")
            self.extra = self._decode(loads(self._container, "pyggml.extra")) if verify else None
        except BaseException:
            self._container.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Close the file. Calling it again is harmless."""
        self._container.close()

    def _decode(self, value):
        if self._container.verified is None:
            self._container.verify()
        return _states.decode(value, self._container)

    def trainer(self, model=None, custom_objects=None):
        """Return a trainer that goes on as the saved one would have.

        Parameters
        ----------
        model : Sequential or Model, optional
            Compiled as it was; its weights are neither used nor changed. By default the one in
            the file, whose weights are the trainer's own then.
        custom_objects : dict, optional
            As for :func:`pyggml.load_model`.

        Returns
        -------
        Trainer
            The global random stream, from which shuffles and initial weights are drawn, is set
            to what it was, too.

        Raises
        ------
        ValueError
            Another architecture or another optimizer than the saved one.
        FileFormatError
            The checkpoint is damaged.
        """
        from pyggml._trainer import Trainer

        container = self._container
        with _serialize.custom(custom_objects):
            state = self._state()
            own = model is None
            if own:
                model, _ = build(container, None, True)
                if model.compiled is None:
                    container.fail("its model is not compiled")
        try:
            trainer = Trainer._blank(model, state["batch_size"], state["nbatch_logical"],
                                     state["mask"], state["weight_decay"], own)
        except (ValueError, TypeError) as error:
            raise FileFormatError(container.path,
                                  f"its trainer cannot be made: {error}") from error
        try:
            self._set(trainer, state, fresh=True)
        except BaseException:
            trainer.free()
            raise
        return trainer

    def resume(self, trainer):
        """Set a trainer that exists to the saved state.

        Parameters
        ----------
        trainer : Trainer
            Of the same architecture and optimizer.

        Raises
        ------
        ValueError
            Of another one; nothing is changed then.
        """
        self._set(trainer, self._state(), fresh=False)

    def prepare(self, model):
        """Give a compiled model weights and training state, for its next ``fit``.

        Gradients of an unfinished accumulation window are left out. The global random stream is
        set to what it was.

        Parameters
        ----------
        model : Sequential or Model
            Of the saved architecture and optimizer.

        Raises
        ------
        ValueError
            Of another one. Weights and training state are unchanged then.
        """
        state = self._state() | {"gradients": {}, "window_rows": 0}
        trainer = model.make_trainer(state["batch_size"], state["nbatch_logical"], state["mask"])
        self._set(trainer, state, fresh=False)

    def random_state(self):
        """Return the saved state of the global random stream."""
        return self._decode(loads(self._container, "pyggml.random"))

    def _state(self):
        """Return the trainer's state with Stored in place of Variables."""
        state = stored_training(self._container)
        state["weights"] = {s.name: s for s in stored_weights(self._container)}
        return state

    def _set(self, trainer, state, fresh):
        generator = _random.generator()
        # Arrays in it are checked with everything else, before it is used.
        stream = _states.decode(loads(self._container, "pyggml.random"), self._container)
        try:
            _states.check_generator(generator, stream)
        except ValueError as error:
            raise FileFormatError(self.path, f"its random stream: {error}") from error
        try:
            trainer._set_state(state, lambda pairs: filling(self._container, pairs, fresh))
        except FileFormatError:
            raise
        except ValueError as error:
            raise FileFormatError(self.path, str(error)) from error
        generator.bit_generator.state = stream

    def restore(self, objects):
        """Give objects the states that they had.

        Parameters
        ----------
        objects : dict of str to object
            By the names given to :func:`save`; some of them, or all.

        Raises
        ------
        TypeError
            ``objects`` is no dict, or an object has no state.
        KeyError
            A name that was not saved; no object is changed then.
        TypeError
            ``objects`` is not a dict.
        FileFormatError
            A ``ValueError``: an object does not take its state.
        """
        if not isinstance(objects, Mapping):
            raise TypeError(f"objects must be a dict, got {type(objects).__name__}")
        saved = self._objects()
        missing = sorted(set(objects) - set(saved))
        if missing:
            raise KeyError(f"{self.path} holds no state of {missing}; it has {sorted(saved)}")
        states = {name: self._decode(saved[name]) for name in objects}
        for name, item in objects.items():
            try:
                _states.set_state(item, states[name], name)
            except ValueError as error:
                raise FileFormatError(self.path, f"the state of {name!r}: {error}") from error

    @property
    def objects(self):
        """Names of the objects that were saved."""
        return sorted(self._objects())

    def _objects(self):
        saved = loads(self._container, "pyggml.objects", {})
        return saved if isinstance(saved, dict) else self._container.fail(
            "damaged: pyggml.objects is not a dict")



def load(path):
    """Open a checkpoint and check all of it.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    Checkpoint
        To be used in a ``with`` statement.

    Raises
    ------
    OSError
        The file cannot be read.
    FileFormatError
        A ``ValueError`` with the path and the reason.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import checkpoints
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> trainer = pyggml.Trainer(model, batch_size=4)
    >>> trainer.save_checkpoint("run.ckpt")
    >>> with checkpoints.load("run.ckpt") as saved:
    ...     saved.trainer().n_steps
    0
    """
    return Checkpoint(path)


def latest(path):
    """Return the newest good checkpoint of a path and its older copies.

    Parameters
    ----------
    path : str or path-like
        As given to :func:`save`.

    Returns
    -------
    str or None
        ``path``, or ``<path>.1`` and so on where files before it are damaged; None where there
        is no file at all.

    Raises
    ------
    FileFormatError
        There are files, but none is good: starting anew would throw work away.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import checkpoints
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> trainer = pyggml.Trainer(model, batch_size=4)
    >>> trainer.save_checkpoint("run.ckpt")
    >>> checkpoints.latest("run.ckpt")
    'run.ckpt'
    """
    path = os.fspath(path)
    first = None
    number = 0
    while True:
        name = path if number == 0 else f"{path}.{number}"
        if not os.path.exists(name):
            if number:  # between two renames, path may be missing where there are no hard links
                break
        else:
            try:
                load(name).close()
            except FileFormatError as error:
                first = first or error
            else:
                return name
        number += 1
    if first is not None:
        raise first
    return None
