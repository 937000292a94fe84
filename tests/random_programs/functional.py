"""Random functional models: graphs of layers with several inputs and outputs."""

from . import networks


def functional(s):
    """Statements that define a function, and the call that makes the model."""
    return s.pick(_two_inputs, _graph, _graph, _sequences, _attention, _images)(s)


def _function(s, body, inputs, outputs):
    name = s.new("build")
    lines = [f"def {name}():", *(f"    {line}" for line in body),
             f"    return pyggml.Model({inputs}, {outputs})"]
    return "\n".join(lines), f"{name}()"


def _two_inputs(s):
    width = s.size(9)
    body = [f"a = pyggml.Input(({width},))",
            f"b = pyggml.Input(({width if s.chance(0.8) else s.size()},))",
            f"shared = layers.Dense({width}, {s.pick(*networks.ACTIVATIONS)})"]
    merge = s.pick("Add", "Subtract", "Multiply", "Average", "Maximum", "Concatenate")
    body.append(f"h = shared({s.pick('a', 'shared(a)', 'b')})")
    body.append(f"m = layers.{merge}()([h, {s.pick('b', 'shared(b)', 'a', 'h')}])")
    if s.chance(0.3):
        body.append("m = layers.Reshape((1, -1))(m)")
        body.append(f"m = layers.MultiHeadAttention({s.size(3)}, {s.size(4)})(m, m)")
        body.append("m = layers.Flatten()(m)")
    if s.chance(0.3):
        inner = f"pyggml.Sequential([layers.Dense({s.size(5)}, 'tanh'), layers.Dropout(0.2)])"
        body.append(f"m = {inner}(m)")
    first = f"layers.Dense({s.size(5)}, {s.pick('None', *networks.ACTIVATIONS[:5])}, name='p')(m)"
    inputs = s.pick("[a, b]", "[a, b]", "{'a': a, 'b': b}", "a")
    outputs = s.pick(first, first, f"{{'p': {first}, 'q': layers.Dense(1, name='q')(m)}}",
                     f"[{first}, m]", "m", "a")
    return _function(s, body, inputs, outputs)


def _outputs(s, ends):
    """One output or several, in a list or by names."""
    n = s.pick(1, 1, 2, 3)
    heads = [f"layers.Dense({s.size(4)}, {s.pick('None', *networks.ACTIVATIONS[:5])})"
             f"(layers.Flatten()({s.pick(*ends)}))" if s.chance(0.8) else s.pick(*ends)
             for _ in range(n)]
    if n == 1:
        return s.pick(heads[0], heads[0], f"[{heads[0]}]")
    if s.chance(0.5):
        names = s.pick(("a", "val_a", "b"), ("p", "q", "r"), ("loss", "val_loss", "p_loss"))
        return "{" + ", ".join(f"{n!r}: {h}" for n, h in zip(names, heads, strict=False)) + "}"
    return f"[{', '.join(heads)}]"


def _graph(s):
    """Layers that keep the shape, joined at random; some are used twice."""
    width = s.size(9)
    count = s.pick(1, 2, 3)
    body = [f"i{n} = pyggml.Input(({width},))" for n in range(count)]
    names = [f"i{n}" for n in range(count)]
    inner = (f"pyggml.Sequential([layers.Dense({width}, 'relu'), {networks.vector(s)}, "
             f"layers.Dense({width})])")
    body.append(f"shared = {s.pick(inner, f'layers.Dense({width})', 'Scale()')}")
    for n in range(s.rng.randint(1, 7)):
        x = s.pick(names[-1], s.pick(*names))
        line = s.pick(
            lambda x=x: f"layers.Dense({width}, {s.pick(*networks.ACTIVATIONS)})({x})",
            lambda x=x: f"shared({x})", lambda x=x: f"Scale()({x})",
            lambda x=x: f"layers.BatchNormalization(momentum={s.pick('None', '0.9')})({x})",
            lambda x=x: f"layers.{s.pick('LayerNormalization', 'RMSNormalization')}()({x})",
            lambda x=x: f"layers.Dropout({s.pick(0.0, 0.5)})({x})",
            lambda x=x: f"layers.Lambda(ops.{s.pick('square', 'tanh', 'sin', 'absolute')})({x})",
            lambda x=x: f"layers.{s.pick('Add', 'Average', 'Multiply', 'Maximum')}()"
                        f"([{', '.join(s.pick(*names) for _ in range(s.pick(2, 2, 3, 4)))}])",
            lambda x=x: f"layers.Subtract()([{x}, {s.pick(*names)}])",
            lambda x=x: f"layers.Dense({width})(layers.Concatenate(axis={s.pick(-1, 1)})"
                        f"([{x}, {s.pick(*names)}]))",
            lambda x=x: f"layers.Dense({width})(layers.Dot({s.pick(1, -1)}, "
                        f"normalize={s.chance(0.5)})([{x}, {s.pick(*names)}]))",
            lambda x=x: f"layers.Dense({width}, kernel_initializer={initializer(s)}, "
                        f"kernel_regularizer={regularizer(s)})({x})")()
        body.append(f"h{n} = {line}")
        names.append(f"h{n}")
    inputs = [f"i{n}" for n in range(count)]
    given = inputs[0] if count == 1 else s.pick(
        f"[{', '.join(inputs)}]", "{" + ", ".join(f"{n!r}: {n}" for n in inputs) + "}")
    return _function(s, body, given, _outputs(s, names[-3:]))


