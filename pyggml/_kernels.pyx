# cython: language_level=3, boundscheck=False
"""The C kernels on NumPy arrays: for tests and measurements, not for users.

Arrays are C-contiguous float32 (ids int32); None stands for a null pointer.
"""

from libc.stdint cimport uintptr_t

import time

import numpy as np

from pyggml._lowering import ACTIVATIONS, LOSSES

pg_init()

STEPS = {"sgd": PG_STEP_SGD, "momentum": PG_STEP_MOMENTUM, "adam": PG_STEP_ADAM,
         "rmsprop": PG_STEP_RMSPROP, "adagrad": PG_STEP_ADAGRAD, "lion": PG_STEP_LION}
RNNS = {"lstm": PG_RNN_LSTM, "gru": PG_RNN_GRU, "simple": PG_RNN_SIMPLE}


cdef float *fp(a) except? NULL:
    if a is None:
        return NULL
    if a.dtype != np.float32 or not a.flags.c_contiguous:
        raise TypeError("expected a C-contiguous float32 array")
    return <float *><uintptr_t>a.ctypes.data


cdef int32_t *ip(a) except? NULL:
    if a is None:
        return NULL
    if a.dtype != np.int32 or not a.flags.c_contiguous:
        raise TypeError("expected a C-contiguous int32 array")
    return <int32_t *><uintptr_t>a.ctypes.data


cdef check(int status):
    if status == PG_ENOMEM:
        raise MemoryError("no memory for a kernel's scratch")
    if status != PG_OK:
        raise ValueError("a kernel was given arguments out of range")


# ---- threads and instruction sets ----

def init():
    pg_init()


def isa_name():
    return pg_isa_name().decode()


def isa_available(str name):
    return bool(pg_isa_available(name.encode()))


def set_num_threads(int n):
    check(pg_set_num_threads(n))


def get_num_threads():
    return pg_get_num_threads()


def set_thread_limit(int n):
    pg_set_thread_limit(n)


def pool_stop():
    pg_pool_stop()


def have_blas():
    return bool(pg_have_blas())


def ftz_product(float a, float b):
    """a * b as computed with denormals flushed; the caller's state is restored."""
    cdef pg_ftz_state s = pg_ftz_enter()
    cdef float c = a * b
    pg_ftz_leave(s)
    return c


cdef void mark(void *ctx, int part) noexcept nogil:
    (<int *>ctx)[part] += 1


def count_parts(int n_parts, bint brief=False):
    """How often each part of a region ran."""
    out = np.zeros(n_parts, np.int32)
    cdef int *p = <int *>ip(out)
    with nogil:
        if brief:
            pg_parallel_brief(n_parts, mark, p)
        else:
            pg_parallel(n_parts, mark, p)
    return out


cdef void nothing(void *ctx, int part) noexcept nogil:
    pass


cdef struct Spin:
    long turns
    double sink[64]


cdef void spin(void *ctx, int part) noexcept nogil:
    cdef Spin *s = <Spin *>ctx
    cdef double x = part
    cdef long _i
    for _i in range(s.turns):
        x = x * 0.999 + 1.0
    s.sink[part & 63] = x


def region_seconds(int n_parts, int regions, long turns=0):
    """Seconds for so many regions, each part of which turns a loop so often."""
    cdef int _i
    cdef Spin s
    s.turns = turns
    begin = time.perf_counter()
    with nogil:
        for _i in range(regions):
            pg_parallel(n_parts, spin if turns else nothing, &s)
    return time.perf_counter() - begin


# ---- matrix products ----

