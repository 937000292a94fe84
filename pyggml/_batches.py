"""Batches in the form that the loops of ``fit`` and ``evaluate`` take.

Each source is told by ``begin`` that an epoch begins, and ``epoch`` gives an iterator of (feed,
order, start, n): rows ``start`` to ``start + n`` of an order (None: as they lie) of the arrays
that the feed holds. Where ``keep`` is true the arrays stay as they are during the epoch.
"""

import contextlib

import numpy as np

from pyggml._arrays import shape_of
from pyggml.data import ClassWeights, pack, unpack


def mask_for(sample_weight, criterion, n_rows):
    """Return "rows", "elements" or None: how many weights there are, by their shape.

    Raises
    ------
    ValueError
        A shape that is neither one weight a row nor one an element; nothing is broadcast.
    """
    if sample_weight is None:
        return None
    masks = {"rows", "elements"}
    for given, shape in zip(criterion.split_weights(sample_weight), criterion.output_shapes,
                            strict=True):
        dims = shape_of(given, "sample_weight")
        element = (n_rows, *shape[1:])
        # Of an output of one element a row it is the same.
        fits = {"rows"} if dims in ((n_rows,), (n_rows, 1)) else set()
        if dims == element:
            fits.add("elements")
        if not fits:
            raise ValueError(f"sample_weight must have shape {(n_rows,)}, one a row, or {element}, "
                             f"one an element, got {dims}")
        masks &= fits
    if not masks:
        raise ValueError("sample_weight must be one a row, or one an element, for all outputs")
    return "rows" if "rows" in masks else "elements"


def count_rows(x):
    """Return the number of rows of the first array in x."""
    while isinstance(x, (tuple, list, dict)) and len(x):
        first = next(iter(x.values())) if isinstance(x, dict) else x[0]
        if np.ndim(first) == 0:
            break
        if isinstance(x, list) and not hasattr(first, "shape"):
            break
        if not isinstance(x, dict) and np.ndim(first) < 2 and isinstance(x, list):
            break
        x = first
    shape = np.shape(x)
    return shape[0] if shape else 0


