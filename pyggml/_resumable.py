"""``checkpoints.fit``: ``model.fit`` in a job that may be stopped."""

import os

from pyggml.layers.base import positive_int


def fit(model, *arrays, path, epochs, callbacks=(), keep=1, save_freq="epoch", handler=None,
        **arguments):
    """Train as ``model.fit`` does, saving as it goes on, and going on where a file is.

    Weights and history end the same as without a stop, bit for bit.

    Parameters
    ----------
    model : Sequential or Model
        Compiled, and made as in the first run: the file's weights and state are put into it.
    *arrays, **arguments
        As for :meth:`pyggml.Model.fit`, without ``initial_epoch``.
    path : str or path-like
        Of the checkpoint; where older copies or damaged files lie, the newest good one is taken.
        It stays when training has ended.
    epochs : int
        Of all runs together.
    callbacks : list of Callback
        Those with ``get_state`` and ``set_state`` go on too.
    keep : int
        As for :func:`save`.
    save_freq : "epoch" or int
        When to save: after every epoch, or after so many batches.
    handler : pyggml.hpc.PreemptionHandler, optional
        Entered. When it asks to stop, all is saved after the batch and the process exits with
        :data:`pyggml.hpc.EXIT_REQUEUE`.

    Returns
    -------
    History
        Of all epochs, those of earlier runs included.

    Raises
    ------
    ValueError
        The file belongs to another model, optimizer or list of callbacks.

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
    from pyggml._backup import Backup

    epochs = positive_int(epochs, "epochs")
    if "initial_epoch" in arguments:
        raise ValueError("initial_epoch comes from the checkpoint")
    if arguments.get("shuffle_before_split") and arguments.get("seed") is None:
        raise ValueError("shuffle_before_split needs a seed, so that every run splits alike")
    backup = Backup(os.fspath(path), save_freq, keep, False, handler)
    return model.fit(*arrays, callbacks=[*callbacks, backup], epochs=epochs, **arguments)
