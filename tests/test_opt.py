"""pyggml.opt: ggml-opt's objects against NumPy, and no way to make ggml abort."""

import itertools
import textwrap

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import callbacks, ops, opt, schedules


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


rng = np.random.default_rng(0)
X = rng.normal(size=(8, 3)).astype(np.float32)
W = np.linspace(-1, 1, 6).reshape(3, 2).astype(np.float32)


def kernel(value=W):
    v = pyggml.Variable(value.shape, "kernel", axes=(1, 0))
    v.assign(value)
    return v


def linear(loss_type, optimizer="sgd", batch=8, variable=None, rate=0.1, **arguments):
    """A context of x @ w."""
    graph = opt.Graph(batch, training=True)
    x = graph.input((batch, 3))
    variable = kernel() if variable is None else variable
    context = opt.OptContext(x, ops.linear(x, variable), loss_type, optimizer,
                             params={"learning_rate": rate}, **arguments)
    return context, variable


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


LABELS = rng.normal(size=(8, 2)).astype(np.float32)
ONE_HOT = np.eye(2, dtype=np.float32)[rng.integers(0, 2, 8)]
WEIGHTS = rng.random((8, 2)).astype(np.float32)

# name: (labels, weights, loss of outputs z in float64)
LOSSES = {
    "mean": (None, None, lambda z: z.mean()),
    "sum": (None, None, lambda z: z.sum()),
    "mse": (LABELS, None, lambda z: ((z - LABELS) ** 2).mean()),
    "weighted_mse": (LABELS, WEIGHTS, lambda z: (WEIGHTS * (z - LABELS) ** 2).mean()),
    "mae": (LABELS, None, lambda z: np.abs(z - LABELS).mean()),
    "huber": (LABELS, None, lambda z: np.where(
        np.abs(z - LABELS) <= 1, 0.5 * (z - LABELS) ** 2, np.abs(z - LABELS) - 0.5).mean()),
    "cross_entropy": (ONE_HOT, None, lambda z: -(ONE_HOT * np.log(softmax(z))).sum() / 8),
    "binary_cross_entropy": (ONE_HOT, None, lambda z: (
        np.logaddexp(0, z) - ONE_HOT * z).mean()),
}


def gradient(loss, w, step=1e-6):
    """Central differences in float64."""
    x, found = X.astype(np.float64), np.empty(w.shape)
    for i in np.ndindex(w.shape):
        up, down = w.astype(np.float64), w.astype(np.float64)
        up[i] += step
        down[i] -= step
        found[i] = (loss(x @ up) - loss(x @ down)) / (2 * step)
    return found


@pytest.mark.parametrize("name", opt.LOSS_TYPES)
def test_loss_and_update_of_every_loss_type(name):
    labels, weights, loss = LOSSES[name]
    context, variable = linear(name)
    # float32's rounding of 16 terms of about 1, which nearly cancel for "sum"
    expected = pytest.approx(loss(X.astype(np.float64) @ W), rel=1e-5, abs=1e-6)
    assert context.evaluate(X, labels, weights) == expected
    assert context.step(X, labels, weights) == expected
    assert variable.numpy() == pytest.approx(W - 0.1 * gradient(loss, W), rel=1e-4, abs=1e-6)
    assert context.outputs[0] == pytest.approx(X @ W, rel=1e-5, abs=1e-6)


def test_all_loss_types_are_tested():
    assert set(LOSSES) == set(opt.LOSS_TYPES)


