# cython: language_level=3
"""Recurrent networks over whole sequences.

One function a cell runs a whole sequence, from the inputs already multiplied with the kernel to
the states. With tanh and sigmoid that is one node on the CPU, for any length. With other
activations, or masks, the sequence is unrolled: about twenty operations a time step, and more in
the backward pass.
"""

from pyggml._graph cimport Tensor, _real
from pyggml._variable cimport Variable

from pyggml import _fused
from pyggml._graph import reshape, transpose
from pyggml._ops_math import add, affine, multiply, subtract
from pyggml._ops_nn import matmul_transposed
from pyggml._ops_parts import flip, pad, slice, split, stack
from pyggml._ops_unary import absolute, sigmoid, step, tanh


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
    if not xw.graph.carries("rnn") or activations != (
            (tanh,) if kind == "simple" else (tanh, sigmoid)):
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


cdef list _choices(mask, Tensor xw, bint go_backwards):
    """For each step a pair (use it, keep the state) of shape (batch, 1), or None for all."""
    cdef Tensor m
    if mask is None:
        return [None] * xw.shape[1]
    m = _real(mask, xw, "mask")
    if m.shape != xw.shape[:2]:
        raise ValueError(f"mask must have shape {xw.shape[:2]}, got {m.shape}")
    found = []
    for used in _steps(reshape(step(absolute(m)), (*m.shape, 1)), go_backwards):
        found.append((used, affine(used, -1.0, 1.0)))
    return found


cdef Tensor _choose(choice, Tensor new, Tensor old):
    """The new state where a step is used, else the old one, exactly."""
    if choice is None:
        return new
    used, kept = choice
    return add(multiply(new, used), multiply(old, kept))


cdef Tensor _dropped(Tensor h, recurrent_mask):
    return h if recurrent_mask is None else multiply(h, recurrent_mask)


