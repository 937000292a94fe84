"""Predictions with PyTorch's weights equal PyTorch's own."""

import warnings

import numpy as np
import pytest

import pyggml
from pyggml import layers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.parity


class First(nn.Module):
    """Keep the first of several results: a recurrent module's sequence."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


def _randomise(module):
    for p in module.parameters():
        nn.init.uniform_(p, -0.7, 0.7)
    for name, b in module.named_buffers():
        if name.endswith("running_mean"):
            b.uniform_(-1, 1)
        if name.endswith("running_var"):
            b.uniform_(0.5, 2)


def _layer(name, *args, **kwargs):
    if not hasattr(layers, name):
        pytest.skip(f"there is no {name} yet")
    return getattr(layers, name)(*args, **kwargs)


CASES = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2, bias=False)),
               lambda: [layers.Dense(5, "tanh"), layers.Dense(2, use_bias=False)], (6,)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3),
               lambda: [_layer("Conv1D", 4, 3)], (3, 10)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(3, 4, (3, 2)), nn.ReLU(), nn.Conv2d(4, 2, 2),
                                     nn.Flatten(), nn.Linear(2 * 5 * 4, 3)),
               lambda: [_layer("Conv2D", 4, (3, 2), activation="relu"), _layer("Conv2D", 2, 2),
                        layers.Flatten(), layers.Dense(3)], (3, 8, 6)),
    "conv2d_transpose": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2),
                         lambda: [_layer("Conv2DTranspose", 4, 3, strides=2)], (3, 5, 4)),
    "depthwise": (lambda: nn.Conv2d(3, 6, 3, groups=3),
                  lambda: [_layer("DepthwiseConv2D", 3, depth_multiplier=2)], (3, 7, 6)),
    "batch_norm": (lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)),
                   lambda: [layers.Dense(5), _layer("BatchNormalization", epsilon=1e-5)], (6,)),
    "batch_norm_2d": (lambda: nn.BatchNorm2d(3),
                      lambda: [_layer("BatchNormalization", axis=1, epsilon=1e-5)], (3, 4, 5)),
    "layer_norm": (lambda: nn.LayerNorm(6),
                   lambda: [_layer("LayerNormalization", epsilon=1e-5)], (6,)),
    "rnn": (lambda: First(nn.RNN(4, 5, batch_first=True)),
            lambda: [_layer("SimpleRNN", 5, return_sequences=True)], (7, 4)),
    "lstm": (lambda: First(nn.LSTM(4, 5, batch_first=True)),
             lambda: [_layer("LSTM", 5, return_sequences=True)], (7, 4)),
    "gru": (lambda: First(nn.GRU(4, 5, batch_first=True)),
            lambda: [_layer("GRU", 5, return_sequences=True)], (7, 4)),
    "lstm_2": (lambda: First(nn.LSTM(4, 5, num_layers=2, batch_first=True)),
               lambda: [_layer("LSTM", 5, return_sequences=True) for _ in range(2)], (7, 4)),
    "gru_bidirectional": (
        lambda: First(nn.GRU(4, 5, bidirectional=True, batch_first=True)),
        lambda: [_layer("Bidirectional", _layer("GRU", 5, return_sequences=True))], (7, 4)),
    "gru_no_bias": (lambda: First(nn.GRU(4, 5, bias=False, batch_first=True)),
                    lambda: [_layer("GRU", 5, use_bias=False, return_sequences=True)], (7, 4)),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_predictions_equal_pytorchs(case):
    make_module, make_layers, shape = CASES[case]
    torch.manual_seed(1)
    stack = make_layers()
    module = make_module().eval()
    _randomise(module)
    model = pyggml.Sequential([pyggml.Input(shape), *stack])
    pyggml.load_torch_state_dict(model, {k: v.numpy() for k, v in module.state_dict().items()})
    x = np.random.default_rng(2).normal(size=(3, *shape)).astype(np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(x)).numpy()
    found = model.predict(x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_embeddings_equal_pytorchs():
    embedding = _layer("Embedding", 11, 3)
    module = nn.Embedding(11, 3)
    model = pyggml.Sequential([pyggml.Input((4,), dtype="int32"), embedding])
    pyggml.load_torch_state_dict(model, {k: v.numpy() for k, v in module.state_dict().items()})
    x = np.arange(12).reshape(3, 4) % 11
    with torch.no_grad():
        wanted = module(torch.from_numpy(x)).numpy()
    assert (model.predict(x) == wanted).all()


def test_a_gru_that_resets_before_the_product_is_refused():
    layer = _layer("GRU", 5, reset_after=False)
    module = nn.GRU(4, 5, batch_first=True)
    model = pyggml.Sequential([pyggml.Input((7, 4)), layer])
    with pytest.raises(ValueError, match="reset_after=True"):
        pyggml.load_torch_state_dict(
            model, {k: v.numpy() for k, v in module.state_dict().items()})


@pytest.mark.parametrize("options", [
    {}, {"bias": False}, {"kdim": 5, "vdim": 7}], ids=str)
def test_attention_equals_pytorchs(options):
    torch.manual_seed(3)
    module = nn.MultiheadAttention(12, 3, batch_first=True, **options).eval()
    _randomise(module)
    sizes = 12, options.get("kdim", 12), options.get("vdim", 12)
    query, key, value = (pyggml.Input((n, size)) for n, size in zip((4, 6, 6), sizes, strict=True))
    layer = layers.MultiHeadAttention(3, 4, use_bias=options.get("bias", True), output_shape=12)
    model = pyggml.Model([query, key, value], layer(query, value, key))
    state = {f"attention.{k}": v.numpy() for k, v in module.state_dict().items()}
    pyggml.load_torch_state_dict(model, state)
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=(5, n, size)).astype(np.float32)
              for n, size in zip((4, 6, 6), sizes, strict=True)]
    with torch.no_grad():
        wanted = module(*map(torch.from_numpy, arrays))[0].numpy()
    np.testing.assert_allclose(model.predict(arrays), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="'q_proj_weight' is needed"):
        pyggml.load_torch_state_dict(model, {"linear.weight": np.ones((12, 12))})
