# cython: language_level=3
"""From ggml's nodes to kernels of our own on the CPU.

``PYGGML_LOWERING=0`` in the environment leaves every graph as ggml computes it;
``PYGGML_LOWERING=-conv,-update`` leaves out some of the rules, whose names are in RULES.
"""

import os

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from pyggml cimport _ggml, _kernels
from pyggml._kernels cimport (
    PG_ENOMEM, PG_OK, pg_attention, pg_dropout_mask, pg_ftz_enter, pg_ftz_leave, pg_init,
    pg_isa_name, pg_rng, pg_rnn, pg_set_num_threads)

cdef extern from "lowering/lowering.h" nogil:
    enum:
        PG_RULE_MATMUL
        PG_RULE_FUSE
        PG_RULE_STEP
        PG_RULE_BIAS
        PG_RULE_UPDATE
        PG_RULE_SOFTMAX
        PG_RULE_ACTIVATION
        PG_RULE_DROPOUT
        PG_RULE_LOSS
        PG_RULE_CONV
        PG_RULE_POOL
        PG_RULE_GATHER
        PG_RULE_LAYER_NORM
        PG_RULE_BATCH_NORM
        PG_RULE_RNN
        PG_RULE_ATTENTION
        PG_RULE_ADD
        PG_RULE_COPY
        PG_RULE_ALL
        PG_CARRY_ACTIVATION
        PG_CARRY_DROPOUT
        PG_CARRY_LOSS
        PG_CARRY_FUNCTION
    pg_lowered * pg_lower(_ggml.ggml_context * compute, _ggml.ggml_context * kept,
                          const pg_carrier * carriers, int n_carriers, int rules)
    void pg_lowered_free(pg_lowered * lowered)
    int pg_lowered_status(pg_lowered * lowered)
    bint pg_lowered_failed(const pg_lowered * lowered)
    int pg_lowered_count(const pg_lowered * lowered)
    int pg_lowered_dead(const pg_lowered * lowered)

cdef extern from "lowering/functions.h" nogil:
    void pg_function_conv(pg_function * f)
    void pg_function_max_pool(pg_function * f)
    void pg_function_avg_pool(pg_function * f)
    void pg_function_gather(pg_function * f)
    void pg_function_layer_norm(pg_function * f)
    void pg_function_batch_norm(pg_function * f)
    void pg_function_batch_norm_fixed(pg_function * f)
    void pg_function_rnn(pg_function * f)
    size_t pg_function_rnn_floats(const pg_rnn * r)
    void pg_function_attention(pg_function * f)
    size_t pg_function_attention_floats(const pg_attention * a)

cdef extern from "lowering/stepper.h" nogil:
    enum:
        PG_CLIP_NONE
        PG_CLIP_VALUE
        PG_CLIP_NORM
        PG_CLIP_GLOBAL
    int pg_stepper_init(pg_stepper * s, int n)
    void pg_stepper_free(pg_stepper * s)
    void pg_stepper_begin(pg_stepper * s)
    void pg_stepper_step(pg_stepper * s, const pg_stepped * t)
    void pg_node_stepper(_ggml.ggml_tensor * dst, int ith, int nth, void * stepper)

cdef extern from "pool.h" nogil:
    int PG_MAX_THREADS

