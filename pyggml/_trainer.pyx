# cython: language_level=3
"""The trainer: weights, moments, learning rate and graphs that live as long as your loop."""

import copy
import math
import warnings
from collections import OrderedDict

import numpy as np

cimport cython
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint64_t

cimport numpy as cnp

from pyggml cimport _ggml
from pyggml._arrays cimport Rows
from pyggml._feed cimport Feed, load_batch
from pyggml._forward cimport ForwardGraph
from pyggml._graph cimport Graph, Tensor
from pyggml._training cimport ApplyGraph, StepParams, TrainGraph
from pyggml._variable cimport Variable

from pyggml._forward import Predictor
from pyggml._random import draw_seed
from pyggml.layers.base import positive_int
from pyggml.optimizers import _rate, _within

cnp.import_array()


@cython.no_gc_clear
cdef class Trainer:
    """A training context that you step yourself.

    It holds a copy of the model's weights, the optimizer's moments, the graphs and the learning
    rate, across as many steps as your loop takes. The model passed in stays as it was.

    Parameters
    ----------
    model : Sequential or Model
        Compiled.
    batch_size : int
        Rows of every batch.
    nbatch_logical : int, optional
        Rows between two updates, a multiple of ``batch_size``: gradients are added up in
        between. By default every step updates the weights.
    loss_mask : None or int
        1 for one weight a row, the number of outputs for one weight an element; None for no
        weights.
    weight_decay : float, optional
        Decoupled, in [0, 1]; by default the optimizer's. Frozen weights are not decayed.

    Attributes
    ----------
    batch_size, nbatch_logical : int
    weight_decay : float

    Raises
    ------
    TypeError
        ``model`` is not a model.
    ValueError
        The model is not compiled, or has no trainable weights.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
    >>> model.compile(optimizer="adam", loss="mse")
    >>> x, y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
    >>> with pyggml.Trainer(model, batch_size=8) as trainer:
    ...     losses = [trainer.step(x, y) for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(self, model, batch_size=32, nbatch_logical=None, loss_mask=None,
                 weight_decay=None):
        self._set_up(model, batch_size, nbatch_logical, _mask(model, loss_mask), weight_decay,
                     False)

    @staticmethod
    def _on_weights_of(model, batch_size, nbatch_logical=None, mask=None):
        """A trainer that moves the model's own weights: what ``fit`` runs on."""
        cdef Trainer self = Trainer.__new__(Trainer)
        self._set_up(model, batch_size, nbatch_logical, mask, None, True)
        return self

    def _set_up(self, model, batch_size, nbatch_logical, mask, weight_decay, bint in_place):
        compiled = _compiled(model)
        self.compiled = model
        self.program = model.program
        self.optimizer = compiled.optimizer if in_place else copy.deepcopy(compiled.optimizer)
        self.weight_decay = (self.optimizer.weight_decay if weight_decay is None
                             else _within(weight_decay, "weight_decay", 0, 1))
        self.graphs = OrderedDict()
        self._configure(batch_size, nbatch_logical, mask)
        self.bindings = {} if in_place else {v: v.clone() for v in self.program.variables}
        self.trained = [self.bindings.get(v, v) for v in self.program.variables if v.trainable]
        self.slots = {
            v: tuple([Variable(v.shape, f"{v.name}/{i}", v.axes, trainable=False)
                      for i in range(self.optimizer.n_slots)])
            for v in self.trained}
        self.gradients_sum = None
        self.params = StepParams()
        self.predictor = (model._predictor_of_program() if in_place
                          else Predictor(self.program, self.bindings))
        self.lock = self.predictor.lock
        self.seed = draw_seed()
        # Whatever ggml cannot train is refused here, not at the first step of a long job.
        self.train_graph(self.batch_size, self._use())

    def _configure(self, batch_size, nbatch_logical, mask):
        """Choose batch sizes and weights; moments and counters stay."""
        batch_size = positive_int(batch_size, "batch_size")
        if batch_size > 1 << 30:
            raise ValueError(f"batch_size must be at most {1 << 30}, got {batch_size}")
        logical = (batch_size if nbatch_logical is None
                   else positive_int(nbatch_logical, "nbatch_logical"))
        if logical % batch_size:
            raise ValueError(f"nbatch_logical must be a multiple of batch_size, got {logical} and "
                             f"{batch_size}")
        if self.criterion is None or self.criterion.mask != mask:
            self.criterion = self.compiled.compiled.criterion.with_mask(mask)
            self.graphs.clear()
        self.batch_size = batch_size
        self.nbatch_logical = logical

    # -- what a step is made of ----------------------------------------------------------

    def _use(self):
        return "step" if self.nbatch_logical == self.batch_size else "accumulate"

    cdef TrainGraph train_graph(self, int64_t rows, str use):
        """Return the graph for a number of rows; a few are kept."""
        cdef TrainGraph g
        key = (rows, use)
        g = self.graphs.get(key)
        if g is not None and not g.exhausted:
            return g
        gradients = None
        if use == "accumulate":
            if self.gradients_sum is None:
                self.gradients_sum = _like(self.trained)
            gradients = self.gradients_sum
        elif use == "probe":
            gradients = _like(self.trained)
        g = TrainGraph(self.program, self.criterion, rows, self.bindings, self.optimizer.rule,
                       self.slots, self.params, gradients)
        self.graphs[key] = g
        while len(self.graphs) > 4:
            self.graphs.popitem(last=False)
        return g

    cdef int set_params(self) except -1:
        cdef int i
        cdef double value
        t = self.updates + 1
        self.optimizer.follow_schedule(self.updates)
        values = self.optimizer.params(self.weight_decay, t)
        for i, value in enumerate(values):
            self.params.decayed.data[i] = <float>value
        if self.weight_decay != 0:
            values = self.optimizer.params(0.0, t)
        for i, value in enumerate(values):
            self.params.plain.data[i] = <float>value
        return 0

    cdef float run(self, TrainGraph g, int64_t rows) except? -1:
        """Compute on what lies in the input tensors; return the loss."""
        cdef float loss
        if g.graph.masks:
            g.draw_masks(self.seed, self.steps)
        if g.accumulating:
            loss = g.evaluate(<float>(<double>rows / self.batch_size))
            self.steps += 1
            self.window_rows += rows
            if self.window_rows >= self.nbatch_logical:
                self.finish_window()
        else:
            self.set_params()
            loss = g.evaluate(1.0)
            self.steps += 1
            self.updates += 1
        if not isfinite(loss) and not self.warned:
            self.warned = True
            warnings.warn(f"the loss is {loss} at step {self.steps}", RuntimeWarning,
                          stacklevel=2)
        return loss

    cdef int finish_window(self) except -1:
        """Update the weights from the gradients that were added up, if there are any."""
        if self.window_rows == 0:
            return 0
        if self.apply_graph is None:
            self.apply_graph = ApplyGraph(self.trained, self.gradients_sum, self.optimizer.rule,
                                          self.slots, self.params)
        self.set_params()
        self.apply_graph.apply(<float>(<double>self.batch_size / self.window_rows))
        for v in self.trained:
            (<Variable>self.gradients_sum[v]).zero()
        self.window_rows = 0
        self.updates += 1
        return 0

    def _alive(self):
        if self.freed:
            raise RuntimeError("this trainer was freed")

    def _feed(self, x, y, sample_weight):
        """Check whole arrays and return what :meth:`_step_rows` reads them through."""
        cdef TrainGraph g
        with self.lock:
            self._alive()
            g = self.train_graph(self.batch_size, self._use())
            return Feed(self.program, self.criterion, g.inputs, g.loss, x, y, sample_weight)

    def _step_rows(self, Feed feed, order, int64_t start, int64_t n):
        """Step on rows of arrays: what ``fit`` calls for every batch.

        Returns
        -------
        tuple
            The loss, and the graph's tensors to read predictions from.
        """
        cdef TrainGraph g
        cdef double loss = 0
        with self.lock:
            self._alive()
            g = self.train_graph(n, self._use())
            feed.fill(g.inputs, g.loss, order, start, n)
            loss = self.run(g, n)
        return loss, g.loss

    def _finish_window(self):
        """Update from what was accumulated, at the end of an epoch."""
        with self.lock:
            self._alive()
            self.finish_window()

    def _discard_window(self):
        """Forget gradients of a window that an error or an interrupt left open."""
        with self.lock:
            if self.window_rows and not self.freed:
                for v in self.trained:
                    (<Variable>self.gradients_sum[v]).zero()
                self.window_rows = 0

    def _reseed(self, seed):
        """Draw dropout masks from another seed."""
        self.seed = seed

    # -- steps ---------------------------------------------------------------------------

    def step(self, x, y, sample_weight=None):
        """Run one forward and backward pass and, at the end of a period, update the weights.

        Parameters
        ----------
        x : array_like of shape (batch_size, ...), or list or dict of them
            Any real dtype; C-contiguous float32 goes in by one copy.
        y : array_like, or list or dict of them
            Of the outputs' shapes; integer labels of shape (batch_size,) for sparse losses.
        sample_weight : array_like of shape (batch_size,) or (batch_size, outputs), optional
            Only with ``loss_mask``; left out, all ones. Loss = sum(w * l) / N, never
            renormalised.

        Returns
        -------
        float
            The loss before the update.

        Raises
        ------
        ValueError
            A shape that does not fit, a label out of range, a negative weight. Nothing has
            changed then.
        RuntimeError
            The trainer was freed, or ggml could not compute.
        """
        cdef TrainGraph g
        cdef double loss = 0
        with self.lock:
            self._alive()
            g = self.train_graph(self.batch_size, self._use())
            load_batch(g.inputs, g.loss, self.program, self.criterion, x, y, sample_weight)
            loss = self.run(g, self.batch_size)
        return loss

    def eval(self, x, y, sample_weight=None):
        """Return the loss of a batch in evaluation mode: no dropout, no backward pass.

        Parameters
        ----------
        x, y, sample_weight
            As for :meth:`step`.

        Returns
        -------
        float
        """
        cdef ForwardGraph g
        cdef Tensor total
        cdef double loss = 0
        with self.lock:
            self._alive()
            g = self.predictor.graph(self.batch_size, self.criterion)
            load_batch(g.inputs, g.loss, self.program, self.criterion, x, y, sample_weight)
            g.compute()
            total = g.loss.total
            loss = (<float *>total.ptr.data)[0]
        return loss

    def predict(self, x, batch_size=None, matmul_precision=None):
        """Return the outputs for the current weights, in evaluation mode.

        Parameters
        ----------
        x : array_like of shape (n, ...), or list or dict of them
            Any number of rows.
        batch_size : int, optional
            Rows computed at once; by default the trainer's.
        matmul_precision : {None, "default", "float32"}
            ggml's hint for matrix products; on the CPU all are float32.

        Returns
        -------
        numpy.ndarray of float32, or list of them for several outputs
            Arrays that own their memory.
        """
        check_precision(matmul_precision)
        size = self.batch_size if batch_size is None else positive_int(batch_size, "batch_size")
        with self.lock:
            self._alive()
            found = self.predictor.predict(x, size)
        return found[0] if len(found) == 1 else found

    def gradients(self, x, y, sample_weight=None):
        """Return the gradient of a batch's loss for every trainable weight; update nothing.

        Parameters
        ----------
        x, y, sample_weight
            As for :meth:`step`.

        Returns
        -------
        dict of str to numpy.ndarray of float32
            By the weights' names, ``"layer/weight"``, in the shapes of the weights.
        """
        cdef TrainGraph g
        cdef Variable bound
        with self.lock:
            self._alive()
            g = self.train_graph(self.batch_size, "probe")
            for v in self.trained:
                (<Variable>g.targets[v]).zero()
            load_batch(g.inputs, g.loss, self.program, self.criterion, x, y, sample_weight)
            if g.graph.masks:
                g.draw_masks(self.seed, self.steps)
            g.evaluate(1.0)
            names = self.compiled.weight_names
            result = {}
            for v in self.program.variables:
                bound = self.bindings.get(v, v)
                if v.trainable:
                    result[names[v]] = (<Variable>g.targets[bound]).numpy()
        return result

    # -- state ---------------------------------------------------------------------------

    def model(self):
        """Return a compiled model with the current weights, which shares nothing with this."""
        with self.lock:
            self._alive()
            other = self.compiled.copy()
            for v, w in zip(self.program.variables, other.program.variables):
                w.assign(self.bindings.get(v, v).numpy(copy=False))
        return other

    def get_weights(self, copy=True):
        """Return the current weights in the model's order.

        Parameters
        ----------
        copy : bool
            False gives views that follow the training, and stay valid even after :meth:`free`.

        Returns
        -------
        list of numpy.ndarray of float32
        """
        with self.lock:
            self._alive()
            return [self.bindings.get(v, v).numpy(copy) for v in self.program.variables]

    def set_lr(self, lr):
        """Set the learning rate from the next step on.

        Parameters
        ----------
        lr : float
            Finite and not negative; 0 leaves the weights as they are, bit for bit.

        Raises
        ------
        ValueError
            Negative, NaN or infinite.
        """
        lr = _rate(lr, "lr")
        with self.lock:
            self._alive()
            self.optimizer.learning_rate = lr

    @property
    def lr(self):
        """The learning rate of the next update."""
        self._alive()
        return self.optimizer.learning_rate

    @lr.setter
    def lr(self, value):
        self.set_lr(value)

    @property
    def n_steps(self):
        """Number of calls of :meth:`step`."""
        self._alive()
        return self.steps

    @property
    def n_updates(self):
        """Number of times the weights were updated."""
        self._alive()
        return self.updates

    def free(self):
        """Release everything. Calling it again is harmless; other methods raise RuntimeError."""
        with self.lock:
            self.freed = True
            self.graphs = OrderedDict()
            self.apply_graph = None
            self.predictor = None
            self.bindings = {}
            self.slots = {}
            self.gradients_sum = None
            self.trained = []

    def close(self):
        """Same as :meth:`free`."""
        self.free()

    def __enter__(self):
        self._alive()
        return self

    def __exit__(self, *exception):
        self.free()

    def __reduce__(self):
        raise TypeError("a trainer cannot be pickled; take its model() or its get_weights()")

    def __repr__(self):
        if self.freed:
            return "<Trainer freed>"
        n = sum([v.size for v in self.trained])
        held = sum([g.nbytes for g in self.graphs.values()])
        held += 4 * sum([v.size for v in self.program.variables])
        held += 4 * n * self.optimizer.n_slots
        return (f"<Trainer of {self.compiled.name!r}: {n} trainable parameters, {held} bytes on "
                f"CPU, batch {self.batch_size}, {self.steps} steps, {self.updates} updates>")


