"""Multi-head attention with every mask, and embeddings, against the references."""

import pickle

import numpy as np
import pytest
from layer_check import Case, check_gradients, check_outputs, random
from reference import attention
from reference.embedding import embedding

import pyggml
from pyggml import layers, ops


def compare(layer, xs, call, **options):
    """Query, value and, if there are three, key."""
    case = Case(layer, xs, call)
    out, backward = attention.multi_head_attention(
        *(np.float64(x) for x in xs), **case.weights, **options)
    check_outputs(case.forward(), [out])
    expected = backward(case.douts()[0])
    expected["xs"] = [expected.pop(k) for k in ("query", "value", "key")[:len(xs)]]
    found = case.gradients()
    if layer.use_bias:
        # A bias of the keys shifts all scores of a query alike: without rounding its gradient is 0.
        rounding = np.abs(found.pop("key_bias")).max()
        assert np.abs(expected.pop("key_bias")).max() < 1e-9
        assert rounding <= 1e-5 * max(np.abs(g).max() for g in [*expected["xs"], case.douts()[0]])
    check_gradients(found, expected)


def plain(layer, given):
    return layer(*given)


@pytest.mark.parametrize("sizes", [
    ((1, 1, 1), (1, 1, 1)), ((3, 5, 7), (3, 4, 7)), ((2, 3, 4), (2, 17, 3)),
], ids=str)
@pytest.mark.parametrize("options", [
    {"num_heads": 1, "key_dim": 1}, {"num_heads": 3, "key_dim": 2, "value_dim": 5},
    {"num_heads": 2, "key_dim": 7, "use_bias": False, "output_shape": 3},
], ids=str)
def test_attention(sizes, options):
    compare(layers.MultiHeadAttention(**options),
            [random(*s, seed=i) for i, s in enumerate(sizes)], plain)


def test_a_sequence_of_300_steps():
    compare(layers.MultiHeadAttention(2, 3), [random(2, 300, 4), random(2, 300, 4, seed=1)],
            lambda layer, given: layer(*given, use_causal_mask=True), use_causal_mask=True)


def test_a_key_of_its_own():
    xs = [random(2, 3, 4), random(2, 5, 6), random(2, 5, 3)]
    compare(layers.MultiHeadAttention(2, 3), xs, plain)


@pytest.mark.parametrize("queries,keys", [(5, 5), (3, 5), (5, 3), (1, 1)])
def test_causal_mask(queries, keys):
    compare(layers.MultiHeadAttention(2, 3), [random(2, queries, 4), random(2, keys, 4, seed=1)],
            lambda layer, given: layer(*given, use_causal_mask=True), use_causal_mask=True)


@pytest.mark.parametrize("causal", [False, True])
def test_an_array_as_mask_even_where_a_query_sees_nothing(causal):
    mask = np.random.default_rng(0).random((4, 5)) < 0.5
    mask[2] = False
    compare(layers.MultiHeadAttention(2, 3), [random(3, 4, 6), random(3, 5, 6)],
            lambda layer, given: layer(*given, attention_mask=mask, use_causal_mask=causal),
            attention_mask=mask, use_causal_mask=causal)


def test_an_array_as_mask_is_saved_with_the_model(tmp_path):
    mask = np.random.default_rng(0).random((4, 4)) < 0.5
    x = pyggml.Input((4, 6))
    model = pyggml.Model(x, layers.MultiHeadAttention(2, 3)(x, x, attention_mask=mask))
    model.save(tmp_path / "model.gguf")
    for other in (pyggml.load_model(tmp_path / "model.gguf"), model.copy()):
        rows = random(3, 4, 6)
        assert other.predict(rows).tobytes() == model.predict(rows).tobytes()


def masked_model(roles, shapes, causal):
    x, y = pyggml.Input((4, 6)), pyggml.Input((5, 6))
    masks = [pyggml.Input(s) for s in shapes]
    layer = layers.MultiHeadAttention(2, 3)
    out = layer(x, y, use_causal_mask=causal, **dict(zip(roles, masks, strict=True)))
    return pyggml.Model([x, y, *masks], out), layer


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("roles,shapes", [
    (["attention_mask"], [(4, 5)]), (["value_mask"], [(5,)]), (["key_mask"], [(5,)]),
    (["query_mask"], [(4,)]), (["query_mask", "value_mask"], [(4,), (5,)]),
    (["attention_mask", "key_mask"], [(4, 5), (5,)]),
], ids=str)
def test_masks_as_inputs(roles, shapes, causal):
    model, layer = masked_model(roles, shapes, causal)
    rng = np.random.default_rng(1)
    xs = [random(3, 4, 6), random(3, 5, 6)]
    masks = [(rng.random((3, *s)) < 0.6).astype(np.float32) for s in shapes]
    masks[0][0] = 0
    weights = {v.name: v.numpy() for v in layer.weights}
    out, _ = attention.multi_head_attention(
        *map(np.float64, xs), **weights, use_causal_mask=causal,
        **dict(zip(roles, masks, strict=True)))
    check_outputs([model.predict([*xs, *masks])], [out])
    model.compile("sgd", "mse")
    with pyggml.Trainer(model, 3) as trainer:
        assert all(np.isfinite(g).all()
                   for g in trainer.gradients([*xs, *masks], out).values())


