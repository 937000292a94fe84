"""Random networks, losses and optimizers, mostly valid ones."""

ACTIVATIONS = ("None", "'relu'", "'tanh'", "'sigmoid'", "'softmax'", "'gelu'", "'elu'", "'selu'",
               "'silu'", "'softplus'", "'softsign'", "'leaky_relu'", "'relu6'", "'mish'",
               "'exponential'", "'hard_sigmoid'", "'hard_swish'", "'log_softmax'",
               "lambda t: ops.multiply(t, ops.sigmoid(t))", "{'name': 'elu', 'alpha': 0.3}")
LOSSES = ("'mse'", "'mae'", "'huber'", "'log_cosh'", "'hinge'", "'squared_hinge'",
          "'binary_crossentropy'", "'categorical_crossentropy'",
          "'sparse_categorical_crossentropy'", "'sparse_categorical_crossentropy'",
          "'kl_divergence'", "'poisson'", "'cosine_similarity'", "'output'",
          "losses.CategoricalCrossentropy(from_logits=True)",
          "losses.CategoricalFocalCrossentropy(from_logits=True)",
          "losses.BinaryFocalCrossentropy()",
          "losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1)",
          "losses.Huber(0.3)", "lambda y, p: ops.square(ops.subtract(y, p))",
          "lambda y, p: ops.sum(p, axis=-1)", "lambda y, p: ops.reshape(p, (-1,))",
          "lambda y, p: 3.0")
OPTIMIZERS = ("'adam'", "'adamw'", "'sgd'", "'rmsprop'", "'adagrad'", "'lion'",
              "optimizers.SGD(0.1, momentum=0.9, nesterov=True)",
              "optimizers.RMSprop(1e-3, momentum=0.5, centered=True)",
              "optimizers.AdamW(1e-2, weight_decay=0.1)", "optimizers.Adam(clipnorm=1.0)",
              "optimizers.SGD(0.5, clipvalue=0.1)", "optimizers.Adam(global_clipnorm=0.5)",
              "optimizers.Adam(schedules.CosineDecay(t_max=5, initial_learning_rate=0.1))",
              "optimizers.SGD(0.0)")
METRICS = ("None", "None", "['accuracy']", "['mse', 'mae']", "['r2']", "['cosine']",
           "['precision', 'recall', 'f1']", "['auc']", "['rmse', 'acc']",
           "[lambda y, p: np.mean((y - p) ** 2, axis=-1)]", "[metrics.TopKCategoricalAccuracy(2)]")


def vector(s):
    return s.pick(
        lambda: f"layers.Dense({s.or_junk(s.size(33))}, {s.pick(*ACTIVATIONS)}, "
                f"use_bias={s.chance(0.8)})",
        lambda: f"layers.Dense({s.size(5)}, kernel_regularizer=regularizers.L2(0.01))",
        lambda: f"layers.Dropout({s.or_junk(s.pick(0, 0.3, 0.9))})",
        lambda: f"layers.Activation({s.pick(*ACTIVATIONS)})",
        lambda: f"layers.BatchNormalization(momentum={s.pick('None', '0.9')}, "
                f"scale={s.chance(0.8)}, center={s.chance(0.8)})",
        lambda: "layers.LayerNormalization()", lambda: "layers.RMSNormalization()",
        lambda: "layers.Flatten()", lambda: f"layers.Reshape(({s.pick('-1', '1, -1', '-1, 1')},))",
        lambda: "layers.Lambda(lambda t: ops.square(t))")()


def _recurrent(s):
    kind = s.pick("LSTM", "GRU", "SimpleRNN")
    text = (f"layers.{kind}({s.or_junk(s.size(17))}, return_sequences={s.chance(0.5)}, "
            f"go_backwards={s.chance(0.3)}")
    if s.chance(0.2):
        text += f", activation={s.pick(*ACTIVATIONS)}"
    if kind == "GRU":
        text += f", reset_after={s.chance(0.5)}"
    return text + ")"


