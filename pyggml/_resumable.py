"""``checkpoints.fit``: ``model.fit`` in a job that may be stopped."""

import os

from pyggml import _random, _states
from pyggml.hpc import EXIT_REQUEUE
from pyggml.layers.base import positive_int


def fit(model, *arrays, path, epochs, callbacks=(), keep=1, handler=None, **arguments):
    """Train as ``model.fit`` does, saving after every epoch and going on where a file is.

    An epoch that was interrupted is repeated from its beginning, with the same shuffle and the
    same dropout masks, so that weights and history end the same as without a stop.

    Parameters
    ----------
    model : Sequential or Model
        Compiled, and made as in the first run: the file's weights and state are put into it.
    *arrays, **arguments
        As for :meth:`pyggml.Model.fit`, without ``initial_epoch``.
    path : str or path-like
        Of the checkpoint; where older copies or damaged files lie, the newest good one is taken.
    epochs : int
        Of all runs together.
    callbacks : list of Callback
        Those with ``get_state`` and ``set_state`` go on too.
    keep : int
        As for :func:`save`.
    handler : pyggml.hpc.PreemptionHandler, optional
        Entered. When it asks to stop, the process exits with :data:`pyggml.hpc.EXIT_REQUEUE`
        after the batch; the last finished epoch is on the disk already.

    Returns
    -------
    History
        Of all epochs, those of earlier runs included.

    Raises
    ------
    ValueError
        The file belongs to another model, optimizer or number of callbacks.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> from pyggml import checkpoints
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> x, y = np.ones((8, 2)), np.ones(8)
    >>> history = checkpoints.fit(model, x, y, path="fit.ckpt", epochs=2, verbose=0)
    >>> history = checkpoints.fit(model, x, y, path="fit.ckpt", epochs=5, verbose=0)
    >>> history.epoch
    [0, 1, 2, 3, 4]
    """
    from pyggml import checkpoints
    from pyggml.callbacks import LambdaCallback

    epochs = positive_int(epochs, "epochs")
    if "initial_epoch" in arguments:
        raise ValueError("initial_epoch comes from the checkpoint")
    if arguments.get("shuffle_before_split") and arguments.get("seed") is None:
        raise ValueError("shuffle_before_split needs a seed, so that every run splits alike")
    model.require_compiled()
    callbacks = list(callbacks)
    objects = {f"{i}_{type(c).__name__}": c for i, c in enumerate(callbacks)
               if hasattr(c, "get_state") and hasattr(c, "set_state")}
    past = {"epoch": [], "logs": [], "stopped": False}
    stream = None
    found = checkpoints.latest(os.fspath(path))
    if found is not None:
        with checkpoints.load(found) as saved:
            if not isinstance(saved.extra, dict) or "fit" not in saved.extra:
                raise ValueError(f"{found}: was not saved by checkpoints.fit")
            if saved.objects != sorted(objects):
                raise ValueError(f"{found}: holds states of the callbacks {saved.objects}, but "
                                 f"{sorted(objects)} were given")
            past = saved.extra["fit"]
            saved.prepare(model)
            saved.restore(objects)
            stream = saved.random_state()

    def begin(logs=None):
        # Not before: what fit draws while it sets up is no part of an epoch.
        if stream is not None:
            _states.set_generator(_random.generator(), stream)

    def after_batch(batch, logs=None):
        if handler is not None and handler.requested:
            raise SystemExit(EXIT_REQUEUE)

    def after_epoch(epoch, logs=None):
        past["epoch"].append(epoch)
        past["logs"].append(dict(logs or {}))
        past["stopped"] = bool(getattr(model, "stop_training", False))
        checkpoints.save(path, model.compiled.trainer, keep=keep, objects=objects,
                         extra={"fit": past})
        if epoch + 1 < epochs and not past["stopped"]:
            after_batch(None)

    hooks = LambdaCallback(on_train_begin=begin, on_train_batch_end=after_batch,
                           on_epoch_end=after_epoch)
    done = len(past["epoch"])
    earlier = list(zip(past["epoch"], past["logs"], strict=True))
    history = model.fit(*arrays, callbacks=[*callbacks, hooks], initial_epoch=done,
                        epochs=0 if past["stopped"] else max(0, epochs - done), **arguments)
    later = list(zip(history.epoch, [{key: values[i] for key, values in history.history.items()}
                                     for i in range(len(history.epoch))], strict=True))
    history.epoch, history.history = [], {}
    for epoch, logs in earlier + later:
        history.append(epoch, logs)
    return history