def test_masked_keys_do_not_matter_even_when_they_are_huge():
    mask = np.ones((3, 4))
    mask[:, 2] = 0
    x, y = random(2, 3, 5), random(2, 4, 5)
    huge = y.copy()
    huge[:, 2] = 1e4

    def call(layer, given):
        return layer(*given, attention_mask=mask)

    pyggml.set_seed(3)
    a = Case(layers.MultiHeadAttention(2, 3), [x, y], call)
    b = Case(layers.MultiHeadAttention(2, 3), [x, huge], call, weights=a.weights)
    assert np.array_equal(a.forward()[0], b.forward()[0])


def test_extreme_inputs_stay_finite():
    case = Case(layers.MultiHeadAttention(2, 3), [random(2, 3, 5, scale=1e4)],
                lambda layer, given: layer(given[0], given[0], use_causal_mask=True))
    assert np.isfinite(case.forward()[0]).all()
    grads = case.gradients()
    assert all(np.isfinite(g).all() for g in [*grads.pop("xs"), *grads.values()])


@pytest.mark.parametrize("name", ["glorot_uniform", "he_normal", "orthogonal"])
def test_kernels_begin_as_matrices_not_as_filters(name):
    heads, size, value, features, out = 4, 8, 6, 40, 20
    layer = layers.MultiHeadAttention(heads, size, value, output_shape=out, use_bias=False,
                                      kernel_initializer=name)
    x = pyggml.Input((5, features))
    layer(x, x)
    assert pickle.loads(pickle.dumps(layer)).weights[0].shape == (features, heads, size)
    fans = [(features, heads * size)] * 2 + [(features, heads * value), (heads * value, out)]
    for kernel, (fan_in, fan_out) in zip(layer.get_weights(), fans, strict=True):
        if name == "glorot_uniform":
            limit = np.sqrt(6 / (fan_in + fan_out))
            assert 0.95 * limit < np.abs(kernel).max() <= limit
        elif name == "he_normal":
            assert kernel.std() == pytest.approx(np.sqrt(2 / fan_in), rel=0.1)
        else:  # as Keras: the last axis against all others
            matrix = kernel.reshape(-1, kernel.shape[-1])
            np.testing.assert_allclose(matrix.T @ matrix, np.eye(kernel.shape[-1]), atol=1e-5)


def test_dropout_acts_in_training_only():
    case = Case(layers.MultiHeadAttention(2, 3, dropout=0.5), [random(2, 9, 5)],
                lambda layer, given: layer(given[0], given[0]))
    assert np.array_equal(case.forward()[0], case.forward()[0])
    assert not np.allclose(case.training_outputs()[0], case.forward()[0])


class Block(layers.Layer):
    """A custom layer that uses layers on tensors: what users write."""

    def build(self, input_shape):
        self.norm = layers.LayerNormalization()
        self.attention = layers.MultiHeadAttention(2, 3)
        self.encoder = layers.LSTM(4, return_sequences=True, return_state=True)
        self.decoder = layers.Bidirectional(layers.LSTM(4))

    def call(self, x):
        y = self.norm(x)
        x = ops.add(x, self.attention(y, y, use_causal_mask=True))
        sequence, h, c = self.encoder(x)
        return self.decoder(sequence, initial_state=[h, c, c, h])


def test_layers_are_used_on_tensors_inside_a_custom_layer():
    case = Case(Block(), [random(3, 5, 6)])
    assert case.forward()[0].shape == (3, 8)
    case.model.compile(pyggml.optimizers.SGD(0.0), "mse")
    with pyggml.Trainer(case.model, 3) as trainer:
        found = trainer.gradients(case.zeros, np.zeros((3, 8)))
    assert len(found) == 1 + 2 + 8 + 3 + 6
    for name, gradient in found.items():
        assert "key_bias" in name or np.abs(gradient).max() > 1e-9, name


# ---- embeddings -------------------------------------------------------------------------------

def embedding_model(shape=(4,), vocabulary=7, size=3):
    words = pyggml.Input(shape, dtype="int32")
    layer = layers.Embedding(vocabulary, size)
    return pyggml.Model(words, layer(words)), layer


