"""The reference layers against central differences, and against numbers that a hand can check."""

import numpy as np
import pytest
from reference import attention, conv, dense, embedding, merge, norm, pooling, recurrent, shape
from reference.gradcheck import check_gradients, normal

# --- Dense, Dropout, Embedding, shapes ----------------------------------------------


@pytest.mark.parametrize("leading", [(1,), (3,), (2, 4)])
@pytest.mark.parametrize("name", ["linear", "tanh", "softmax"])
def test_dense(leading, name):
    arrays = {"x": normal(*leading, 5), "kernel": normal(5, 3), "bias": normal(3)}
    check_gradients(dense.dense, arrays, activation_name=name)


def test_dense_without_bias_one_feature():
    check_gradients(dense.dense, {"x": normal(2, 1), "kernel": normal(1, 1)})
    assert dense.dense([[2.0]], [[3.0]], [1.0])[0] == 7.0


def test_dropout():
    kept = np.array([[1, 0, 1, 1]])
    check_gradients(dense.dropout, {"x": normal(1, 4)}, kept=kept, rate=0.25)
    np.testing.assert_array_equal(
        dense.dropout(np.full((1, 4), 3.0), kept, 0.25)[0], [[4, 0, 4, 4]]
    )


def test_embedding_repeats_add_up():
    check_gradients(
        embedding.embedding, {"embeddings": normal(4, 3)}, indices=[[0, 2, 2], [2, 1, 0]]
    )
    _, backward = embedding.embedding([1, 1], np.zeros((2, 1)))
    np.testing.assert_array_equal(backward(np.ones((2, 1)))["embeddings"], [[0.0], [2.0]])


@pytest.mark.parametrize(
    ("layer", "options", "expected"),
    [
        (shape.flatten, {}, (2, 60)),
        (shape.reshape, {"target_shape": (4, -1)}, (2, 4, 15)),
        (shape.permute, {"dims": (3, 1, 2)}, (2, 5, 3, 4)),
        (shape.zero_padding2d, {"padding": ((1, 0), (2, 3))}, (2, 3, 5, 10)),
        (shape.zero_padding2d, {"padding": (1, 2)}, (2, 3, 6, 9)),
        (shape.upsampling2d, {"size": (2, 3)}, (2, 3, 8, 15)),
        (shape.upsampling2d, {"size": (2, 3), "interpolation": "bilinear"}, (2, 3, 8, 15)),
    ],
)
def test_shape_layer(layer, options, expected):
    x = normal(2, 3, 4, 5)
    assert layer(x, **options)[0].shape == expected
    check_gradients(layer, {"x": x}, **options)


def test_upsampling_values():
    x = np.array([[[[0.0, 4.0]]]])
    near, _ = shape.upsampling2d(x, (1, 2))
    smooth, _ = shape.upsampling2d(x, (1, 2), "bilinear")
    np.testing.assert_array_equal(near.ravel(), [0, 0, 4, 4])
    np.testing.assert_array_equal(smooth.ravel(), [0, 1, 3, 4])


def test_channel_orders_are_inverse():
    x = normal(2, 3, 4, 5)
    assert shape.channels_last(x).shape == (2, 4, 5, 3)
    np.testing.assert_array_equal(shape.channels_first(shape.channels_last(x)), x)


# --- convolutions and pooling ------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["valid", "same", "causal"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 1, 1), (2, 3, 1), (2, 1, 3), (4, 2, 2)]
)
def test_conv1d(padding, kernel, stride, dilation):
    arrays = {"x": normal(2, 3, 11), "kernel": normal(kernel, 3, 2), "bias": normal(2)}
    check_gradients(conv.conv, arrays, strides=stride, dilation_rate=dilation, padding=padding)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilation"),
    [((3, 3), 1, 1), ((2, 4), (2, 3), 1), ((3, 2), 1, (2, 3)), ((1, 1), 2, 1)],
)
def test_conv2d_and_depthwise(padding, kernel, strides, dilation):
    options = {"strides": strides, "dilation_rate": dilation, "padding": padding}
    x, bias = normal(1, 2, 5, 7), normal(4)
    check_gradients(conv.conv, {"x": x, "kernel": normal(*kernel, 2, 4), "bias": bias}, **options)
    depthwise = {"x": x, "depthwise_kernel": normal(*kernel, 2, 2), "bias": bias}
    check_gradients(conv.depthwise_conv2d, depthwise, **options)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilation", "extra"),
    [((3, 3), 1, 1, None), ((2, 3), (2, 2), 1, None), ((1, 2), 3, 1, None), ((3, 3), 2, 1, 1),
     ((2, 3), 1, 2, None)],
)  # fmt: skip
def test_conv2d_transpose(padding, kernel, strides, dilation, extra):
    arrays = {"x": normal(1, 2, 3, 4), "kernel": normal(*kernel, 3, 2), "bias": normal(3)}
    options = {"strides": strides, "dilation_rate": dilation, "output_padding": extra}
    check_gradients(conv.conv2d_transpose, arrays, padding=padding, **options)


