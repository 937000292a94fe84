"""ggml-opt itself, for graphs that you build from operations.

One to one with ggml-opt's data sets, contexts, results and loops, and what the reference
implementation offers over them: several outputs, weights, more losses, generators, callbacks.
Arguments are checked here that ggml would end the process for. Models do not need this module.
"""

import contextlib
import math
import sys
import time
import warnings

from pyggml._callback import CallbackList
from pyggml._graph import Graph, Tensor
from pyggml._opt_context import OptContext
from pyggml._opt_core import OPTIMIZERS, default_params, optimizer_name
from pyggml._opt_dataset import Dataset
from pyggml._opt_losses import LOSS_TYPES
from pyggml._opt_result import Result, check_result
from pyggml._variable import Variable
from pyggml.data import Stream, unpack
from pyggml.history import History
from pyggml.layers.base import assign_all, count, positive_int, share

__all__ = [
    "LOSS_TYPES", "OPTIMIZERS", "Dataset", "Graph", "OptContext", "Result", "Variable",
    "default_params", "epoch", "fit", "fit_multi", "fit_opt", "fit_opt_gen", "fit_opt_multi",
    "optimizer_name", "progress_bar",
]


def _check_dataset(dataset):
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be a Dataset, got {type(dataset).__name__}")


def _split_index(dataset, batch, idata_split):
    """Check an index that splits rows into training and evaluation; returns batches."""
    if dataset.ndata % batch:
        raise ValueError(f"ndata must be a multiple of the batch size, got {dataset.ndata} and "
                         f"{batch}")
    if isinstance(idata_split, bool) or not hasattr(idata_split, "__index__"):
        raise TypeError(f"idata_split must be an integer, got {idata_split!r}")
    if idata_split < 0:
        idata_split = dataset.ndata
    if idata_split > dataset.ndata or idata_split % batch:
        raise ValueError(f"idata_split must be a multiple of the batch size {batch} up to "
                         f"{dataset.ndata}, got {idata_split}")
    return idata_split // batch, dataset.ndata // batch


def epoch(opt, dataset, result_train=None, result_eval=None, idata_split=-1, callback_train=None,
          callback_eval=None):
    """Train on the front of a data set and evaluate on its back.

    Parameters
    ----------
    opt : OptContext
        With static graphs.
    dataset : Dataset
        Its number of rows is a multiple of the batch size.
    result_train, result_eval : Result, optional
        Take in what is evaluated.
    idata_split : int
        Row at which evaluation begins, a multiple of the batch size; negative for none.
    callback_train, callback_eval : callable, optional
        Called after every evaluation as ``callback(train, opt, dataset, result, ibatch,
        ibatch_max, t_start)`` with the number of evaluations done and in all, and the time
        (``time.perf_counter()``) at which they began.

    Raises
    ------
    ValueError
        Sizes that do not fit.
    TypeError
        Something else than a context, a data set or a result.
    RuntimeError
        The context has no static graphs.

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import opt, ops
    >>> graph = opt.Graph(2, training=True)
    >>> x = graph.input((2, 3))
    >>> y = ops.linear(x, opt.Variable((3, 1), "w", axes=(1, 0)))
    >>> dataset = opt.Dataset(3, 1, 4)
    >>> context, result = opt.OptContext(x, y), opt.Result()
    >>> opt.epoch(context, dataset, result)
    >>> result.ndata
    4
    """
    if not isinstance(opt, OptContext):
        raise TypeError(f"opt must be an OptContext, got {type(opt).__name__}")
    _check_dataset(dataset)
    for name, result in (("result_train", result_train), ("result_eval", result_eval)):
        check_result(result, name)
    for name, callback in (("callback_train", callback_train), ("callback_eval", callback_eval)):
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} must be callable, got {type(callback).__name__}")
    if not opt.static_graphs:
        raise RuntimeError("epoch needs a context with static graphs")
    batch = opt.batch_size
    split, n = _split_index(dataset, batch, idata_split)
    if split and opt.forward_only:
        raise RuntimeError("a context made with forward_only=True cannot train")
    if opt.opt_period > 1 and split % opt.opt_period:
        raise ValueError(f"{split} training batches are no multiple of opt_period "
                         f"{opt.opt_period}")
    for train, first, last, result, callback in (
            (True, 0, split, result_train, callback_train),
            (False, split, n, result_eval, callback_eval)):
        began = time.perf_counter()
        for i in range(first, last):
            x, y, w = dataset.get_batch(batch, i)
            (opt.step if train else opt.evaluate)(x, y, w, result)
            if callback is not None:
                callback(train, opt, dataset, result, i + 1 - first, last - first, began)