@pytest.mark.parametrize("rows,shape,vocabulary,size", [
    (1, (1,), 1, 1), (3, (5,), 7, 3), (2, (3, 4), 17, 33), (5, (13,), 3, 1),
])
def test_embedding(rows, shape, vocabulary, size):
    model, layer = embedding_model(shape, vocabulary, size)
    x = np.random.default_rng(0).integers(vocabulary, size=(rows, *shape))
    out, backward = embedding(x, layer.embeddings.numpy())
    assert np.array_equal(model.predict(x), out.astype(np.float32))
    dout = random(*out.shape)
    model.compile("sgd", lambda t, p: pyggml.ops.multiply(t, p))
    with pyggml.Trainer(model, rows) as trainer:
        (found,) = trainer.gradients(x, dout).values()
    np.testing.assert_allclose(found * dout.size, backward(dout)["embeddings"], rtol=1e-4,
                               atol=1e-5)


@pytest.mark.parametrize("bad", [7, -1, 2**31 - 1, 2.5])
def test_an_index_out_of_range_is_named(bad):
    model, _ = embedding_model()
    x = np.zeros((6, 4))
    x[4, 2] = bad
    y = np.zeros((6, 4, 3), np.float32)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=rf"x holds {bad}.* in row 4.*\[0, 7\)"):
        model.predict(x)
    with pytest.raises(ValueError, match=rf"x holds {bad}.* in row 4.*\[0, 7\)"):
        model.fit(x, y, verbose=0)
    with pyggml.Trainer(model, 6) as trainer:
        before = trainer.model().get_weights()
        for method in (trainer.step, trainer.eval, trainer.gradients):
            with pytest.raises(ValueError, match=r"\[0, 7\)"):
                method(x, y)
        with pytest.raises(ValueError, match=r"\[0, 7\)"):
            trainer.step_many(x, y, [[0, 1, 2, 3, 4, 5]])
        assert np.array_equal(before, trainer.model().get_weights())
        trainer.step(np.zeros((6, 4)), y)


def test_two_tables_on_one_input_take_the_smaller_range():
    words = pyggml.Input((4,), dtype="int32")
    out = layers.Concatenate()([layers.Embedding(9, 2)(words), layers.Embedding(5, 2)(words)])
    model = pyggml.Model(words, out)
    with pytest.raises(ValueError, match=r"\[0, 5\)"):
        model.predict(np.full((2, 4), 5))


def test_a_table_in_a_nested_model_knows_its_range():
    inner, _ = embedding_model()
    words = pyggml.Input((4,), dtype="int32")
    model = pyggml.Model(words, layers.Flatten()(inner(words)))
    with pytest.raises(ValueError, match=r"\[0, 7\)"):
        model.predict(np.full((2, 4), 7))


def test_a_sequential_model_that_starts_with_a_table_takes_indices():
    model = pyggml.Sequential([layers.Embedding(7, 3), layers.Flatten()])
    assert model.predict(np.full((2, 4), 6)).shape == (2, 12)
    with pytest.raises(ValueError, match=r"\[0, 7\)"):
        model.predict(np.full((2, 4), 7))


def test_an_embedding_of_something_computed_is_refused():
    words = pyggml.Input((4,), dtype="int32")
    with pytest.raises(ValueError, match="flatten"):
        layers.Embedding(7, 3)(layers.Flatten()(words))
    with pytest.raises(TypeError, match="int32"):
        layers.Embedding(7, 3)(pyggml.Input((4,)))


def test_attention_scores_are_returned_if_asked_for():
    x = pyggml.Input((5, 6))
    layer = layers.MultiHeadAttention(2, 3, dropout=0.5)
    y, scores = layer(x, x, use_causal_mask=True, return_attention_scores=True)
    assert y.shape == (None, 5, 6) and scores.shape == (None, 2, 5, 5)
    model = pyggml.Model(x, [y, scores])
    data = np.random.default_rng(0).normal(size=(3, 5, 6)).astype("f")
    out, weights = model.predict(data)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert np.triu(weights, 1).max() == 0
    q, k = (np.einsum("ntd,dhs->nhts", data, layer.__dict__[f"{role}_kernel"].numpy())
            for role in ("query", "key"))
    scores = np.einsum("nhqs,nhks->nhqk", q, k) / np.sqrt(3)
    scores = np.where(np.tril(np.ones((5, 5))) > 0, scores, -np.inf)
    want = np.exp(scores - scores.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(weights, want / want.sum(axis=-1, keepdims=True), atol=1e-5)
    again = pyggml.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again.predict(data)[1], weights)
    alone = pyggml.Model(x, layer(x, x, use_causal_mask=True))
    # Without scores all of it is one kernel.
    np.testing.assert_allclose(alone.predict(data), out, rtol=1e-5, atol=1e-6)