def test_conv_values():
    x = np.arange(1.0, 6.0).reshape(1, 1, 5)
    kernel = np.array([1.0, 10.0]).reshape(2, 1, 1)

    def run(**options):
        return conv.conv(x, kernel, **options)[0].ravel().tolist()

    assert run() == [21, 32, 43, 54]
    assert run(padding="same") == [21, 32, 43, 54, 5]  # the odd place is padded behind
    assert run(padding="causal") == [10, 21, 32, 43, 54]
    assert run(padding="same", strides=2) == [21, 43, 5]
    assert run(dilation_rate=3) == [41, 52]


def test_same_padding_rule():
    assert conv.same_padding(5, 3, 1) == (1, 1)
    assert conv.same_padding(6, 3, 2) == (0, 1)
    assert conv.same_padding(7, 2, 1) == (0, 1)
    assert conv.same_padding(5, 1, 2) == (0, 0)
    assert conv.same_padding(8, 3, 1, 2) == (2, 2)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_transpose_is_the_input_gradient_of_conv(padding):
    x, kernel = normal(1, 2, 6, 8), normal(3, 2, 2, 4)
    out, backward = conv.conv(x, kernel, strides=2, padding=padding)
    dout = normal(*out.shape)
    back, _ = conv.conv2d_transpose(dout, kernel, strides=2, padding=padding)
    want = backward(dout)["x"]
    inner = np.zeros_like(want)  # "valid" gives back only the part that a window reached
    inner[:, :, : back.shape[2], : back.shape[3]] = back
    np.testing.assert_allclose(inner, want, atol=1e-12)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("layer", [pooling.max_pooling, pooling.average_pooling])
@pytest.mark.parametrize(("size", "strides"), [(2, None), (3, 2), (2, 3), (3, 1)])
def test_pooling(padding, layer, size, strides):
    for x in (normal(2, 2, 7), normal(1, 2, 5, 7)):
        check_gradients(layer, {"x": x}, pool_size=size, strides=strides, padding=padding)


@pytest.mark.parametrize("keepdims", [False, True])
def test_global_pooling(keepdims):
    for x in (normal(2, 3, 7), normal(2, 3, 5, 1)):
        check_gradients(pooling.global_max_pooling, {"x": x}, keepdims=keepdims)
        check_gradients(pooling.global_average_pooling, {"x": x}, keepdims=keepdims)


def test_pooling_values():
    x = np.array([[[-1.0, -3.0, -2.0]]])
    np.testing.assert_array_equal(pooling.max_pooling(x, padding="same")[0], [[[-1, -2]]])
    np.testing.assert_array_equal(pooling.average_pooling(x, padding="same")[0], [[[-2, -2]]])
    _, backward = pooling.max_pooling(np.zeros((1, 1, 4)), 2)
    np.testing.assert_array_equal(backward(np.ones((1, 1, 2)))["x"], [[[1, 0, 1, 0]]])


# --- normalisation -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(4, 3), (1, 3), (2, 3, 5), (2, 3, 4, 5)])
def test_batch_norm(size):
    arrays = {"x": normal(*size), "gamma": normal(3), "beta": normal(3, seed=1)}
    check_gradients(norm.batch_norm, arrays)
    check_gradients(norm.batch_norm, {"x": arrays["x"]})
    moving = {"moving_mean": normal(3, seed=2), "moving_variance": normal(3, seed=3) ** 2}
    check_gradients(norm.batch_norm, arrays, **moving, training=False)


