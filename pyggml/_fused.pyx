# cython: language_level=3
"""Functions with a gradient that kernels compute as one node.

Each returns None where the graph does not leave it to a kernel; callers then compose the function
from ggml's operations. Shapes were checked by the caller.
"""

from libc.stdint cimport int64_t

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor, _contiguous, _real, _same
from pyggml._kernels cimport PG_RNN_GRU, PG_RNN_LSTM, PG_RNN_SIMPLE
from pyggml._lowering cimport (
    attention_floats, make_function, never_run, pg_function, rnn_floats)

from pyggml._graph import contiguous, reshape
from pyggml._lowering import ACTIVATIONS


cdef Tensor _call(list inputs, tuple shape, pg_function * f, size_t workspace):
    """Build the carriers of a function; see lowering.h.

    ``inputs`` are tensors; those that need a gradient, and the first, get a carrier.
    """
    cdef Tensor first = inputs[0]
    cdef Graph graph = first.graph
    cdef _ggml.ggml_context * ctx = graph.compute.ptr
    cdef _ggml.ggml_tensor * key
    cdef _ggml.ggml_tensor * flat
    cdef _ggml.ggml_tensor * rows
    cdef _ggml.ggml_tensor * total = NULL
    cdef _ggml.ggml_tensor * arguments[8]
    cdef int n_arguments = 0
    cdef Tensor t
    cdef int64_t size = 1
    cdef int i
    cdef bint grad = False
    for n in shape:
        size *= n
    graph.reserve(8 + 6 * len(inputs))
    f.n_inputs = len(inputs)
    if workspace:
        f.workspace = _ggml.ggml_custom_4d(ctx, _ggml.GGML_TYPE_F32, <int64_t>workspace, 1, 1, 1,
                                           NULL, 0, never_run, 1, NULL)
        arguments[0] = f.workspace
        n_arguments = 1
    # All are reachable through the keys, so that they are among the graph's nodes from the start:
    # ggml-opt counts them before the graph is lowered, and again when it copies it.
    for i in range(f.n_inputs):
        t = inputs[i]
        f.inputs[i] = t.ptr
        arguments[n_arguments] = t.ptr
        n_arguments += 1
        grad = grad or t.requires_grad
    for i in range(f.n_inputs):
        t = inputs[i]
        if i > 0 and not t.requires_grad:
            continue
        key = _ggml.ggml_custom_4d(ctx, _ggml.GGML_TYPE_I32, size, 1, 1, 1, arguments,
                                   n_arguments, never_run, 1, NULL)
        flat = _ggml.ggml_reshape_4d(ctx, t.ptr, 1, _ggml.ggml_nelements(t.ptr), 1, 1)
        rows = _ggml.ggml_get_rows(ctx, flat, key)
        graph.carriers.function(key, f, i)
        if total is NULL:
            total = rows
            f.output = rows
        else:
            total = _ggml.ggml_add(ctx, total, rows)
            f.sums[f.n_sums] = total
            f.n_sums += 1
    return reshape(graph.wrap(total, (size, 1), grad), shape)


cdef list _present(inputs):
    return [contiguous(t) for t in inputs if t is not None]


def conv2d(x, kernel, bias, strides, padding, dilation, out_size, groups=1):
    """Convolve images.

    Parameters
    ----------
    x : Tensor of shape (n, channels, h, w)
    kernel : Tensor of shape (out, channels / groups, kh, kw)
    bias : Tensor of shape (out,) or None
    strides, padding, dilation, out_size : tuple of two int
        Padding is that in front.
    groups : int

    Returns
    -------
    Tensor of shape (n, out, oh, ow) or None
    """
    cdef Tensor a = x
    cdef Tensor k = kernel
    cdef pg_function * f
    if not a.graph.carries("conv"):
        return None
    f = a.graph.carriers.new_function()
    make_function(f, "conv")
    f.u.conv.n, f.u.conv.ic, f.u.conv.h, f.u.conv.w = a.shape
    f.u.conv.oc, f.u.conv.kh, f.u.conv.kw = k.shape[0], k.shape[2], k.shape[3]
    f.u.conv.oh, f.u.conv.ow = out_size
    f.u.conv.sh, f.u.conv.sw = strides
    f.u.conv.ph, f.u.conv.pw = padding
    f.u.conv.dh, f.u.conv.dw = dilation
    f.u.conv.groups = groups
    return _call(_present([x, kernel, bias]), (a.shape[0], k.shape[0], *out_size), f, 0)


