"""What programs do with models, trainers and snapshots."""

from . import functional, networks


def make_model(s):
    if s.chance(0.65):
        name = s.make("model", networks.sequential(s))
    else:
        define, call = functional.functional(s)
        s.do(define)
        name = s.make("model", call)
    if name and s.chance(0.95):
        compile_model(s, name)


def compile_model(s, name=None):
    name = name or s.any("model")
    if name is None:
        return
    try:
        outputs = len(s.value(name).program.outputs)
    except ValueError:
        outputs = 1
    if s.do(f"{name}.compile({networks.compile_arguments(s, outputs)})"):
        s.about[name]["compiled"] = True


# -- data of the right shape, mostly ---------------------------------------------------------

def inputs(s, model, rows):
    """An expression of x for a model."""
    found = []
    for symbol in model.program.inputs:
        limit = None
        if symbol.dtype == "int32":
            limit = max(1, min([layer.input_dim for layer in model.layers
                                if hasattr(layer, "input_dim")], default=3))
        found.append(s.array((rows, *symbol.shape[1:]), limit))
    if len(found) == 1 and s.chance(0.97):
        return found[0]
    return f"[{', '.join(found)}]"


def labels(s, model, rows):
    compiled = model.compiled
    shapes = [symbol.shape[1:] for symbol in model.program.outputs]
    found = []
    kinds = [loss.labels for loss in compiled.criterion.losses] if compiled is not None \
        and getattr(compiled, "criterion", None) is not None else ["dense"] * len(shapes)
    for shape, kind in zip(shapes, kinds, strict=False):
        if kind == "none" and s.chance(0.9):
            continue
        if kind == "classes":
            found.append(s.array((rows, *shape[:-1]), shape[-1] if shape else 2))
        else:
            found.append(s.array((rows, *shape)))
    if not found:
        return "None"
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def weights(s, model, rows):
    if s.chance(0.5):
        return f"abs({s.array((rows,), p_odd=0.1)})"
    shape = model.program.outputs[0].shape[1:]
    return f"np.abs({s.array((rows, *shape), p_odd=0.1)})"


def _data(s, model, rows, weighted=0.2):
    try:
        text = f"{inputs(s, model, rows)}, {labels(s, model, rows)}"
        if s.chance(weighted):
            text += f", sample_weight={weights(s, model, rows)}"
    except ValueError:  # a model that is not built
        text = f"{s.array((rows, 3))}, {s.array((rows, 1))}"
    return text


# -- models ----------------------------------------------------------------------------------

def use_model(s):
    name = s.any("model")
    if name is None:
        return
    model = s.value(name)
    rows = s.size(20)
    grows = hasattr(model, "pop")
    try:
        x = inputs(s, model, rows)
    except ValueError:
        x = s.array((rows, s.size()))
    batch = s.or_junk(s.size(17))

    statement = s.pick(
        lambda: f"{name}.evaluate({_data(s, model, rows)}, batch_size={batch}, verbose=0)",
        lambda: f"{name}.predict({x}, batch_size={batch})",
        lambda: f"deterministic({name}, {x})",
        lambda: f"round_trip({name}, {x})",
        lambda: f"{name}.set_weights({name}.get_weights())",
        lambda: f"{name}.set_weights([{s.array((s.size(), s.size()))}])",
        lambda: f"{name}.get_weights(copy=False)[-1][...] = {s.pick('0.5', 'np.nan', '1e30')}",
        lambda: f"{name}.freeze_weights({s.or_junk('0', 0.3)}, {s.or_junk('-1', 0.3)})",
        lambda: f"{name}.unfreeze_weights()",
        lambda: f"{name}.summary(print_fn=str)",
        lambda: f"{name}.stop_training = True",
        lambda: f"{name}.add({networks.vector(s)})" if grows else f"{name}.layers",
        lambda: f"{name}.pop()" if grows else f"{name}.count_params()",
        lambda: f"{name}.save_weights(path('weights'))",
        lambda: f"{name}.load_weights(path({s.pick('weights', 'model', 'checkpoint')!r}))",
        lambda: f"{name}.save(path('model'), quantize={s.pick('None', repr('q8_0'))})",
    )()
    s.do(statement)


def copy_model(s):
    name = s.any("model")
    if name is None:
        return
    s.make("model", s.pick(
        f"copy.deepcopy({name})", f"{name}.copy()", f"pickled({name})",
        f"type({name}).from_config({name}.get_config())", "pyggml.load_model(path('model'))",
        f"pyggml.Sequential([pyggml.Input(({s.size()},)), {name}, layers.Dense(1)])"),
        **s.about[name])