class Resident:
    """Batches of arrays in memory or in memory maps.

    Parameters
    ----------
    feed : Feed
    size : int
        Rows of a batch; the last may have fewer.
    first, count : int
        Which rows, where ``index`` is None.
    index : numpy.ndarray of int64, optional
        Which rows instead.
    permute : callable, optional
        From epoch number and n to an order of n rows.
    steps : int, optional
        The most batches an epoch may have.
    arrays : Arrays, optional
        Whose memory maps are given back from time to time.
    """

    keep = True

    def __init__(self, feed, size, first, count, index=None, permute=None, steps=None,
                 arrays=None):
        self.feed = feed
        self.batch_size = size
        self.first = first
        self.count = count
        self.index = index
        self.permute = permute
        self.steps = steps
        self.arrays = arrays
        self.order = None
        self.start = first

    @property
    def size(self):
        """Number of batches in an epoch."""
        n = -(-self.count // self.batch_size)
        return n if self.steps is None else min(n, self.steps)

    def begin(self, epoch):
        """Draw the order of an epoch."""
        self.order, self.start = self.index, (self.first if self.index is None else 0)
        if self.permute is None:
            return
        order = self.permute(epoch, self.count)
        if self.index is not None:
            order = self.index[order]
        elif self.first:
            order += self.first
        self.order, self.start = order, 0

    def spans(self, first=0, most=None):
        """Iterate over (start, end) of whole batches from number ``first``; to be closed.

        ``most`` is the number of batches in each; by default as many as may be read without a
        look at what is mapped into memory.
        """
        size = self.batch_size
        start = self.start + first * size
        end = self.start + min(self.count, self.size * size)
        watch = None if self.arrays is None else self.arrays.watch()
        if most is None:
            most = self.size if watch is None else max(1, watch.interval // size)
        while start < end:
            stop = min(start + most * size, end)
            yield start, stop
            if watch is not None:
                watch.read(stop - start)
            start = stop
        if watch is not None:
            self.arrays.release()

    def epoch(self, first=0):
        """Iterate over the batches of one epoch from number ``first``; to be closed."""
        for start, end in self.spans(first, 1):
            yield self.feed, self.order, start, end - start

    def get_state(self):
        """Nothing: the order is drawn again."""
        return

    def set_state(self, state):
        """Take over :meth:`get_state`'s value."""

    def sample(self, max_rows):
        """Return x of up to so many rows, evenly spread."""
        n = min(max_rows, self.count)
        rows = np.arange(n, dtype=np.int64) * self.count // n
        rows = rows + self.first if self.index is None else self.index[rows]
        return pack([source.gather(rows) for source in self.feed.x])

    def end_epoch(self):
        """Nothing to tell: arrays have no hook."""


class Sliced:
    """Batches of arrays that are read slice by slice.

    Parameters
    ----------
    arrays : Arrays
    make_feed : callable
        From x, y, sample_weight of a batch to a Feed.
    size, first, count, index, permute, steps
        As for :class:`Resident`.
    workers : int
        Threads that read ahead.
    """

    keep = False

    def __init__(self, arrays, make_feed, size, first, count, index=None, permute=None,
                 steps=None, workers=0):
        self.plan = Resident(None, size, first, count, index, permute, steps)
        self.arrays = arrays
        self.make_feed = make_feed
        self.workers = workers

    @property
    def size(self):
        """Number of batches in an epoch."""
        return self.plan.size

    def begin(self, epoch):
        """Draw the order of an epoch."""
        self.plan.begin(epoch)

    def _slices(self, first):
        for _, order, start, n in self.plan.epoch(first):
            yield slice(start, start + n) if order is None else order[start:start + n]

    def epoch(self, first=0):
        """Iterate over the batches of one epoch from number ``first``; to be closed."""
        from pyggml._prefetch import Prefetcher

        tasks = (_Read(self.arrays, rows) for rows in self._slices(first))
        read = (task() for task in tasks) if not self.workers else Prefetcher(tasks, self.workers)
        with contextlib.closing(read):
            for x, y, w in read:
                feed = self.make_feed(x, y, w)
                yield feed, None, 0, feed.n_rows

    def sample(self, max_rows):
        """Return x of up to so many rows, evenly spread."""
        n = min(max_rows, self.plan.count)
        rows = np.arange(n, dtype=np.int64) * self.plan.count // n
        rows = rows + self.plan.first if self.plan.index is None else self.plan.index[rows]
        return self.arrays.read(rows)[0]

    def get_state(self):
        """Nothing: the order is drawn again."""
        return

    def set_state(self, state):
        """Take over :meth:`get_state`'s value."""

    def end_epoch(self):
        """Nothing to tell: arrays have no hook."""


class _Read:
    def __init__(self, arrays, rows):
        self.arrays = arrays
        self.rows = rows

    def __call__(self):
        return self.arrays.read(self.rows)


class Streamed:
    """Batches that a generator, a sequence or a loader makes.

    Parameters
    ----------
    stream : Stream
    make_feed : callable
        From x, y, sample_weight of a batch to a Feed.
    batch_size : int, optional
        What every batch must have.
    begun : iterator, optional
        The first epoch, where it was begun to look at its first batch.
    record : int
        Rows of x to keep for :meth:`sample`.
    """

    keep = False

    def __init__(self, stream, make_feed, batch_size=None, begun=None, record=0):
        self.stream = stream
        self.make_feed = make_feed
        self.batch_size = batch_size
        self.begun = begun
        self.record = record
        self.recorded = []
        self.number = 0

    @property
    def size(self):
        """Number of batches in an epoch, or None where nobody knows."""
        return self.stream.size

    def begin(self, epoch):
        """Remember the number of the epoch for messages."""
        self.number = epoch

    def epoch(self, first=0):
        """Iterate over the batches of one epoch from number ``first``; to be closed."""
        begun, self.begun = self.begun, None
        with contextlib.closing(self.stream.epoch(first, begun)) as batches:
            for number, batch in enumerate(batches, first + 1):
                x, y, w = unpack(batch, self.stream.name, number)
                feed = self.make_feed(x, y, w)
                n = feed.n_rows
                if self.batch_size is not None and n != self.batch_size:
                    raise ValueError(
                        f"batch {number} of epoch {self.number} from {self.stream.name} has {n} "
                        f"rows, but batch_size is {self.batch_size}; every batch must be full")
                if self.record > 0:
                    taken = np.arange(min(self.record, n), dtype=np.int64)
                    self.recorded.append([source.gather(taken) for source in feed.x])
                    self.record -= len(taken)
                yield feed, None, 0, n

    def sample(self, max_rows):
        """Return x of the rows that were recorded."""
        return pack([np.concatenate(arrays)[:max_rows]
                     for arrays in zip(*self.recorded, strict=True)])

    def get_state(self):
        """Return the state of the source, if it has one, and the rows that were recorded."""
        return {"source": self.stream.get_state(), "record": self.record,
                "recorded": self.recorded}

    def set_state(self, state):
        """Take over :meth:`get_state`'s value."""
        self.stream.set_state(state["source"])
        self.record, self.recorded = state["record"], state["recorded"]

    def end_epoch(self):
        """Tell the source that an epoch has ended."""
        self.stream.end_epoch()


class Weighting:
    """Completes batches with class weights, and with ones where weights are missing.

    Parameters
    ----------
    criterion : Criterion
    class_weight : dict, optional
    """

    def __init__(self, criterion, class_weight=None):
        self.criterion = criterion
        self.classes = (None if class_weight is None
                        else ClassWeights(class_weight, criterion))

    def apply(self, y, w):
        """Return sample weights times class weights."""
        return w if self.classes is None else self.classes.apply(y, w)

    def match(self, x, w, mask, name):
        """Return weights that fit a trainer made for ``mask``."""
        n = count_rows(x)
        found = mask_for(w, self.criterion, n)
        if found == mask:
            return w
        if w is None:
            shapes = [(n, *(shape[1:] if mask == "elements" else ()))
                      for shape in self.criterion.output_shapes]
            return pack([np.ones(shape, np.float32) for shape in shapes])
        had = {None: "none", "rows": "one weight a row", "elements": "one an element"}
        raise ValueError(f"{name} gave sample_weight with {had[found]}, but {had[mask]} before")