def _sequence(s):
    return s.pick(
        lambda: _recurrent(s), lambda: _recurrent(s),
        lambda: f"layers.Bidirectional({_recurrent(s)}, "
                f"merge_mode={s.pick('concat', 'sum', 'ave', 'mul')!r})",
        lambda: f"layers.Conv1D({s.size(9)}, {s.or_junk(s.size(4))}, "
                f"padding={s.pick('valid', 'same', 'causal')!r}, "
                f"data_format={s.pick('channels_first', 'channels_last')!r}, "
                f"dilation_rate={s.pick(1, 1, 2)}, strides={s.pick(1, 1, 2)})",
        lambda: f"layers.MaxPooling1D({s.size(3)}, padding={s.pick('valid', 'same')!r})",
        lambda: f"layers.AveragePooling1D({s.size(3)})",
        lambda: f"layers.GlobalAveragePooling1D(keepdims={s.chance(0.3)})",
        lambda: "layers.GlobalMaxPooling1D()", lambda: "layers.Permute((2, 1))",
        lambda: "layers.LayerNormalization()", lambda: vector(s))()


def _image(s):
    form = f"data_format={s.pick('channels_first', 'channels_first', 'channels_last')!r}"
    pad = f"padding={s.pick('valid', 'same')!r}"
    return s.pick(
        lambda: f"layers.Conv2D({s.or_junk(s.size(9))}, {s.pick(1, 2, 3, '(1, 3)', '(3, 2)')}, "
                f"strides={s.pick(1, 1, 2, '(2, 1)')}, {pad}, {form}, "
                f"dilation_rate={s.pick(1, 1, 1, 2)}, activation={s.pick(*ACTIVATIONS)})",
        lambda: f"layers.Conv2D({s.size(5)}, {s.or_junk(s.size(4), 0.2)}, {pad})",
        lambda: f"layers.DepthwiseConv2D({s.size(3)}, {pad}, depth_multiplier={s.size(3)}, {form})",
        lambda: f"layers.Conv2DTranspose({s.size(5)}, {s.size(3)}, strides={s.pick(1, 2)}, {pad})",
        lambda: f"layers.MaxPooling2D({s.size(3)}, strides={s.pick('None', '1', '2')}, {pad})",
        lambda: f"layers.AveragePooling2D({s.size(3)}, {pad}, {form})",
        lambda: "layers.GlobalAveragePooling2D()", lambda: "layers.GlobalMaxPooling2D()",
        lambda: f"layers.UpSampling2D({s.size(3)}, "
                f"interpolation={s.pick('nearest', 'bilinear')!r})",
        lambda: f"layers.ZeroPadding2D({s.or_junk(s.pick('(1, 2)', '((0, 1), (2, 0))'))})",
        lambda: f"layers.BatchNormalization(axis={s.pick(1, -1)}, momentum=0.9)",
        lambda: "layers.Flatten()", lambda: vector(s))()


def _input(s, family):
    shape = {"vector": (s.size(17),), "sequence": (s.size(7), s.size(9)),
             "tokens": (s.size(7),), "image": (s.size(4), s.size(12), s.size(12))}[family]
    dtype = ", dtype='int32'" if family == "tokens" else ""
    return f"pyggml.Input({s.or_junk(shape, 0.01)}{dtype})"


def sequential(s):
    """An expression of a Sequential."""
    family = s.pick("vector", "vector", "sequence", "image", "tokens")
    pick = {"vector": vector, "sequence": _sequence, "tokens": _sequence, "image": _image}[family]
    stack = [_input(s, family)]
    if family == "tokens":
        stack.append(f"layers.Embedding({s.size(11)}, {s.size(7)})")
    stack += [pick(s) for _ in range(s.rng.randint(0, 4))]
    if s.chance(0.6):
        stack.append("layers.Flatten()")
    if s.chance(0.8):
        stack.append(f"layers.Dense({s.size(5)}, {s.pick('None', *ACTIVATIONS[:5])})")
    return f"pyggml.Sequential([{', '.join(stack)}])"


def compile_arguments(s, outputs):
    """Arguments of compile for so many outputs."""
    loss = s.pick(*LOSSES) if s.chance(0.6) else s.pick(*LOSSES[:4])
    if outputs > 1 and s.chance(0.6):
        loss = f"[{', '.join(s.pick(*LOSSES) for _ in range(outputs))}]"
    text = f"{s.or_junk(s.pick(*OPTIMIZERS), 0.02)}, {s.or_junk(loss, 0.02)}"
    if s.chance(0.4):
        text += f", metrics={s.pick(*METRICS)}"
    if outputs > 1 and s.chance(0.3):
        text += f", loss_weights={s.pick('[0.5, 2.0]', '[0, 1]', '[-1, 1]', '[1]')}"
    return text