# -- trainers --------------------------------------------------------------------------------

def make_trainer(s):
    name = s.any("model")
    if name is None:
        return
    batch = s.size(33)
    extra = ""
    if s.chance(0.2):
        extra += f", nbatch_logical={s.or_junk(batch * s.pick(1, 2, 3), 0.2)}"
    mask = s.pick("None", "None", "None", "1", "'outputs'")
    if mask == "'outputs'":
        try:
            mask = str(s.value(name).program.outputs[0].shape[-1])
        except ValueError:
            mask = "3"
    if mask != "None":
        extra += f", loss_mask={mask}"
    if s.chance(0.1):
        extra += f", weight_decay={s.or_junk(0.1, 0.3)}"
    other = s.any("trainer")
    if other and s.chance(0.2):
        extra += f", share={s.pick(other, f'[{other}]')}"
    if s.chance(0.05) and other:
        found = s.make("trainer", "pyggml.Trainer.from_checkpoint(path('checkpoint'))")
        if found:
            s.about[found].update(model=s.value(found).model(), batch=s.value(found).batch_size)
        return
    found = s.make("trainer", f"pyggml.Trainer({name}, {s.or_junk(batch)}{extra})")
    if found:
        s.about[found].update(model=s.value(name), batch=s.value(found).batch_size,
                              weighted=mask != "None")


def use_trainer(s):
    name = s.any("trainer")
    if name is None:
        return
    about = s.about[name]
    model, batch = about["model"], about["batch"]
    other = s.any("snapshot", "trainer", "model")
    weighted = 0.6 if about.get("weighted") else 0.03

    def data(rows):
        return _data(s, model, rows, weighted)

    def step_many():
        n = batch + s.size(9)
        k = s.pick(0, 1, 3, 9)
        index = f"arr({s.seed()}, ({k}, {batch}), 'int64', 'c', 0, {s.pick(n, n, n, n + 1)})"
        return f"{name}.step_many({data(n)}, idx={index})"

    rows = batch if s.chance(0.93) else s.size()
    statement = s.pick(
        lambda: f"refused_unchanged({name}, {f'{name}.step({data(rows)})'!r})",
        lambda: f"{name}.step({data(rows)})",
        lambda: f"[{name}.step({data(batch)}) for _ in range({s.size(5)})]",
        lambda: f"refused_unchanged({name}, {step_many()!r})",
        step_many,
        lambda: f"{name}.eval({data(rows)})",
        lambda: f"{name}.predict({inputs(s, model, s.size(40))}, "
                f"batch_size={s.or_junk(s.pick('None', '1', '7'))})",
        lambda: f"deterministic({name}, {inputs(s, model, s.size(20))})",
        lambda: f"{name}.gradients({data(rows)})",
        lambda: f"{name}.apply_gradients({name}.gradients({data(batch)}))",
        lambda: f"refused_unchanged({name}, {f'{name}.apply_gradients(dict())'!r})",
        lambda: f"{name}.set_lr({s.or_junk('0.01', 0.4)})",
        lambda: f"{name}.lr = {s.or_junk('0.0', 0.4)}",
        lambda: f"{name}.calibrate_bn({inputs(s, model, s.size(40))})",
        lambda: f"{name}.update_target({other}, {s.or_junk(s.pick('1.0', '0.5', '0'), 0.2)})",
        lambda: f"{name}.save_checkpoint(path('checkpoint'))",
        lambda: f"{name}.get_weights(copy=False)[0][...] = {s.pick('0.1', 'np.inf')}",
        lambda: f"repr({name}); {name}.n_steps; {name}.n_updates; {name}.lr",
    )
    s.do(statement())


def free(s):
    name = s.any("trainer", "snapshot", "context", "dataset")
    if name is not None:
        s.do(s.pick(f"{name}.free()", f"{name}.free()", f"{name}.__exit__(None, None, None)"))


def copy_of_trainer(s):
    name = s.any("trainer")
    if name is None:
        return
    about = s.about[name]
    if s.chance(0.6):
        s.make("snapshot", f"{name}.snapshot()", **about)
    elif s.make("model", f"{name}.model()", compiled=True) and s.chance(0.3):
        s.do(f"pickle.dumps({name})")