def test_batch_norm_last_axis_and_statistics():
    x = normal(2, 4, 3) * 3 + 1
    check_gradients(norm.batch_norm, {"x": x, "gamma": normal(3), "beta": normal(3)}, axis=-1)
    mean, variance = norm.batch_statistics(x, axis=-1)
    own, _ = norm.batch_norm(x, axis=-1)
    fixed, _ = norm.batch_norm(
        x, moving_mean=mean, moving_variance=variance, axis=-1, training=False
    )
    np.testing.assert_allclose(own, fixed, atol=1e-14)
    assert norm.batch_statistics([[1.0], [3.0]]) == (2.0, 1.0)  # the biased variance
    assert norm.running_average(1.0, 2.0, 0.9) == pytest.approx(1.1)


@pytest.mark.parametrize("axis", [-1, (1, 2)])
def test_layer_and_rms_norm(axis):
    x = normal(2, 3, 4)
    weights = (4,) if axis == -1 else (3, 4)
    check_gradients(
        norm.layer_norm, {"x": x, "gamma": normal(*weights), "beta": normal(*weights)}, axis=axis
    )
    check_gradients(norm.rms_norm, {"x": x, "scale": normal(*weights)}, axis=axis)


def test_norm_values():
    np.testing.assert_allclose(norm.layer_norm([[1.0, 3.0]], epsilon=0.0)[0], [[-1, 1]])
    np.testing.assert_allclose(
        norm.rms_norm([[3.0, -4.0, 0, 0]], epsilon=0.0)[0] * 2.5, [[3, -4, 0, 0]]
    )
    np.testing.assert_array_equal(norm.layer_norm([[5.0]])[0], [[0.0]])


# --- merging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("layer", [merge.add, merge.multiply, merge.average, merge.maximum])
def test_merge(layer, count):
    check_gradients(layer, {"xs": [normal(2, 3, 4, seed=i) for i in range(count)]})
    check_gradients(
        layer, {"xs": [normal(2, 1, 4), *[normal(2, 3, 1, seed=i) for i in range(1, count)]]}
    )


def test_subtract_and_concatenate():
    check_gradients(merge.subtract, {"xs": [normal(2, 3), normal(2, 1)]})
    check_gradients(
        merge.concatenate, {"xs": [normal(2, 3, 2), normal(2, 1, 2), normal(2, 4, 2)]}, axis=1
    )
    np.testing.assert_array_equal(merge.subtract([[3.0], [1.0]])[0], [2.0])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "axes", "out"),
    [
        ((2, 3), (2, 3), 1, (2, 1)),
        ((2, 3, 4), (2, 5, 4), 2, (2, 3, 5)),
        ((2, 3, 4), (2, 3, 5), (1, 1), (2, 4, 5)),
        ((2, 3, 4), (2, 4), (2, 1), (2, 3)),
        ((1, 1), (1, 1), -1, (1, 1)),
    ],
)
def test_dot(a, b, axes, out, normalize):
    xs = [normal(*a), normal(*b, seed=1)]
    assert merge.dot(xs, axes, normalize)[0].shape == out
    check_gradients(merge.dot, {"xs": xs}, axes=axes, normalize=normalize)


# --- recurrent layers and attention ---------------------------------------------------------------

RECURRENT = {
    "simple_rnn": (recurrent.simple_rnn, 1, 1, (3,), {}),
    "relu": (recurrent.simple_rnn, 1, 1, (3,), {"activation_name": "relu"}),
    "lstm": (recurrent.lstm, 4, 2, (12,), {}),
    "hard lstm": (recurrent.lstm, 4, 2, (12,), {"recurrent_activation": "hard_sigmoid"}),
    "gru": (recurrent.gru, 3, 1, (2, 9), {}),
    "gru, reset before": (recurrent.gru, 3, 1, (9,), {"reset_after": False}),
}