def gemm(int ta, int tb, float alpha, a, b, float beta, c, bias=None, act="linear",
         float act_param=0.0, lda=None, ldb=None, ldc=None, k=None):
    """c = act(alpha op(a) op(b) + beta c + bias), for whole arrays or with strides given."""
    cdef pg_int m = c.shape[0], n = c.shape[1]
    cdef pg_int kk = (a.shape[0] if ta else a.shape[1]) if k is None else k
    cdef pg_int la = a.shape[1] if lda is None else lda
    cdef pg_int lb = b.shape[1] if ldb is None else ldb
    cdef pg_int lc = n if ldc is None else ldc
    cdef float *pa = fp(a)
    cdef float *pb = fp(b)
    cdef float *pc = fp(c)
    cdef float *pbias = fp(bias)
    cdef int kind = ACTIVATIONS[act], rc
    with nogil:
        rc = pg_gemm_bias_act(ta, tb, m, n, kk, alpha, pa, la, pb, lb, beta, pc, lc, pbias, kind,
                              act_param)
    check(rc)


def gemm_batched(int ta, int tb, float alpha, a, b, float beta, c):
    """The same for [batch, ...] arrays; an operand with batch 1 serves all."""
    cdef pg_int batch = c.shape[0], m = c.shape[1], n = c.shape[2]
    cdef pg_int k = a.shape[1] if ta else a.shape[2]
    cdef pg_int sa = a[0].size if a.shape[0] > 1 else 0, sb = b[0].size if b.shape[0] > 1 else 0
    check(pg_gemm_batched(ta, tb, m, n, k, alpha, fp(a), a.shape[2], sa, fp(b), b.shape[2], sb,
                          beta, fp(c), n, m * n, batch))


def gemm_force(int which):
    pg_gemm_force(which)


def gemm_seconds(int ta, int tb, a, b, c, int reps):
    """Seconds for one product, the mean of reps; of this thread's time if there is only one."""
    cdef pg_int m = c.shape[0], n = c.shape[1], k = a.shape[0] if ta else a.shape[1]
    cdef pg_int la = a.shape[1], lb = b.shape[1]
    cdef float *pa = fp(a)
    cdef float *pb = fp(b)
    cdef float *pc = fp(c)
    cdef int _i
    clock = time.thread_time if pg_get_num_threads() == 1 else time.perf_counter
    begin = clock()
    with nogil:
        for _i in range(reps):
            pg_gemm(ta, tb, m, n, k, 1.0, pa, la, pb, lb, 0.0, pc, n)
    return (clock() - begin) / reps


# ---- step rules ----

cdef pg_step_params step_params(str rule, dict options):
    cdef pg_step_params p
    p.rule = STEPS[rule]
    p.nesterov = options.get("nesterov", 0)
    p.centered = options.get("centered", 0)
    p.lr = options.get("lr", 1e-3)
    p.beta1 = options.get("beta1", 0.9)
    p.beta2 = options.get("beta2", 0.999)
    p.eps = options.get("eps", 1e-7)
    p.weight_decay = options.get("weight_decay", 0.0)
    p.h1 = options.get("h1", 1.0)
    p.h2 = options.get("h2", 1.0)
    p.momentum = options.get("momentum", 0.0)
    p.crho = 1.0 - options.get("rho", 0.9)
    p.rest1 = 1.0 - options.get("beta1", 0.9)
    p.rest2 = 1.0 - options.get("beta2", 0.999)
    p.grad_scale = options.get("grad_scale", 1.0)
    p.clip = options.get("clip", 0.0)
    return p


def step(str rule, w, g, s1=None, s2=None, s3=None, **options):
    cdef pg_step_params p = step_params(rule, options)
    pg_step(&p, w.size, fp(w), fp(g), fp(s1), fp(s2), fp(s3))


def gemm_step(str rule, int ta, int tb, a, b, w, s1=None, s2=None, s3=None, **options):
    cdef pg_step_params p = step_params(rule, options)
    cdef pg_int k = a.shape[0] if ta else a.shape[1]
    check(pg_gemm_step(ta, tb, w.shape[0], w.shape[1], k, fp(a), a.shape[1], fp(b), b.shape[1], &p,
                       fp(w), fp(s1), fp(s2), fp(s3)))