cdef dict _like(list variables):
    return {v: Variable(v.shape, f"{v.name}/gradient", v.axes, trainable=False)
            for v in variables}


def _compiled(model):
    from pyggml.models import Model

    if not isinstance(model, Model):
        raise TypeError(f"model must be a Sequential or a Model, got {type(model).__name__}")
    if model.compiled is None:
        raise ValueError(f"model {model.name!r} is not compiled; call model.compile first")
    model.require_built()
    return model.compiled


def _mask(model, loss_mask):
    """Translate the number of weights a row into what the criterion calls it."""
    if loss_mask is None:
        return None
    loss_mask = positive_int(loss_mask, "loss_mask")
    if loss_mask == 1:
        return "rows"
    sizes = [math.prod(shape[1:]) for shape in _compiled(model).criterion.output_shapes]
    if any(size != loss_mask for size in sizes):
        raise ValueError(f"loss_mask must be None, 1 or the number of outputs ({sizes[0]}), got "
                         f"{loss_mask}")
    return "elements"


def check_precision(matmul_precision):
    """Raise ValueError for anything but None, "default" and "float32"."""
    if matmul_precision is not None and matmul_precision not in ("default", "float32"):
        raise ValueError("matmul_precision must be None, 'default' or 'float32', got "
                         f"{matmul_precision!r}")
