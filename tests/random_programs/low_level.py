"""What programs do with pyggml.opt and pyggml.ops."""

import math

UNARY = ("absolute", "cos", "exp", "log", "log_softmax", "max_last", "negative", "relu",
         "rms_normalize", "sigmoid", "sign", "silu", "sin", "softmax", "softplus", "sqrt",
         "square", "step", "tanh", "mask_future", "expm1", "mean", "sum")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def make_graph(s):
    """A graph, its weights, and operations on it one after the other."""
    batch = s.size(9)
    name = s.make("graph", f"opt.Graph({s.or_junk(batch)}, training={s.chance(0.9)})")
    if name is None:
        return
    shape = (batch, *[s.size(7) for _ in range(s.pick(1, 1, 1, 2, 3))])
    if s.chance(0.05):
        shape = shape[:s.rng.randint(0, 2)]
    x = s.make("tensor", f"{name}.input({shape})")
    if x is None:
        return
    tensors = [x]
    for _ in range(s.rng.randint(0, 12)):
        found = operation(s, tensors)
        if found:
            tensors.append(found)
    last = s.value(tensors[-1]).shape
    width = last[-1] if last else 1
    if s.chance(0.8):
        out = s.make("tensor", f"ops.reshape({tensors[-1]}, ({batch}, -1))")
        if out is None:
            return
        width = s.value(out).shape[-1]
        if s.chance(0.7):
            units = s.size(4)
            out = s.make("tensor", f"ops.linear({out}, {variable(s, (width, units))})")
        if out is None:
            return
    else:
        out = tensors[-1]
    if s.chance(0.3):
        fit_graph(s, x, out, batch)
    else:
        make_context(s, x, out, batch)


def variable(s, shape):
    axes = f", axes={tuple(s.rng.sample(range(len(shape)), len(shape)))}" if s.chance(0.7) else ""
    name = s.make("variable", f"pyggml.Variable({shape}, 'w'{axes})")
    if name is None:
        return "None"
    s.do(f"{name}.assign(arr({s.seed()}, {shape}))")
    return name


def _like(s, tensors):
    """A second operand that broadcasts, mostly."""
    t = s.pick(*tensors)
    if s.chance(0.3):
        return t
    if s.chance(0.3):
        return s.or_junk(s.pick("2.0", "0", "-0.5"), 0.2)
    shape = tuple(n if s.chance(0.8) else 1 for n in s.value(t).shape)
    shape = shape[s.rng.randint(0, len(shape)):] or (1,)
    return variable(s, shape) if s.chance(0.7) else f"ops.constant({t}, arr({s.seed()}, {shape}))"