def sum_squares(x):
    return pg_sum_squares(x.size, fp(x))


# ---- activations ----

def act_from_y(str act):
    return bool(pg_act_from_y(ACTIVATIONS[act]))


def act_forward(str act, float param, x, y):
    cdef pg_ftz_state before = pg_ftz_enter()  # as workers do: which part is whose may differ
    pg_act_forward(ACTIVATIONS[act], param, x.size, fp(x), fp(y))
    pg_ftz_leave(before)


def act_backward(str act, float param, dy, x, y, dx):
    pg_act_backward(ACTIVATIONS[act], param, dy.size, fp(dy), fp(x), fp(y), fp(dx))


def bias_act(str act, float param, x, bias, z, y):
    pg_bias_act(ACTIVATIONS[act], param, x.shape[0], x.shape[1], fp(x), fp(bias), fp(z), fp(y))


def bias_act_channels(str act, float param, x, bias, z, y):
    pg_bias_act_channels(ACTIVATIONS[act], param, x.shape[0], x.shape[1], x.shape[2], fp(x),
                         fp(bias), fp(z), fp(y))


def sum_rows(x, float beta, out):
    check(pg_sum_rows(x.shape[0], x.shape[1], fp(x), x.shape[1], beta, fp(out)))


def sum_channels(x, float beta, out):
    check(pg_sum_channels(x.shape[0], x.shape[1], x.shape[2], fp(x), beta, fp(out)))


def copy_permuted(x, out):
    """out = x, a permuted array of up to four axes."""
    cdef pg_int n[4]
    cdef pg_int s[4]
    cdef size_t base = x.__array_interface__["data"][0]
    cdef int i
    for i in range(4):
        n[i] = x.shape[x.ndim - 1 - i] if i < x.ndim else 1
        s[i] = x.strides[x.ndim - 1 - i] // 4 if i < x.ndim else x.size
    check(pg_copy_permuted(n, s, <const float *>base, fp(out)))


def axpby(float alpha, a, float beta, b, c):
    pg_axpby(a.size, alpha, fp(a), beta, fp(b), fp(c))


def mul(a, b, c):
    pg_mul(a.size, fp(a), fp(b), fp(c))


# ---- losses ----

def loss(str kind, pred, target, weight=None, pg_int w_rs=0, pg_int w_cs=0, float scale=1.0,
         grad=None, float param0=0.0, float param1=-1.0):
    cdef double value = 0.0
    check(pg_loss(LOSSES[kind], param0, param1, pred.shape[0], pred.shape[1], fp(pred), fp(target),
                  fp(weight), w_rs, w_cs, scale, fp(grad), &value))
    return value


def softmax(int log, x, y):
    pg_softmax(log, x.shape[0], x.shape[1], fp(x), fp(y))


def softmax_backward(int log, dy, y, dx):
    pg_softmax_backward(log, dy.shape[0], dy.shape[1], fp(dy), fp(y), fp(dx))


# ---- random numbers ----

def dropout_mask(seed, step, stream, float rate, mask):
    cdef pg_rng r = pg_rng(seed, step, stream)
    pg_dropout_mask(&r, rate, mask.size, fp(mask))


def dropout(seed, step, stream, float rate, x, y):
    cdef pg_rng r = pg_rng(seed, step, stream)
    pg_dropout(&r, rate, x.size, fp(x), fp(y))


def random_bits(seed, step, stream, pg_int n):
    cdef pg_rng r = pg_rng(seed, step, stream)
    out = np.empty(n, np.int32)
    pg_random_bits(&r, n, <uint32_t *>ip(out))
    return out.view(np.uint32)


def random_uniform(seed, step, stream, out):
    cdef pg_rng r = pg_rng(seed, step, stream)
    pg_random_uniform(&r, out.size, fp(out))


# ---- normalizations ----