def pool2d(x, kind, size, strides, padding, out_size, count_padding=False):
    """Pool images.

    Parameters
    ----------
    x : Tensor of shape (n, channels, h, w)
    kind : {"max", "avg"}
    size, strides, padding, out_size : tuple of two int
    count_padding : bool
        Whether an average counts what lies outside.

    Returns
    -------
    Tensor of shape (n, channels, oh, ow) or None
    """
    cdef Tensor a = x
    cdef pg_function * f
    if not a.graph.carries("pool"):
        return None
    f = a.graph.carriers.new_function()
    if kind == "max":
        make_function(f, "max_pool")
    else:
        make_function(f, "avg_pool")
    f.u.pool.planes = a.shape[0] * a.shape[1]
    f.u.pool.h, f.u.pool.w = a.shape[2], a.shape[3]
    f.u.pool.oh, f.u.pool.ow = out_size
    f.u.pool.kh, f.u.pool.kw = size
    f.u.pool.sh, f.u.pool.sw = strides
    f.u.pool.ph, f.u.pool.pw = padding
    f.u.pool.count_padding = count_padding
    return _call(_present([x]), (a.shape[0], a.shape[1], *out_size), f, 0)


def gather(table, ids):
    """Pick rows of a table.

    Parameters
    ----------
    table : Tensor of shape (rows, width)
    ids : Tensor of int32

    Returns
    -------
    Tensor of shape (*ids.shape, width) or None
    """
    cdef Tensor a = table
    cdef pg_function * f
    if not a.graph.carries("gather"):
        return None
    f = a.graph.carriers.new_function()
    make_function(f, "gather")
    return _call(_present([table, ids]), (*(<Tensor>ids).shape, a.shape[1]), f, 0)


def layer_norm(x, gamma, beta, double epsilon, bint rms=False):
    """Normalise over the last axis.

    Parameters
    ----------
    x : Tensor of shape (..., n)
    gamma, beta : Tensor of shape (n,) or None
        beta only together with gamma.
    epsilon : float
    rms : bool
        Divide by the root mean square and subtract nothing.

    Returns
    -------
    Tensor of x's shape or None
    """
    cdef Tensor a = x
    cdef pg_function * f
    if not a.graph.carries("layer_norm"):
        return None
    f = a.graph.carriers.new_function()
    make_function(f, "layer_norm")
    f.u.norm.rms = rms
    f.u.norm.eps = <float>epsilon
    f.u.norm.size = a.shape[-1]
    f.u.norm.batch = _ggml.ggml_nelements(a.ptr) // f.u.norm.size
    return _call(_present([x, gamma, beta]), a.shape, f,
                 2 * f.u.norm.batch if a.graph.training else 0)


def batch_norm(x, gamma, beta, double epsilon, mean=None, variance=None):
    """Normalise every channel, by the batch's statistics or by given ones.

    Parameters
    ----------
    x : Tensor of shape (n, channels, ...)
    gamma, beta : Tensor of shape (channels,)
    epsilon : float
    mean, variance : Tensor of shape (channels,), optional
        By default the batch's.

    Returns
    -------
    tuple of Tensor, or None
        The result, and a tensor (2 * channels,) of the batch's mean and variance, or None where
        they were given.
    """
    cdef Tensor a = x
    cdef Tensor out
    cdef pg_function * f
    if not a.graph.carries("batch_norm"):
        return None
    f = a.graph.carriers.new_function()
    f.u.norm.eps = <float>epsilon
    f.u.norm.batch = a.shape[0]
    f.u.norm.channels = a.shape[1]
    f.u.norm.size = _ggml.ggml_nelements(a.ptr) // (a.shape[0] * a.shape[1])
    if mean is not None:
        make_function(f, "batch_norm_fixed")
        return _call(_present([x, gamma, beta, mean, variance]), a.shape, f, 0), None
    make_function(f, "batch_norm")
    out = _call(_present([x, gamma, beta]), a.shape, f, 2 * a.shape[1])
    return out, a.graph.wrap(f.workspace, (2 * a.shape[1],), False)


