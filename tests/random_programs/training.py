"""What programs ask of fit, evaluate and predict beside the arrays."""

from . import high_level as base

CALLBACKS = (
    "callbacks.EarlyStopping('loss', patience=0, restore_best_weights=True)",
    "callbacks.EarlyStopping(patience=1, baseline=0.1)",
    "callbacks.ReduceLROnPlateau('loss', patience=0)", "callbacks.TerminateOnNaN()",
    "callbacks.ModelCheckpoint(path('kept{epoch}'), 'loss', save_best_only=True)",
    "callbacks.ModelCheckpoint(path('weights'), save_weights_only=True, save_freq=2)",
    "callbacks.CSVLogger(path('log.csv'), append=True)",
    "callbacks.BackupAndRestore(path('backup'), save_freq=1)",
    "callbacks.BackupAndRestore(path('backup'), delete_checkpoint=False)",
    "callbacks.LambdaCallback(on_epoch_end=lambda e, logs: logs.update(mine=e))",
    "callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: gc.collect())",
    "schedules.StepDecay(1)", "schedules.OneCycle(0.1, total_steps=3)",
    "schedules.CosineDecay(t_max=3, warmup=1, restarts=True, by='step')",
    "schedules.CyclicLR(0.1, step_size=2)", "schedules.PolynomialDecay(decay_steps=2)",
    "schedules.PiecewiseConstantDecay([1, 2], [0.1, 0.01, 0.001])",
    "schedules.ExponentialDecay(0.5, by='step')",
    "schedules.LearningRateScheduler(lambda e: 0.1 / (e + 1))",
    "schedules.LearningRateScheduler(lambda e: 'x')")


def _callbacks(s):
    found = [s.pick(*CALLBACKS) for _ in range(s.pick(1, 1, 2, 3))]
    if s.chance(0.4):
        when = s.pick("train_begin", "epoch_begin", "epoch_end", "batch_begin", "batch_end",
                      "train_end", "test_begin")
        found.append(f"Meddler({when!r}, {s.meddling()!r})")
    return f", callbacks=[{', '.join(found)}]"


def _source(s, model, rows, weighted=0.0):
    """A definition of batches in one of the forms that are taken; returns its name."""
    k = s.size(4)
    name = s.new("source")
    s.do(f"{name} = ()")
    batches = [base._data(s, model, s.pick(rows, rows, rows, rows, rows, s.size()), weighted)
               .replace("sample_weight=", "") for _ in range(k)]
    whole = ", ".join(f"({batch},)" for batch in batches)
    form = s.pick("factory", "factory", "list", "sequence", "iterator", "callable")
    if form == "factory":
        body = [f"    yield {batch}," for batch in batches]
        if s.chance(0.2):
            body.insert(s.rng.randint(0, k), f"    {s.meddling()}")
        s.do("\n".join([f"def {name}():", *body]))
    elif form == "callable":
        s.do(f"{name}_batches = itertools.cycle([{whole}, None])\n"
             f"def {name}():\n    return next({name}_batches)")
    else:
        s.do(f"{name} = [{whole}]")
        if form == "iterator":
            s.do(f"{name} = iter({name})")
        elif form == "sequence":
            hook = s.meddling() if s.chance(0.3) else None
            s.do(f"{name} = Batches({name}, {hook!r})")
    return name, k


