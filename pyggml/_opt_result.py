"""Results of ggml-opt's evaluations, with its formulas for uncertainties."""

import math

import numpy as np


class Result:
    """Losses and predictions of several evaluations, as ggml-opt reports them.

    Examples
    --------
    >>> from pyggml import opt
    >>> opt.Result().ndata
    0
    """


    def __init__(self) -> None:
        self.reset()

    def reset(self):
        """Forget everything."""
        self.ndata = 0
        self.losses, self.parts, self.predictions = [], [], []
        self.correct = 0
        self.per_datapoint = None
        self.batch = 0

    def check(self, opt):
        """Raise ValueError where an evaluation is of another kind than those before.

        Parameters
        ----------
        opt : OptContext

        Raises
        ------
        ValueError
            It belongs to a context with other outputs.
        """
        if self.ndata == 0:
            return
        if opt.batch_size != self.batch:
            raise ValueError(f"a result takes batches of one size; it has {self.batch} rows a "
                             f"batch, got {opt.batch_size}")
        if opt.loss_per_datapoint != self.per_datapoint or opt.n_loss != len(self.parts[0]):
            raise ValueError("a result takes evaluations of one kind of loss")

    def add(self, opt):
        """Take in the last evaluation of a context.

        Parameters
        ----------
        opt : OptContext
        """
        self.per_datapoint = opt.loss_per_datapoint
        self.batch = opt.batch_size
        self.losses.append(opt.loss)
        self.parts.append([opt.loss_i(i) for i in range(opt.n_loss)])
        self.ndata += self.batch
        pred = opt.pred
        if pred is None:
            self.correct = -1
        else:
            self.predictions.append(pred)
            if self.correct >= 0:
                self.correct += opt.ncorrect

    @property
    def loss(self):
        """(loss, uncertainty): mean over batches, or for "sum" their sum; NaN if unknown."""
        return _mean_of(self.losses, self.per_datapoint)

    def loss_i(self, i):
        """Return (loss, uncertainty) of one output.

        Parameters
        ----------
        i : int

        Raises
        ------
        IndexError
            There is no such output.
        """
        if not 0 <= i < self.n_loss:
            raise IndexError(f"there are {self.n_loss} outputs, got {i}")
        return _mean_of([row[i] for row in self.parts], self.per_datapoint)

    @property
    def n_loss(self):
        """Number of outputs; 0 while there is nothing."""
        return len(self.parts[0]) if self.parts else 0

    @property
    def accuracy(self):
        """(accuracy, uncertainty), NaN where there are no classes."""
        if self.ndata == 0 or self.correct < 0:
            return (math.nan, math.nan)
        share = self.correct / self.ndata
        unc = math.sqrt(share * (1 - share) / (self.ndata - 1)) if self.ndata >= 2 else math.nan
        return (share, unc)

    @property
    def pred(self):
        """Classes of all rows, int32; empty where there are none."""
        return np.concatenate(self.predictions) if self.predictions else np.empty(0, np.int32)

    def free(self):
        """Same as :meth:`reset`: nothing of it lies outside Python."""
        self.reset()


def check_result(result, name="result"):
    """Raise TypeError for what is neither a Result nor None."""
    if result is not None and not isinstance(result, Result):
        raise TypeError(f"{name} must be a Result, got {type(result).__name__}")


def _mean_of(values, per_datapoint):
    n = len(values)
    if n == 0:
        return (0.0, math.nan)
    total = math.fsum(values)
    mean = total / n
    unc = math.nan
    if n >= 2:
        # ggml's formula: the variance without Bessel's correction, over n - 1.
        var = max(0.0, math.fsum(v * v for v in values) / n - mean * mean)
        unc = math.sqrt(var / (n - 1)) if per_datapoint else math.sqrt(var * n / (n - 1))
    return (mean if per_datapoint else total, unc)