def progress_bar(train, opt, dataset, result, ibatch, ibatch_max, t_start):
    """Show on stderr how an epoch goes on: a callback for :func:`epoch`.

    Parameters
    ----------
    train : bool
    opt : OptContext
    dataset : Dataset
    result : Result
    ibatch, ibatch_max : int
        The batch done, and the last.
    t_start : float
        When the epoch began, as ``time.perf_counter()`` told.

    Examples
    --------
    >>> from pyggml import opt
    >>> callable(opt.progress_bar)
    True
    """
    now = time.perf_counter()
    if ibatch < ibatch_max and now - getattr(progress_bar, "shown", 0.0) < 0.1:
        return
    progress_bar.shown = now
    text = f"{'train' if train else 'val'}: {ibatch}/{ibatch_max}"
    if result is not None:
        loss, unc = result.loss
        accuracy, _ = result.accuracy
        text += f" loss {loss:.5g}" + ("" if math.isnan(unc) else f" +- {unc:.2g}")
        text += "" if math.isnan(accuracy) else f" accuracy {accuracy:.4f}"
    end = "\n" if ibatch == ibatch_max else "\r"
    print(f"{text} {now - t_start:.1f} s", end=end, file=sys.stderr, flush=True)


class _Optimizer:
    """What callbacks see as ``model.optimizer``."""

    def __init__(self, opt):
        self.opt = opt

    @property
    def learning_rate(self):
        return self.opt.get_lr()

    @learning_rate.setter
    def learning_rate(self, value):
        self.opt.set_lr(value)


class _Loop:
    """What callbacks see as ``model``: the weights of a graph."""

    def __init__(self, opt):
        self.opt = opt
        self.optimizer = _Optimizer(opt)
        self.stop_training = False

    def get_weights(self, copy=True):
        """Return the trainable weights."""
        return [v.numpy(copy) for v in self.opt.variables]

    def set_weights(self, weights):
        """Set the trainable weights."""
        assign_all(self.opt.variables, weights, "the graph")


def _logs(result, prefix=""):
    logs = {f"{prefix}loss": result.loss[0]}
    if result.n_loss > 1:
        logs |= {f"{prefix}loss_{i}": result.loss_i(i)[0] for i in range(result.n_loss)}
    if not math.isnan(result.accuracy[0]):
        logs[f"{prefix}accuracy"] = result.accuracy[0]
    return logs


def _batch_of(tensors):
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if not isinstance(first, Tensor):
        raise TypeError(f"inputs must be tensors of a graph, got {type(first).__name__}")
    if not first.shape:
        raise ValueError("inputs must have the batch as their first axis, got a scalar")
    return first.shape[0]


def _period(batch, nbatch_logical):
    logical = batch if nbatch_logical is None else positive_int(nbatch_logical, "nbatch_logical")
    if logical % batch:
        raise ValueError(f"nbatch_logical must be a multiple of the batch size {batch}, got "
                         f"{logical}")
    return logical


