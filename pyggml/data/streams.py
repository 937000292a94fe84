"""Batches that somebody else makes."""

import functools
import inspect
import warnings

import numpy as np

from pyggml._prefetch import Prefetcher


def is_stream(value):
    """Return whether a value hands out batches, in contrast to being an array.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> from pyggml import data
    >>> data.is_stream(np.zeros(3)), data.is_stream(iter([]))
    (False, True)
    """
    if value is None or isinstance(value, (np.ndarray, list, tuple, dict, str, bytes)):
        return False
    if hasattr(value, "shape") or hasattr(value, "to_numpy"):
        return False
    return (hasattr(value, "__next__") or callable(value) or hasattr(value, "__iter__")
            or (hasattr(value, "__getitem__") and hasattr(value, "__len__")))


class Stream:
    """Batches from a callable, an iterable, an iterator, a sequence of batches or a DataLoader.

    Parameters
    ----------
    source : object
        A callable without arguments that returns a batch, or None at the end of an epoch (a
        generator function is called anew every epoch); an object with ``__len__`` and
        ``__getitem__``; an iterable, which starts anew every epoch; or an iterator, which goes on
        where the epoch before stopped.
    name : str
        For messages.
    steps : int, optional
        Batches of an epoch.
    workers : int
        Threads that prepare batches ahead; 0 for none. Items of a sequence are prepared in
        parallel, everything else in order by one at a time.

    Raises
    ------
    TypeError
        None of these.

    Examples
    --------
    >>> from pyggml import data
    >>> batches = data.Stream(lambda: (np.ones((4, 2)), np.ones(4)), "generator", steps=3)
    >>> len(list(batches.epoch()))
    3
    """

    def __init__(self, source, name, steps=None, workers=0):
        self.source = source
        self.name = name
        self.steps = steps
        self.workers = workers
        function = source.func if isinstance(source, functools.partial) else source
        if isinstance(source, (str, bytes, dict, np.ndarray)) or hasattr(source, "shape"):
            self.kind = None
        elif hasattr(source, "__next__"):
            self.kind = "iterator"
        elif hasattr(source, "__len__") and hasattr(source, "__getitem__"):
            self.kind = "sequence"
        elif hasattr(source, "__iter__"):
            self.kind = "iterable"
        elif inspect.isgeneratorfunction(function):
            self.kind = "factory"
        elif callable(source):
            self.kind = "callable"
        else:
            self.kind = None
        self.rewound = False
        if self.kind is None:
            raise TypeError(
                f"{name} must be a callable that returns (x, y), an iterable or iterator of such "
                f"batches, or a sequence of them, got {type(source).__name__}")

    @property
    def size(self):
        """Number of batches in an epoch, or None where nobody knows."""
        if self.steps is not None:
            return self.steps
        if hasattr(self.source, "__len__"):
            return len(self.source)
        return None

    def epoch(self, first=0, begun=None):
        """Iterate over the batches of one epoch, at most ``steps``; to be closed.

        Parameters
        ----------
        first : int
            Number of the batch to go on from. A source whose state was set stands there already.
            Else batches before it are passed over, except those of a callable or an iterator with
            ``steps``, which is taken for one without an end.
        begun : iterator, optional
            What was returned for this epoch before, from which the first batch may be gone.

        Returns
        -------
        iterator
        """
        rewound, self.rewound = self.rewound, False
        endless = self.kind in ("callable", "iterator") and self.steps is not None
        if begun is not None and (rewound or (first and self.kind == "sequence")):
            begun.close()
            begun = None
        if first and endless and not rewound:
            warnings.warn(f"{self.name} has no get_state and set_state: training goes on with "
                          "the batches that it gives next", RuntimeWarning, stacklevel=2)
        drops = 0 if rewound or endless or self.kind == "sequence" else first
        number = first if rewound or self.kind == "sequence" else 0
        if begun is None:
            begun = self._prefetched(number) if self.workers else self._limited(number)
        if first and endless and not rewound:
            return _Part(begun, 0, self.steps - first)
        return begun if not drops else _Part(begun, drops, None)

    def get_state(self):
        """Return where the source is, if it can tell; threads that run ahead hide it."""
        if self.workers or not hasattr(self.source, "set_state"):
            return None
        return self.source.get_state() if hasattr(self.source, "get_state") else None

    def set_state(self, state):
        """Let the source go to where it was.

        Parameters
        ----------
        state
            What :meth:`get_state` returned.
        """
        if state is not None and hasattr(self.source, "set_state"):
            self.source.set_state(state)
            self.rewound = True

    def _prefetched(self, first):
        tasks = Prefetcher(self._tasks(first), self.workers)
        try:
            yield from tasks
        finally:
            tasks.close()

    def _limited(self, first):
        for task in self._tasks(first):
            yield task()

    def _tasks(self, first):
        """Yield functions that return one batch each, from a number on."""
        if self.kind == "sequence":
            n = len(self.source)
            for i in range(first, n if self.steps is None else min(n, self.steps)):
                yield functools.partial(self.source.__getitem__, i)
            return
        left = None if self.steps is None else self.steps - first
        batches = self._iterate()
        while left is None or left > 0:
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield functools.partial(_same, batch)
            if left is not None:
                left -= 1

    def _iterate(self):
        if self.kind == "callable":
            return _Calls(self.source, self.name)
        if self.kind == "iterator":
            return self.source
        return iter(self.source() if self.kind == "factory" else self.source)

    def end_epoch(self):
        """Call the source's ``on_epoch_end``, if it has one."""
        hook = getattr(self.source, "on_epoch_end", None)
        if callable(hook):
            hook()


class _Part:
    """Batches of an epoch without the first ones, or only so many."""

    def __init__(self, batches, drops, most):
        self.batches = batches
        self.drops = drops
        self.most = most

    def __iter__(self):
        return self

    def __next__(self):
        while self.drops:
            self.drops -= 1
            next(self.batches)
        if self.most is not None:
            if self.most <= 0:
                raise StopIteration
            self.most -= 1
        return next(self.batches)

    def close(self):
        self.batches.close()


class _Calls:
    """Iterates over what a callable returns, until that is None."""

    def __init__(self, function, name):
        self.function = function
        self.name = name

    def __next__(self):
        batch = self.function()
        if batch is None:
            raise StopIteration
        if hasattr(batch, "__next__"):
            raise ValueError(f"{self.name} returned an iterator; pass what it returns, or a "
                             "function that returns one batch at each call")
        return batch


def _same(batch):
    return batch


def unpack(batch, name, number):
    """Return x, y and sample_weight of a batch.

    Parameters
    ----------
    batch : tuple or list
    name : str
        Of the source, for messages.
    number : int
        Of the batch, for messages.

    Returns
    -------
    tuple of x, y and sample_weight
        The last is None where the batch has two parts.

    Raises
    ------
    ValueError
        Not a tuple or list of two or three.

    Examples
    --------
    >>> from pyggml import data
    >>> data.unpack((1, 2), "generator", 1)
    (1, 2, None)
    """
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        got = (f"a {type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list))
               else f"a {type(batch).__name__}")
        raise ValueError(f"{name} must give (x, y) or (x, y, sample_weight) for each batch; batch "
                         f"{number} is {got}")
    return (*batch, None) if len(batch) == 2 else tuple(batch)