# What the kernels know, by name.
LOSSES = {
    "mse": <int>_kernels.PG_LOSS_MSE,
    "mae": <int>_kernels.PG_LOSS_MAE,
    "huber": <int>_kernels.PG_LOSS_HUBER,
    "log_cosh": <int>_kernels.PG_LOSS_LOG_COSH,
    "bce_logits": <int>_kernels.PG_LOSS_BCE_LOGITS,
    "bce": <int>_kernels.PG_LOSS_BCE,
    "focal_logits": <int>_kernels.PG_LOSS_FOCAL_LOGITS,
    "focal": <int>_kernels.PG_LOSS_FOCAL,
    "hinge": <int>_kernels.PG_LOSS_HINGE,
    "squared_hinge": <int>_kernels.PG_LOSS_SQUARED_HINGE,
    "kl": <int>_kernels.PG_LOSS_KL,
    "poisson": <int>_kernels.PG_LOSS_POISSON,
    "softmax_ce": <int>_kernels.PG_LOSS_SOFTMAX_CE,
    "ce": <int>_kernels.PG_LOSS_CE,
    "cosine": <int>_kernels.PG_LOSS_COSINE,
}
ACTIVATIONS = {
    "linear": <int>_kernels.PG_ACT_LINEAR,
    "relu": <int>_kernels.PG_ACT_RELU,
    "relu6": <int>_kernels.PG_ACT_RELU6,
    "leaky_relu": <int>_kernels.PG_ACT_LEAKY_RELU,
    "elu": <int>_kernels.PG_ACT_ELU,
    "selu": <int>_kernels.PG_ACT_SELU,
    "gelu": <int>_kernels.PG_ACT_GELU,
    "gelu_tanh": <int>_kernels.PG_ACT_GELU_TANH,
    "silu": <int>_kernels.PG_ACT_SILU,
    "sigmoid": <int>_kernels.PG_ACT_SIGMOID,
    "hard_sigmoid": <int>_kernels.PG_ACT_HARD_SIGMOID,
    "hard_swish": <int>_kernels.PG_ACT_HARD_SWISH,
    "tanh": <int>_kernels.PG_ACT_TANH,
    "softplus": <int>_kernels.PG_ACT_SOFTPLUS,
    "softsign": <int>_kernels.PG_ACT_SOFTSIGN,
    "mish": <int>_kernels.PG_ACT_MISH,
    "exponential": <int>_kernels.PG_ACT_EXPONENTIAL,
    "at_least": <int>_kernels.PG_ACT_AT_LEAST,
    "at_most": <int>_kernels.PG_ACT_AT_MOST,
}
STEPS = {
    "sgd": <int>_kernels.PG_STEP_SGD,
    "momentum": <int>_kernels.PG_STEP_MOMENTUM,
    "adamw": <int>_kernels.PG_STEP_ADAM,
    "rmsprop": <int>_kernels.PG_STEP_RMSPROP,
    "adagrad": <int>_kernels.PG_STEP_ADAGRAD,
    "lion": <int>_kernels.PG_STEP_LION,
}
CLIPS = {
    None: <int>PG_CLIP_NONE,
    "value": <int>PG_CLIP_VALUE,
    "norm": <int>PG_CLIP_NORM,
    "global": <int>PG_CLIP_GLOBAL,
}

# What may be left out: rewriting of ggml's nodes, and the functions that layers leave to kernels.
RULES = {
    "matmul": <int>PG_RULE_MATMUL,
    "fuse": <int>PG_RULE_FUSE,
    "step": <int>PG_RULE_STEP,
    "bias": <int>PG_RULE_BIAS,
    "update": <int>PG_RULE_UPDATE,
    "softmax": <int>PG_RULE_SOFTMAX,
    "activation": <int>PG_RULE_ACTIVATION,
    "dropout": <int>PG_RULE_DROPOUT,
    "loss": <int>PG_RULE_LOSS,
    "conv": <int>PG_RULE_CONV,
    "pool": <int>PG_RULE_POOL,
    "gather": <int>PG_RULE_GATHER,
    "layer_norm": <int>PG_RULE_LAYER_NORM,
    "batch_norm": <int>PG_RULE_BATCH_NORM,
    "rnn": <int>PG_RULE_RNN,
    "attention": <int>PG_RULE_ATTENTION,
    "add": <int>PG_RULE_ADD,
    "copy": <int>PG_RULE_COPY,
}

pg_init()

cdef int _rules = PG_RULE_ALL
cdef bint _enabled = True
cdef long _kernels_called = 0
cdef long _left_out = 0


def rewritten():
    """How many nodes of this process became calls of kernels so far, and how many were left out."""
    return _kernels_called, _left_out


def enabled():
    """Whether graphs are lowered."""
    return _enabled


cpdef bint on(str rule) except -1:
    """Whether graphs are lowered by a rule."""
    return _enabled and (_rules & <int>RULES[rule]) != 0


def set_enabled(bint value):
    """Switch lowering, with all of its rules, for graphs that are made from now on. For tests."""
    configure("1" if value else "0")


def configure(str setting):
    """Switch lowering for graphs that are made from now on.

    Parameters
    ----------
    setting : str
        As in PYGGML_LOWERING: "0", "1", or names of RULES to leave out, as in "-conv,-update".

    Raises
    ------
    ValueError
        Anything else.
    """
    global _enabled, _rules
    cdef int rules = PG_RULE_ALL
    if setting not in ("", "0", "1"):
        for word in setting.split(","):
            name = word.strip()
            if not name.startswith("-") or name[1:] not in RULES:
                raise ValueError(f"PYGGML_LOWERING must be 0, 1 or rules to leave out, as in "
                                 f"-conv,-update, of {', '.join(RULES)}; got {setting!r}")
            rules &= ~<int>RULES[name[1:]]
    _enabled = setting != "0"
    _rules = rules


