# cython: language_level=3, boundscheck=False, wraparound=False
"""What a trainer is made of: graphs, moments and counters, and the loop over steps."""

import copy
import time
import warnings
import weakref
from collections import OrderedDict

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pyggml cimport _ggml
from pyggml._feed cimport Feed, Intake, intake_of
from pyggml._training cimport ApplyGraph, StepParams, TrainGraph, clip_gradients
from pyggml._variable cimport Variable

from pyggml._forward import Predictor
from pyggml._locks import together
from pyggml._random import draw_seed
from pyggml.layers.base import positive_int
from pyggml.optimizers import _within

# Steps between two looks at what else the process has to do: signals, other threads.
cdef enum:
    _AT_ONCE = 512
    _MICROSECONDS = 20000
    _N_PARAMS = 7


@cython.no_gc_clear
cdef class Engine:
    """Base of :class:`pyggml.Trainer`: everything but what users call."""

    def _set_up(self, model, batch_size, nbatch_logical, mask, weight_decay, bint in_place,
                share=None):
        compiled = require_compiled(model)
        # A model owns the trainer that its fit runs on.
        self.compiled = weakref.proxy(model) if in_place else model
        self.program = model.program
        self.names = model.weight_names
        self.optimizer = compiled.optimizer if in_place else copy.deepcopy(compiled.optimizer)
        self.weight_decay = (self.optimizer.weight_decay if weight_decay is None
                             else _within(weight_decay, "weight_decay", 0, 1))
        self.graphs = OrderedDict()
        self._configure(batch_size, nbatch_logical, mask)
        shared, locks = _shared(share, self.program, self.names)
        self.bindings = {} if in_place else {
            v: shared.get(v) or v.clone() for v in self.program.variables}
        # What is frozen later, for another trainer on the same layers, goes on training in this;
        # only the trainer of ``fit`` follows.
        self.moving = frozenset([v for v in self.program.variables if v.trainable])
        self.trained = [self.bindings.get(v, v) for v in self.program.variables
                        if v in self.moving]
        self.slots = {v: _slots(v, self.optimizer.n_slots) for v in self.trained}
        self.idle_slots = {}
        self.mode = model._training_mode()
        self.gradients_sum = self.gradients_given = None
        self.params = StepParams(self.optimizer.decay_biases)
        self.predictor = (model._predictor_of_program() if in_place
                          else Predictor(self.program, self.bindings, together(*locks)))
        self.lock = self.predictor.lock
        self.seed = draw_seed()
        # Whatever ggml cannot train is refused here, not at the first step of a long job.
        self.main_graph()

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
        self.main = None
        if self.criterion is None or self.criterion.mask != mask:
            self.criterion = self.compiled.compiled.masked(mask)
            self.graphs.clear()
        self.batch_size = batch_size
        self.nbatch_logical = logical

    def _follow_freezing(self):
        """Take over what was frozen and unfrozen since the graphs were made.

        Weights that go on training keep their state; so do frozen ones, for when they go on.
        """
        cdef dict known
        with self.lock:
            self.alive()
            mode = self.compiled._training_mode()
            if mode == self.mode:
                return
            known = self.slots | self.idle_slots
            moving = frozenset([v for v in self.program.variables if v.trainable])
            trained = [self.bindings.get(v, v) for v in self.program.variables if v in moving]
            slots = {v: known.pop(v) if v in known else _slots(v, self.optimizer.n_slots)
                     for v in trained}
            gradients = None
            if self.gradients_sum is not None:
                gradients = like([v for v in trained if v not in self.gradients_sum])
                gradients |= {v: g for v, g in self.gradients_sum.items() if v in slots}
            self.moving, self.trained = moving, trained
            self.slots, self.idle_slots = slots, known
            self.gradients_sum, self.gradients_given = gradients, None
            self.main = None
            self.graphs.clear()
            self.apply_graph = self.apply_given = None
            self.mode = mode

    # -- graphs --------------------------------------------------------------------------

    def _use(self):
        # Where gradients are clipped, all of them are needed before the first step.
        if self.nbatch_logical == self.batch_size and not self.optimizer.clips:
            return "step"
        return "accumulate"

    cdef TrainGraph train_graph(self, int64_t rows, str use):
        """Return the graph for a number of rows; the last few are kept."""
        cdef TrainGraph g
        key = (rows, use)
        g = self.graphs.get(key)
        if g is not None and not g.exhausted():
            self.graphs.move_to_end(key)
            return g
        gradients = None
        if use == "accumulate":
            if self.gradients_sum is None:
                self.gradients_sum = like(self.trained)
            gradients = self.gradients_sum
            if self.apply_graph is None:
                self._make_apply_graph()
        elif use == "probe":
            gradients = like(self.trained)
        g = TrainGraph(self.program, self.criterion, rows, self.bindings, self.optimizer.rule,
                       self.slots, self.params, gradients, self.moving)
        self.graphs[key] = g
        self.graphs.move_to_end(key)
        while len(self.graphs) > 4:
            self.graphs.popitem(last=False)
        return g

    cdef TrainGraph main_graph(self):
        """Return the graph of the trainer's own batch size."""
        if self.main is None or self.main.exhausted():
            self.main = self.train_graph(self.batch_size, self._use())
        return self.main

    # -- steps ---------------------------------------------------------------------------

    cdef int set_params(self) except -1:
        t = self.updates + 1
        self.optimizer.follow_schedule(self.updates)
        _write(self.optimizer.params(self.weight_decay, t), self.params.decayed.data)
        if self.weight_decay != 0:
            _write(self.optimizer.params(0.0, t), self.params.plain.data)
        else:
            memcpy(self.params.plain.data, self.params.decayed.data, _N_PARAMS * sizeof(float))
        return 0

    cdef float run(self, TrainGraph g, int64_t rows) except? -1:
        """Compute on what lies in the input tensors; return the loss."""
        cdef float loss
        g.draw_masks(self.seed, self.steps)
        if g.accumulating:
            try:
                loss = g.evaluate(<float>(<double>rows / self.batch_size))
            except (MemoryError, RuntimeError):
                self.forget_window()
                raise
            self.steps += 1
            self.window_rows += rows
            if self.window_rows >= self.nbatch_logical:
                self.finish_window()
        else:
            self.set_params()
            loss = g.evaluate(1.0)
            self.steps += 1
            self.updates += 1
        if not isfinite(loss):
            self.warn(loss, self.steps)
        return loss

    cdef int run_many(self, TrainGraph g, Feed feed, const int64_t[:, ::1] index,
                      double[::1] losses) except -1:
        """Step on the rows of a checked feed that an index names, one batch after another.

        The GIL is held once in many steps only.
        """
        cdef int64_t k = index.shape[0]
        cdef int64_t n = index.shape[1]
        cdef int64_t at = 0
        cdef int64_t first, last, started, look
        cdef int64_t at_once = min(k, _AT_ONCE)
        cdef Intake intake = intake_of(g.inputs, g.loss)
        cdef bint weighted = intake.n_weights > 0
        cdef bint finished = True
        cdef bint accumulating = g.accumulating
        cdef float * decayed = self.params.decayed.data
        cdef float * plain = self.params.plain.data
        cdef float * table = NULL
        cdef void ** rows = NULL
        cdef list sources = feed.x + feed.y + feed.w
        cdef Py_ssize_t i
        if k == 0:
            return 0
        rows = <void **>malloc(intake.n_slots * sizeof(void *))
        table = <float *>malloc(at_once * 2 * _N_PARAMS * sizeof(float))
        try:
            if rows is NULL or table is NULL:
                raise MemoryError
            for i in range(intake.n_slots):
                rows[i] = <void *>sources[i] if i < len(sources) else NULL
            while at < k:
                first = at
                if g.exhausted():
                    g = self.main_graph()
                    intake = intake_of(g.inputs, g.loss)
                if feed.unweighted:
                    intake.ones()
                if accumulating:  # the window's end needs another graph
                    last = at - (self.window_rows - self.nbatch_logical) // n
                    last = min(last, at + _AT_ONCE, k)
                else:
                    last = min(at + _AT_ONCE, k)
                    self._fill_table(table, last - at)
                lock = g.scheduler.enter_compute()
                try:
                    with nogil:
                        started = _ggml.ggml_time_us()
                        look = at + 1  # the clock costs as much as a small step
                        while at < last:
                            intake.fill(rows, 0, n, &index[at, 0])
                            if weighted:
                                intake.clean()
                            g.draw_masks(self.seed, self.steps)
                            if not accumulating:
                                memcpy(decayed, table + (at - first) * 2 * _N_PARAMS,
                                       _N_PARAMS * sizeof(float))
                                memcpy(plain, table + ((at - first) * 2 + 1) * _N_PARAMS,
                                       _N_PARAMS * sizeof(float))
                            finished = g.compute(1.0)
                            if not finished:
                                break
                            losses[at] = g.loss_value[0]
                            at += 1
                            self.steps += 1
                            if accumulating:
                                self.window_rows += n
                            else:
                                self.updates += 1
                            if at == look:
                                if _ggml.ggml_time_us() - started > _MICROSECONDS:
                                    break
                                look = 2 * at - first
                finally:
                    g.scheduler.leave_compute(lock)
                if not finished:
                    if accumulating:
                        self.forget_window()
                    g.raise_unfinished()
                if accumulating and self.window_rows >= self.nbatch_logical:
                    self.finish_window()
                PyErr_CheckSignals()
                if lock is not None and at < k:
                    time.sleep(1e-5)  # whoever waits for the threads gets them
        finally:
            free(rows)
            free(table)
        for i in range(k):
            if not isfinite(losses[i]):
                self.warn(losses[i], self.steps - k + i + 1)
                break
        return 0

    cdef int _fill_table(self, float * table, int64_t n) except -1:
        """Write what the next n updates read: with decay and without, in turn."""
        cdef int64_t i
        for i in range(n):
            t = self.updates + 1 + i
            self.optimizer.follow_schedule(self.updates + i)
            _write(self.optimizer.params(self.weight_decay, t), table)
            if self.weight_decay != 0:
                _write(self.optimizer.params(0.0, t), table + _N_PARAMS)
            else:
                memcpy(table + _N_PARAMS, table, _N_PARAMS * sizeof(float))
            table += 2 * _N_PARAMS
        return 0

    cdef int warn(self, double loss, int64_t step) except -1:
        """Tell once that a loss is not finite."""
        if not self.warned:
            self.warned = True
            warnings.warn(f"the loss is {loss} at step {step}", RuntimeWarning, stacklevel=1)
        return 0

    cdef int finish_window(self) except -1:
        """Update the weights from the gradients that were added up, if there are any."""
        cdef double factor
        if self.window_rows == 0:
            return 0
        if self.apply_graph is None or self.apply_graph.stale():
            self._make_apply_graph()
        factor = <double>self.batch_size / self.window_rows
        if self.optimizer.clips:
            clip_gradients(self.optimizer, self.trained, self.gradients_sum, factor)
            factor = 1
        self.set_params()
        self.apply_graph.apply(<float>factor)
        self.forget_window()
        self.updates += 1
        return 0

    def _make_apply_graph(self):
        self.apply_graph = ApplyGraph(self.trained, self.gradients_sum, self.optimizer.rule,
                                      self.slots, self.params)

    cdef int forget_window(self) except -1:
        """Begin the window anew: a computation that failed left part of a gradient in it."""
        for v in self.trained:
            (<Variable>self.gradients_sum[v]).zero()
        self.window_rows = 0
        return 0

    cdef int alive(self) except -1:
        if self.freed:
            raise RuntimeError("this trainer was freed")
        return 0

    # -- what fit runs on ----------------------------------------------------------------

    def _feed(self, x, y, sample_weight):
        """Check whole arrays and return what :meth:`_step_rows` reads them through."""
        cdef TrainGraph g
        with self.lock:
            self.alive()
            g = self.main_graph()
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
            self.alive()
            g = self.train_graph(n, self._use())
            feed.fill(g.inputs, g.loss, order, start, n)
            loss = self.run(g, n)
        return loss, g.loss

    def _finish_window(self):
        """Update from what was accumulated, at the end of an epoch."""
        with self.lock:
            self.alive()
            self.finish_window()

    def _discard_window(self):
        """Forget gradients of a window that an error or an interrupt left open."""
        with self.lock:
            if self.window_rows and not self.freed:
                self.forget_window()

    def _reseed(self, seed):
        """Draw dropout masks from another seed."""
        self.seed = seed

    def _shared_weights(self):
        """Return the lock and the Variables that stand for those of the model."""
        with self.lock:
            self.alive()
            return self.lock, {v: self.bindings.get(v, v) for v in self.program.variables}

    # -- what checkpoints hold -------------------------------------------------------------

    def _get_state(self, use=None):
        """Return scalars and Variables that together determine the rest of the training.

        The Variables are the trainer's own. ``use``, if given, is called with the result while
        no step can run, and what it returns is returned.
        """
        with self.lock:
            self.alive()
            names = self.compiled.weight_names
            if set(names) != set(self.program.variables):
                raise RuntimeError("the model was changed after this trainer was made of it")
            by_own = {self.bindings.get(v, v): name for v, name in names.items()}
            gradients = {}
            if self.window_rows:
                gradients = {by_own[v]: self.gradients_sum[v] for v in self.trained}
            state = {
                "optimizer": self.optimizer,
                "batch_size": self.batch_size,
                "nbatch_logical": self.nbatch_logical,
                "mask": self.criterion.mask,
                "weight_decay": self.weight_decay,
                "steps": self.steps,
                "updates": self.updates,
                "window_rows": self.window_rows,
                "seed": self.seed,
                "warned": self.warned,
                "weights": {name: v for v, name in by_own.items()},
                "slots": {by_own[v]: self.slots[v] for v in self.trained},
                "gradients": gradients,
            }
            return state if use is None else use(state)

    def _set_state(self, state, fill):
        """Take over a state; nothing is changed unless all of it fits.

        Parameters
        ----------
        state : dict
            As :meth:`_get_state` returns it, with anything that has a ``shape`` in place of the
            Variables. Weights that are left out stay as they are.
        fill : callable
            Called with a list of (Variable, source): sets the Variables.

        Raises
        ------
        ValueError
            Another optimizer, other weights by name or shape, counters that cannot be.
        """
        with self.lock:
            self.alive()
            names = self.compiled.weight_names
            by_name = {name: self.bindings.get(v, v) for v, name in names.items()}
            trained = {name: v for name, v in by_name.items() if v in self.slots}
            config, given = self.optimizer.get_config(), state["optimizer"].get_config()
            for key in ("learning_rate", "weight_decay"):
                config.pop(key, None)
                given.pop(key, None)
            if type(state["optimizer"]) is not type(self.optimizer) or config != given:
                raise ValueError(f"the state is one of {state['optimizer']!r}, but the model was "
                                 f"compiled with {self.optimizer!r}")
            pairs = []
            weights = state["weights"] or {}
            gradients = state["gradients"]
            _same_names("weights", weights, by_name if weights else {})
            _same_names("moments", state["slots"], trained)
            _same_names("gradients", gradients, trained if state["window_rows"] else {})
            for name, source in weights.items():
                pairs.append((by_name[name], source))
            for name, sources in state["slots"].items():
                if len(sources) != len(self.slots[trained[name]]):
                    raise ValueError(f"{name!r} has {len(sources)} moments instead of "
                                     f"{len(self.slots[trained[name]])}")
                pairs += zip(self.slots[trained[name]], sources)
            batches = (state["batch_size"], state["nbatch_logical"])
            if state["window_rows"] and batches != (self.batch_size, self.nbatch_logical):
                raise ValueError("gradients of an unfinished window were saved with batch_size "
                                 f"and nbatch_logical {batches}, not "
                                 f"{(self.batch_size, self.nbatch_logical)}")
            counters = [state["steps"], state["updates"], state["window_rows"], state["seed"]]
            if any(n < 0 or n >= 1 << 63 for n in counters):
                raise ValueError(f"counters must be in [0, 2**63), got {counters}")
            if state["window_rows"] >= self.nbatch_logical:
                raise ValueError(f"{state['window_rows']} rows in a window of "
                                 f"{self.nbatch_logical}")
            decay = _within(state["weight_decay"], "weight_decay", 0, 1)
            schedule = getattr(state["optimizer"], "schedule", None)
            rate = (state["optimizer"].learning_rate if schedule is None
                    else copy.deepcopy(schedule))
            if gradients and self.gradients_sum is None:
                self.gradients_sum = like(self.trained)
            for name, source in gradients.items():
                pairs.append((self.gradients_sum[trained[name]], source))
            for variable, source in pairs:
                if tuple(source.shape) != variable.shape:
                    raise ValueError(f"{variable.name!r} has shape {variable.shape}, the state "
                                     f"{tuple(source.shape)}")
            fill(pairs)
            if not gradients and self.gradients_sum is not None:
                for v in self.trained:
                    (<Variable>self.gradients_sum[v]).zero()
            self.optimizer.learning_rate = rate
            self.optimizer.weight_decay = state["optimizer"].weight_decay
            self.weight_decay = decay
            self.steps, self.updates, self.window_rows, self.seed = counters
            self.warned = state["warned"]
            if schedule is not None:
                self.optimizer.follow_schedule(self.updates)


