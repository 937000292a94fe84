"""SimpleRNN, LSTM, GRU and Bidirectional on [N, T, F], with backpropagation through time.

Kernels are (F, G * H), recurrent kernels (H, G * H) with Keras' order of gates. Every layer gives
``(y, states), backward``: y is [N, T, H] or the last [N, H], ``states`` the list of final states,
and ``backward(dy, dstates=None)`` the gradients. As in Keras, ``go_backwards`` leaves the output in
the order of computation, and a step that ``mask`` [N, T] leaves out keeps state and output.
"""

import numpy as np

from .activations import activation, activation_vjp
from .common import drop_none, float64


def _scan(cell, x, states, mask, go_backwards, return_sequences):
    """Run ``cell(x_t, states) -> states, back``; ``back(dstates) -> dx_t, dstates, dweights``."""
    steps = range(x.shape[1])
    tape, outputs = [], []
    for t in reversed(steps) if go_backwards else steps:
        new, back = cell(x[:, t], states)
        used = np.ones((len(x), 1), bool) if mask is None else np.asarray(mask, bool)[:, t, None]
        states = [np.where(used, n, s) for n, s in zip(new, states, strict=True)]
        tape.append((t, back, used))
        outputs.append(states[0])
    y = np.stack(outputs, axis=1) if return_sequences else outputs[-1]

    def backward(dy, dstates=None):
        d = [np.zeros_like(s) for s in states] if dstates is None else [float64(s) for s in dstates]
        dx, weights = np.zeros_like(x), {}
        if not return_sequences:
            d[0] = d[0] + dy
        for k, (t, back, used) in reversed(list(enumerate(tape))):
            if return_sequences:
                d[0] = d[0] + dy[:, k]
            kept = [np.where(used, 0.0, s) for s in d]
            dx[:, t], d, dweights = back([np.where(used, s, 0.0) for s in d])
            d = [a + b for a, b in zip(d, kept, strict=True)]
            for name, grad in dweights.items():
                weights[name] = weights.get(name, 0.0) + grad
        return dx, d, weights

    return (y, states), backward


def _start(x, kernel, recurrent_kernel, initial, count):
    x, kernel, recurrent_kernel = float64(x), float64(kernel), float64(recurrent_kernel)
    shape = (len(x), recurrent_kernel.shape[0])
    given = [None] * count if initial is None else initial
    states = [np.zeros(shape) if s is None else float64(s) for s in given]
    return x, kernel, recurrent_kernel, states


def _layer(cell, x, states, bias, initial_state, mask, go_backwards, return_sequences):
    out, back = _scan(cell, x, states, mask, go_backwards, return_sequences)

    def backward(dy, dstates=None):
        dx, dinitial, weights = back(dy, dstates)
        if bias is None:
            del weights["bias"]
        initial = None if initial_state is None else dinitial
        return drop_none({"x": dx, **weights, "initial_state": initial})

    return out, backward


def simple_rnn(
    x, kernel, recurrent_kernel, bias=None, initial_state=None, mask=None, go_backwards=False,
    return_sequences=False, activation_name="tanh",
):  # fmt: skip
    """h' = activation(x W + h U + b) (Elman 1990). ``initial_state`` is [h]."""
    x, w, u, states = _start(x, kernel, recurrent_kernel, initial_state, 1)

    def cell(xt, previous):
        (h,) = previous
        z = xt @ w + h @ u + (0.0 if bias is None else bias)

        def back(dstates):
            dz = activation_vjp(activation_name, z, dstates[0])
            weights = {"kernel": xt.T @ dz, "recurrent_kernel": h.T @ dz, "bias": dz.sum(axis=0)}
            return dz @ w.T, [dz @ u.T], weights

        return [activation(activation_name, z)], back

    return _layer(cell, x, states, bias, initial_state, mask, go_backwards, return_sequences)


def lstm(
    x, kernel, recurrent_kernel, bias=None, initial_state=None, mask=None, go_backwards=False,
    return_sequences=False, activation_name="tanh", recurrent_activation="sigmoid",
):  # fmt: skip
    """Hochreiter and Schmidhuber 1997, gates i, f, c, o. ``initial_state`` is [h, c]."""
    x, w, u, states = _start(x, kernel, recurrent_kernel, initial_state, 2)

    def cell(xt, previous):
        h, c = previous
        zi, zf, zc, zo = np.split(xt @ w + h @ u + (0.0 if bias is None else bias), 4, axis=1)
        i, f, o = (activation(recurrent_activation, z) for z in (zi, zf, zo))
        g = activation(activation_name, zc)
        new_c = f * c + i * g
        squashed = activation(activation_name, new_c)

        def back(dstates):
            dh, dc = dstates
            dc = dc + activation_vjp(activation_name, new_c, dh * o)
            dz = np.concatenate(
                [
                    activation_vjp(recurrent_activation, zi, dc * g),
                    activation_vjp(recurrent_activation, zf, dc * c),
                    activation_vjp(activation_name, zc, dc * i),
                    activation_vjp(recurrent_activation, zo, dh * squashed),
                ],
                axis=1,
            )
            weights = {"kernel": xt.T @ dz, "recurrent_kernel": h.T @ dz, "bias": dz.sum(axis=0)}
            return dz @ w.T, [dz @ u.T, dc * f], weights

        return [o * squashed, new_c], back

    return _layer(cell, x, states, bias, initial_state, mask, go_backwards, return_sequences)


