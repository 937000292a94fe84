"""JAX without a library of layers: one compiled function, its Adam written by hand."""

import numpy as np

from benchmarks import networks as nets
from benchmarks.contest import BATCHES, Contestant, training

NAME = "JAX"
PACKAGES = ("jax",)


def configure(threads):
    """The number of threads is that of the processors it sees, which the process has limited."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def contestants(workload, compiled):
    if workload.kind == "step":
        yield "jit", lambda: stepping(workload.network)
    elif workload.kind == "predict":
        yield "jit", lambda: predicting(workload)
    else:
        yield "jit, scan over the pass", lambda: fitting(workload)


def logits(network, weights, x):
    import jax
    from jax import lax
    from jax import numpy as jnp

    for layer, w in zip(network.layers, weights, strict=True):
        match layer:
            case nets.Dense(_, activation):
                x = x @ w[0] + w[1]
                if activation == "relu":
                    x = jax.nn.relu(x)
            case nets.Conv():
                x = lax.conv_general_dilated(x, w[0], (1, 1), "SAME",
                                             dimension_numbers=("NHWC", "HWIO", "NHWC"))
                x = jax.nn.relu(x + w[1])
            case nets.Pool():
                # The gradient of reduce_window is many times slower on the CPU.
                n, h, width, c = x.shape
                x = x.reshape(n, h // 2, 2, width // 2, 2, c).max((2, 4))
            case nets.Flatten():
                x = x.reshape(len(x), -1)
            case nets.LSTM(units):
                x = lstm(x, w, units)
            case nets.GRU(units):
                x = gru(x, w, units)
            case nets.Block(heads, _):
                x = block(x, w, heads)
            case nets.MeanOverTime():
                x = x.mean(1)
    return jnp.asarray(x)


def lstm(x, w, units):
    from jax import lax, nn
    from jax import numpy as jnp

    def cell(state, projected):
        h, c = state
        i, f, g, o = jnp.split(projected + h @ w[1], 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        return (nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros((len(x), units), x.dtype)
    projected = jnp.swapaxes(x, 0, 1) @ w[0] + w[2]
    return lax.scan(cell, (zero, zero), projected)[0][0]


def gru(x, w, units):
    from jax import lax, nn
    from jax import numpy as jnp

    def cell(h, projected):
        recurrent = h @ w[1] + w[2][1]
        z = nn.sigmoid(projected[:, :units] + recurrent[:, :units])
        r = nn.sigmoid(projected[:, units:2 * units] + recurrent[:, units:2 * units])
        n = jnp.tanh(projected[:, 2 * units:] + r * recurrent[:, 2 * units:])
        return z * h + (1 - z) * n, None

    projected = jnp.swapaxes(x, 0, 1) @ w[0] + w[2][0]
    return lax.scan(cell, jnp.zeros((len(x), units), x.dtype), projected)[0]


def block(x, w, heads):
    import jax
    from jax import numpy as jnp

    def norm(x, gamma, beta):
        centred = x - x.mean(-1, keepdims=True)
        return centred / jnp.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-3) * gamma + beta

    q, k, v = (jnp.einsum("ntd,dhk->nhtk", x, w[i]) + w[i + 1][:, None] for i in (0, 2, 4))
    scores = jnp.einsum("nhtk,nhsk->nhts", q, k) / np.sqrt(x.shape[-1] // heads)
    mixed = jnp.einsum("nhts,nhsk->nthk", jax.nn.softmax(scores), v)
    x = norm(x + jnp.einsum("nthk,hkd->ntd", mixed, w[6]) + w[7], w[8], w[9])
    return norm(x + jax.nn.relu(x @ w[10] + w[11]) @ w[12] + w[13], w[14], w[15])


def loss_of(network, weights, x, y):
    import jax
    from jax import numpy as jnp

    found = logits(network, weights, x)
    if network.loss == "mse":
        return ((found - y) ** 2).mean()
    return -jnp.take_along_axis(jax.nn.log_softmax(found), y[:, None], 1).mean()


def initial(network):
    """Weights, both moments and the number of steps done."""
    import jax
    from jax import numpy as jnp

    weights = jax.tree.map(jnp.asarray, network.weights())
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return weights, zeros, jax.tree.map(jnp.zeros_like, weights), jnp.zeros(())


def updated(network, state, x, y):
    """One step of Adam (Kingma and Ba, 2015); returns state and loss."""
    import jax
    from jax import numpy as jnp

    weights, m, v, t = state
    loss, grads = jax.value_and_grad(lambda w: loss_of(network, w, x, y))(weights)
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    first, second = network.rate / (1 - 0.9 ** t), 1 / (1 - 0.999 ** t)
    weights = jax.tree.map(lambda w, m, v: w - first * m / (jnp.sqrt(second * v) + 1e-8),
                           weights, m, v)
    return (weights, m, v, t), loss


def stepping(network):
    import jax
    from jax import numpy as jnp

    step_of = jax.jit(lambda state, x, y: updated(network, state, x, y), donate_argnums=0)
    state = initial(network)

    def step(x, y):
        nonlocal state
        state, loss = step_of(state, x, y)
        return loss

    batches = [(jnp.asarray(x), jnp.asarray(y)) for x, y in network.batches(BATCHES)]
    return training(NAME, "jit", step, batches, lambda: jax.block_until_ready(state))


def predicting(workload):
    import jax

    network = workload.network
    weights = initial(network)[0]
    call = jax.jit(lambda w, x: jax.nn.softmax(logits(network, w, x)))
    x, _ = network.rows(workload.rows)

    def predict():
        return np.asarray(call(weights, x))

    def run(count):
        for _ in range(count):
            predict()

    return Contestant(NAME, "jit", predict, run)


def fitting(workload):
    import jax
    from jax import lax
    from jax import numpy as jnp

    network = workload.network
    x, y = (jnp.asarray(a) for a in network.rows(workload.rows))
    steps = workload.rows // network.batch

    def sweep(state, x, y, order):
        def one(state, rows):
            return updated(network, state, x[rows], y[rows])

        state, losses = lax.scan(one, state, order.reshape(steps, network.batch))
        return state, losses.mean()

    call = jax.jit(sweep, donate_argnums=0)
    state = initial(network)
    rng = np.random.default_rng(0)

    def check():
        nonlocal state
        state, loss = call(state, x, y, np.arange(workload.rows, dtype=np.int32))
        return [float(loss)]

    def run(count):
        nonlocal state
        for _ in range(count):
            state, loss = call(state, x, y, rng.permutation(workload.rows).astype(np.int32))
            jax.block_until_ready(loss)

    return Contestant(NAME, "jit, scan over the pass", check, run)