def layer_norm(int rms, float eps, x, gamma, beta, y, mean, rstd):
    pg_layer_norm(rms, x.shape[0], x.shape[1], eps, fp(x), fp(gamma), fp(beta), fp(y), fp(mean),
                  fp(rstd))


def layer_norm_backward(int rms, dy, x, gamma, mean, rstd, dx, dgamma, dbeta):
    check(pg_layer_norm_backward(rms, x.shape[0], x.shape[1], fp(dy), fp(x), fp(gamma), fp(mean),
                                 fp(rstd), fp(dx), fp(dgamma), fp(dbeta)))


def batch_norm(int training, float eps, x, gamma, beta, y, mean, var):
    """x is [batch, channels, size]."""
    pg_batch_norm(training, x.shape[0], x.shape[1], x.shape[2], eps, fp(x), fp(gamma), fp(beta),
                  fp(y), fp(mean), fp(var))


def batch_norm_backward(int training, float eps, dy, x, gamma, mean, var, dx, dgamma, dbeta):
    check(pg_batch_norm_backward(training, x.shape[0], x.shape[1], x.shape[2], eps, fp(dy), fp(x),
                                 fp(gamma), fp(mean), fp(var), fp(dx), fp(dgamma), fp(dbeta)))


# ---- convolution and pooling ----

cdef pg_conv conv_of(x_shape, w_shape, y_shape, stride, pad, dilation, groups):
    cdef pg_conv c
    c.n, c.ic, c.h, c.w = x_shape
    c.oc, c.kh, c.kw = w_shape[0], w_shape[2], w_shape[3]
    c.oh, c.ow = y_shape[2], y_shape[3]
    c.sh, c.sw = stride
    c.ph, c.pw = pad
    c.dh, c.dw = dilation
    c.groups = groups
    return c


def conv_out(size, k, stride, before, after, dilation):
    return pg_conv_out(size, k, stride, before, after, dilation)


def conv_forward(x, w, bias, y, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=1, act="linear",
                 float act_param=0.0):
    cdef pg_conv c = conv_of(x.shape, w.shape, y.shape, stride, pad, dilation, groups)
    cdef float *px = fp(x)
    cdef float *pw = fp(w)
    cdef float *pb = fp(bias)
    cdef float *py = fp(y)
    cdef int kind = ACTIVATIONS[act], rc
    with nogil:
        rc = pg_conv_forward(&c, px, pw, pb, kind, act_param, py)
    check(rc)


def conv_backward_data(dy, w, dx, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=1):
    cdef pg_conv c = conv_of(dx.shape, w.shape, dy.shape, stride, pad, dilation, groups)
    check(pg_conv_backward_data(&c, fp(dy), fp(w), fp(dx)))


def conv_backward_weight(x, dy, dw, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=1):
    cdef pg_conv c = conv_of(x.shape, dw.shape, dy.shape, stride, pad, dilation, groups)
    check(pg_conv_backward_weight(&c, fp(x), fp(dy), fp(dw)))


cdef pg_pool2d pool_of(x_shape, y_shape, kernel, stride, pad, count_padding):
    cdef pg_pool2d p
    p.planes = x_shape[0] * x_shape[1]
    p.h, p.w = x_shape[2], x_shape[3]
    p.oh, p.ow = y_shape[2], y_shape[3]
    p.kh, p.kw = kernel
    p.sh, p.sw = stride
    p.ph, p.pw = pad
    p.count_padding = count_padding
    return p


def pool_forward(str kind, x, y, kernel, stride, pad=(0, 0), count_padding=0):
    cdef pg_pool2d p = pool_of(x.shape, y.shape, kernel, stride, pad, count_padding)
    if kind == "max":
        check(pg_max_pool_forward(&p, fp(x), fp(y)))
    else:
        check(pg_avg_pool_forward(&p, fp(x), fp(y)))