def simple_rnn_sequence(xw, recurrent_kernel, h0=None, *, activation, go_backwards=False,
                        return_sequences=False, mask=None, recurrent_mask=None):
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
    mask : Tensor of shape (batch, time), optional
        A step at which it is 0 leaves state and output as they were.
    recurrent_mask : Tensor of shape (batch, units), optional
        Multiplies h before every product with the recurrent kernel.

    Returns
    -------
    y : Tensor of shape (batch, time, units) or (batch, units)
    states : list of Tensor of shape (batch, units)
        ``[h]``.

    Raises
    ------
    ValueError
        Shapes that do not fit together.

    Examples
    --------
    >>> from pyggml import ops
    >>> def last(xw, kernel):
    ...     y, states = ops.simple_rnn_sequence(
    ...         xw, ops.reshape(kernel, (2, 2)), activation=ops.tanh)
    ...     return y
    >>> xw, kernel = np.zeros((1, 5, 2)), np.zeros((1, 2, 2))
    >>> ops.evaluate(last, xw, kernel).tolist()
    [[0.0, 0.0]]
    """
    cdef Tensor z = _real(xw, None, "xw")
    cdef Tensor u = _rows_of(recurrent_kernel, z, 1)
    states = [_given(h0, z, u.shape[1], "h0")]
    if mask is None and recurrent_mask is None:
        found = _as_one_node("simple", z, u, None, states, (activation,), go_backwards,
                             return_sequences)
        if found is not None:
            return found
    cdef Tensor h = _start(h0, z, u.shape[1], "h0")
    outputs = []
    for x, choice in zip(_steps(z, go_backwards), _choices(mask, z, go_backwards)):
        h = _choose(choice, activation(add(x, matmul_transposed(_dropped(h, recurrent_mask), u))),
                    h)
        outputs.append(h)
    return _result(outputs, return_sequences), [h]


def lstm_sequence(xw, recurrent_kernel, h0=None, c0=None, *, activation, recurrent_activation,
                  go_backwards=False, return_sequences=False, mask=None, recurrent_mask=None):
    """Run a long short-term memory over a sequence; gates in the order i, f, c, o.

    Parameters
    ----------
    xw : Tensor of shape (batch, time, 4 * units)
    recurrent_kernel : Variable or Tensor of shape (units, 4 * units)
    h0, c0 : Tensor of shape (batch, units), optional
    activation, recurrent_activation : callable
    go_backwards, return_sequences : bool
    mask, recurrent_mask : Tensor, optional
        As for :func:`simple_rnn_sequence`.

    Returns
    -------
    y : Tensor of shape (batch, time, units) or (batch, units)
    states : list of Tensor of shape (batch, units)
        ``[h, c]``.

    Raises
    ------
    ValueError
        Shapes that do not fit together.

    Examples
    --------
    >>> from pyggml import ops
    >>> def last(xw, kernel):
    ...     y, states = ops.lstm_sequence(
    ...         xw, ops.reshape(kernel, (2, 8)), activation=ops.tanh,
    ...         recurrent_activation=ops.sigmoid)
    ...     return y
    >>> xw, kernel = np.zeros((1, 5, 8)), np.zeros((1, 2, 8))
    >>> ops.evaluate(last, xw, kernel).tolist()
    [[0.0, 0.0]]
    """
    cdef Tensor z = _real(xw, None, "xw")
    cdef Tensor u = _rows_of(recurrent_kernel, z, 4)
    states = [_given(h0, z, u.shape[1], "h0"), _given(c0, z, u.shape[1], "c0")]
    if mask is None and recurrent_mask is None:
        found = _as_one_node("lstm", z, u, None, states, (activation, recurrent_activation),
                             go_backwards, return_sequences)
        if found is not None:
            return found
    cdef Tensor h = _start(h0, z, u.shape[1], "h0")
    cdef Tensor c = _start(c0, z, u.shape[1], "c0")
    outputs = []
    cdef Tensor new
    for x, choice in zip(_steps(z, go_backwards), _choices(mask, z, go_backwards)):
        i, f, g, o = split(add(x, matmul_transposed(_dropped(h, recurrent_mask), u)), 4)
        new = add(multiply(recurrent_activation(f), c),
                  multiply(recurrent_activation(i), activation(g)))
        h = _choose(choice, multiply(recurrent_activation(o), activation(new)), h)
        c = _choose(choice, new, c)
        outputs.append(h)
    return _result(outputs, return_sequences), [h, c]


def gru_sequence(xw, recurrent_kernel, recurrent_bias=None, h0=None, *, activation,
                 recurrent_activation, reset_after=True, go_backwards=False,
                 return_sequences=False, mask=None, recurrent_mask=None):
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
    mask, recurrent_mask : Tensor, optional
        As for :func:`simple_rnn_sequence`.

    Returns
    -------
    y : Tensor of shape (batch, time, units) or (batch, units)
    states : list of Tensor of shape (batch, units)
        ``[h]``.

    Raises
    ------
    ValueError
        Shapes that do not fit together, or a bias without ``reset_after``.

    Examples
    --------
    >>> from pyggml import ops
    >>> def last(xw, kernel):
    ...     y, states = ops.gru_sequence(
    ...         xw, ops.reshape(kernel, (2, 6)), activation=ops.tanh,
    ...         recurrent_activation=ops.sigmoid)
    ...     return y
    >>> xw, kernel = np.zeros((1, 5, 6)), np.zeros((1, 2, 6))
    >>> ops.evaluate(last, xw, kernel).tolist()
    [[0.0, 0.0]]
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
    states = [_given(h0, xt, units, "h0")]
    if mask is None and recurrent_mask is None:
        found = _as_one_node("gru", xt, u, recurrent_bias, states,
                             (activation, recurrent_activation), go_backwards, return_sequences,
                             reset_after)
        if found is not None:
            return found
    h = _start(h0, xt, units, "h0")
    if not reset_after:
        u_gates = slice(u, (0, 0), (2 * units, units))
        u_last = slice(u, (2 * units, 0), (units, units))
    outputs = []
    for x, choice in zip(_steps(xt, go_backwards), _choices(mask, xt, go_backwards)):
        seen = _dropped(h, recurrent_mask)
        if reset_after:
            hu = matmul_transposed(seen, u)
            if recurrent_bias is not None:
                hu = add(hu, recurrent_bias)
            xz, xr, xh = split(x, 3)
            hz, hr, hh = split(hu, 3)
            z = recurrent_activation(add(xz, hz))
            r = recurrent_activation(add(xr, hr))
            candidate = activation(add(xh, multiply(r, hh)))
        else:
            x_gates, xh = split(x, (2 * units, units))
            z, r = split(add(x_gates, matmul_transposed(seen, u_gates)), 2)
            z, r = recurrent_activation(z), recurrent_activation(r)
            candidate = activation(add(xh, matmul_transposed(multiply(r, seen), u_last)))
        h = _choose(choice, add(candidate, multiply(z, subtract(h, candidate))), h)
        outputs.append(h)
    return _result(outputs, return_sequences), [h]
