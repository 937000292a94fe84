"""Exact statistics for batch normalisation, from data."""

import contextlib
import warnings

import numpy as np

from pyggml._forward import Predictor
from pyggml._variable import assign_checked
from pyggml.data import Stream, is_stream
from pyggml.layers.normalization import SMALLEST_VARIANCE

# Passes over the data, where a layer feeds itself, and the change that counts as none.
_PASSES = 100
_SETTLED = 1e-6


class _Tapped:
    """A program whose outputs are what goes into one layer, at each of its uses."""

    def __init__(self, program, layer):
        self.program, self.layer = program, layer
        self.make_inputs = program.make_inputs
        self.widest = program.widest
        self.split_inputs = program.split_inputs

    def run(self, graph, tensors):
        graph.taps = {}
        self.program.run(graph, tensors)
        return graph.taps[self.layer]


class _Finder:
    """A program whose run tells which layers are tapped, in order of computation."""

    def __init__(self, program):
        self.program = program
        self.make_inputs = program.make_inputs
        self.widest = program.widest
        self.layers = []

    def run(self, graph, tensors):
        graph.taps = {}
        outputs = self.program.run(graph, tensors)
        self.layers = list(graph.taps)
        return outputs


class Moments:
    """Mean and variance of channels over batches of any size, in float64.

    Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979).
    """

    def __init__(self):
        self.n, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, x, axis):
        """Add a batch, whose channels lie along ``axis``."""
        x = np.moveaxis(np.asarray(x, np.float64), axis, -1)
        x = x.reshape(-1, x.shape[-1])
        mean = x.mean(axis=0)
        n = self.n + len(x)
        apart = mean - self.mean
        self.squares = (self.squares + ((x - mean) ** 2).sum(axis=0)
                        + apart**2 * (self.n * len(x) / n))
        self.mean = self.mean + apart * (len(x) / n)
        self.n = n

    @property
    def variance(self):
        """The biased variance."""
        return self.squares / self.n


def _any_to_set(layers, wanted):
    from pyggml.layers import BatchNormalization

    return any((isinstance(layer, BatchNormalization) and wanted(layer))
               or _any_to_set(layer.sublayers, wanted) for layer in layers)


def calibrated_layers(program, bindings=None, wanted=None):
    """Return the layers that :func:`calibrate` sets, in order of computation.

    Parameters
    ----------
    program : Program
    bindings : dict, optional
    wanted : callable, optional
        Which of the batch normalisations. By default those with ``momentum=None`` whose
        statistics are not frozen.

    Returns
    -------
    list of BatchNormalization
    """
    wanted = wanted or _only_set_by_calibration
    if not _any_to_set(program.layers, wanted):
        return []  # most networks: a graph need not be built to know
    finder = _Finder(program)
    Predictor(finder, {} if bindings is None else bindings).graph(1)
    return [layer for layer in finder.layers if wanted(layer)]


def _only_set_by_calibration(layer):
    return layer.momentum is None and not layer.freeze_stats


def gather(program, x, max_rows):
    """Return arrays as they are, and batches of a generator put together.

    Parameters
    ----------
    program : Program
    x : array_like, list or dict of them, or stream of batches
        Of a batch that is a tuple, the first item counts.
    max_rows : int
        No more batches are taken than hold so many rows.

    Raises
    ------
    ValueError
        A stream without any row.
    """
    if not is_stream(x):
        return x
    parts, rows = [], 0
    with contextlib.closing(Stream(x, "x").epoch()) as batches:
        for batch in batches:
            part = [np.asarray(value) for value in program.split_inputs(
                batch[0] if isinstance(batch, tuple) else batch)]
            if any(not value.shape for value in part):
                raise ValueError("a batch of x must have rows, got a scalar")
            parts.append(part)
            rows += len(part[0])
            if rows >= max_rows:
                break
    if rows == 0:
        raise ValueError("x has no rows")
    whole = [np.concatenate(values) for values in zip(*parts, strict=True)]
    return whole if len(whole) > 1 else whole[0]


def calibrate(program, bindings, x, max_rows=1024, batch_size=64, wanted=None):
    """Set the moving statistics of batch normalisation to those of data.

    Layer by layer in order of computation, so that each one sees what the layers before it,
    calibrated already, make of the data in evaluation mode. A layer that is used several times
    gets the statistics of all uses together. Where one use feeds another, they depend on
    themselves: passes are repeated until nothing moves any more.

    Parameters
    ----------
    program : Program
    bindings : dict of Variable to Variable
        A trainer's variables in place of the program's.
    x : array_like of shape (n, ...), or list or dict of them
    max_rows : int
        Rows beyond it are not used.
    batch_size : int
        Rows computed at once; does not change the result beyond rounding.
    wanted : callable, optional
        As for :func:`calibrated_layers`.

    Returns
    -------
    int
        How many layers were set.

    Raises
    ------
    ValueError
        No rows, shapes that do not fit, statistics that are not finite. Nothing is changed then.
    """
    values = [value if hasattr(value, "shape") else np.asarray(value)
              for value in program.split_inputs(x)]
    names = [s.node.layer.name for s in program.inputs]
    if any(not value.shape for value in values):
        raise ValueError("x must have rows, got a scalar")
    counts = [value.shape[0] for value in values]
    if len(set(counts)) > 1:
        raise ValueError(f"the inputs {names} must have the same number of rows, got {counts}")
    rows = min(counts[0], max_rows)
    if rows < 1:
        raise ValueError("x has no rows")
    layers = calibrated_layers(program, bindings, wanted)
    found = dict(bindings)
    for layer in layers:
        for v in (layer.moving_mean, layer.moving_variance):
            found[v] = bindings.get(v, v).clone()
    for _ in range(_PASSES):
        still, again = True, False
        for layer in layers:
            predictor = Predictor(_Tapped(program, layer), found)
            moments = Moments()
            for start in range(0, rows, batch_size):
                part = [np.asarray(value[start:min(start + batch_size, rows)]) for value in values]
                uses = predictor.predict(part if len(part) > 1 else part[0], batch_size)
                again = again or len(uses) > 1
                for seen in uses:
                    moments.add(seen, layer.channel_axis(seen.shape))
            if not (np.isfinite(moments.mean).all() and np.isfinite(moments.variance).all()):
                raise ValueError(f"the statistics of layer {layer.name!r} are not finite")
            still = _set(layer, found, moments) and still
        if still or not again:
            break
    else:
        warnings.warn("the batch-norm statistics of a layer that feeds itself do not settle: each "
                      f"pass over the data gives others, after {_PASSES} passes too",
                      RuntimeWarning, stacklevel=2)
    moved = [v for layer in layers for v in (layer.moving_mean, layer.moving_variance)]
    assign_checked([bindings.get(v, v) for v in moved],
                   [found[v].numpy(copy=False) for v in moved])
    return len(layers)


def _set(layer, found, moments):
    """Set the statistics of a layer; return whether that changed no more than rounding does."""
    mean, variance = found[layer.moving_mean], found[layer.moving_variance]
    before = mean.numpy(), variance.numpy()
    mean.assign(moments.mean)
    if moments.n > 1:  # one element has no variance
        variance.assign(moments.variance + SMALLEST_VARIANCE)
    scale = variance.numpy() + layer.epsilon
    return bool((np.abs(mean.numpy() - before[0]) <= _SETTLED * np.sqrt(scale)).all()
                and (np.abs(variance.numpy() - before[1]) <= _SETTLED * scale).all())