def recurrent_weights(gates, states, bias, seed=0):
    return {
        "kernel": normal(2, gates * 3, seed=seed),
        "recurrent_kernel": normal(3, gates * 3, seed=seed + 1) * 0.5,
        "bias": normal(*bias, seed=seed + 2),
        "initial_state": [normal(2, 3, seed=seed + 3 + i) for i in range(states)],
    }


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_recurrent(name, sequences, backwards):
    layer, gates, states, bias, options = RECURRENT[name]
    weights = recurrent_weights(gates, states, bias)
    options = dict(options, return_sequences=sequences, go_backwards=backwards)
    check_gradients(layer, {"x": normal(2, 4, 2), **weights}, **options)
    mask = np.array([[0, 1, 0, 1], [1, 1, 1, 0]])
    check_gradients(layer, {"x": normal(2, 4, 2), **weights}, mask=mask, **options)


@pytest.mark.parametrize("name", ["simple_rnn", "lstm", "gru"])
def test_recurrent_plain(name):
    layer, gates, states, bias, _ = RECURRENT[name]
    weights = recurrent_weights(gates, states, bias)
    del weights["bias"], weights["initial_state"]
    check_gradients(layer, {"x": normal(2, 1, 2), **weights})


@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave"])
@pytest.mark.parametrize("sequences", [False, True])
def test_bidirectional(mode, sequences):
    for layer, gates, states, bias, options in RECURRENT.values():
        arrays = {
            "x": normal(2, 3, 2),
            "forward_weights": recurrent_weights(gates, states, bias),
            "backward_weights": recurrent_weights(gates, states, bias, seed=10),
        }
        options = dict(options, layer=layer, merge_mode=mode, return_sequences=sequences)
        check_gradients(recurrent.bidirectional, arrays, **options)
        if layer is recurrent.lstm:
            break


def test_recurrent_values():
    one = np.ones((1, 1))
    x = np.array([[[1.0], [2.0], [3.0]]])
    options = {"activation_name": "linear", "return_sequences": True}
    (y, states), _ = recurrent.simple_rnn(x, one, 2 * one, **options)
    np.testing.assert_array_equal(y.ravel(), [1, 4, 11])
    assert states[0] == 11
    (y, _), _ = recurrent.simple_rnn(x, one, 2 * one, **options, go_backwards=True)
    np.testing.assert_array_equal(y.ravel(), [3, 8, 17])
    (y, _), _ = recurrent.simple_rnn(x, one, 2 * one, **options, mask=[[1, 0, 1]])
    np.testing.assert_array_equal(y.ravel(), [1, 1, 5])
    zeros = np.zeros((1, 3))  # both gates 1/2: a GRU halves its state
    (y, _), _ = recurrent.gru(x, zeros, zeros, initial_state=[8 * one])
    assert y == 1.0


def attention_arrays(queries=3, keys=4):
    return {
        "query": normal(2, queries, 5),
        "value": normal(2, keys, 4),
        "query_kernel": normal(5, 2, 3),
        "key_kernel": normal(4, 2, 3),
        "value_kernel": normal(4, 2, 2),
        "output_kernel": normal(2, 2, 5),
        "query_bias": normal(2, 3, seed=1),
        "key_bias": normal(2, 3, seed=2),
        "value_bias": normal(2, 2, seed=3),
        "output_bias": normal(5, seed=4),
    }


@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"use_causal_mask": True},
        {"value_mask": np.array([[1, 1, 0, 0], [1, 1, 1, 1]])},
        {"query_mask": np.array([[1, 0, 1], [1, 1, 1]]), "use_causal_mask": True},
        {"attention_mask": normal(2, 3, 4) > -0.5},
    ],
)
def test_attention(masks):
    check_gradients(attention.multi_head_attention, attention_arrays(), **masks)
    arrays = {**attention_arrays(), "key": normal(2, 4, 4, seed=5)}
    check_gradients(attention.multi_head_attention, arrays, **masks)


def test_attention_masks_hide():
    arrays = attention_arrays(queries=4)
    names = ("query", "query_kernel", "key_kernel")
    scores = attention.attention_scores(
        key=arrays["value"], **{n: arrays[n] for n in names}, use_causal_mask=True
    )
    np.testing.assert_allclose(scores.sum(axis=-1), 1.0, rtol=1e-14)
    assert np.all(scores[..., ~np.tril(np.ones((4, 4), bool))] == 0)
    blind, _ = attention.multi_head_attention(**arrays, value_mask=np.zeros((2, 4)))
    np.testing.assert_array_equal(blind, np.broadcast_to(arrays["output_bias"], blind.shape))