def operation(s, tensors):
    """Append the result of a random operation; returns its name or None."""
    t = s.pick(tensors[-1], tensors[-1], s.pick(*tensors))
    shape = s.value(t).shape
    n = len(shape)
    if not n:
        return s.make("tensor", f"ops.{s.pick(*UNARY)}({t})")
    axis = s.or_junk(s.rng.randint(-n, n - 1), 0.05)
    order = list(range(n))
    s.rng.shuffle(order)

    def conv():
        kernel = (s.size(4), shape[1] if n > 1 else 1, s.size(3), s.size(3))
        kind = s.pick("conv2d", "depthwise_conv2d")
        if kind == "depthwise_conv2d":
            kernel = (kernel[1], s.size(3), *kernel[2:])
        return (f"ops.{kind}({t}, {variable(s, kernel)}, {_pair(s)}, "
                f"(({s.size(3) - 1}, {s.size(3) - 1}), ({s.size(2) - 1}, 0)), {_pair(s)})")

    def block():
        starts = tuple(s.rng.randrange(m) for m in shape)
        count = tuple(s.rng.randint(1, m - a) for a, m in zip(starts, shape, strict=True))
        return f"ops.slice({t}, {s.or_junk(starts)}, {s.or_junk(count)})"

    def recurrent():
        units = s.size(4)
        kind, gates = s.pick(("lstm", 4), ("gru", 3), ("simple_rnn", 1))
        flat = f"ops.linear(ops.reshape({t}, ({shape[0]}, -1, {shape[-1]})), " \
               f"{variable(s, (shape[-1], gates * units))})"
        act = "activation=ops.tanh" + (
            "" if gates == 1 else f", recurrent_activation={s.pick('ops.sigmoid', 'ops.relu')}")
        return (f"ops.{kind}_sequence({flat}, {variable(s, (units, gates * units))}, {act}, "
                f"return_sequences={s.chance(0.5)}, go_backwards={s.chance(0.5)})[0]")

    expression = s.pick(
        lambda: f"ops.{s.pick(*UNARY)}({t})", lambda: f"ops.{s.pick(*UNARY)}({t})",
        lambda: f"ops.{s.pick(*BINARY)}({t}, {_like(s, tensors)})",
        lambda: f"ops.{s.pick(*BINARY)}({_like(s, tensors)}, {t})",
        lambda: f"ops.{s.pick('sum', 'mean')}({t}, axis={axis}, keepdims={s.chance(0.5)})",
        lambda: f"ops.{s.pick('sum', 'mean')}({t}, axis={tuple(order[:s.size(3)])})",
        lambda: f"ops.transpose({t}, {s.or_junk(tuple(order))})",
        lambda: f"ops.reshape({t}, {s.or_junk(s.pick((-1,), (shape[0], -1), (1, -1, 1)))})",
        lambda: f"ops.broadcast_to({t}, {s.or_junk(tuple(m * s.pick(1, 2) for m in shape))})",
        lambda: f"ops.affine({t}, {s.or_junk('2.0')}, {s.or_junk('-1')})",
        lambda: f"ops.concatenate([{t}, {s.pick(*tensors)}], {axis})",
        lambda: f"ops.stack([{t}, {t}], {axis})",
        lambda: f"ops.pad({t}, {[(s.size(2) - 1, s.size(3) - 1) for _ in shape]}, "
                f"{s.pick('0.0', '1.5', 'float(-3)')})",
        block,
        lambda: f"ops.split({t}, {s.or_junk(s.pick(1, 2, 3))}, {axis})[-1]",
        lambda: f"ops.flip({t}, {axis})", lambda: f"ops.repeat({t}, {s.or_junk(2)}, {axis})",
        lambda: f"ops.take({t}, arr({s.seed()}, ({s.size()},), 'int64', 'c', 0, "
                f"{shape[0] if shape else 1}))",
        lambda: f"ops.linear({t}, {variable(s, (shape[-1] if n else 1, s.size(5)))})",
        lambda: f"ops.matmul({t}, {s.pick(t, f'ops.transpose({t}, {tuple(order)})')})",
        lambda: f"ops.matmul_transposed({t}, {s.pick(t, *tensors)})",
        lambda: f"ops.dropout({t}, {s.or_junk('0.3')})",
        lambda: f"ops.clip({t}, -0.5, {s.or_junk('0.5')})",
        conv, conv,
        lambda: f"ops.{s.pick('max_pool2d', 'average_pool2d')}({t}, {_pair(s)}, {_pair(s)}, "
                f"(({s.size(2) - 1}, 0), (0, {s.size(2) - 1})))",
        lambda: f"ops.spread({t}, {_pair(s)})", recurrent,
    )()
    return s.make("tensor", expression)


def _pair(s):
    return s.or_junk((s.size(3), s.size(3)), 0.03)


def _loss(s):
    return s.or_junk(repr(s.pick("mean", "sum", "mse", "weighted_mse", "mae", "huber",
                                 "cross_entropy", "binary_cross_entropy")), 0.03)


def make_context(s, x, out, batch):
    loss = _loss(s)
    outputs = out if s.chance(0.85) else f"[{out}, {out}]"
    extra = f"optimizer={s.or_junk(repr(s.pick('adamw', 'sgd')), 0.02)}"
    if s.chance(0.3):
        extra += f", opt_period={s.or_junk(s.pick(1, 2, 3), 0.1)}"
    if s.chance(0.15):
        extra += f", params={{{s.pick(repr('learning_rate'), repr('beta_1'))}: " \
                 f"{s.or_junk('0.5', 0.4)}}}"
    if s.chance(0.15):
        extra += f", forward_only={s.chance(0.7)}"
    about = {"batch": batch, "x": s.value(x).shape, "y": s.value(out).shape}
    if s.chance(0.8):
        s.make("context", f"opt.OptContext({x}, {outputs}, {loss}, {extra})", **about)
        return
    extra = extra.split(", forward_only")[0]
    name = s.make("context", f"opt.OptContext.dynamic({loss}, {extra})", **about)
    if name:
        s.do(f"{name}.prepare_alloc({x}, {outputs})")