configure(os.environ.get("PYGGML_LOWERING", "1"))


def isa():
    """Return the instruction set of the kernels: "baseline", "avx2" or "avx512"."""
    return (<bytes>pg_isa_name()).decode()


cdef class _Function:
    """What one node that stands for a function refers to."""


cdef class _Stream:
    """The random numbers of one use of dropout."""


cdef class Carriers:
    """The nodes of a graph that stand for something else until they are lowered."""

    def __cinit__(self):
        self.items = NULL
        self.count = 0
        self.streams = []
        self.functions = []

    def __dealloc__(self):
        free(self.items)

    cdef pg_carrier * grow(self) except NULL:
        cdef pg_carrier * items = <pg_carrier *>realloc(
            self.items, (self.count + 1) * sizeof(pg_carrier))
        if items is NULL:
            raise MemoryError
        self.items = items
        memset(&items[self.count], 0, sizeof(pg_carrier))
        self.count += 1
        return &items[self.count - 1]

    cdef int activation(self, _ggml.ggml_tensor * key, int act, float param) except -1:
        cdef pg_carrier * c = self.grow()
        c.key = key
        c.kind = PG_CARRY_ACTIVATION
        c.act = act
        c.param[0] = param
        return 0

    cdef int dropout(self, _ggml.ggml_tensor * key, float rate) except -1:
        cdef _Stream stream = _Stream()
        cdef pg_carrier * c = self.grow()
        stream.rng.seed = 0
        stream.rng.step = 0
        stream.rng.stream = len(self.streams)
        self.streams.append(stream)
        c.key = key
        c.kind = PG_CARRY_DROPOUT
        c.param[0] = rate
        c.rng = &stream.rng
        return 0

    cdef pg_function * new_function(self) except NULL:
        cdef _Function f = _Function()
        memset(&f.data, 0, sizeof(pg_function))
        self.functions.append(f)
        return &f.data

    cdef int function(self, _ggml.ggml_tensor * key, pg_function * f, int number) except -1:
        cdef pg_carrier * c = self.grow()
        c.key = key
        c.kind = PG_CARRY_FUNCTION
        c.act = number
        c.function = f
        return 0

    cdef int loss(self, _ggml.ggml_tensor * key, int kind, float param0, float param1,
                  double scale, _ggml.ggml_tensor * labels, _ggml.ggml_tensor * weights,
                  bint weight_rows) except -1:
        cdef pg_carrier * c = self.grow()
        c.key = key
        c.kind = PG_CARRY_LOSS
        c.act = kind
        c.param[0] = param0
        c.param[1] = param1
        c.scale = scale
        c.extra[0] = labels
        c.extra[1] = weights
        c.weight_rows = weight_rows
        return 0

    cdef void set_rng(self, uint64_t seed, uint64_t step) noexcept nogil:
        """Choose the random numbers that dropout draws next."""
        cdef int i
        for i in range(self.count):
            if self.items[i].rng is not NULL:
                self.items[i].rng.seed = seed
                self.items[i].rng.step = step


cdef class Stepper:
    """The step of an optimizer on several weights, with the clipping of their gradients.

    Parameters
    ----------
    rule : str
        One of STEPS.
    clip : tuple of str or None, float
        What is clipped, one of CLIPS, and the limit.
    n : int
        How many weights.
    """

    def __cinit__(self, str rule, tuple clip, int n):
        if rule not in STEPS:
            raise ValueError(f"unknown step rule {rule!r}; known are {', '.join(STEPS)}")
        self.data.rule = STEPS[rule]
        self.data.scale = 1.0
        self.set_clip(clip)
        if pg_stepper_init(&self.data, n) != PG_OK:
            raise MemoryError

    def __dealloc__(self):
        pg_stepper_free(&self.data)

    cdef int set_clip(self, tuple clip) except -1:
        kind, limit = clip
        self.data.clip = CLIPS[kind]
        self.data.limit = limit
        self.clip = clip
        return 0

    cdef int take(self, _ggml.ggml_tensor * t) except -1:
        """Let a node, whose sources are weight, gradient, parameters and states, step."""
        cdef _ggml.ggml_init_params params
        cdef _ggml.ggml_context * scratch
        cdef _ggml.ggml_tensor * model
        params.mem_size = 2 * _ggml.ggml_tensor_overhead()
        params.mem_buffer = NULL
        params.no_alloc = True
        scratch = _ggml.ggml_init(params)
        if scratch is NULL:
            raise MemoryError
        model = _ggml.ggml_custom_4d(scratch, _ggml.GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0,
                                     pg_node_stepper, _ggml.GGML_N_TASKS_MAX, &self.data)
        t.op = _ggml.GGML_OP_CUSTOM
        memcpy(t.op_params, model.op_params, sizeof(t.op_params))
        _ggml.ggml_free(scratch)
        return 0

    cdef void begin(self) noexcept nogil:
        """Call before the first weight of every step."""
        pg_stepper_begin(&self.data)

    cdef void step(self, const pg_stepped * t) noexcept nogil:
        pg_stepper_step(&self.data, t)


