"""Where programs ask whether two ways to compute the same agree, and what files hold."""

from . import high_level as base


def _plain(s, shape, limit=None):
    """A small array without oddities."""
    if limit is not None:
        return f"arr({s.seed()}, {tuple(shape)}, 'int64', 'c', 0, {limit})"
    return f"arr({s.seed()}, {tuple(shape)})"


def plain_inputs(s, model, rows):
    found = []
    for symbol in model.program.inputs:
        limit = None
        if symbol.dtype == "int32":
            limit = max(1, min([layer.input_dim for layer in model.layers
                                if hasattr(layer, "input_dim")], default=3))
        found.append(_plain(s, (rows, *symbol.shape[1:]), limit))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def plain_labels(s, model, rows):
    criterion = model.compiled.criterion
    found = []
    for symbol, loss in zip(model.program.outputs, criterion.losses, strict=True):
        shape = symbol.shape[1:]
        if loss.labels == "classes":
            found.append(_plain(s, (rows, *shape[:-1]), shape[-1] if shape else 2))
        elif loss.labels != "none":
            text = _plain(s, (rows, *shape))
            if loss.link == "sigmoid" or "binary" in loss.name or "hinge" in loss.name:
                text = f"({text} > 0).astype('float32')"
            elif loss.link == "softmax" or loss.name in ("kl_divergence", "poisson"):
                text = f"softmaxed({text})"
            found.append(text)
    if not found:
        return "None"
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def _ready(s, *kinds):
    """A name of a built and compiled thing, and its model."""
    name = s.any(*kinds)
    if name is None:
        return None, None
    model = s.value(name) if s.kinds[name] == "model" else s.about[name]["model"]
    try:
        model.require_compiled()
    except ValueError:
        return None, None
    return name, model


def compare(s):
    """Let one of the oracles look at something."""
    name, model = _ready(s, "model", "model", "trainer")
    if name is None:
        return
    rows = s.size(12)
    x = plain_inputs(s, model, rows)
    odd = base.inputs(s, model, rows)
    batch = s.size(6)
    xb, yb = plain_inputs(s, model, batch), plain_labels(s, model, batch)
    if s.kinds[name] == "trainer":
        batch = s.about[name]["batch"]
        n = batch + s.size(7)
        index = f"arr({s.seed()}, ({s.size(3)}, {batch}), 'int64', 'c', 0, {n})"
        s.do(s.pick(
            f"twins_agree({name}, {plain_inputs(s, model, n)}, {plain_labels(s, model, n)}, "
            f"{index})",
            f"views_agree({name}, {x})", f"rows_stand_alone({name}, {x})",
            f"layout_is_nothing({name}, {odd})",
            f"target_moves_by({name}, {name}.{s.pick('snapshot', 'model')}(), "
            f"{s.pick(0, 0.3, 1)})",
            f"together_agree({name}, {x}, {odd}, {plain_inputs(s, model, s.size(30))})"))
        return
    s.do(s.pick(
        f"forms_agree({name}, {x})", f"forms_agree({name}, {x})",
        f"gradients_agree({name}, {batch}, {xb}, {yb})",
        f"gradients_agree({name}, {batch}, {xb}, {yb})",
        f"slope_agrees({name}, {batch}, {xb}, {yb})", f"slope_agrees({name}, {batch}, {xb}, {yb})",
        f"rows_stand_alone({name}, {x})", f"layout_is_nothing({name}, {odd})",
        f"copies_agree({name}, {x})",
        f"together_agree({name}, {x}, {odd}, {plain_inputs(s, model, s.size(30))})",
        f"fit_is_steps({name}, {batch}, {x}, {plain_labels(s, model, rows)})",
        f"any_batch_evaluates_the_same({name}, {x}, {plain_labels(s, model, rows)})",
        f"weights_of_one_are_none({name}, {batch}, {xb}, {yb})"))


def files(s):
    """Save, load, go on; some files are damaged."""
    name = s.any("trainer")
    model = s.any("model")
    if name is None or model is None:
        return
    objects = "{'rng': np.random.default_rng(3), 'order': hpc.ShuffledBatches(9, 2)}"
    which = s.pick("checkpoint", "model", "weights")
    bad = f"damaged({which!r}, {s.seed()})"
    s.do(s.pick(
        f"{name}.save_checkpoint(path('checkpoint'), keep={s.or_junk(2, 0.2)}, "
        f"objects={s.or_junk(objects, 0.1)}, extra={s.or_junk('[1, None, dict(a=2)]', 0.3)})",
        f"restored(path('checkpoint'), {objects})",
        f"checkpoints.load(path('checkpoint')).resume({name})",
        f"checkpoints.load(path('checkpoint')).prepare({model})",
        "checkpoints.latest(path('checkpoint'))",
        f"{name}.restore({s.or_junk(s.any('snapshot', 'trainer', 'model'), 0.1)})",
        f"checkpoints.load({bad}).trainer().free()", f"checkpoints.load({bad}).resume({name})",
        f"pyggml.load_model({bad})", f"{model}.load_weights({bad})",
        f"pyggml.load_model(path({s.pick('model', 'checkpoint', 'kept1')!r})).summary(str)",
        f"{model}.save(path('model'))", f"{model}.save_weights(path('weights'))"))


ACTIONS = ((8, compare), (2, files))
