# cython: language_level=3
"""Recurrent networks over whole sequences.

One function a cell runs a whole sequence, from the inputs already multiplied with the kernel to
the states. With tanh and sigmoid that is one node on the CPU, for any length. Otherwise the
sequence is unrolled: about twenty operations a time step, and more in the backward pass.
"""

from pyggml._graph cimport Tensor, _real
from pyggml._variable cimport Variable

from pyggml import _fused
from pyggml._graph import reshape, transpose
from pyggml._ops_math import add, multiply, sigmoid, subtract, tanh
from pyggml._ops_nn import flip, matmul_transposed, pad, slice, split, stack


cdef Tensor _rows_of(u, Tensor like, int gates):
    """A recurrent kernel (units, gates * units) as the rows that outputs are products with."""
    cdef Tensor t
    if isinstance(u, Variable) and (<Variable>u).axes == (1, 0):
        t = like.graph.weight(u)
    else:
        t = transpose(_real(u, like, "recurrent_kernel"), (1, 0))
    if len(t.shape) != 2 or t.shape[0] != gates * t.shape[1]:
        raise ValueError(f"recurrent_kernel must have shape (units, {gates} * units), got "
                         f"{t.shape[::-1]}")
    if len(like.shape) != 3 or like.shape[2] != t.shape[0]:
        raise ValueError(f"xw must have shape (batch, time, {t.shape[0]}), got {like.shape}")
    return t


cdef Tensor _start(state, Tensor xw, int units, str name):
    if state is None:
        return xw.graph.zeros((xw.shape[0], units))
    t = _real(state, xw, name)
    if t.shape != (xw.shape[0], units):
        raise ValueError(f"{name} must have shape {(xw.shape[0], units)}, got {t.shape}")
    return t


cdef list _steps(Tensor xw, bint go_backwards):
    """The rows of each time step, in the order of computation."""
    n, steps, size = xw.shape
    first = transpose(xw, (1, 0, 2))  # a time step in one piece
    order = range(steps - 1, -1, -1) if go_backwards else range(steps)
    return [reshape(slice(first, (t, 0, 0), (1, n, size)), (n, size)) for t in order]


cdef _result(list outputs, bint return_sequences):
    return stack(outputs, 1) if return_sequences else outputs[len(outputs) - 1]


def _as_one_node(str kind, Tensor xw, Tensor u, bias, states, activations, bint go_backwards,
                 bint return_sequences, bint reset_after=True):
    """The output and the states, or None where the sequence has to be unrolled."""
    if activations != ((tanh,) if kind == "simple" else (tanh, sigmoid)) or not xw.graph.fused:
        return None
    if bias is not None:  # the kernel adds the candidate's; those of z and r go with the inputs
        size = 2 * u.shape[1]
        xw = add(xw, pad(slice(bias, (0,), (size,)), [(0, u.shape[1])]))
        bias = slice(bias, (size,), (u.shape[1],))
    h0, c0 = (*states, None)[:2]
    found = _fused.rnn(kind, xw, u, bias, h0, c0, go_backwards, reset_after)
    if found is None:
        return None
    hidden, c = found
    n, steps, units = hidden.shape
    last = slice(hidden, (0, 0 if go_backwards else steps - 1, 0), (n, 1, units))
    last = reshape(last, (n, units))
    if return_sequences:  # the kernel leaves them in the order of time
        y = flip(hidden, 1) if go_backwards else hidden
    else:
        y = last
    return y, [last] if c is None else [last, c]


def _given(state, Tensor xw, int units, str name):
    return None if state is None else _start(state, xw, units, name)


def simple_rnn_sequence(xw, recurrent_kernel, h0=None, *, activation, go_backwards=False,
                        return_sequences=False):
    """Run ``h = activation(xw_t + h @ recurrent_kernel)`` over a sequence.

    Parameters
    ----------
    xw : Tensor of shape (batch, time, units)
        Inputs times kernel, plus bias.
    recurrent_kernel : Variable or Tensor of shape (units, units)
    h0 : Tensor of shape (batch, units), optional
        Zeros if it is left out.
    activation : callable
    go_backwards : bool
        Whether to start at the last time step; the output is in the order of computation.
    return_sequences : bool

    Returns
    -------
    y : Tensor of shape (batch, time, units) or (batch, units)
    states : list of Tensor of shape (batch, units)
        ``[h]``.
    """
    cdef Tensor z = _real(xw, None, "xw")
    cdef Tensor u = _rows_of(recurrent_kernel, z, 1)
    states = [_given(h0, z, u.shape[1], "h0")]
    found = _as_one_node("simple", z, u, None, states, (activation,), go_backwards,
                         return_sequences)
    if found is not None:
        return found
    cdef Tensor h = _start(h0, z, u.shape[1], "h0")
    outputs = []
    for x in _steps(z, go_backwards):
        h = activation(add(x, matmul_transposed(h, u)))
        outputs.append(h)
        h.graph.milestones.append(h)
    return _result(outputs, return_sequences), [h]