def _run_epochs(opt, nepoch, initial_epoch, steps, callbacks, silent, run):
    """Call ``run(epoch, train, val, hooks)`` for every epoch; returns the History."""
    hooks = CallbackList(callbacks)
    loop, history = _Loop(opt), History()
    hooks.attach(loop, {"epochs": initial_epoch + nepoch, "steps": steps, "metrics": [],
                        "verbose": 0 if silent else 2, "initial_epoch": initial_epoch})
    train, val = Result(), Result()
    try:
        hooks.on_train_begin()
        for number in range(initial_epoch, initial_epoch + nepoch):
            if loop.stop_training:
                break
            train.reset()
            val.reset()
            hooks.on_epoch_begin(number)
            if not run(number, train, val, hooks):
                warnings.warn(f"generator gave no batch in epoch {number}: it must start over by "
                              f"itself; training ends after {len(history.epoch)} epochs",
                              RuntimeWarning, stacklevel=4)
                break
            logs = _logs(train) | (_logs(val, "val_") if val.ndata else {})
            hooks.on_epoch_end(number, logs)
            history.append(number, logs)
            if not silent:
                text = "  ".join(f"{key} {value:.4g}" for key, value in logs.items())
                print(f"epoch {number + 1}/{initial_epoch + nepoch}  {text}", file=sys.stderr)
    except BaseException:
        hooks.end_after_error()
        raise
    hooks.on_train_end(history.last())
    return history


def _batch_done(hooks, i, result):
    if hooks.end_hooks:
        hooks.on_train_batch_end(i, _logs(result))


def fit_opt(inputs, outputs, dataset, loss_type="mse", optimizer="adamw", nepoch=1,
            nbatch_logical=None, val_split=0.0, shuffle=True, callbacks=(), silent=False,
            params=None, initial_epoch=0):
    """Fit the weights of a graph to a data set.

    Parameters
    ----------
    inputs, outputs : Tensor
        Of a graph that was built for one batch.
    dataset : Dataset
        Its rows are a multiple of ``nbatch_logical``.
    loss_type, optimizer, params
        As for :class:`OptContext`.
    nepoch : int
    nbatch_logical : int, optional
        Rows between two updates, a multiple of the batch size.
    val_split : float
        In [0, 1): share of the data set, from its end, to evaluate on.
    shuffle : bool
        Whether training rows are shuffled before every epoch. As in ggml all rows are shuffled
        once before they are split, if there is more than one logical batch.
    callbacks : list of Callback
        Their ``model`` has ``get_weights``, ``set_weights``, ``optimizer.learning_rate`` and
        ``stop_training``, which ends training after the epoch. Hooks of evaluations are not
        called.
    silent : bool
    initial_epoch : int
        Shifts the numbers that callbacks and history see.

    Returns
    -------
    History

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import opt, ops
    >>> graph = opt.Graph(2, training=True)
    >>> x = graph.input((2, 3))
    >>> y = ops.linear(x, opt.Variable((3, 1), "w", axes=(1, 0)))
    >>> dataset = opt.Dataset(3, 1, 4)
    >>> history = opt.fit_opt(x, y, dataset, nepoch=3, silent=True)
    >>> len(history.epoch)
    3
    """
    return fit_opt_multi(inputs, outputs, dataset, loss_type, None, None, optimizer, nepoch,
                         nbatch_logical, val_split, shuffle, callbacks, silent, params,
                         initial_epoch)