def _same_names(what, given, wanted):
    missing = sorted(set(wanted) - set(given))
    unknown = sorted(set(given) - set(wanted))
    if missing or unknown:
        raise ValueError(f"the {what} of the state are not the model's: missing {missing}, "
                         f"unknown {unknown}")


cdef int _write(values, float * target) except -1:
    cdef Py_ssize_t i = 0
    cdef double value
    for value in <tuple>values:
        target[i] = <float>value
        i += 1
    return 0


cdef tuple _slots(Variable v, int n):
    """State of the step rule for a weight, which always begins with 0."""
    return tuple([Variable(v.shape, f"{v.name}/{i}", v.axes, trainable=False)
                  for i in range(n)])


cdef dict like(list variables):
    """Return variables for gradients of others."""
    return {v: Variable(v.shape, f"{v.name}/gradient", v.axes, trainable=False)
            for v in variables}


def _shared(share, program, names):
    """Return what a program uses of other trainers' weights, and the locks to take for it."""
    if share is None:
        return {}, []
    trainers = list(share) if isinstance(share, (list, tuple)) else [share]
    found, locks = {}, []
    for trainer in trainers:
        if not isinstance(trainer, Engine):
            raise TypeError(f"share must be a Trainer or a list of them, got "
                            f"{type(trainer).__name__}")
        lock, weights = trainer._shared_weights()
        common = [v for v in program.variables if v in weights]
        if not common:
            raise ValueError(f"{trainer!r} in share has no weight in common with the model")
        for v in common:
            if found.setdefault(v, weights[v]) is not weights[v]:
                raise ValueError(f"two trainers in share hold copies of {names[v]!r} of their own")
        locks.append(lock)
    return found, locks


def require_compiled(model):
    """Return what ``compile`` made, or raise for what a trainer cannot take."""
    from pyggml.models import Model

    if not isinstance(model, Model):
        raise TypeError(f"model must be a Sequential or a Model, got {type(model).__name__}")
    if model.compiled is None:
        raise ValueError(f"model {model.name!r} is not compiled; call model.compile first")
    model.require_built()
    return model.compiled
