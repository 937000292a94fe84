"""The same thing computed in two ways: what must agree in any program, on any data.

Those that compare bits hold for all numbers; those with a tolerance pass over what is not finite
or so large that rounding alone may separate the two.
"""

import copy
import pickle

import numpy as np

import pyggml
from pyggml import _lowering, checkpoints, layers

from .prelude import path, same


def listed(value):
    return value if isinstance(value, list) else [value]


def tame(arrays, limit=100.0):
    """Whether all numbers are finite and small."""
    found = [np.asarray(a) for a in arrays]
    return all(a.dtype.kind in "fiub" and np.all(np.isfinite(a)) and np.all(np.abs(a) <= limit)
               for a in found)


def near(got, want, tolerance, what):
    """Relative to the largest entry, where the numbers are such that this can be asked."""
    for a, b in zip(listed(got), listed(want), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape, (what, a.shape, b.shape)
        if not tame([b], 1e4):
            continue
        assert np.all(np.isfinite(a)), f"{what}: not finite"
        error = np.max(np.abs(a - b), initial=0.0)
        assert error <= tolerance * (1 + np.max(np.abs(b), initial=0.0)), (what, error)


def softmaxed(x):
    """Rows that sum to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def inner(all_layers):
    """All layers, and those within them."""
    found = []
    for layer in all_layers:
        found += [layer, *inner(layer.sublayers)]
    return found


def has(model, *kinds):
    return any(isinstance(layer, kinds) for layer in inner(model.layers))


def drops(model):
    """Whether training draws masks."""
    return any(getattr(layer, "rate", 0) or getattr(layer, "dropout", 0)
               or getattr(layer, "recurrent_dropout", 0) for layer in inner(model.layers))


def other_form(function):
    """Call a function with kernels where there are none, and the other way round."""
    kept = _lowering.enabled()
    _lowering.set_enabled(not kept)
    try:
        return function()
    finally:
        _lowering.set_enabled(kept)


# -- predictions -----------------------------------------------------------------------------

def forms_agree(model, x):
    """Kernels compute what ggml's own operations do."""
    if not tame([*model.get_weights(), *listed(x)]):
        return
    near(model.predict(x), other_form(lambda: model.copy().predict(x)), 2e-3,
         "kernels and ggml's operations")


def rows_stand_alone(thing, x):
    """A row's output does not depend on the other rows of its batch."""
    xs = listed(x)
    if not tame([*thing.get_weights(), *xs]):
        return
    whole = listed(thing.predict(x))
    for i in range(min(len(xs[0]), 3)):
        row = [np.asarray(a)[i:i + 1] for a in xs]
        near(listed(thing.predict(row if isinstance(x, list) else row[0])),
             [w[i:i + 1] for w in whole], 1e-3, "a row alone")


def layout_is_nothing(thing, x):
    """Strides, byte order and type of an array change nothing."""
    plain = [np.ascontiguousarray(np.asarray(a), np.float32) for a in listed(x)]
    a = listed(thing.predict(x))
    b = listed(thing.predict(plain if isinstance(x, list) else plain[0]))
    assert same(a, b), "predictions depend on the layout of x"


def copies_agree(model, x):
    """Copies of every kind predict the same bits."""
    want = listed(model.predict(x))
    assert same(want, listed(copy.deepcopy(model).predict(x))), "deepcopy"
    try:
        other = pickle.loads(pickle.dumps(model))
    except (pickle.PicklingError, AttributeError, TypeError):  # functions without a name
        pass
    else:
        assert same(want, listed(other.predict(x))), "pickle"
    try:
        other = type(model).from_config(model.get_config())
    except (ValueError, TypeError):
        return
    other.set_weights(model.get_weights())
    assert same(want, listed(other.predict(x))), "from_config"


def views_agree(trainer, x):
    """A trainer, its snapshot and its model predict the same bits."""
    want = listed(trainer.predict(x))
    with trainer.snapshot() as snapshot:
        assert same(want, listed(snapshot.predict(x, batch_size=trainer.batch_size))), "snapshot"
    model = trainer.model()
    assert same(want, listed(model.predict(x, batch_size=trainer.batch_size))), "model()"


def together_agree(thing, *xs):
    """Threads that predict at the same time get what each gets alone."""
    import threading

    want = [listed(thing.predict(x)) for x in xs]
    wrong = []

    def go(x, expected):
        try:
            for _ in range(3):
                if not same(listed(thing.predict(x)), expected):
                    wrong.append("another result")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=go, args=pair) for pair in zip(xs, want, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


# -- training --------------------------------------------------------------------------------

def gradients_agree(model, batch, x, y):
    """Kernels and ggml's operations give the same loss and gradients."""
    if not tame([*model.get_weights(), *listed(x)], 20.0):
        return

    def take():
        pyggml.set_seed(5)
        rng = np.random.default_rng(3)
        with pyggml.Trainer(model, batch) as trainer:
            # Away from where several pieces meet, as at 0 with biases of 0.
            for v, w in zip(trainer.program.variables, trainer.get_weights(copy=False),
                            strict=True):
                if v.trainable:
                    w += rng.normal(0, 0.05, w.shape).astype(np.float32)
            return trainer.gradients(x, y), trainer.eval(x, y), trainer.step(x, y)

    (ours, loss, trained), (theirs, other, _) = take(), other_form(take)
    assert ours.keys() == theirs.keys()
    # Where probabilities are clipped, 1 - 1e-7 is rounded in one form or the other.
    rough = any("cross" in each.name for each in model.compiled.criterion.losses)
    if rough and any(np.any(np.abs(np.sum(p, axis=-1)) < 1e-4)
                     for p in listed(model.predict(x, batch_size=batch))):
        return  # divided by a sum that is nothing but rounding
    near(loss, other, 2e-2 if rough else 2e-3, "losses of both forms")
    if np.isnan(trained):  # a slope of 0 makes 0 of NaN in kernels, NaN in ggml
        return
    top = max([np.max(np.abs(g), initial=0.0) for g in theirs.values()], default=0.0)
    if np.isfinite(top) and top < 1e3:
        for name, g in theirs.items():
            near(ours[name], g, 5e-3 * (1 + top), f"gradients of {name} of both forms")


def slope_agrees(model, batch, x, y):
    """The loss changes along the gradient as much as the gradient says."""
    if has(model, layers.BatchNormalization) or drops(model) \
            or any(v.regularizer is not None for v in model.weight_names) \
            or not tame([*model.get_weights(), *listed(x)], 20.0):
        return
    rng = np.random.default_rng(3)
    with pyggml.Trainer(model, batch) as trainer:
        names = model.weight_names
        at = {names[v]: w for v, w in zip(trainer.program.variables,
                                          trainer.get_weights(copy=False), strict=True)}
        for w in at.values():  # away from where several pieces meet
            w += rng.normal(0, 0.05, w.shape).astype(np.float32)
        g = trainer.gradients(x, y)
        length = np.sqrt(sum(np.sum(np.square(v, dtype=np.float64)) for v in g.values()))
        loss = trainer.eval(x, y)
        if not (np.isfinite(length) and np.isfinite(loss)) or abs(loss) > 1e3 \
                or not 1e-2 * (1 + abs(loss)) < length < 1e3:
            return
        kept = {name: at[name].copy() for name in g}
        slopes = []
        for h in (4e-3, 2e-3, 1e-3):
            ends = []
            for sign in (1, -1):
                for name, v in g.items():
                    at[name][...] = kept[name] + sign * h / length * v
                ends.append(trainer.eval(x, y))
            slopes.append((ends[0] - ends[1]) / (2 * h))
        bend = abs(ends[0] - 2 * loss + ends[1]) / h  # two pieces meet here, however near one looks
        # Where the estimates differ among each other they tell nothing.
        if max(slopes) - min(slopes) < 0.02 * length and bend < 0.05 * length:
            assert abs(np.median(slopes) - length) < 0.1 * length, (
                "gradient and differences", slopes, length)


def slope_of_graph(context, x, y):
    """The same for a context of pyggml.opt: evaluations against the gradients of a step."""
    at = {v: v.numpy(copy=False) for v in context.variables}
    for w in at.values():
        w[...] = np.where(np.isfinite(w), np.clip(w, -2, 2), 0.1)
    if not tame([np.asarray(x), np.asarray(y)], 20.0):
        return
    context.reset(False)
    kept = {v: w.copy() for v, w in at.items()}
    if context.opt_period != 2:
        return
    loss = context.step(x, y)
    g = {v: context.grad_acc(v) for v in at}
    context.step(x, y)  # ends the period
    for v, w in at.items():
        w[...] = kept[v]
    if any(grad is None for grad in g.values()):
        return
    if "sum" not in context.loss_types:  # gradients are scaled by the period, losses are not
        g = {v: 2 * grad for v, grad in g.items()}
    length = np.sqrt(sum(np.sum(np.square(v, dtype=np.float64)) for v in g.values()))
    if not (np.isfinite(length) and np.isfinite(loss)) or abs(loss) > 1e3 \
            or not 1e-2 * (1 + abs(loss)) < length < 1e3 \
            or context.evaluate(x, y) != context.evaluate(x, y):
        return
    slopes = []
    for h in (4e-3, 2e-3, 1e-3):
        ends = []
        for sign in (1, -1):
            for v, w in at.items():
                w[...] = kept[v] + sign * h / length * g[v]
            ends.append(context.evaluate(x, y))
        slopes.append((ends[0] - ends[1]) / (2 * h))
    for v, w in at.items():
        w[...] = kept[v]
    if max(slopes) - min(slopes) < 0.02 * length:
        assert abs(np.median(slopes) - length) < 0.1 * length, (
            "gradient and differences", slopes, length)


def twins_agree(trainer, x, y, index):
    """A checkpoint holds all: step_many, single steps and the trainer itself go on alike."""
    trainer.save_checkpoint(path("twin"))
    a = pyggml.Trainer.from_checkpoint(path("twin"))
    b = pyggml.Trainer.from_checkpoint(path("twin"))

    def take(i):
        return [p[i] for p in xs] if isinstance(x, list) else xs[0][i], \
            None if y is None else ([p[i] for p in ys] if isinstance(y, list) else ys[0][i])

    xs = [np.asarray(p) for p in listed(x)]
    ys = None if y is None else [np.asarray(p) for p in listed(y)]
    many = a.step_many(x, y, idx=index)
    single = [b.step(*take(i)) for i in index]
    assert many.tobytes() == np.asarray(single, np.float64).tobytes(), ("losses", many, single)
    assert same(a.get_weights(), b.get_weights()), "step_many and steps"
    own = [trainer.step(*take(i)) for i in index]
    assert many.tobytes() == np.asarray(own, np.float64).tobytes(), ("checkpoint", many, own)
    assert same(a.get_weights(), trainer.get_weights()), "a checkpoint lacks something"
    assert (a.n_steps, a.n_updates) == (trainer.n_steps, trainer.n_updates)


def fit_is_steps(model, batch, x, y):
    """fit without shuffling is a loop over steps."""
    n = len(listed(x)[0]) // batch * batch
    if not n or any(layer.momentum is None for layer in inner(model.layers)
                    if isinstance(layer, layers.BatchNormalization)):
        return
    x = [np.asarray(a)[:n] for a in listed(x)] if isinstance(x, list) else np.asarray(x)[:n]
    y = None if y is None else (
        [np.asarray(a)[:n] for a in y] if isinstance(y, list) else np.asarray(y)[:n])
    fitted = model.copy()
    fitted.fit(x, y, batch_size=batch, shuffle=False, verbose=0, seed=5)
    with pyggml.Trainer(model, batch) as trainer:
        trainer._reseed(5)
        trainer.step_many(x, y, idx=np.arange(n).reshape(-1, batch))
        assert same(fitted.get_weights(), trainer.get_weights()), "fit and steps"


def any_batch_evaluates_the_same(model, x, y):
    """The loss of all rows does not depend on how they are cut into batches."""
    if not tame([*model.get_weights(), *listed(x)]):
        return
    n = len(listed(x)[0])
    found = [listed(model.evaluate(x, y, batch_size=b))[0] for b in (1, 3, n)]
    near(found[0], found[2], 2e-3, "evaluate with other batches")
    near(found[1], found[2], 2e-3, "evaluate with other batches")


def weights_of_one_are_none(model, batch, x, y):
    """Weights of ones equal no weights; what weighs 0 does not count."""
    with pyggml.Trainer(model, batch, loss_mask=1) as trainer:
        plain, ones = trainer.eval(x, y), trainer.eval(x, y, np.ones(batch))
        assert np.float64(plain).tobytes() == np.float64(ones).tobytes(), (plain, ones)
        if isinstance(y, np.ndarray) and y.dtype.kind == "f" and len(y) > 1 and np.all(
                np.isfinite(y)):
            w = np.ones(batch)
            w[0] = 0
            other = np.array(y)
            other[0] = y[-1]
            a, b = (trainer.gradients(x, labels, w) for labels in (y, other))
            assert same(list(a.values()), list(b.values())), "a row of weight 0 counts"


def target_moves_by(trainer, target, tau):
    """update_target computes tau * current + (1 - tau) * target."""
    before = target.get_weights()
    trainer.update_target(target, tau)
    known = trainer.compiled.weight_names
    if any(v not in known for v in trainer.program.variables):  # the model was changed
        return
    names = [known[v] for v in trainer.program.variables]
    for name, own, old, new in zip(names, trainer.get_weights(), before, target.get_weights(),
                                   strict=True):
        if "moving" in name or tau == 1:
            assert own.tobytes() == new.tobytes(), name
        elif tame([own, old]):
            near(new, tau * own.astype(float) + (1 - tau) * old, 1e-5, name)


# -- files -----------------------------------------------------------------------------------

def damaged(name, seed):
    """A copy of a file with something wrong in it; returns its path."""
    rng = np.random.default_rng(seed)
    with open(path(name), "rb") as file:
        data = bytearray(file.read())
    kind = rng.integers(5)
    at = int(rng.integers(len(data))) if rng.random() < 0.5 else int(
        rng.integers(min(len(data), 600)))
    if kind == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data = data[:at]
    elif kind == 2:
        data[at:at + 8] = rng.bytes(8)
    elif kind == 3:
        data[at:at] = rng.bytes(int(rng.integers(1, 40)))
    else:
        data[at:at + 8] = (2**64 - 1 - int(rng.integers(9))).to_bytes(8, "little")
    with open(path("damaged"), "wb") as file:
        file.write(data)
    return path("damaged")


def restored(name, objects):
    """Give objects their states, where the checkpoint has them."""
    with checkpoints.load(name) as saved:
        if set(objects) <= set(saved.objects):
            saved.restore(objects)
            return
        kept = {key: repr(item) for key, item in objects.items()}
        try:
            saved.restore(objects)
        except KeyError:  # as documented
            assert kept == {key: repr(item) for key, item in objects.items()}
        else:
            raise AssertionError("states came from nowhere")