def fit_opt_multi(inputs, outputs, dataset, loss_types="mse", loss_weights=None,
                  label_offsets=None, optimizer="adamw", nepoch=1, nbatch_logical=None,
                  val_split=0.0, shuffle=True, callbacks=(), silent=False, params=None,
                  initial_epoch=0):
    """Fit a graph of several outputs; see :func:`fit_opt`.

    Parameters
    ----------
    outputs : list of Tensor
    loss_types : str or list of str
    loss_weights : list of float, optional
    label_offsets : list of int, optional
        First column of each output's labels in the data set.
    inputs, dataset, optimizer, nepoch, nbatch_logical, val_split, shuffle, callbacks, silent,
    params, initial_epoch
        As for :func:`fit_opt`.

    Returns
    -------
    History
        With ``loss_0``, ``loss_1`` and so on beside the total.

    Raises
    ------
    ValueError
        Lists of other lengths than the outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import opt, ops
    >>> graph = opt.Graph(2, training=True)
    >>> x = graph.input((2, 3))
    >>> y = ops.linear(x, opt.Variable((3, 1), "w", axes=(1, 0)))
    >>> dataset = opt.Dataset(3, 1, 4)
    >>> history = opt.fit_opt_multi(x, [y], dataset, nepoch=3, silent=True)
    >>> len(history.epoch)
    3
    """
    batch = _batch_of(inputs)
    _check_dataset(dataset)
    nepoch = count(nepoch, "nepoch")
    initial_epoch = count(initial_epoch, "initial_epoch")
    logical = _period(batch, nbatch_logical)
    if dataset.ndata % logical:
        raise ValueError(f"ndata must be a multiple of nbatch_logical {logical}, got "
                         f"{dataset.ndata}")
    if batch % dataset.ndata_shard:
        raise ValueError(f"the batch size {batch} must be a multiple of ndata_shard "
                         f"{dataset.ndata_shard}")
    val_split = share(val_split, "val_split")
    split = int((1 - val_split) * (dataset.ndata // logical) + 1e-9) * logical
    if split == 0:
        raise ValueError(f"val_split={val_split} leaves no logical batch to train on")
    with OptContext(inputs, outputs, loss_types, optimizer, logical // batch, params,
                    loss_weights, label_offsets) as opt:
        if shuffle and logical < dataset.ndata:
            dataset.shuffle(opt)

        def run(number, train, val, hooks):
            def done(*progress):
                i, n = progress[4:6]
                if not silent:
                    progress_bar(*progress)
                _batch_done(hooks, i - 1, train)
                if i < n:
                    hooks.on_train_batch_begin(i)

            if shuffle and logical < split:
                dataset.shuffle(opt, split)
            hooks.on_train_batch_begin(0)
            epoch(opt, dataset, train, val, split, done, None if silent else progress_bar)
            return True

        return _run_epochs(opt, nepoch, initial_epoch, split // batch, callbacks, silent, run)


def fit(inputs, outputs, dataset, loss_type="mse", optimizer="adamw", params=None, nepoch=1,
        nbatch_logical=None, val_split=0.0, silent=True):
    """Fit as ``ggml_opt_fit`` does.

    Parameters
    ----------
    params : dict or callable, optional
        A callable gets the number of the epoch, counted from 1, and returns what differs from
        :func:`default_params`; of a running context only the learning rate changes.
    inputs, outputs, dataset, loss_type, optimizer, nepoch, nbatch_logical, val_split, silent
        As for :func:`fit_opt`.

    Returns
    -------
    History

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import opt, ops
    >>> graph = opt.Graph(2, training=True)
    >>> x = graph.input((2, 3))
    >>> y = ops.linear(x, opt.Variable((3, 1), "w", axes=(1, 0)))
    >>> dataset = opt.Dataset(3, 1, 4)
    >>> history = opt.fit(x, y, dataset, nepoch=3, silent=True)
    >>> len(history.epoch)
    3
    """
    return fit_multi(inputs, outputs, dataset, loss_type, None, None, optimizer, params, nepoch,
                     nbatch_logical, val_split, silent)


def fit_multi(inputs, outputs, dataset, loss_types="mse", loss_weights=None, label_offsets=None,
              optimizer="adamw", params=None, nepoch=1, nbatch_logical=None, val_split=0.0,
              silent=True):
    """Fit several outputs as ``ggml_opt_fit`` does one; see :func:`fit`.

    Parameters
    ----------
    inputs, outputs, dataset, loss_types, loss_weights, label_offsets, optimizer, params, nepoch
        As for :func:`fit_opt_multi` and :func:`fit`.
    nbatch_logical, val_split, silent
        As for :func:`fit`.

    Returns
    -------
    History

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import opt, ops
    >>> graph = opt.Graph(2, training=True)
    >>> x = graph.input((2, 3))
    >>> y = ops.linear(x, opt.Variable((3, 1), "w", axes=(1, 0)))
    >>> dataset = opt.Dataset(3, 1, 4)
    >>> history = opt.fit_multi(x, [y], dataset, nepoch=3, silent=True)
    >>> len(history.epoch)
    3
    """
    callbacks = []
    if callable(params):
        from pyggml.callbacks import LearningRateScheduler

        rate = default_params()["learning_rate"]
        callbacks = [LearningRateScheduler(lambda e: params(e + 1).get("learning_rate", rate))]
    return fit_opt_multi(inputs, outputs, dataset, loss_types, loss_weights, label_offsets,
                         optimizer, nepoch, nbatch_logical, val_split, True, callbacks, silent,
                         params(1) if callable(params) else params)


def fit_opt_gen(inputs, outputs, generator, loss_type="mse", optimizer="adamw", nepoch=1,
                steps_per_epoch=None, nbatch_logical=None, validation_generator=None,
                validation_steps=None, callbacks=(), silent=False, params=None, initial_epoch=0,
                loss_weights=None, label_offsets=None):
    """Fit a graph to batches that a generator makes.

    Parameters
    ----------
    generator : callable, iterable or sequence
        As for :meth:`pyggml.Model.fit_generator`: ``(x, labels)`` or ``(x, labels, weights)``
        with exactly as many rows as the graph's batch; None ends an epoch.
    steps_per_epoch : int, optional
        Needed for a generator that never ends.
    validation_generator, validation_steps
        The same for evaluation.
    nbatch_logical : int, optional
        An epoch has to end with a whole one.
    initial_epoch : int
        Shifts the numbers; it does not restore optimizer state.
    inputs, outputs, loss_type, optimizer, nepoch, callbacks, silent, params, loss_weights,
    label_offsets
        As for :func:`fit_opt_multi`.

    Returns
    -------
    History
        Of the epochs that had data.

    Examples
    --------
    >>> import numpy as np
    >>> from pyggml import opt, ops
    >>> graph = opt.Graph(2, training=True)
    >>> x = graph.input((2, 3))
    >>> y = ops.linear(x, opt.Variable((3, 1), "w", axes=(1, 0)))
    >>> history = opt.fit_opt_gen(x, y, lambda: (np.ones((2, 3)), np.ones((2, 1))),
    ...                            nepoch=2, steps_per_epoch=3, silent=True)
    >>> len(history.epoch)
    2
    """
    batch = _batch_of(inputs)
    nepoch = count(nepoch, "nepoch")
    initial_epoch = count(initial_epoch, "initial_epoch")
    logical = _period(batch, nbatch_logical)
    for name, value in (("steps_per_epoch", steps_per_epoch),
                        ("validation_steps", validation_steps)):
        if value is not None:
            positive_int(value, name)
    stream = Stream(generator, "generator", steps_per_epoch)
    validation = None
    if validation_generator is not None:
        validation = Stream(validation_generator, "validation_generator", validation_steps)
    with OptContext(inputs, outputs, loss_type, optimizer, logical // batch, params,
                    loss_weights, label_offsets) as opt:

        def batches(source):
            with contextlib.closing(source.epoch()) as given:
                for i, batch in enumerate(given):
                    yield i, unpack(batch, source.name, i + 1)
            source.end_epoch()

        def run(number, train, val, hooks):
            n = 0
            for i, (x, y, w) in batches(stream):
                hooks.on_train_batch_begin(i)
                opt.step(x, y, w, train)
                _batch_done(hooks, i, train)
                n = i + 1
            if n == 0 and number == initial_epoch:
                raise ValueError("generator ended before its first batch: there are no rows to "
                                 "train on")
            if n % opt.opt_period:
                raise ValueError(f"the epoch ended after {n} batches, which is no multiple of the "
                                 f"{opt.opt_period} of nbatch_logical")
            if n and steps_per_epoch is not None and n < steps_per_epoch:
                warnings.warn(f"generator gave {n} batches in epoch {number}, but steps_per_epoch "
                              f"is {steps_per_epoch}", RuntimeWarning, stacklevel=4)
            if n and validation is not None:
                for _, (x, y, w) in batches(validation):
                    opt.evaluate(x, y, w, val)
                if val.ndata == 0:
                    warnings.warn("validation_generator gave no batch: it must start over by "
                                  "itself", RuntimeWarning, stacklevel=4)
            return n > 0

        return _run_epochs(opt, nepoch, initial_epoch, stream.size, callbacks, silent, run)