def lstm_sequence(xw, recurrent_kernel, h0=None, c0=None, *, activation, recurrent_activation,
                  go_backwards=False, return_sequences=False):
    """Run a long short-term memory over a sequence; gates in the order i, f, c, o.

    Parameters
    ----------
    xw : Tensor of shape (batch, time, 4 * units)
    recurrent_kernel : Variable or Tensor of shape (units, 4 * units)
    h0, c0 : Tensor of shape (batch, units), optional
    activation, recurrent_activation : callable
    go_backwards, return_sequences : bool
        As for :func:`simple_rnn_sequence`.

    Returns
    -------
    y : Tensor of shape (batch, time, units) or (batch, units)
    states : list of Tensor of shape (batch, units)
        ``[h, c]``.
    """
    cdef Tensor z = _real(xw, None, "xw")
    cdef Tensor u = _rows_of(recurrent_kernel, z, 4)
    states = [_given(h0, z, u.shape[1], "h0"), _given(c0, z, u.shape[1], "c0")]
    found = _as_one_node("lstm", z, u, None, states, (activation, recurrent_activation),
                         go_backwards, return_sequences)
    if found is not None:
        return found
    cdef Tensor h = _start(h0, z, u.shape[1], "h0")
    cdef Tensor c = _start(c0, z, u.shape[1], "c0")
    outputs = []
    for x in _steps(z, go_backwards):
        i, f, g, o = split(add(x, matmul_transposed(h, u)), 4)
        c = add(multiply(recurrent_activation(f), c),
                multiply(recurrent_activation(i), activation(g)))
        h = multiply(recurrent_activation(o), activation(c))
        outputs.append(h)
        h.graph.milestones.append(h)
    return _result(outputs, return_sequences), [h, c]


def gru_sequence(xw, recurrent_kernel, recurrent_bias=None, h0=None, *, activation,
                 recurrent_activation, reset_after=True, go_backwards=False,
                 return_sequences=False):
    """Run a gated recurrent unit over a sequence; gates in the order z, r, h.

    Parameters
    ----------
    xw : Tensor of shape (batch, time, 3 * units)
    recurrent_kernel : Variable or Tensor of shape (units, 3 * units)
    recurrent_bias : Tensor of shape (3 * units,), optional
        Added to ``h @ recurrent_kernel``; only with ``reset_after``.
    h0 : Tensor of shape (batch, units), optional
    activation, recurrent_activation : callable
    reset_after : bool
        Whether the reset gate applies after the product with the recurrent kernel, or before.
    go_backwards, return_sequences : bool
        As for :func:`simple_rnn_sequence`.

    Returns
    -------
    y : Tensor of shape (batch, time, units) or (batch, units)
    states : list of Tensor of shape (batch, units)
        ``[h]``.
    """
    cdef Tensor xt = _real(xw, None, "xw")
    cdef Tensor u = _rows_of(recurrent_kernel, xt, 3)
    cdef Tensor h
    units = u.shape[1]
    if recurrent_bias is not None:
        if not reset_after:
            raise ValueError("recurrent_bias needs reset_after")
        recurrent_bias = _real(recurrent_bias, xt, "recurrent_bias")
        if recurrent_bias.shape != (3 * units,):
            raise ValueError(f"recurrent_bias must have shape {(3 * units,)}, got "
                             f"{recurrent_bias.shape}")
    found = _as_one_node("gru", xt, u, recurrent_bias, [_given(h0, xt, units, "h0")],
                         (activation, recurrent_activation), go_backwards, return_sequences,
                         reset_after)
    if found is not None:
        return found
    h = _start(h0, xt, units, "h0")
    if not reset_after:
        u_gates = slice(u, (0, 0), (2 * units, units))
        u_last = slice(u, (2 * units, 0), (units, units))
    outputs = []
    for x in _steps(xt, go_backwards):
        if reset_after:
            hu = matmul_transposed(h, u)
            if recurrent_bias is not None:
                hu = add(hu, recurrent_bias)
            xz, xr, xh = split(x, 3)
            hz, hr, hh = split(hu, 3)
            z = recurrent_activation(add(xz, hz))
            r = recurrent_activation(add(xr, hr))
            candidate = activation(add(xh, multiply(r, hh)))
        else:
            x_gates, xh = split(x, (2 * units, units))
            z, r = split(add(x_gates, matmul_transposed(h, u_gates)), 2)
            z, r = recurrent_activation(z), recurrent_activation(r)
            candidate = activation(add(xh, matmul_transposed(multiply(r, h), u_last)))
        h = add(candidate, multiply(z, subtract(h, candidate)))
        outputs.append(h)
        h.graph.milestones.append(h)
    return _result(outputs, return_sequences), [h]
