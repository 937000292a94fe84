# cython: language_level=3, boundscheck=False, wraparound=False
"""What a trainer is made of: graphs, moments and counters, and the loop over steps."""

import copy
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
from pyggml._locks cimport Lock
from pyggml._meter cimport Meter
from pyggml._slot cimport Slot
from pyggml._training cimport Application, StepParams, TrainGraph
from pyggml._variable cimport Variable

from pyggml._compiled import require_compiled
from pyggml._forward import Predictor
from pyggml._locks import together
from pyggml._random import draw_seed
from pyggml.layers.base import batch_rows, positive_int
from pyggml.optimizers import _within

cdef extern from "_shared.h":
    void pyggml_set64(int64_t * value, int64_t to) noexcept nogil

# Steps between two looks at what else the process has to do: signals, other threads.
cdef enum:
    _AT_ONCE = 512
    _MICROSECONDS = 20000
    _N_PARAMS = 7


@cython.no_gc_clear
cdef class Engine:
    """Base of :class:`pyggml.Trainer`: everything but what users call."""

    def __cinit__(self, *args, **kwargs):
        # What a subclass calls before ``super().__init__`` takes it, and is told so by ``alive``.
        self.lock = Lock()

    def _set_up(self, model, batch_size, nbatch_logical, mask, weight_decay, bint in_place,
                share=None, bint own=False, bint blank=False):
        """Make all that a trainer has from the start.

        It works on the model's own weights if ``own`` or ``in_place``, which is for ``fit``, else
        on copies. ``blank`` leaves moments and copies undefined, for :meth:`_set_state`.
        """
        if self.made:
            raise RuntimeError("this trainer is made already; make another one")
        compiled = require_compiled(model)
        own = own or in_place
        # A model owns the trainer that its fit runs on.
        self.compiled = weakref.proxy(model) if in_place else model
        # The model may be compiled anew; this trainer goes on as it began.
        self.made_with = None if in_place else compiled
        self.program = model.program
        self.names = model.weight_names
        self.optimizer = compiled.optimizer if in_place else copy.deepcopy(compiled.optimizer)
        self.decay_seen = self.optimizer.weight_decay
        self.weight_decay = (self.decay_seen if weight_decay is None
                             else _within(weight_decay, "weight_decay", 0, 1))
        self.graphs = OrderedDict()
        self._configure(batch_size, nbatch_logical, mask)
        shared, locks = _shared(share, self.program, self.names)
        self.bindings = {} if own else {
            v: shared.get(v) or v.clone(not blank) for v in self.program.variables}
        # What is frozen later, for another trainer on the same layers, goes on training in this;
        # only the trainer of ``fit`` follows.
        self.mode = model._training_mode()
        self.trained = [self.bindings.get(v, v) for v in self.program.variables if v in self.mode]
        self.slots = {v: _slots(v, self.optimizer.n_slots, not blank) for v in self.trained}
        self.idle_slots = {}
        self.gradients_sum = self.gradients_given = None
        self.params = StepParams(self.optimizer.decay_biases)
        self.at_once = 16
        self.predictor = (model._predictor_of_program() if own
                          else Predictor(self.program, self.bindings, together(*locks)))
        self.lock = self.predictor.lock
        self.seed = draw_seed()
        # Whatever ggml cannot train is refused here, not at the first step of a long job.
        self.main_graph()
        self.made = True

    def _configure(self, batch_size, nbatch_logical, mask):
        """Choose batch sizes and weights; moments and counters stay."""
        batch_size = batch_rows(batch_size)
        logical = (batch_size if nbatch_logical is None
                   else positive_int(nbatch_logical, "nbatch_logical"))
        if logical > 1 << 62:
            raise ValueError(f"nbatch_logical must be at most {1 << 62}, got {logical}")
        if logical % batch_size:
            raise ValueError(f"nbatch_logical must be a multiple of batch_size, got {logical} and "
                             f"{batch_size}")
        if self.window_rows and batch_size != self.batch_size:
            raise RuntimeError(f"{self.window_rows} of {self.nbatch_logical} rows of a window wait "
                               f"for their update: batches of {batch_size} rows instead of "
                               f"{self.batch_size} cannot come between")
        if batch_size < logical <= self.window_rows:
            raise RuntimeError(f"{self.window_rows} of {self.nbatch_logical} rows of a window wait "
                               f"for their update: nbatch_logical={logical} would have ended it "
                               "before")
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
            trained = [self.bindings.get(v, v) for v in self.program.variables if v in mode]
            slots = {v: known.pop(v) if v in known else _slots(v, self.optimizer.n_slots)
                     for v in trained}
            gradients = None
            if self.gradients_sum is not None:
                gradients = like([v for v in trained if v not in self.gradients_sum])
                gradients |= {v: g for v, g in self.gradients_sum.items() if v in slots}
            self.mode, self.trained = mode, trained
            self.slots, self.idle_slots = slots, known
            self.gradients_sum, self.gradients_given = gradients, None
            self.main = None
            self.graphs.clear()
            self.application = self.application_given = None

    # -- graphs --------------------------------------------------------------------------

    def _use(self):
        return "step" if self.nbatch_logical == self.batch_size else "accumulate"

    cdef TrainGraph train_graph(self, int64_t rows, str use):
        """Return the graph for a number of rows; the last few are kept."""
        cdef TrainGraph g
        clip = self.optimizer.clipping
        key = (rows, use, clip)
        g = self.graphs.get(key)
        if g is not None and not g.exhausted():
            self.graphs.move_to_end(key)
            self._prepare_application(g, use)
            return g
        gradients = None
        if use == "accumulate":
            if self.gradients_sum is None:
                self.gradients_sum = like(self.trained)
            gradients = self.gradients_sum
        elif use == "probe":
            gradients = like(self.trained)
        g = TrainGraph(self.program, self.criterion, rows, self.bindings, self.optimizer.rule,
                       clip, self.slots, self.params, gradients, self.mode)
        self._prepare_application(g, use)
        self.graphs[key] = g
        self.graphs.move_to_end(key)
        while len(self.graphs) > 4:
            self.graphs.popitem(last=False)
        return g

    cdef TrainGraph main_graph(self):
        """Return the graph of the trainer's own batch size."""
        if (self.main is None or self.main.exhausted()
                or self.main.clip != self.optimizer.clipping):
            self.main = self.train_graph(self.batch_size, self._use())
        return self.main

    # -- steps ---------------------------------------------------------------------------

    cdef int follow_decay(self) except -1:
        """Take over another weight decay that the optimizer was given."""
        cdef double given = self.optimizer.weight_decay
        if given != self.decay_seen:
            self.weight_decay = _within(given, "weight_decay", 0, 1)
            self.decay_seen = given
        return 0

    cdef int set_params(self) except -1:
        t = self.updates + 1
        self.follow_decay()
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
            if self.window_rows + rows >= self.nbatch_logical:
                self.prepare_update()
            try:
                loss = g.evaluate(<float>(<double>rows / self.batch_size))
            except (MemoryError, RuntimeError):
                self.forget_window()
                raise
            self.steps += 1
            self.window_rows += rows
            if self.window_rows >= self.nbatch_logical:
                self.end_window()
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

        Whoever waits for the trainer, or for the threads, has its turn after the step that runs.
        """
        cdef int64_t k = index.shape[0]
        cdef int64_t n = index.shape[1]
        cdef int64_t at = 0
        while at < k:
            at += self.run_some(g, feed, &index[0, 0], at * n, n, k - at, &losses[at], None)
            if at < k:
                if self.lock.wanted():
                    self._give_way()
                self.alive()  # a signal's handler may have freed it
                g = self.main_graph()
        return 0

    cdef int64_t run_some(self, TrainGraph g, Feed feed, const int64_t * index, int64_t start,
                          int64_t n, int64_t k, double * losses, Meter meter) except -1:
        """Step on up to k batches of n rows without the GIL; return how many there were.

        Ends when it is time to look at what else the process has to do, when another thread waits
        for the trainer or for the threads, and where a window ends.
        Rows are those from ``start`` of an index, or of the feed where it is NULL. Losses go to
        ``losses`` and to the meter, which follows the graph, where these are given.
        """
        cdef int64_t done = 0
        cdef int64_t odd = -1
        cdef int64_t started, look, before
        cdef Intake intake = intake_of(g.inputs, g.loss)
        cdef bint weighted = intake.n_weights > 0
        cdef bint finished = True
        cdef bint metered = meter is not None
        cdef bint accumulating = g.accumulating
        cdef float share = <float>(<double>n / self.batch_size) if accumulating else 1.0
        cdef float * decayed = self.params.decayed.data
        cdef float * plain = self.params.plain.data
        cdef float * table = NULL
        cdef void ** rows = NULL
        cdef float loss
        cdef float strange = 0
        cdef int refused = -1
        cdef list sources = feed.x + feed.y + feed.w
        cdef Py_ssize_t i
        cdef Lock own = self.lock
        cdef Lock lock
        cdef bint shared
        feed.require_fit(g.inputs, g.loss)
        k = min(k, self.at_once)
        if accumulating:  # a window's last step is one of its own, for which more is prepared
            before = (self.nbatch_logical - 1 - self.window_rows) // n
            k = min(k, max(before, 1))
            if k > before:
                self.prepare_update()
        rows = <void **>malloc(intake.n_slots * sizeof(void *))
        table = <float *>malloc(k * 2 * _N_PARAMS * sizeof(float))
        try:
            if rows is NULL or table is NULL:
                raise MemoryError
            for i in range(intake.n_slots):
                rows[i] = <void *>sources[i] if i < len(sources) else NULL
            if feed.unweighted:
                intake.ones()
            if not accumulating:
                self._fill_table(table, k)
            lock = g.scheduler.enter_compute()
            shared = lock is not None
            try:
                with nogil:
                    started = _ggml.ggml_time_us()
                    look = 1  # the clock costs as much as a small step
                    while done < k:
                        refused = intake.fill(rows, start + done * n, n, index)
                        if refused >= 0:
                            break
                        if weighted:
                            intake.clean()
                        g.draw_masks(self.seed, self.steps)
                        if not accumulating:
                            memcpy(decayed, table + done * 2 * _N_PARAMS,
                                   _N_PARAMS * sizeof(float))
                            memcpy(plain, table + (done * 2 + 1) * _N_PARAMS,
                                   _N_PARAMS * sizeof(float))
                        finished = g.compute(share)
                        if not finished:
                            break
                        loss = g.loss_value[0]
                        done += 1
                        pyggml_set64(&self.steps, self.steps + 1)
                        if accumulating:
                            self.window_rows += n
                        else:
                            pyggml_set64(&self.updates, self.updates + 1)
                        if losses is not NULL:
                            losses[done - 1] = loss
                        if metered:
                            meter.take(loss, n)
                        if odd < 0 and not isfinite(loss):
                            odd, strange = self.steps, loss
                        if own.wanted() or (shared and lock.wanted()):
                            break
                        if done == look:
                            if _ggml.ggml_time_us() - started > _MICROSECONDS:
                                break
                            look = 2 * done
            finally:
                g.scheduler.leave_compute(lock)
        finally:
            free(rows)
            free(table)
        if done < k:
            self.at_once = done + 8  # no more is prepared than is used
            if done and not accumulating:
                self.optimizer.follow_schedule(self.updates - 1)
        elif k == self.at_once:
            self.at_once = min(2 * k, _AT_ONCE)
        if refused >= 0:
            (<Slot>intake.owners[refused]).fill(sources[refused], start + done * n, n, index)
        if not finished:
            if accumulating:
                self.forget_window()
            g.raise_unfinished()
        if accumulating and self.window_rows >= self.nbatch_logical:
            self.end_window()
        if odd >= 0:
            self.warn(strange, odd)
        PyErr_CheckSignals()
        return done

    cdef int _give_way(self) except -1:
        """Let other threads that wait use the trainer, and go on after them.

        It is held again even where the wait is interrupted: whoever took it gives it back.
        """
        cdef object interrupt = None
        self.lock.give()
        while True:
            try:
                self.lock.take()
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return self.alive()

    cdef int _fill_table(self, float * table, int64_t n) except -1:
        """Write what the next n updates read: with decay and without, in turn."""
        cdef int64_t i
        self.follow_decay()
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
        if self.window_rows:
            self.prepare_update()
            self.end_window()
        return 0

    cdef int prepare_update(self) except -1:
        """Do for the end of a window what may fail, before its last step has added to it."""
        if self.application is None:
            self.train_graph(self.batch_size, "accumulate")
        self.set_params()
        self.application.stepper.set_clip(self.optimizer.clipping)
        return 0

    cdef void end_window(self):
        """Update the weights from the gradients that were added up, and begin anew."""
        self.application.apply(<double>self.batch_size / self.window_rows)
        self.forget_window()
        self.updates += 1

    cdef int _prepare_application(self, TrainGraph g, str use) except -1:
        """Make what a window's end needs, not only then: memory may be short.

        What the loss does not depend on is not moved, nor decayed, just as in a single step.
        """
        if use == "accumulate" and self.application is None:
            self.application = Application(
                [v for v in self.trained if v in g.reached], self.gradients_sum,
                self.optimizer.rule, self.slots, self.params)
        return 0

    cdef void forget_window(self):
        """Begin the window anew: a computation that failed left part of a gradient in it."""
        for v in self.trained:
            (<Variable>self.gradients_sum[v]).zero()
        self.window_rows = 0

    cdef int alive(self) except -1:
        if self.freed:
            raise RuntimeError("this trainer was freed")
        if not self.made:
            raise RuntimeError("this trainer is not made: a subclass calls super().__init__() "
                               "before it uses it")
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

    def _step_run(self, Feed feed, order, int64_t start, int64_t end, Meter meter, int64_t most):
        """Step on batches of rows ``start`` to ``end``, as often as it can without Python.

        The same as :meth:`_step_rows` and ``meter.add`` for each, to the last bit. Only where
        fewer rows are left than make a batch are they a batch of their own.

        Returns
        -------
        int
            Where to go on: after some milliseconds, after ``most`` batches, or at the end.
        """
        cdef TrainGraph g
        cdef const int64_t[::1] rows
        cdef const int64_t * index = NULL
        cdef int64_t n = min(self.batch_size, end - start)
        cdef int64_t k = 0
        if order is not None:
            rows = order
            index = &rows[0]
        with self.lock:
            self.alive()
            g = self.main_graph() if n == self.batch_size else self.train_graph(n, self._use())
            k = min(most, (end - start) // n, meter.follow(g.loss, n))
            k = self.run_some(g, feed, index, start, n, k, NULL, meter)
        meter.note(feed, order, start, k * n, True)
        return start + k * n

    def _begin_windows(self):
        """Refuse to where a window is open: the gradients of two would be added."""
        with self.lock:
            if self.window_rows:
                raise RuntimeError(f"{self.window_rows} rows of a window wait for their update: "
                                   "another window cannot begin before")

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

    def _compiled_with(self):
        """What ``compile`` made for this trainer, or None for the one of ``fit``: the model's."""
        return self.made_with

    def _training_mode(self):
        """What this trains, whatever was frozen since for others."""
        return self.mode

    def _require_unchanged(self):
        """Refuse to describe this network by a model that has become another."""
        if (self.compiled._program is not self.program
                or set(self.compiled.weight_names) != set(self.program.variables)):
            raise RuntimeError("the model was changed after this trainer was made of it")

    # -- what checkpoints hold -------------------------------------------------------------

    def _get_state(self, use=None):
        """Return scalars and Variables that together determine the rest of the training.

        The Variables are the trainer's own. ``use``, if given, is called with the result while
        no step can run, and what it returns is returned.
        """
        with self.lock:
            self.alive()
            self._require_unchanged()
            names = self.compiled.weight_names
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
                "idle_slots": {by_own[v]: slots for v, slots in self.idle_slots.items()},
                "untrained": [name for v, name in by_own.items()
                              if v not in self.slots and v not in self.idle_slots],
                "gradients": gradients,
            }
            return state if use is None else use(state)

    def _set_state(self, state, filling):
        """Take over a state; nothing is changed unless all of it fits.

        Parameters
        ----------
        state : dict
            As :meth:`_get_state` returns it, with anything that has a ``shape`` in place of the
            Variables. ``weights`` may be None: they stay as they are.
        filling : callable
            Called with a list of (Variable, source): returns what sets the Variables.

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
            weights = by_name if state["weights"] is None else state["weights"]
            gradients = state["gradients"]
            _same_names("weights", weights, by_name)
            # What was frozen then may not be now, and the other way round.
            saved = state["slots"] | state["idle_slots"]
            fresh = set(state["untrained"]) - set(saved)
            _same_names("moments", {name: None for name in saved if name in trained},
                        {name: None for name in trained if name not in fresh})
            _same_names("moments", saved, {name: None for name in by_name if name not in fresh})
            _same_names("gradients", gradients, trained if state["window_rows"] else {})
            if state["weights"] is not None:
                pairs += [(by_name[name], source) for name, source in weights.items()]
            # Frozen weights keep moments for when they go on.
            slots = {v: self.slots.get(v) or _slots(v, self.optimizer.n_slots)
                     for v in [by_name[name] for name in saved]}
            for name, sources in saved.items():
                own = slots[by_name[name]]
                if len(sources) != len(own):
                    raise ValueError(f"{name!r} has {len(sources)} moments instead of {len(own)}")
                pairs += zip(own, sources)
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
            restored = copy.deepcopy(state["optimizer"])
            restored.follow_schedule(max(state["updates"] - 1, 0))
            # Set by its dictionary: a property is Python code.
            rates = {name: vars(restored)[name]
                     for name in ("_learning_rate", "_schedule", "weight_decay")}
            kept = vars(self.optimizer)
            if gradients and self.gradients_sum is None:
                self.gradients_sum = like(self.trained)
            for name, source in gradients.items():
                pairs.append((self.gradients_sum[trained[name]], source))
            for variable, source in pairs:
                if tuple(source.shape) != variable.shape:
                    raise ValueError(f"{variable.name!r} has shape {variable.shape}, the state "
                                     f"{tuple(source.shape)}")
            idle = {v: own for v, own in slots.items() if v not in self.slots}
            empty = [v for name in fresh & set(trained) for v in self.slots[trained[name]]]
            if not gradients and self.gradients_sum is not None:
                empty += [self.gradients_sum[v] for v in self.trained]
            fill = filling(pairs)
            # From here on no Python code is run but where it fails: a signal's handler finds the
            # old state or the new one.
            fill()
            for v in empty:
                (<Variable>v).zero()
            self.idle_slots = idle
            kept.update(rates)
            self.weight_decay, self.decay_seen = decay, rates["weight_decay"]
            self.steps, self.updates, self.window_rows, self.seed = counters
            self.warned = state["warned"]


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


cdef tuple _slots(Variable v, int n, bint clear=True):
    """State of the step rule for a weight: 0 at the beginning."""
    return tuple([Variable(v.shape, f"{v.name}/{i}", v.axes, trainable=False, clear=clear)
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