def use_context(s):
    name = s.any("context")
    if name is None:
        return
    about = s.about[name]
    x, y = s.array(about["x"]), s.array(about["y"])
    if s.chance(0.1):
        y = "None"
    data = s.any("dataset")
    s.do(s.pick(
        f"{name}.step({x}, {y})", f"{name}.step({x}, {y})", f"{name}.evaluate({x}, {y})",
        f"{name}.set_inputs({x}); {name}.set_labels({y}); {name}.alloc(); {name}.eval()",
        f"{name}.alloc({s.chance(0.5)})", f"{name}.eval()", f"{name}.eval(opt.Result())",
        f"{name}.reset({s.or_junk(s.chance(0.5))})", f"{name}.outputs; {name}.loss; {name}.pred",
        f"[{name}.grad_acc(v) for v in {name}.variables]", f"{name}.ncorrect",
        f"{name}.set_lr({s.or_junk('0.1', 0.5)})", f"{name}.loss_i({s.or_junk(0, 0.4)})",
        f"{name}.outputs_i({s.or_junk(0, 0.4)})", f"{name}.labels", f"{name}.inputs",
        f"opt.epoch({name}, {data}, opt.Result(), opt.Result())", f"{name}.optimizer_type",
        f"slope_of_graph({name}, {x}, {y})", f"slope_of_graph({name}, {x}, {y})"))


def fit_graph(s, x, out, batch):
    """The loops over data sets and generators, which take a graph of their own."""
    inputs, outputs = s.value(x).shape, s.value(out).shape
    head = f"{x}, {s.pick(out, out, f'[{out}]')}"
    # Not a large number: it would be taken at its word.
    nepoch = s.pick("None", "-1", "2.5", "True", "'3'", "[]", "-2**31") if s.chance(0.1) \
        else s.size(3)
    options = f"{_loss(s)}, nepoch={nepoch}, silent=True"
    if s.chance(0.3):
        options += f", nbatch_logical={s.or_junk(batch * s.pick(1, 2), 0.2)}"
    if s.chance(0.3):
        options += ", params={'learning_rate': 0.1}"
    if s.chance(0.4):
        s.do(f"opt.fit_opt_gen({head}, [({s.array(inputs)}, {s.array(outputs)})] * {s.size(4)}, "
             f"{options}, steps_per_epoch={s.or_junk(s.size(3), 0.2)})")
        return
    rows, shard = batch * s.size(5), s.pick(1, 1, batch)
    data = s.make("dataset", f"opt.Dataset({_width(inputs)}, {_width(outputs)}, {rows}, {shard})")
    s.do(f"{data}.data[...] = arr({s.seed()}, {data}.data.shape)")
    s.do(f"opt.{s.pick('fit', 'fit_opt', 'fit_opt_multi')}({head}, {data}, {options}, "
         f"val_split={s.or_junk(s.pick(0.0, 0.5), 0.2)})")


def _width(shape):
    return max(1, math.prod(shape[1:]))


def make_dataset(s):
    context = s.any("context")
    about = s.about[context] if context else {"x": (3, 4), "y": (3, 2), "batch": 3}
    shard = s.pick(1, 1, 2, 3)
    rows = about["batch"] * shard * s.size(4)
    s.make("dataset", f"opt.Dataset({s.or_junk(_width(about['x']))}, "
                      f"{s.or_junk(_width(about['y']))}, {s.or_junk(rows)}, "
                      f"{s.or_junk(shard)}, {s.pick(0, 0, 1)})")


def use_dataset(s):
    name = s.any("dataset")
    if name is None:
        return
    context = s.any("context")
    s.do(s.pick(
        f"{name}.data[...] = 1.0", f"{name}.labels[...] = 1.0",
        f"{name}.shuffle({context}, {s.or_junk(-1, 0.4)})",
        f"{name}.get_batch({s.or_junk(s.size())}, {s.or_junk(s.size(3) - 1)})",
        f"{name}.get_batch_head({s.size()}, 0, {s.or_junk(0)}, {s.or_junk(1)})",
        f"len({name})"))


def use_variable(s):
    name = s.any("variable")
    if name is None:
        return
    shape = s.value(name).shape
    s.do(s.pick(
        f"{name}.assign({s.array(shape)})", f"{name}.numpy(copy=False)[...] = 0.25",
        f"copy.deepcopy({name})", f"pickle.loads(pickle.dumps({name}))", f"repr({name})",
        f"pyggml.Variable({s.or_junk(shape, 0.5)}, axes={s.or_junk('None', 0.3)})"))


ACTIONS = ((5, make_graph), (9, use_context), (2, make_dataset),
           (3, use_dataset), (1, use_variable))
