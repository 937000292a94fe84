# cython: language_level=3
"""The trainer: weights, moments, learning rate and graphs that live as long as your loop."""

import math
import warnings
from copy import deepcopy

import numpy as np

cimport cython
from libc.stdint cimport int64_t

from pyggml._engine cimport Engine
from pyggml._feed cimport Feed, load_batch
from pyggml._forward cimport ForwardGraph, Predictor
from pyggml._graph cimport Tensor
from pyggml._slot cimport Slot
from pyggml._training cimport Application, TrainGraph
from pyggml._variable cimport Variable

from pyggml._arrays import check_index, shape_of
from pyggml._compiled import require_compiled
from pyggml._locks import Locks
from pyggml._snapshot import Snapshot, check_precision, move, statistics
from pyggml.layers.base import batch_rows, positive_int
from pyggml.optimizers import _rate

cdef extern from "_shared.h":
    int64_t pyggml_peek64(const int64_t * value) noexcept nogil

# Rows that batch norm statistics are computed from.
_CALIBRATION_ROWS = 1024


@cython.no_gc_clear
cdef class Trainer(Engine):
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
    share : Trainer or list of Trainer, optional
        Weights that this model has in common with theirs (it uses the same layers) are not copied
        but used by reference: a frozen critic inside an actor's graph follows the critic's
        trainer. They are trained here only where they are trainable while this trainer is made.

    Attributes
    ----------
    batch_size, nbatch_logical : int
    weight_decay : float
    program : Program
        What the model computes.
    criterion : Criterion
        The losses.
    compiled : Model
        The model that was given.
    freed : bool
        Whether :meth:`free` was called.

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
                 weight_decay=None, share=None):
        self._set_up(model, batch_size, nbatch_logical, _mask(model, loss_mask), weight_decay,
                     False, share)
        _warn_of_statistics(self.program)

    @staticmethod
    def _on_weights_of(model, batch_size, nbatch_logical=None, mask=None):
        """A trainer that moves the model's own weights: what ``fit`` runs on."""
        cdef Trainer self = Trainer.__new__(Trainer)
        self._set_up(model, batch_size, nbatch_logical, mask, None, True)
        return self

    @staticmethod
    def _blank(model, batch_size, nbatch_logical, mask, weight_decay, own):
        """A trainer whose weights and moments are undefined until :meth:`_set_state`.

        If ``own``, its weights are the model's.
        """
        cdef Trainer self = Trainer.__new__(Trainer)
        self._set_up(model, batch_size, nbatch_logical, mask, weight_decay, False, None, own, True)
        _warn_of_statistics(self.program)
        return self

    # -- steps ---------------------------------------------------------------------------

    def step(self, x, y=None, sample_weight=None):
        """Run one forward and backward pass and, at the end of a period, update the weights.

        Parameters
        ----------
        x : array_like of shape (batch_size, ...), or list or dict of them
            Any real dtype; C-contiguous float32 goes in by one copy.
        y : array_like, or list or dict of them
            Of the outputs' shapes; integer labels of shape (batch_size,) for sparse losses; None
            where the loss takes no labels.
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

        Warns
        -----
        RuntimeWarning
            Once a trainer, where the loss is NaN or infinite. It is returned as it is, and the
            weights have been updated all the same: go back with :meth:`restore`.
        """
        cdef TrainGraph g
        cdef double loss = 0
        self.lock.take()
        try:
            self.alive()
            g = self.main_graph()
            load_batch(g.inputs, g.loss, self.program, self.criterion, x, y, sample_weight)
            self.alive()  # reading the arrays may have run anything
            loss = self.run(g, self.batch_size)
        finally:
            self.lock.give()
        return loss

    def step_many(self, x, y=None, idx=None, sample_weight=None):
        """Run many steps on rows of arrays that you hold, without Python in between.

        The same as ``[step(x[i], y[i], sample_weight[i]) for i in idx]``, but rows go straight
        from the arrays into the graph. A replay buffer may be larger than what is used of it.

        Parameters
        ----------
        x : array_like of shape (n, ...), or list or dict of them
            Any number of rows, any real dtype and strides.
        y : array_like of shape (n, ...), or list or dict of them
            Labels are checked in the rows that are used.
        idx : array_like of int of shape (k, batch_size)
            Rows of each step's batch, from 0 to n - 1.
        sample_weight : array_like of shape (n,) or (n, outputs), optional

        Returns
        -------
        numpy.ndarray of float64 of shape (k,)
            The losses, each before its update.

        Raises
        ------
        ValueError
            As for :meth:`step`. Nothing has changed then.
        IndexError
            A row that does not exist; negative rows are not counted from the end.

        Examples
        --------
        >>> import numpy as np
        >>> import pyggml
        >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
        >>> model.compile(optimizer="adam", loss="mse")
        >>> x, y = np.ones((100, 4)), np.ones((100, 1))
        >>> with pyggml.Trainer(model, batch_size=8) as trainer:
        ...     losses = trainer.step_many(x, y, np.random.randint(0, 100, (20, 8)))
        >>> losses.shape
        (20,)
        """
        cdef TrainGraph g
        cdef Feed feed
        cdef const int64_t[:, ::1] index
        if idx is None:
            raise ValueError("idx must be given")
        shape = shape_of(idx, "idx")
        if len(shape) != 2 or shape[1] != self.batch_size:
            raise ValueError(f"idx must have shape (k, {self.batch_size}), with the batch size "
                             f"last, got {shape}")
        with self.lock:
            self.alive()
            g = self.main_graph()
            feed = Feed(self.program, self.criterion, g.inputs, g.loss, x, y, sample_weight,
                        check=False)
            index = check_index(idx, feed.n_rows, "idx")
            losses = np.empty(index.shape[0])
            feed.check_rows(g.inputs, g.loss, index)
            self.alive()
            self.run_many(g, feed, index, losses)
        return losses

    def eval(self, x, y=None, sample_weight=None):
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
            self.alive()
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
        if matmul_precision is not None:
            check_precision(matmul_precision)
        cdef Predictor predictor
        size = self.batch_size if batch_size is None else batch_rows(batch_size)
        self.lock.take()
        try:
            self.alive()
            predictor = self.predictor  # outlives a free while x is read
            return predictor.predict_any(x, size)
        finally:
            self.lock.give()

    def gradients(self, x, y=None, sample_weight=None):
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
        with self.lock:
            self.alive()
            g = self.train_graph(self.batch_size, "probe")
            g.moves_statistics = False
            for v in self.trained:
                (<Variable>g.targets[v]).zero()
            load_batch(g.inputs, g.loss, self.program, self.criterion, x, y, sample_weight)
            self.alive()
            g.draw_masks(self.seed, self.steps)
            g.evaluate(1.0)
            return {name: (<Variable>g.targets[v]).numpy() for name, v in self._trained().items()}

    def apply_gradients(self, gradients):
        """Update the weights by gradients of your own: one update, but no step.

        Parameters
        ----------
        gradients : dict of str to array_like
            One for every trainable weight, by name and shape as :meth:`gradients` returns them:
            averaged over workers, or computed elsewhere. The optimizer clips them as its own, and
            decays weights whose gradient is 0 too.

        Raises
        ------
        ValueError
            Names or shapes are not those of the trainable weights. Nothing has changed then.
        TypeError
            Not a dict, or not real numbers.
        """
        cdef Variable v
        if not isinstance(gradients, dict):
            raise TypeError("gradients must be a dict of arrays by the weights' names, got "
                            f"{type(gradients).__name__}")
        with self.lock:
            self.alive()
            trained = self._trained()
            missing = sorted(set(trained) - set(gradients))
            unknown = sorted(set(gradients) - set(trained))
            if missing or unknown:
                raise ValueError(f"gradients must have a key for every trainable weight; missing "
                                 f"{missing}, unknown {unknown}")
            if self.application_given is None:
                self.gradients_given = {v: v.clone() for v in self.trained}
                self.application_given = Application(
                    self.trained, self.gradients_given, self.optimizer.rule, self.slots,
                    self.params)
            for name, v in trained.items():
                self.gradients_given[v].check(gradients[name])
                self.alive()
            for name, v in trained.items():
                self.gradients_given[v].assign(gradients[name])
            self.set_params()
            self.application_given.stepper.set_clip(self.optimizer.clipping)
            self.application_given.apply(1.0)
            self.updates += 1

    def _trained(self):
        """Dict from name to the trainer's own variable, of all that it trains."""
        return {self.names[v]: self.bindings.get(v, v) for v in self.program.variables
                if v in self.mode}

    # -- copies of the network -----------------------------------------------------------

    def model(self):
        """Return a compiled model with the current weights, which shares nothing with this.

        Raises
        ------
        RuntimeError
            Layers were added to the model, or removed, after this trainer was made of it.
        """
        with self.lock:
            self.alive()
            self._require_unchanged()
            other = self.compiled.copy()
            if self.made_with is not None and self.made_with is not self.compiled.compiled:
                other.compiled = deepcopy(self.made_with)
            for v, w in zip(self.program.variables, other.program.variables):
                w.assign(self.bindings.get(v, v).numpy(copy=False))
        return other

    def snapshot(self):
        """Return an independent copy of the network with the current weights.

        Returns
        -------
        Snapshot
            Later steps do not move it, and it outlives :meth:`free`.
        """
        with self.lock:
            self.alive()
            return Snapshot._of(self.program, self.bindings, self.names, self.batch_size,
                                self.compiled.name)

    def update_target(self, target, tau=1.0):
        """Move a target network: ``target <- tau * current + (1 - tau) * target``.

        Parameters
        ----------
        target : Snapshot, Trainer or Model
            With the same weights by name and shape.
        tau : float
            In [0, 1]. 1 copies bit for bit (DQN's hard update); a small one is the moving average
            of DDPG and SAC. Moving statistics of batch norm are copied whole, never averaged.

        Raises
        ------
        ValueError
            Other weights, or ``tau`` out of range. Nothing has changed then.
        RuntimeError
            The target or the trainer was freed.
        """
        lock, current = self._target()
        whole = {self.names[v] for v in statistics(self.program)}
        move(lock, current, whole, *_target_of(target), tau)

    def restore(self, source):
        """Go back to the weights of a snapshot, with a fresh optimizer.

        For a training that met a NaN, or that went astray: weights and statistics become those of
        the source, bit for bit; moments are 0, gradients of an unfinished window are forgotten,
        and ``n_updates`` is 0, so that bias correction, and a schedule in the optimizer, begin
        anew. The learning rate that was set, and ``n_steps``, stay. To go back with the moments
        as they were, use :meth:`save_checkpoint`.

        Parameters
        ----------
        source : Snapshot, Trainer or Model
            With the same weights by name and shape.

        Raises
        ------
        ValueError
            Other weights. Nothing has changed then.
        RuntimeError
            The source or the trainer was freed.

        Examples
        --------
        >>> import numpy as np
        >>> import pyggml
        >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
        >>> model.compile(optimizer="adam", loss="mse")
        >>> x, y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
        >>> with pyggml.Trainer(model, batch_size=8) as trainer:
        ...     good, first = trainer.snapshot(), trainer.step(x, y)
        ...     trainer.restore(good)
        ...     trainer.step(x, y) == first
        True
        """
        cdef Variable v
        lock, own = self._target()
        source_lock, weights = _target_of(source)
        with Locks([lock, source_lock]):
            self.alive()
            move(source_lock, weights, set(), lock, own, 1.0)
            for slots in [*self.slots.values(), *self.idle_slots.values()]:
                for v in slots:
                    v.zero()
            self._discard_window()
            self.updates = 0
            self.warned = False

    def _target(self):
        lock, weights = self._shared_weights()
        return lock, {self.names[v]: bound for v, bound in weights.items()}

    def calibrate_bn(self, x):
        """Set the moving statistics of batch norm layers exactly, from representative inputs.

        Parameters
        ----------
        x : array_like of shape (n, ...), list or dict of them, or iterator or generator
            Up to 1024 rows are used; of a generator, which gives batches of any number of rows
            (or tuples that begin with x), as many batches as hold them. Weights, moments and
            counters stay as they are; without batch norm nothing happens. Running averages
            (layers with a momentum) are replaced too; frozen statistics are not.

        Raises
        ------
        ValueError
            ``x`` has no rows.
        """
        from pyggml._calibration import calibrate, gather

        cdef ForwardGraph g
        cdef Slot slot
        mode = self.mode

        def wanted(layer):
            return layer in mode.moving or (layer.momentum is None and layer not in mode.fixed)

        x = gather(self.program, x, _CALIBRATION_ROWS)  # a generator may step this trainer
        with self.lock:
            self.alive()
            g = self.predictor.graph(1)
            for slot, value in zip(g.inputs, self.program.split_inputs(x)):
                if slot.accept(value).n_rows == 0:
                    raise ValueError(f"{slot.name} has no rows")
            self.alive()
            if not _batch_norms(self.program.layers):
                return
            calibrate(self.program, self.bindings, x, max_rows=_CALIBRATION_ROWS, wanted=wanted)

    # -- state ---------------------------------------------------------------------------

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
            self.alive()
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
            self.alive()
            self.optimizer.learning_rate = lr

    @property
    def lr(self):
        """The learning rate of the next update; where a schedule gives it, of the last one."""
        self.alive()
        return self.optimizer.learning_rate

    @lr.setter
    def lr(self, value):
        self.set_lr(value)

    @property
    def n_steps(self):
        """Number of calls of :meth:`step`."""
        self.alive()
        return pyggml_peek64(&self.steps)

    @property
    def n_updates(self):
        """Number of times the weights were updated."""
        self.alive()
        return pyggml_peek64(&self.updates)

    def free(self):
        """Release everything. Calling it again is harmless; other methods raise RuntimeError."""
        with self.lock:
            self.freed = True
            self.main = None
            self.graphs.clear()
            self.application = self.application_given = None
            self.predictor = None
            self.bindings = {}
            self.slots = {}
            self.idle_slots = {}
            self.gradients_sum = self.gradients_given = None
            self.trained = []

    def close(self):
        """Same as :meth:`free`."""
        self.free()

    def __enter__(self):
        self.alive()
        return self

    def __exit__(self, *exception):
        self.free()

    def __reduce__(self):
        raise TypeError("a trainer cannot be pickled; take its model() or its get_weights()")

    def __repr__(self):
        with self.lock:
            if self.freed:
                return "<Trainer freed>"
            if not self.made:
                return "<Trainer not made>"
            total = sum([v.size for v in self.program.variables])
            n = sum([v.size for v in self.trained])
            gradients = [g for g in (self.gradients_sum, self.gradients_given) if g is not None]
            held = 4 * (total + n * (self.optimizer.n_slots + len(gradients)))
            held += sum([g.nbytes for g in self.graphs.values()]) + self.predictor.nbytes
            return (f"<Trainer of {self.compiled.name!r}: {total} parameters ({n} trainable), "
                    f"{held} bytes on CPU, batch {self.batch_size}, {self.steps} steps, "
                    f"{self.updates} updates>")

    # -- checkpoints ---------------------------------------------------------------------

    def save_checkpoint(self, path, keep=1, objects=None, extra=None):
        """Save all that training goes on from; see :func:`pyggml.checkpoints.save`.

        Parameters
        ----------
        path : str or path-like
        keep, objects, extra
            As for :func:`pyggml.checkpoints.save`.
        """
        from pyggml import checkpoints

        checkpoints.save(path, self, keep=keep, objects=objects, extra=extra)

    @staticmethod
    def from_checkpoint(path, model=None, custom_objects=None):
        """Return a trainer that goes on where :meth:`save_checkpoint` was called.

        Parameters
        ----------
        path : str or path-like
        model : Sequential or Model, optional
            Compiled as it was; its weights are neither used nor changed. By default the one in
            the file, whose weights are the trainer's own then.
        custom_objects : dict, optional
            As for :func:`pyggml.load_model`.

        Returns
        -------
        Trainer

        Raises
        ------
        OSError
            The file cannot be read.
        FileFormatError
            A ``ValueError``: the file is damaged, or another model's or optimizer's.
        """
        from pyggml import checkpoints

        with checkpoints.Checkpoint(path, verify=False) as saved:
            return saved.trainer(model, custom_objects)