def gru(
    x, kernel, recurrent_kernel, bias=None, initial_state=None, mask=None, go_backwards=False,
    return_sequences=False, activation_name="tanh", recurrent_activation="sigmoid",
    reset_after=True,
):  # fmt: skip
    """Cho et al. 2014, gates z, r, h; h' = z * h + (1 - z) * candidate. ``initial_state`` is [h].

    ``reset_after`` applies r to h U + b[1] with bias (2, 3H); otherwise r is applied to h before
    its product with U, and the bias is (3H,).
    """
    x, w, u, states = _start(x, kernel, recurrent_kernel, initial_state, 1)
    size = u.shape[0]
    if bias is None:
        bias_x = bias_h = np.zeros(3 * size)
    elif reset_after:
        bias_x, bias_h = float64(bias)
    else:
        bias_x, bias_h = float64(bias), np.zeros(3 * size)
    gates, last = slice(0, 2 * size), slice(2 * size, None)

    def cell(xt, previous):
        (h,) = previous
        zx = xt @ w + bias_x
        zh = h @ u + bias_h
        pre_z, pre_r = np.split(zx[:, gates] + zh[:, gates], 2, axis=1)
        z, r = (activation(recurrent_activation, pre) for pre in (pre_z, pre_r))
        inner = r * zh[:, last] if reset_after else (r * h) @ u[:, last]
        pre_c = zx[:, last] + inner
        candidate = activation(activation_name, pre_c)

        def back(dstates):
            (dh,) = dstates
            dpre_c = activation_vjp(activation_name, pre_c, dh * (1.0 - z))
            dprevious = dh * z
            du = np.zeros_like(u)
            if reset_after:
                dr, dinner = dpre_c * zh[:, last], dpre_c * r
                dprevious = dprevious + dinner @ u[:, last].T
                du[:, last] = h.T @ dinner
            else:
                dreset, dinner = dpre_c @ u[:, last].T, dpre_c
                dr = dreset * h
                dprevious = dprevious + dreset * r
                du[:, last] = (r * h).T @ dpre_c
            dgates = np.concatenate(
                [
                    activation_vjp(recurrent_activation, pre_z, dh * (h - candidate)),
                    activation_vjp(recurrent_activation, pre_r, dr),
                ],
                axis=1,
            )
            du[:, gates] = h.T @ dgates
            dprevious = dprevious + dgates @ u[:, gates].T
            dzx = np.concatenate([dgates, dpre_c], axis=1)
            dzh = np.concatenate([dgates, dinner], axis=1)
            dbias = np.stack([dzx.sum(axis=0), dzh.sum(axis=0)]) if reset_after else dzx.sum(axis=0)
            weights = {"kernel": xt.T @ dzx, "recurrent_kernel": du, "bias": dbias}
            return dzx @ w.T, [dprevious], weights

        return [z * h + (1.0 - z) * candidate], back

    return _layer(cell, x, states, bias, initial_state, mask, go_backwards, return_sequences)


def bidirectional(
    x, forward_weights, backward_weights, layer=lstm, merge_mode="concat", return_sequences=False,
    **options,
):  # fmt: skip
    """Schuster and Paliwal 1997: one run each way; the second is turned back to input order.

    The weights are dictionaries (kernel, recurrent_kernel, bias, initial_state); ``merge_mode`` is
    concat, sum, mul or ave. ``states`` are the forward run's, then the backward run's. Sequences
    are 0 under a mask, as in Keras.
    """
    options = dict(options, return_sequences=return_sequences)
    (a, states_a), back_a = layer(x, **forward_weights, **options)
    (b, states_b), back_b = layer(x, **backward_weights, **options, go_backwards=True)

    def turn(v):
        return v[:, ::-1] if return_sequences else v

    b = turn(b)
    merged = {
        "concat": lambda: np.concatenate([a, b], axis=-1),
        "sum": lambda: a + b,
        "mul": lambda: a * b,
        "ave": lambda: (a + b) / 2,
    }[merge_mode]()
    used = 1.0
    if return_sequences and options.get("mask") is not None:
        used = (np.asarray(options["mask"]) != 0)[:, :, None]
    merged = merged * used

    def backward(dy, dstates=None):
        dy = dy * used
        da, db = {
            "concat": lambda: np.split(dy, [a.shape[-1]], axis=-1),
            "sum": lambda: (dy, dy),
            "mul": lambda: (dy * b, dy * a),
            "ave": lambda: (dy / 2, dy / 2),
        }[merge_mode]()
        half = len(states_a)
        grads_a = back_a(da, None if dstates is None else dstates[:half])
        grads_b = back_b(turn(db), None if dstates is None else dstates[half:])
        dx = grads_a.pop("x") + grads_b.pop("x")
        return {"x": dx, "forward_weights": grads_a, "backward_weights": grads_b}

    return (merged, states_a + states_b), backward