def adamw(w, grads, rate, decay):
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w * (1 - rate * decay) - rate * (m / (1 - 0.9**t)) / (
            np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


def test_adamw_over_several_steps():
    graph = opt.Graph(8, training=True)
    x = graph.input((8, 3))
    variable = kernel()
    context = opt.OptContext(x, ops.linear(x, variable), "mean", "adamw",
                             params={"learning_rate": 0.01, "weight_decay": 0.1})
    for _ in range(20):
        context.step(X)
    g = gradient(LOSSES["mean"][2], W)  # the same at every step
    assert variable.numpy() == pytest.approx(adamw(W.astype(float), [g] * 20, 0.01, 0.1),
                                             abs=1e-5)
    assert context.optimizer_name == "adamw"
    assert opt.optimizer_name(context.optimizer_type) == "adamw"


@pytest.mark.parametrize("optimizer", opt.OPTIMIZERS)
def test_a_period_updates_by_the_mean_gradient(optimizer):
    context, variable = linear("mse", optimizer, batch=4, opt_period=2)
    large, expected = linear("mse", optimizer)
    for _ in range(3):
        for half in (slice(0, 4), slice(4, 8)):
            context.step(X[half], LABELS[half])
        large.step(X, LABELS)
        assert variable.numpy() == pytest.approx(expected.numpy(), rel=1e-5, abs=1e-6)
        # ggml counts forward passes as part of a period, and forgets to set gradients to zero
        context.evaluate(X[:4], LABELS[:4])


def test_accumulated_gradients_can_be_read():
    context, variable = linear("mse", batch=4, opt_period=2)
    assert linear("mse")[0].grad_acc(variable) is None
    context.step(X[:4], LABELS[:4])
    z = X[:4] @ W
    expected = X[:4].T @ (2 * (z - LABELS[:4])) / 8 / 2
    assert context.grad_acc(variable) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert context.grad_acc(kernel()) is None


def test_learning_rate_and_reset():
    context, variable = linear("mse", "adamw")
    assert context.get_lr() == pytest.approx(0.1)
    context.step(X, LABELS)
    first = variable.numpy()
    for _ in range(5):
        context.step(X, LABELS)
    context.reset(optimizer=True)
    variable.assign(W)
    context.step(X, LABELS)
    assert variable.numpy().tobytes() == first.tobytes()
    context.set_lr(1e-30)
    context.step(X, LABELS)
    assert variable.numpy() == pytest.approx(first)


def test_default_params_are_ggmls():
    assert opt.default_params() == pytest.approx(
        {"learning_rate": 1e-3, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8,
         "weight_decay": 0.0})


# ---- several outputs --------------------------------------------------------------------------

def two_heads(**arguments):
    graph = opt.Graph(8, training=True)
    x = graph.input((8, 3))
    a, b = kernel(), kernel(-W)
    context = opt.OptContext.init_for_fit_multi(
        x, [ops.linear(x, a), ops.linear(x, b)], ["mse", "cross_entropy"], [0.5, 2.0],
        optimizer="sgd", params={"learning_rate": 0.1}, **arguments)
    return context, a, b


def test_several_outputs_add_up_by_weight():
    context, a, b = two_heads()
    mse, ce = LOSSES["mse"][2], LOSSES["cross_entropy"][2]
    total = context.step(X, [LABELS, ONE_HOT])
    assert context.n_loss == 2
    assert context.loss_i(0) == pytest.approx(mse(X @ W), rel=1e-5)
    assert context.loss_i(1) == pytest.approx(ce(X @ -W), rel=1e-5)
    assert total == context.loss == pytest.approx(0.5 * mse(X @ W) + 2 * ce(X @ -W), rel=1e-5)
    assert a.numpy() == pytest.approx(W - 0.1 * 0.5 * gradient(mse, W), rel=1e-4, abs=1e-6)
    assert b.numpy() == pytest.approx(-W - 0.1 * 2 * gradient(ce, -W), rel=1e-4, abs=1e-6)
    assert context.outputs_i(1) == pytest.approx(X @ -W, rel=1e-5, abs=1e-6)
    assert context.pred.tolist() == (X @ -W).argmax(axis=1).tolist()
    assert context.ncorrect == ((X @ -W).argmax(axis=1) == ONE_HOT.argmax(axis=1)).sum()


@pytest.mark.parametrize("offsets", [None, [2, 0]])
def test_labels_of_several_outputs_in_one_array(offsets):
    context, _, _ = two_heads(label_offsets=offsets)
    both = [LABELS, ONE_HOT] if offsets is None else [ONE_HOT, LABELS]
    expected, _, _ = two_heads()
    assert context.step(X, np.hstack(both)) == expected.step(X, [LABELS, ONE_HOT])


def test_columns_of_labels_that_no_output_takes_are_refused():
    context, _, _ = two_heads()
    with pytest.raises(ValueError, match="labels have 5 columns, but the outputs take 4"):
        context.step(X, np.hstack([LABELS, ONE_HOT, LABELS[:, :1]]))
    chosen, _, _ = two_heads(label_offsets=[3, 0])
    given = np.hstack([ONE_HOT, np.full((8, 1), 9.0), LABELS])
    assert chosen.step(X, given) == context.step(X, [LABELS, ONE_HOT])


# ---- results ----------------------------------------------------------------------------------

def test_results_have_ggmls_means_and_uncertainties():
    context, _ = linear("cross_entropy", batch=2)
    result, losses, right = opt.Result(), [], 0
    for i in range(0, 8, 2):
        losses.append(context.evaluate(X[i:i + 2], ONE_HOT[i:i + 2], result=result))
        right += context.ncorrect
    loss, unc = result.loss
    assert loss == pytest.approx(np.mean(losses))
    assert unc == pytest.approx(np.sqrt(np.var(losses) / 3))
    accuracy, spread = result.accuracy
    assert accuracy == right / 8
    assert spread == pytest.approx(np.sqrt(accuracy * (1 - accuracy) / 7))
    assert result.ndata == 8 and result.n_loss == 1
    assert result.loss_i(0) == result.loss
    assert result.pred.tolist() == (X @ W).argmax(axis=1).tolist()
    result.reset()
    assert result.ndata == 0 and np.isnan(result.accuracy[0]) and len(result.pred) == 0


def test_results_of_a_sum_are_sums():
    context, _ = linear("sum", batch=4)
    result = opt.Result()
    losses = [context.evaluate(X[i:i + 4], result=result) for i in (0, 4)]
    assert result.loss[0] == pytest.approx(sum(losses))
    assert result.loss[1] == pytest.approx(np.sqrt(np.var(losses) * 2))
    assert np.isnan(result.accuracy[0])


# ---- data sets --------------------------------------------------------------------------------

def dataset(n=16, shard=1, labels=2, weights=0):
    d = opt.Dataset(3, labels, n, shard, weights)
    d.data[:] = rng.normal(size=(n, 3))
    if labels:
        d.labels[:] = d.data @ W[:, :labels]
    return d


def test_batches_come_in_order_until_shuffled_by_shards():
    d = dataset(16, shard=4)
    context, _ = linear("mse")
    x, y, w = d.get_batch(8, 1)
    assert x.tobytes() == d.data[8:].tobytes() and y.tobytes() == d.labels[8:].tobytes()
    assert w is None
    d.shuffle(context)
    rows = np.concatenate([d.get_batch(4, i)[0] for i in range(4)])
    found = [int(np.flatnonzero((d.data == row).all(axis=1))[0]) for row in rows]
    assert sorted(found) == list(range(16)) and found != list(range(16))
    assert all(b == a + 1 for a, b in itertools.pairwise(found) if (a + 1) % 4)
    assert (d.get_batch(4, 0)[1] == d.labels[found[:4]]).all()


def test_the_front_alone_can_be_shuffled():
    d = dataset(16)
    context, _ = linear("mse")
    for _ in range(5):
        d.shuffle(context, 12)
    assert d.get_batch(4, 3)[0].tobytes() == d.data[12:].tobytes()


def test_weights_and_heads_of_labels():
    d = dataset(16, labels=2, weights=1)
    assert d.weights.shape == (16, 1) and (d.weights == 1).all()
    d.weights[:, 0] = np.arange(16)
    assert d.get_batch(8, 1)[2][:, 0].tolist() == list(range(8, 16))
    assert d.get_batch_head(8, 1, 1, 1).tolist() == d.labels[8:, 1:].tolist()
    assert dataset(labels=0).labels is None
    assert len(d) == 16


def test_views_outlive_the_data_set():
    d = dataset()
    view, copy = d.data, d.data.copy()
    d.free()
    d.free()
    del d
    assert (view == copy).all()


# ---- loops ------------------------------------------------------------------------------------

def test_epoch_trains_in_front_and_evaluates_behind():
    d = dataset(32)
    context, variable = linear("mse")
    calls = []
    train, held = opt.Result(), opt.Result()
    opt.epoch(context, d, train, held, 24,
              lambda *a: calls.append((a[0], a[4], a[5])), lambda *a: calls.append((a[0], *a[4:6])))
    assert calls == [(True, 1, 3), (True, 2, 3), (True, 3, 3), (False, 1, 1)]
    assert train.ndata == 24 and held.ndata == 8
    x, y, _ = d.get_batch(8, 3)
    assert held.loss[0] == pytest.approx(((x @ variable.numpy() - y) ** 2).mean(), abs=1e-6)


def graph_of(batch=8, variable=None):
    graph = opt.Graph(batch, training=True)
    x = graph.input((batch, 3))
    variable = kernel(np.zeros((3, 2))) if variable is None else variable
    return x, ops.linear(x, variable), variable


def test_fit_opt_learns_and_stops_by_callback():
    x, y, variable = graph_of()
    stopping = callbacks.EarlyStopping(patience=1, min_delta=1e9, restore_best_weights=True)
    history = opt.fit_opt(x, y, dataset(32), "mse", "adamw", nepoch=60, nbatch_logical=16,
                          val_split=0.5, silent=True, params={"learning_rate": 0.05})
    assert history.history["val_loss"][-1] < 0.05 * history.history["val_loss"][0]
    assert variable.numpy() == pytest.approx(W, abs=0.4)
    x, y, _ = graph_of()
    history = opt.fit_opt(x, y, dataset(32), nepoch=60, val_split=0.5, silent=True,
                          callbacks=[stopping], initial_epoch=5)
    assert history.epoch == [5, 6]


def test_fit_and_its_rate_by_epoch():
    x, y, _ = graph_of()
    rates = []

    def params(epoch):
        rates.append(epoch)
        return {"learning_rate": 0.2 / epoch}

    history = opt.fit(x, y, dataset(32), "mse", "sgd", params, 3, val_split=0.25)
    assert history.history["loss"][2] < history.history["loss"][0]
    assert rates == [1, 1, 2, 3]
    assert history.history["learning_rate"] == pytest.approx([0.2, 0.1, 0.2 / 3])


def test_fit_opt_gen_equals_steps_by_hand():
    batches = [(X, LABELS), (X[::-1], LABELS)]
    x, y, variable = graph_of()
    history = opt.fit_opt_gen(x, y, batches, "mse", "sgd", 3, validation_generator=batches,
                              silent=True)
    context, expected = linear("mse", variable=kernel(np.zeros((3, 2))), rate=1e-3)
    for _ in range(3):
        for a, b in batches:
            context.step(a, b)
    assert variable.numpy().tobytes() == expected.numpy().tobytes()
    assert list(history.history) == ["loss", "val_loss"]
    x, y, _ = graph_of()
    with pytest.warns(RuntimeWarning, match="generator gave no batch in epoch 1"):
        assert opt.fit_opt_gen(x, y, iter(batches), nepoch=3, silent=True).epoch == [0]
    x, y, _ = graph_of()
    with pytest.warns(RuntimeWarning, match="gave 2 batches in epoch 0, but steps_per_epoch is 5"):
        opt.fit_opt_gen(x, y, batches, steps_per_epoch=5, silent=True)
    x, y, _ = graph_of()
    with pytest.warns(RuntimeWarning, match="validation_generator gave no batch"):
        history = opt.fit_opt_gen(x, y, batches, nepoch=2, silent=True,
                                  validation_generator=iter(batches))
    assert [len(history.history[name]) for name in ("loss", "val_loss")] == [2, 1]
    x, y, _ = graph_of()
    with pytest.raises(ValueError, match="before its first batch"):
        opt.fit_opt_gen(x, y, lambda: None, silent=True)


@pytest.mark.parametrize("source", ["data set", "generator"])
def test_schedules_by_step_set_the_rate_of_every_step(source):
    data, seen = dataset(32), []
    x, y, variable = graph_of()
    look = callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: seen.append((i, logs)))
    schedule = schedules.ExponentialDecay(0.5, initial_learning_rate=0.1, by="step")
    given = [data.get_batch(8, i)[:2] for i in range(4)]
    if source == "generator":
        opt.fit_opt_gen(x, y, given, "mse", "sgd", 2, silent=True, callbacks=[schedule, look])
    else:
        opt.fit_opt(x, y, data, "mse", "sgd", 2, shuffle=False, silent=True,
                    callbacks=[schedule, look])
    w = np.zeros((3, 2))
    for epoch in range(2):
        losses = []
        for i, (a, b) in enumerate(given):
            error = np.float64(a) @ w - b
            losses.append((error**2).mean())
            w -= 0.1 * 0.5 ** (4 * epoch + i) * 2 * np.float64(a).T @ error / error.size
            step, logs = seen[4 * epoch + i]
            assert step == i and logs["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert variable.numpy() == pytest.approx(w, rel=1e-4, abs=1e-6)


def test_fit_opt_multi_and_fit_multi():
    for fit in (opt.fit_opt_multi, opt.fit_multi):
        graph = opt.Graph(8, training=True)
        x = graph.input((8, 3))
        heads = [ops.linear(x, kernel(np.zeros((3, 1)))) for _ in range(2)]
        history = fit(x, heads, dataset(32), ["mse", "mae"], [1.0, 0.5], [1, 0], "adamw",
                      nepoch=4, silent=True, params={"learning_rate": 0.1})
        h = history.history
        assert h["loss"][3] == pytest.approx(h["loss_0"][3] + 0.5 * h["loss_1"][3])
        assert h["loss"][3] < h["loss"][0]


def test_lines_unless_silent(capsys):
    x, y, _ = graph_of()
    opt.fit_opt(x, y, dataset(16), nepoch=1)
    err = capsys.readouterr().err
    assert "epoch 1/1  loss" in err and "train: 2/2" in err


# ---- dynamic ----------------------------------------------------------------------------------

@pytest.mark.parametrize("optimizer", opt.OPTIMIZERS)
@pytest.mark.parametrize("period", [1, 2])
def test_a_dynamic_context_makes_the_same_updates(optimizer, period):
    variable = kernel()
    params = {"learning_rate": 0.1}
    dynamic = opt.OptContext.dynamic("mse", optimizer, period, params)
    static, expected = linear("mse", optimizer, opt_period=period)
    for i in range(6):
        x, y, _ = graph_of(variable=variable)
        dynamic.prepare_alloc(x, y)
        dynamic.set_inputs(X * (i + 1))
        dynamic.set_labels(LABELS)
        dynamic.alloc()
        loss = dynamic.eval()
        assert loss == pytest.approx(static.step(X * (i + 1), LABELS), rel=1e-5)
        assert variable.numpy() == pytest.approx(expected.numpy(), rel=1e-5, abs=1e-6)
    if period == 1:
        dynamic.reset(optimizer=True)
        static.reset(optimizer=True)
        x, y, _ = graph_of(variable=variable)
        dynamic.prepare_alloc(x, y)
        dynamic.set_inputs(X)
        dynamic.set_labels(LABELS)
        dynamic.alloc()
        dynamic.eval()
        static.step(X, LABELS)
        assert variable.numpy() == pytest.approx(expected.numpy(), rel=1e-5, abs=1e-6)
    assert not dynamic.static_graphs and static.static_graphs


# ---- what ggml would abort on, each in a process of its own -----------------------------------

_prelude = textwrap.dedent("""
    import numpy as np, pyggml
    from pyggml import ops, opt
    pyggml.set_num_threads(1)
    X, Y = np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
    def kernel(shape=(3, 2)):
        return pyggml.Variable(shape, "kernel", axes=(1, 0))
    def graph(batch=8, training=True, variable=None):
        g = opt.Graph(batch, training=training)
        x = g.input((batch, 3))
        return x, ops.linear(x, variable or kernel())
    def context(**k):
        return opt.OptContext(*graph(), **k)
    def dynamic(**k):
        return opt.OptContext.dynamic(**k)
    def fails(error, function, *arguments, **k):
        try:
            function(*arguments, **k)
        except error as e:
            assert str(e), "no message"
            return
        raise SystemExit("nothing was raised")
""")

ABORTS = {
    "dataset_ne_datapoint": "fails(ValueError, opt.Dataset, 0, 1, 4)",
    "dataset_ne_label": "fails(ValueError, opt.Dataset, 1, -1, 4)",
    "dataset_ndata": "fails(ValueError, opt.Dataset, 1, 1, 0)",
    "dataset_shard": "fails(ValueError, opt.Dataset, 1, 1, 4, 0)",
    "dataset_shards_do_not_divide": "fails(ValueError, opt.Dataset, 1, 1, 4, 3)",
    "dataset_too_large": "fails(MemoryError, opt.Dataset, 1 << 40, 1, 1 << 40)",
    "dataset_no_memory": "fails(MemoryError, opt.Dataset, 1 << 30, 0, 1 << 14)",
    "dataset_freed": "d = opt.Dataset(3, 2, 8); d.free(); fails(RuntimeError, d.get_batch, 4, 0)",
    "shuffle_beyond": "fails(ValueError, opt.Dataset(3, 2, 8).shuffle, context(), 9)",
    "shuffle_in_a_shard": "fails(ValueError, opt.Dataset(3, 2, 8, 4).shuffle, context(), 6)",
    "shuffle_freed_context":
        "c = context(); c.free(); fails(RuntimeError, opt.Dataset(3, 2, 8).shuffle, c)",
    "shuffle_no_context": "fails(TypeError, opt.Dataset(3, 2, 8).shuffle, None)",
    "batch_in_a_shard": "fails(ValueError, opt.Dataset(3, 2, 8, 4).get_batch, 2, 0)",
    "batch_beyond": "fails(IndexError, opt.Dataset(3, 2, 8).get_batch, 4, 2)",
    "batch_negative": "fails(ValueError, opt.Dataset(3, 2, 8).get_batch, 4, -1)",
    "head_beyond": "fails(IndexError, opt.Dataset(3, 2, 8).get_batch_head, 4, 0, 1, 2)",
    "period": "fails(ValueError, context, opt_period=0)",
    "no_inputs": "fails(ValueError, opt.OptContext, [], graph()[1])",
    "no_outputs": "fails(ValueError, opt.OptContext, graph()[0], [])",
    "not_a_tensor": "fails(TypeError, opt.OptContext, X, graph()[1])",
    "two_graphs": "fails(ValueError, opt.OptContext, graph()[0], graph()[1])",
    "not_an_input": "x, y = graph(); fails(ValueError, opt.OptContext, y, y)",
    "no_weight":
        "g = opt.Graph(8, training=True); x = g.input((8, 3)); "
        "fails(ValueError, opt.OptContext, x, ops.square(x))",
    "frozen_weight":
        "v = kernel(); v.trainable = False; fails(ValueError, opt.OptContext, *graph(variable=v))",
    "no_gradient": "x, y = graph(); fails(ValueError, opt.OptContext, x, ops.step(y))",
    "not_training": "fails(ValueError, opt.OptContext, *graph(training=False))",
    "graph_used_twice":
        "x, y = graph(); opt.OptContext(x, y); fails(ValueError, opt.OptContext, x, y)",
    "graph_allocated":
        "x, y = graph(); x.graph.allocate(); fails(ValueError, opt.OptContext, x, y)",
    "outputs_of_3_axes":
        "x, y = graph(); fails(ValueError, opt.OptContext, x, ops.reshape(y, (8, 2, 1)))",
    "outputs_of_other_rows":
        "x, y = graph(); fails(ValueError, opt.OptContext, x, ops.reshape(y, (16, 1)))",
    "too_large": textwrap.dedent("""
        x, y = graph()
        for _ in range(800): y = ops.square(y)
        fails(NotImplementedError, opt.OptContext, x, y)"""),
    "near_the_limit": textwrap.dedent("""
        refused = 0
        for n in range(640, 700, 2):
            x, y = graph()
            for _ in range(n): y = ops.affine(ops.square(y), 0.1) if n % 4 else ops.square(y)
            try:
                opt.OptContext(x, y).step(X, Y)
            except NotImplementedError:
                refused += 1
        assert 0 < refused < 30, refused"""),
    "loss_type": "fails(ValueError, context, loss_type='nope')",
    "optimizer": "fails(ValueError, context, optimizer='adam')",
    "rate_0": "fails(ValueError, context, params={'learning_rate': 0})",
    "rate_nan": "fails(ValueError, context, params={'learning_rate': float('nan')})",
    "rate_underflow": "fails(ValueError, context, params={'learning_rate': 1e-60})",
    "beta": "fails(ValueError, context, params={'beta_1': 1.5})",
    "epsilon": "fails(ValueError, context, params={'epsilon': -1})",
    "decay": "fails(ValueError, context, params={'weight_decay': 2})",
    "unknown_param": "fails(ValueError, context, params={'momentum': 1})",
    "set_lr_0": "fails(ValueError, context().set_lr, 0)",
    "set_lr_negative": "fails(ValueError, context().set_lr, -1)",
    "eval_without_alloc": "fails(RuntimeError, context().eval)",
    "alloc_twice": "c = context(); c.alloc(); fails(RuntimeError, c.alloc)",
    "backward_of_forward_only": "fails(RuntimeError, context(forward_only=True).alloc)",
    "forward_in_a_period":
        "c = context(opt_period=3); c.step(X, Y); fails(RuntimeError, c.evaluate, X, Y)",
    "reset_in_a_period":
        "c = context(opt_period=3); c.step(X, Y); fails(RuntimeError, c.reset)",
    "reset_before_eval": "c = context(); c.alloc(); fails(RuntimeError, c.reset)",
    "freed": "c = context(); c.free(); c.free(); fails(RuntimeError, c.alloc)",
    "freed_eval": "c = context(); c.alloc(); c.free(); fails(RuntimeError, c.eval)",
    "freed_views": "c = context(); v = c.inputs[0]; c.free(); del c; v[:] = 1",
    "input_shape": "fails(ValueError, context().step, X[:4], Y[:4])",
    "label_shape": "fails(ValueError, context().step, X, np.ones((8, 3)))",
    "label_missing": "fails(ValueError, context().step, X)",
    "label_too_many": "fails(ValueError, context(loss_type='mean').step, X, Y)",
    "weights_unasked": "fails(ValueError, context().step, X, Y, Y)",
    "weights_negative": "fails(ValueError, context(loss_type='weighted_mse').step, X, Y, -Y)",
    "result_of_other_batch": textwrap.dedent("""
        r = opt.Result(); context().step(X, Y, result=r)
        c = opt.OptContext(*graph(4)); fails(ValueError, c.step, X[:4], Y[:4], None, r)"""),
    "result_of_other_loss": textwrap.dedent("""
        r = opt.Result(); context().step(X, Y, result=r)
        fails(ValueError, context(loss_type='sum').step, X, None, None, r)"""),
    "epoch_dynamic": "fails(RuntimeError, opt.epoch, dynamic(), opt.Dataset(3, 2, 8))",
    "epoch_rows": "fails(ValueError, opt.epoch, context(), opt.Dataset(3, 2, 12))",
    "epoch_columns": "fails(ValueError, opt.epoch, context(), opt.Dataset(4, 2, 8))",
    "epoch_labels": "fails(ValueError, opt.epoch, context(), opt.Dataset(3, 0, 8))",
    "epoch_split": "fails(ValueError, opt.epoch, context(), opt.Dataset(3, 2, 16), None, None, 4)",
    "epoch_shard": "fails(ValueError, opt.epoch, context(), opt.Dataset(3, 2, 48, 48))",
    "epoch_period":
        "fails(ValueError, opt.epoch, context(opt_period=2), opt.Dataset(3, 2, 24))",
    "fit_logical": "fails(ValueError, opt.fit_opt, *graph(), opt.Dataset(3, 2, 16), "
                   "nbatch_logical=12)",
    "fit_rows": "fails(ValueError, opt.fit_opt, *graph(), opt.Dataset(3, 2, 24), "
                "nbatch_logical=16)",
    "fit_split": "fails(ValueError, opt.fit_opt, *graph(), opt.Dataset(3, 2, 16), val_split=1.0)",
    "fit_split_nan": "fails(ValueError, opt.fit_opt, *graph(), opt.Dataset(3, 2, 16), "
                     "val_split=float('nan'))",
    "fit_gen_period": "fails(ValueError, opt.fit_opt_gen, *graph(), [(X, Y)] * 3, "
                      "nbatch_logical=16, silent=True)",
    "dynamic_alloc_without_graph": "fails(RuntimeError, dynamic().alloc)",
    "dynamic_step": "fails(RuntimeError, dynamic().step, X, Y)",
    "dynamic_inputs_without_graph": "fails(RuntimeError, dynamic().set_inputs, X)",
    "static_prepare": "fails(RuntimeError, context().prepare_alloc, *graph())",
    "dynamic_graph_again": textwrap.dedent("""
        d = dynamic(); x, y = graph(); d.prepare_alloc(x, y)
        fails(ValueError, d.prepare_alloc, x, y)"""),
    "dynamic_alloc_after_eval": textwrap.dedent("""
        d = dynamic(); d.prepare_alloc(*graph()); d.set_inputs(X); d.set_labels(Y)
        d.alloc(); d.eval(); fails(RuntimeError, d.alloc)"""),
    "dynamic_other_graph": textwrap.dedent("""
        d = dynamic(); d.prepare_alloc(*graph()); d.set_inputs(X); d.set_labels(Y)
        d.alloc(); d.eval(); x, y = graph()
        fails(ValueError, d.prepare_alloc, x, ops.square(y))"""),
    "dynamic_other_weights": textwrap.dedent("""
        d = dynamic(); d.prepare_alloc(*graph()); d.set_inputs(X); d.set_labels(Y)
        d.alloc(); d.eval(); fails(ValueError, d.prepare_alloc, *graph())"""),
    "dynamic_forward_in_period": textwrap.dedent("""
        d = dynamic(opt_period=2); d.prepare_alloc(*graph())
        fails(RuntimeError, d.alloc, False)"""),
    "dynamic_grad_acc": textwrap.dedent("""
        d = dynamic(); v = kernel(); d.prepare_alloc(*graph(variable=v))
        fails(RuntimeError, d.grad_acc, v)"""),
    "dynamic_reset_in_period": "fails(NotImplementedError, dynamic(opt_period=2).reset, True)",
    "pickle": "import pickle; fails(TypeError, pickle.dumps, context())",
}


@pytest.mark.parametrize("name", ABORTS)
def test_what_ggml_would_abort_on_is_a_python_error(name):
    assert run_child(_prelude + ABORTS[name] + "\nprint('survived')") == "survived\n"