cdef class Lowered:
    """What the custom nodes of a graph refer to."""

    def __cinit__(self):
        self.ptr = NULL

    cdef int check(self) except -1:
        """Raise what a kernel could not do in the last computation."""
        cdef int status
        if self.ptr is NULL:
            return 0
        status = pg_lowered_status(self.ptr)
        if status == PG_OK:
            return 0
        if status == PG_ENOMEM:
            raise MemoryError("no scratch memory for a kernel")
        raise RuntimeError(f"a kernel failed with status {status}")

    def __dealloc__(self):
        pg_lowered_free(self.ptr)
        self.ptr = NULL


cdef bint has_failed(void * lowered) noexcept nogil:
    """Whether a kernel of a graph failed: what ggml asks between two nodes."""
    return pg_lowered_failed(<const pg_lowered *>lowered)


cdef Lowered lower(_ggml.ggml_context * compute, _ggml.ggml_context * kept, Carriers carriers):
    """Rewrite the nodes of a graph; keep the result as long as the graph."""
    global _kernels_called, _left_out
    cdef Lowered lowered = Lowered()
    lowered.carriers = carriers
    if not _enabled:
        return lowered
    lowered.ptr = pg_lower(compute, kept, carriers.items, carriers.count, _rules)
    if lowered.ptr is NULL:
        raise MemoryError("no memory to lower a graph")
    _kernels_called += pg_lowered_count(lowered.ptr)
    _left_out += pg_lowered_dead(lowered.ptr)
    return lowered


cdef int set_threads(int n) except -1:
    """Set the number of threads of the kernels' pool."""
    cdef int status
    with nogil:
        status = pg_set_num_threads(min(n, PG_MAX_THREADS))
    if status != PG_OK:
        raise MemoryError(f"{n} threads could not be set up")
    return 0


cdef void never_run(_ggml.ggml_tensor * dst, int ith, int nth,
                    void * userdata) noexcept nogil:
    """What custom nodes call that are rewritten before any graph runs."""


cdef uint64_t begin_compute() noexcept nogil:
    """Flush denormals to zero in this thread; hand the result to end_compute."""
    return pg_ftz_enter()


cdef void end_compute(uint64_t state) noexcept nogil:
    pg_ftz_leave(state)


cdef int fill_mask(float * mask, Py_ssize_t n, double rate, uint64_t seed, uint64_t step,
                   unsigned int stream) noexcept nogil:
    """Fill an inverted-dropout mask: the one that the kernels apply without storing it."""
    cdef pg_rng rng
    rng.seed = seed
    rng.step = step
    rng.stream = stream
    pg_dropout_mask(&rng, <float>rate, n, mask)
    return 0


cdef int make_function(pg_function * f, str kind) except -1:
    """Set the kernels of a function, forward and backward."""
    if kind == "conv":
        pg_function_conv(f)
    elif kind == "max_pool":
        pg_function_max_pool(f)
    elif kind == "avg_pool":
        pg_function_avg_pool(f)
    elif kind == "gather":
        pg_function_gather(f)
    elif kind == "layer_norm":
        pg_function_layer_norm(f)
    elif kind == "batch_norm":
        pg_function_batch_norm(f)
    elif kind == "batch_norm_fixed":
        pg_function_batch_norm_fixed(f)
    elif kind == "rnn":
        pg_function_rnn(f)
    elif kind == "attention":
        pg_function_attention(f)
    else:
        raise ValueError(f"no kernel computes {kind!r}")
    return 0


cdef size_t rnn_floats(const pg_rnn * r) noexcept nogil:
    """How many floats a recurrent layer leaves for its backward pass."""
    return pg_function_rnn_floats(r)


cdef size_t attention_floats(const pg_attention * a) noexcept nogil:
    """How many floats attention leaves for its backward pass."""
    return pg_function_attention_floats(a)