def use_snapshot(s):
    name = s.any("snapshot")
    if name is None:
        return
    model = s.about[name]["model"]
    x = inputs(s, model, s.size(20))
    s.do(s.pick(f"{name}.predict({x})", f"deterministic({name}, {x})", f"{name}.get_weights()",
                f"repr({name})", f"pyggml.snapshot_free({s.or_junk(name, 0.3)})",
                f"copy.deepcopy({name})"))


# -- the rest ----------------------------------------------------------------------------------

def drop(s):
    name = s.any("model", "trainer", "snapshot", "context", "dataset", "graph")
    if name is not None:
        s.drop(name)


def process(s):
    s.do(s.pick(
        "gc.collect()", f"pyggml.set_num_threads({s.or_junk(s.pick(1, 2, 4), 0.2)})",
        f"pyggml.set_seed({s.or_junk(s.size(), 0.3)})", "pyggml.get_num_threads()",
        "pyggml.config()"))


def junk_call(s):
    """Call any public method with anything."""
    name = s.any("model", "trainer", "snapshot", "context", "dataset")
    if name is None:
        return
    # What layers are made of is called by models, and checked there.
    skip = {"call", "build", "add_weight", "compute_output_shape", "make_trainer",
            "require_built", "require_compiled", "from_config", "save", "save_weights",
            "save_checkpoint", "summary"}
    methods = [m for m in dir(s.value(name)) if not m.startswith("_") and m not in skip
               and callable(getattr(type(s.value(name)), m, None))]
    method = s.pick(*methods)
    arguments = ", ".join(s.pick(*s.junk) for _ in range(s.pick(0, 1, 1, 2, 2, 3)))
    if method in ("fit", "evaluate", "fit_generator"):
        arguments += (", " if arguments else "") + "verbose=0"
    s.do(f"{name}.{method}({arguments})")


def junk_layer(s):
    """Make any layer, loss, optimizer or schedule of anything."""
    module, names = s.pick(
        ("layers", ("Dense", "Conv2D", "LSTM", "Embedding", "MaxPooling2D", "Reshape", "Permute",
                    "ZeroPadding2D", "UpSampling2D", "MultiHeadAttention", "Dropout",
                    "Conv2DTranspose", "BatchNormalization", "Dot", "Concatenate", "Activation")),
        ("optimizers", ("Adam", "SGD", "RMSprop", "Adagrad", "Lion")),
        ("losses", ("Huber", "BinaryCrossentropy", "CategoricalFocalCrossentropy")),
        ("schedules", ("StepDecay", "CosineDecay", "OneCycle", "PiecewiseConstantDecay",
                       "PolynomialDecay", "CyclicLR")))
    arguments = ", ".join(s.pick(*s.junk, "3", "(2, 2)") for _ in range(s.pick(1, 2, 3)))
    text = f"{module}.{s.pick(*names)}({arguments})"
    if module == "layers":
        shape = s.pick("(4,)", "(5, 4)", "(2, 6, 6)")
        s.make("model", f"pyggml.Sequential([pyggml.Input({shape}), {text}])")
    else:
        s.do(text)


def in_threads(s):
    """Two statements on what there is, at the same time."""
    found = []
    for _ in range(s.pick(2, 2, 3)):
        name = s.any("trainer", "snapshot", "model")
        if name is None:
            return
        kind = s.kinds[name]
        model = s.value(name) if kind == "model" else s.about[name]["model"]
        try:
            x = inputs(s, model, s.size(20))
        except ValueError:
            return
        code = [f"{name}.predict({x})"]
        if kind == "trainer":
            code += [f"{name}.step({_data(s, model, s.about[name]['batch'], 0)})",
                     f"{name}.free()", f"{name}.snapshot()", f"{name}.model()"]
        if kind == "model":
            code += [f"{name}.fit({_data(s, model, s.size(20), 0)}, verbose=0)",
                     f"{name}.set_weights({name}.get_weights())", f"{name}.copy()"]
        code += ["gc.collect()"]
        found.append(s.pick(*code))
    s.do(f"at_once({', '.join(map(repr, found))})")


EVERYWHERE = ((2, free), (2, drop), (2, process), (2, junk_call))
ACTIONS = (
    (4, make_model), (1, compile_model), (7, use_model), (1, copy_model), (4, make_trainer),
    (12, use_trainer), (2, copy_of_trainer), (3, use_snapshot), (1, junk_layer), (2, in_threads))