def pool_backward(str kind, x, dy, dx, kernel, stride, pad=(0, 0), count_padding=0):
    cdef pg_pool2d p = pool_of(dx.shape, dy.shape, kernel, stride, pad, count_padding)
    if kind == "max":
        check(pg_max_pool_backward(&p, fp(x), fp(dy), fp(dx)))
    else:
        check(pg_avg_pool_backward(&p, fp(dy), fp(dx)))


# ---- recurrent layers ----

cdef pg_rnn rnn_of(str kind, hseq_shape, reset_after, reverse):
    cdef pg_rnn r
    r.kind = RNNS[kind]
    r.reset_after = reset_after
    r.reverse = reverse
    r.n, r.t, r.h = hseq_shape
    return r


def rnn_workspace(str kind, shape):
    cdef pg_rnn r = rnn_of(kind, shape, 1, 0)
    return pg_rnn_workspace(&r)


def rnn_forward(str kind, xw, u, rbias, h0, c0, hseq, c_last, ws, reset_after=1, reverse=0):
    cdef pg_rnn r = rnn_of(kind, hseq.shape, reset_after, reverse)
    check(pg_rnn_forward(&r, fp(xw), fp(u), fp(rbias), fp(h0), fp(c0), fp(hseq), fp(c_last),
                         fp(ws)))


def rnn_backward(str kind, u, h0, c0, hseq, ws, dhseq, dh_last, dc_last, dxw, du, drbias, dh0, dc0,
                 reset_after=1, reverse=0):
    cdef pg_rnn r = rnn_of(kind, hseq.shape, reset_after, reverse)
    check(pg_rnn_backward(&r, fp(u), fp(h0), fp(c0), fp(hseq), fp(ws), fp(dhseq), fp(dh_last),
                          fp(dc_last), fp(dxw), fp(du), fp(drbias), fp(dh0), fp(dc0)))


# ---- embeddings and attention ----

def gather_rows(table, ids, out):
    check(pg_gather_rows(table.shape[0], table.shape[1], fp(table), ids.size, ip(ids), fp(out)))


def gather_rows_backward(ids, dy, dtable):
    check(pg_gather_rows_backward(dtable.shape[0], dtable.shape[1], ids.size, ip(ids), fp(dy),
                                  fp(dtable)))


cdef pg_attention attention_of(q, k, v, float scale, int causal, sees):
    cdef pg_attention a
    a.batch, a.heads, a.tq, a.d = q.shape
    a.tk, a.dv = v.shape[2:]
    a.q_row = a.k_row = a.d
    a.v_row = a.o_row = a.dv
    a.q_head = a.tq * a.d
    a.k_head = a.tk * a.d
    a.v_head = a.tk * a.dv
    a.o_head = a.tq * a.dv
    a.q_batch = a.heads * a.q_head
    a.k_batch = a.heads * a.k_head
    a.v_batch = a.heads * a.v_head
    a.o_batch = a.heads * a.o_head
    a.scale = scale
    a.causal = causal
    a.past = a.tk - a.tq
    a.sees = fp(sees)
    a.sees_batch = a.sees_row = 0
    if sees is not None:  # (batch or 1, tq or 1, tk)
        a.sees_row = a.tk if sees.shape[1] > 1 else 0
        a.sees_batch = sees.shape[1] * a.tk if sees.shape[0] > 1 else 0
    return a


def attention_forward(q, k, v, out, probs, float scale, int causal=0, sees=None):
    cdef pg_attention a = attention_of(q, k, v, scale, causal, sees)
    check(pg_attention_forward(&a, fp(q), fp(k), fp(v), fp(out), fp(probs)))


def attention_backward(q, k, v, probs, dout, dq, dk, dv, float scale, int causal=0):
    cdef pg_attention a = attention_of(q, k, v, scale, causal, None)
    check(pg_attention_backward(&a, fp(q), fp(k), fp(v), fp(probs), fp(dout), fp(dq), fp(dk),
                                fp(dv)))