def fit(s):
    """Call fit, or another method that trains or measures, with many options."""
    name = s.any("model")
    if name is None:
        return
    model = s.value(name)
    rows = s.size(20)
    batch = s.or_junk(s.size(17))
    options = f"verbose=0, batch_size={batch}, epochs={s.pick(0, 1, 2, 3)}"
    if s.chance(0.5):
        options += _callbacks(s)
    if s.chance(0.2):
        logical = s.pick(1, 2, 3)
        options += f", nbatch_logical={s.or_junk(f'{logical} * ({batch})', 0.1)}"
    if s.chance(0.2):
        options += f", seed={s.or_junk(s.size(), 0.2)}"
    if s.chance(0.15):
        options += f", initial_epoch={s.or_junk(s.size(), 0.2)}"
    if s.chance(0.15):
        options += f", workers={s.or_junk(s.pick(0, 1, 2), 0.1)}"
    if s.chance(0.1):
        options += ", class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 0}"
    choice = s.rng.random()
    if choice < 0.5:
        if s.chance(0.2):
            options += f", steps_per_epoch={s.or_junk(s.size(), 0.2)}"
        if s.chance(0.3):
            options += f", validation_split={s.or_junk(s.pick(0.2, 0.5), 0.1)}"
            options += f", shuffle_before_split={s.chance(0.5)}"
        elif s.chance(0.3):
            options += f", validation_data=({base._data(s, model, s.size(), 0)})"
        if s.chance(0.2):
            options += f", validation_freq={s.or_junk(2, 0.1)}, validation_batch_size=3"
        if s.chance(0.3):
            options += f", shuffle={s.or_junk('False', 0.05)}"
        code = f"{name}.fit({base._data(s, model, rows)}, {options})"
        if "Meddler" in code or "Evil" in code or "Backup" in code:
            s.do(code)
        else:
            s.do(f"frozen_stay({name}, {code!r})")
        return
    source, k = _source(s, model, s.value_of(batch, 3), 0.1)
    options += f", steps_per_epoch={s.or_junk(s.pick('None', k, k + 2, 1), 0.03)}"
    if s.chance(0.3):
        options += f", validation_generator={_source(s, model, s.size())[0]}"
        options += f", validation_steps={s.pick('None', 1, 2)}"
    if s.chance(0.2):
        options += f", calibration_generator={_source(s, model, s.size())[0]}"
        options += f", calibration_steps={s.pick('None', 1)}"
    s.do(f"{name}.fit_generator({source}, {options})")


def measure(s):
    """Evaluate, predict and what else looks at a model."""
    name = s.any("model")
    if name is None:
        return
    model = s.value(name)
    rows = s.size(20)
    try:
        x = base.inputs(s, model, rows)
    except ValueError:
        return
    y = base._data(s, model, rows, 0.1)
    code = s.pick(
        lambda: f"{name}.evaluate({y}, batch_size={s.or_junk(s.size(9))}, return_dict=True, "
                f"steps={s.pick('None', 1)})",
        lambda: f"{name}.evaluate({_source(s, model, rows)[0]}, steps={s.pick('None', 1, 2)})",
        lambda: f"{name}.predict({_source(s, model, rows)[0]}, steps={s.pick('None', 1, 2)})",
        lambda: f"{name}.predict({x}, batch_size=3, "
                f"callbacks=[Meddler('predict', {s.meddling()!r})])",
        lambda: f"{name}.test_on_batch({y})", lambda: f"{name}.predict_on_batch({x})",
        lambda: f"{name}.predict_proba({x})", lambda: f"{name}.predict_classes({x})",
        lambda: f"{name}.metrics_names")()
    if "Meddler" in code or "Evil" in code or "source" in code:
        s.do(code)
    else:
        s.do(f"nothing_moves({name}, {code!r})")


def on_batch(s):
    name = s.any("model")
    if name is not None:
        model = s.value(name)
        code = (f"{name}.train_on_batch({base._data(s, model, s.size(9), 0.1)}, "
                f"return_dict={s.chance(0.5)})")
        s.do(code if "Evil" in code else f"frozen_stay({name}, {code!r})")


def freeze(s):
    """Freeze weights or statistics of some layers, by number, name or beginning."""
    name = s.any("model")
    if name is None:
        return
    try:
        one = s.pick(*[layer.name for layer in s.value(name).layers])
    except ValueError:
        return
    what = s.pick("freeze_weights", "freeze_weights", "unfreeze_weights", "freeze_bn_stats",
                  "unfreeze_bn_stats")
    given = s.pick("", f"layer_names=[{one!r}]", f"prefix={one[:3]!r}", "0, 1", "from_=-1",
                   s.or_junk("to=0", 0.3))
    s.do(s.pick(f"{name}.{what}({given})", f"{name}.{what}({given})",
                f"{name}.get_layer({one!r}).trainable = {s.chance(0.5)}",
                f"{name}.trainable = {s.chance(0.7)}"))


ACTIONS = ((6, fit), (3, measure), (1, on_batch), (1, freeze))