def rnn(kind, xw, kernel, recurrent_bias, h0, c0, bint reverse=False, bint reset_after=True):
    """Run a recurrent layer over whole sequences.

    Parameters
    ----------
    kind : {"lstm", "gru", "simple"}
    xw : Tensor of shape (n, t, gates * units)
        The inputs' share of the gates, bias included; gates in Keras' order.
    kernel : Tensor of shape (gates * units, units)
        Recurrent kernel, a row for each output.
    recurrent_bias : Tensor of shape (units,) or None
        Of the GRU's candidate.
    h0, c0 : Tensor of shape (n, units) or None
    reverse : bool
        Whether the last time step comes first.
    reset_after : bool

    Returns
    -------
    tuple of Tensor, or None
        h of all steps, (n, t, units), and the last c, (n, units), or None where there is none.
    """
    cdef Tensor a = xw
    cdef Tensor k = kernel
    cdef Tensor out
    cdef pg_function * f
    cdef int i
    if not a.graph.carries("rnn"):
        return None
    inputs = [xw, kernel, recurrent_bias, h0, c0]
    if not a.requires_grad and any(t is not None and t.requires_grad for t in inputs):
        return None  # the gradient of xw is what computes the others
    f = a.graph.carriers.new_function()
    make_function(f, "rnn")
    f.u.rnn.kind = {"lstm": PG_RNN_LSTM, "gru": PG_RNN_GRU, "simple": PG_RNN_SIMPLE}[kind]
    f.u.rnn.reset_after = reset_after
    f.u.rnn.reverse = reverse
    f.u.rnn.n, f.u.rnn.t = a.shape[0], a.shape[1]
    f.u.rnn.h = k.shape[1]
    for i in range(5):
        f.given[i] = inputs[i] is not None
        if inputs[i] is None:
            inputs[i] = a.graph.input((1,), "float32", "absent")
    hidden = (a.shape[0], a.shape[1], k.shape[1])
    size = hidden[0] * hidden[1] * hidden[2]
    extra = hidden[0] * hidden[2] if kind == "lstm" else 0
    out = _call([contiguous(t) for t in inputs], (size + extra,), f,
                rnn_floats(&f.u.rnn) if a.graph.training else 0)
    if not extra:
        return reshape(out, hidden), None
    return (reshape(_part(out, 0, size), hidden),
            reshape(_part(out, size, extra), (hidden[0], hidden[2])))


def attention(q, k, v, sees, int64_t heads, double scale, bint causal):
    """Mix values by the weights that queries give to keys, in several heads.

    Parameters
    ----------
    q : Tensor of shape (n, queries, heads * d)
    k : Tensor of shape (n, keys, heads * d)
    v : Tensor of shape (n, keys, heads * dv)
    sees : Tensor of shape (n or 1, queries or 1, keys) or None
        Where it is 0 a query does not see a key. Without gradient.
    heads : int
    scale : float
        Of the scores.
    causal : bool
        Whether query i sees the keys up to i only.

    Returns
    -------
    Tensor of shape (n, queries, heads * dv) or None
        A query that sees no key gets zeros.
    """
    cdef Tensor a = q
    cdef Tensor b = k
    cdef Tensor c = v
    cdef Tensor mask = sees
    cdef pg_function * f
    if not a.graph.carries("attention") or (mask is not None and mask.requires_grad):
        return None
    if not a.requires_grad and (b.requires_grad or c.requires_grad):
        return None  # the gradient of q is what computes the others
    f = a.graph.carriers.new_function()
    make_function(f, "attention")
    n, queries, size = a.shape
    keys = b.shape[1]
    f.u.attention.batch, f.u.attention.heads = n, heads
    f.u.attention.tq, f.u.attention.tk = queries, keys
    f.u.attention.d, f.u.attention.dv = size // heads, c.shape[2] // heads
    f.u.attention.q_head, f.u.attention.q_row = size // heads, size
    f.u.attention.q_batch = queries * size
    f.u.attention.k_head, f.u.attention.k_row = size // heads, size
    f.u.attention.k_batch = keys * size
    f.u.attention.v_head, f.u.attention.v_row = c.shape[2] // heads, c.shape[2]
    f.u.attention.v_batch = keys * c.shape[2]
    f.u.attention.o_head, f.u.attention.o_row = c.shape[2] // heads, c.shape[2]
    f.u.attention.o_batch = queries * c.shape[2]
    f.u.attention.scale = <float>scale
    f.u.attention.causal = causal
    if mask is not None:
        f.u.attention.sees_row = keys if mask.shape[1] > 1 else 0
        f.u.attention.sees_batch = mask.shape[1] * keys if mask.shape[0] > 1 else 0
    return _call(_present([q, k, v, sees]), (n, queries, c.shape[2]), f,
                 attention_floats(&f.u.attention) if a.graph.training else 0)