def initializer(s):
    return s.pick("'zeros'", "'ones'", "'he_normal'", "'lecun_uniform'", "'orthogonal'",
                  "'identity'", "initializers.Constant(0.1)", "initializers.RandomUniform(-1, 1)",
                  "initializers.TruncatedNormal(stddev=0.2)", "initializers.VarianceScaling(2.0)",
                  s.or_junk("'zeros'", 0.3))


def regularizer(s):
    return s.pick("None", "'l1'", "'l2'", "regularizers.L1L2(0.01, 0.01)",
                  f"regularizers.L2({s.or_junk(0.1, 0.2)})")


def _sequences(s):
    """Recurrent layers with masks, states and both directions."""
    words, size = s.size(9), s.size(5)
    units = s.size(5)
    tokens = s.chance(0.5)
    body = [f"x = pyggml.Input(({s.size(6)},), dtype='int32')" if tokens
            else f"x = pyggml.Input(({s.size(6)}, {size}))",
            f"e = layers.Embedding({words}, {size})(x)" if tokens else "e = x",
            f"m = layers.PaddingMask({s.pick('', '0', '1')})(x)"]
    mask = s.pick("", ", mask=m")
    kind = s.pick("LSTM", "GRU", "SimpleRNN")
    options = (f"{units}, go_backwards={s.chance(0.3)}, dropout={s.pick(0.0, 0.0, 0.3)}, "
               f"recurrent_dropout={s.pick(0.0, 0.0, 0.3)}, use_bias={s.chance(0.8)}")
    state = "state[0], state[1]" if kind == "LSTM" else "state[0]"
    body += s.pick(
        lambda: [f"h = layers.{kind}({options}, return_sequences={s.chance(0.5)})(e{mask})"],
        lambda: [f"h, *state = layers.{kind}({options}, return_state=True, "
                 f"return_sequences=True)(e{mask})",
                 f"h = layers.{kind}({options})(h, initial_state=[{state}]{mask})"],
        lambda: [f"h = layers.Bidirectional(layers.{kind}({options}, return_sequences="
                 f"{s.chance(0.5)}), merge_mode={s.pick('concat', 'sum', 'ave', 'mul')!r})"
                 f"(e{mask})"],
        lambda: [f"cell = layers.{kind}({options}, return_sequences=True)",
                 f"h = layers.Add()([cell(e{mask}), cell(e)])"])()
    return _function(s, body, "x", _outputs(s, ["h"]))


def _attention(s):
    queries, keys, size = s.size(5), s.size(5), s.size(6)
    body = [f"q = pyggml.Input(({queries}, {size}))", f"v = pyggml.Input(({keys}, {size}))",
            "m = layers.PaddingMask()(v)"]
    layer = (f"layers.MultiHeadAttention({s.size(3)}, {s.size(5)}, "
             f"dropout={s.pick(0.0, 0.0, 0.4)}, "
             f"use_bias={s.chance(0.7)}, value_dim={s.pick('None', '2')}, "
             f"output_shape={s.pick('None', str(size))})")
    body.append(s.pick(
        lambda: f"h = {layer}(q, v{s.pick('', ', key=v')})",
        lambda: f"h = {layer}(q, v, value_mask=m)",
        lambda: f"h = {layer}(q, q, use_causal_mask=True)",
        lambda: f"h = {layer}(q, v, attention_mask=np.ones(({queries}, {keys})), "
                f"use_causal_mask={s.chance(0.5)})",
        lambda: f"h, scores = {layer}(q, v, return_attention_scores=True)")())
    body.append(s.pick("h = layers.LayerNormalization()(layers.Add()([h, q]))", "pass", "pass"))
    return _function(s, body, "[q, v]", _outputs(s, ["h"]))


def _images(s):
    channels, side = s.size(3), s.pick(3, 4, 5, 7, 8)
    body = [f"x = pyggml.Input(({channels}, {side}, {side}))",
            f"conv = layers.Conv2D({channels}, 3, padding='same', "
            f"activation={s.pick(*networks.ACTIVATIONS)})",
            "a = conv(x)",
            s.pick("b = conv(a)", f"b = layers.DepthwiseConv2D({s.pick(1, 3)}, padding='same')(x)",
                   "b = layers.BatchNormalization(momentum=0.9)(a)",
                   f"b = layers.Conv2D({channels}, 1, use_bias=False)(x)",
                   "b = layers.MaxPooling2D(3, strides=1, padding='same')(a)",
                   "b = layers.UpSampling2D(2)(layers.AveragePooling2D(2)(a))",
                   f"b = layers.Conv2DTranspose({channels}, 3, strides=1, padding='same')(a)"),
            s.pick("h = layers.Concatenate(axis=1)([a, b])", "h = layers.Add()([a, b, x])",
                   "h = layers.Maximum()([a, b])", "h = layers.Multiply()([a, x])"),
            s.pick("h = layers.GlobalAveragePooling2D()(h)", "h = layers.GlobalMaxPooling2D()(h)",
                   "h = layers.LayerNormalization(axis=[1, 2, 3])(h)", "pass")]
    return _function(s, body, "x", _outputs(s, ["h"]))