def _target_of(target):
    from pyggml.models import Model

    if isinstance(target, (Snapshot, Trainer)):
        return target._target()
    if isinstance(target, Model):
        target.require_built()
        names = target.weight_names
        return target._predictor_of_program().lock, {
            names[v]: v for v in target.program.variables}
    raise TypeError(f"target must be a Snapshot, a Trainer or a Model, got "
                    f"{type(target).__name__}")


def _batch_norms(layers):
    """Return the batch norm layers among layers and inside them."""
    from pyggml import layers as known

    kind = getattr(known, "BatchNormalization", ())
    found = []
    for layer in layers:
        if isinstance(layer, kind):
            found.append(layer)
        found += _batch_norms(layer.sublayers)
    return found


def _moves_by_calibration(layer):
    return layer.momentum is None and not layer.freeze_stats


def _warn_of_statistics(program):
    if any(_moves_by_calibration(layer) for layer in _batch_norms(program.layers)):
        warnings.warn(
            "steps do not move the moving statistics of this model's batch norm layers: call "
            "calibrate_bn(x) before predicting, or give the layers a momentum, or freeze "
            "their statistics", UserWarning, stacklevel=1)


def _mask(model, loss_mask):
    """Translate the number of weights a row into what the criterion calls it."""
    if loss_mask is None:
        return None
    loss_mask = positive_int(loss_mask, "loss_mask")
    if loss_mask == 1:
        return "rows"
    sizes = [math.prod(shape[1:]) for shape in require_compiled(model).criterion.output_shapes]
    if any(size != loss_mask for size in sizes):
        raise ValueError(f"loss_mask must be None, 1 or the number of outputs ({sizes[0]}), got "
                         f"{loss_mask}")
    return "elements"