cdef Tensor _part(Tensor t, int64_t start, int64_t n):
    """Elements start to start + n of a vector."""
    t.graph.reserve(2)
    return contiguous(t.graph.wrap(
        _ggml.ggml_view_4d(t.graph.compute.ptr, t.ptr, n, 1, 1, 1, n * 4, n * 4, n * 4, start * 4),
        (n,), t.requires_grad))


def fused_activation(x, str name, double param=0.0):
    """Return an activation as one kernel, or None where the graph is not lowered.

    Parameters
    ----------
    x : Tensor
    name : str
        One of ``pyggml._lowering.ACTIVATIONS``.
    param : float
        Slope or scale, for those that have one.
    """
    cdef Tensor a = _real(x)
    cdef Tensor key
    cdef Tensor result
    if not a.graph.carries("activation"):
        return None
    key = _same(a)
    a.graph.reserve(1)
    a.graph.carriers.activation(key.ptr, ACTIVATIONS[name], <float>param)
    # SILU stands in for the kernel until the graph is lowered.
    result = a.graph.wrap(_ggml.ggml_silu(a.graph.compute.ptr, key.ptr), a.shape, a.requires_grad)
    result.made_by = name
    result.made_from = a
    return result


def fused_loss(pred, labels, weights, int kind, params, double scale, bint weight_rows):
    """Return ``scale * sum(weights * l(pred, labels))`` as one node, or None without kernels.

    Parameters
    ----------
    pred, labels : Tensor of the same shape
    weights : Tensor or None
    kind : int
        Of the kernels' losses.
    params : tuple of two float
    scale : float
    weight_rows : bool
        Whether weights are one a row.

    Returns
    -------
    Tensor of shape (1,) or None
    """
    cdef Tensor p = _contiguous(_real(pred))
    cdef Tensor y = _contiguous(_real(labels))
    cdef Tensor w = None if weights is None else _contiguous(_real(weights))
    cdef _ggml.ggml_tensor * key = y.ptr
    cdef _ggml.ggml_tensor * joint[2]
    cdef Graph graph = p.graph
    if not graph.carries("loss") or p.shape != y.shape:
        return None
    # The kernel reads as many weights.
    if w is not None and w.shape != (p.shape[:-1] + (1,) if weight_rows else p.shape):
        raise ValueError(f"weights of predictions of shape {p.shape} cannot have shape {w.shape}")
    graph.reserve(2)
    # Each loss needs a key of its own, and weights must be part of the graph.
    joint[0] = y.ptr
    joint[1] = NULL if w is None else w.ptr
    key = _ggml.ggml_custom_4d(
        graph.compute.ptr, _ggml.GGML_TYPE_F32, p.ptr.ne[0], p.ptr.ne[1], p.ptr.ne[2],
        p.ptr.ne[3], joint, 1 if w is None else 2, never_run, 1, NULL)
    graph.carriers.loss(key, kind, params[0], params[1], scale, y.ptr, joint[1], weight_rows)
    return graph.wrap(_ggml.ggml_cross_entropy_loss(graph.compute.ptr, p.ptr, key), (1,),
                      p.requires_grad)
