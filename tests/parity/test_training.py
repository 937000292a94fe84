"""pyggml itself against PyTorch: dense networks, activations, losses and step rules in training."""

import numpy as np
import pytest
from reference.gradcheck import normal, relative_error

import pyggml

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.parity

SIZES = (5, 17, 8, 3)
ACTIVATIONS = {
    "relu": torch.relu, "relu6": F.relu6, "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu, "selu": F.selu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "sigmoid": torch.sigmoid, "hard_sigmoid": F.hardsigmoid, "hard_swish": F.hardswish,
    "tanh": torch.tanh, "softplus": F.softplus, "softsign": F.softsign, "mish": F.mish,
    "exponential": torch.exp, "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
}


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def both(activation, last=None, outputs=SIZES[-1]):
    """A dense network here, and there in double as a function of its weights."""
    sizes = (*SIZES[:-1], outputs)
    model = pyggml.Sequential([pyggml.Input((sizes[0],)), *(
        pyggml.layers.Dense(n, activation if i < 2 else last) for i, n in enumerate(sizes[1:]))])
    model.set_weights([0.4 * normal(*w.shape, seed=i) for i, w in enumerate(model.get_weights())])
    theirs = [torch.tensor(w, dtype=torch.float64, requires_grad=True)
              for w in model.get_weights()]

    def forward(x):
        x = torch.tensor(x, dtype=torch.float64)
        for i in range(3):
            x = x @ theirs[2 * i] + theirs[2 * i + 1]
            x = ACTIVATIONS[activation](x) if i < 2 else x
        return x

    return model, theirs, forward


def compare_gradients(model, theirs, forward, x, y, loss):
    with pyggml.Trainer(model, batch_size=len(x)) as trainer:
        value = trainer.eval(x, y)
        got = trainer.gradients(x, y)
    expected = loss(forward(x))
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    for g, want in zip(got.values(), theirs, strict=True):
        assert relative_error(g, want.grad.numpy()) < 1e-4


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 9])
def test_gradients_of_a_network(activation, rows):
    model, theirs, forward = both(activation)
    model.compile("sgd", "mse")
    x, y = np.float32(normal(rows, 5)), np.float32(normal(rows, 3))
    compare_gradients(model, theirs, forward, x, y, lambda p: F.mse_loss(p, torch.tensor(y)
                                                                         .double()))


def target(*shape):
    return np.float32(normal(*shape, seed=5))


CLASSES = np.array([0, 2, 1, 1, 0, 2, 2])
SIGNS = np.sign(target(7, 3))
SOFT = np.float32(1 / (1 + np.exp(-target(7, 3))))
LOSSES = {
    "mse": (None, target(7, 3), lambda p, y: F.mse_loss(p, y)),
    "mae": (None, target(7, 3), lambda p, y: F.l1_loss(p, y)),
    "huber": (None, target(7, 3), lambda p, y: F.huber_loss(p, y)),
    "log_cosh": (None, target(7, 3), lambda p, y: torch.log(torch.cosh(p - y)).mean()),
    "hinge": (None, SIGNS, lambda p, y: torch.relu(1 - p * y).mean()),
    "cosine_similarity": (None, target(7, 3), lambda p, y: -F.cosine_similarity(p, y).mean()),
    "binary_crossentropy": ("sigmoid", SOFT,
                            lambda p, y: F.binary_cross_entropy_with_logits(p, y)),
    "categorical_crossentropy": ("softmax", np.eye(3)[CLASSES], lambda p, y: F.cross_entropy(p, y)),
    "sparse_categorical_crossentropy": (
        "softmax", CLASSES, lambda p, y: F.cross_entropy(p, y.long())),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name):
    last, y, loss = LOSSES[name]
    model, theirs, forward = both("tanh", last)
    model.compile("sgd", name)
    compare_gradients(model, theirs, forward, np.float32(normal(7, 5)), y,
                      lambda p: loss(p, torch.tensor(y).double()))


mine, theirs = pyggml.optimizers, torch.optim
RULES = {
    "sgd": (mine.SGD(0.05), lambda w: theirs.SGD(w, 0.05)),
    "momentum": (mine.SGD(0.02, momentum=0.9), lambda w: theirs.SGD(w, 0.02, momentum=0.9)),
    "nesterov": (mine.SGD(0.02, momentum=0.9, nesterov=True),
                 lambda w: theirs.SGD(w, 0.02, momentum=0.9, nesterov=True)),
    "adam": (mine.Adam(0.003), lambda w: theirs.Adam(w, 0.003)),
    "adamw": (mine.AdamW(0.003, weight_decay=0.1),
              lambda w: theirs.AdamW(w, 0.003, weight_decay=0.1)),
    "adagrad": (mine.Adagrad(0.02, initial_accumulator_value=0.1, epsilon=0),
                lambda w: theirs.Adagrad(w, 0.02, initial_accumulator_value=0.1, eps=0)),
}


@pytest.mark.parametrize("limit", [None, 0.1])
@pytest.mark.parametrize("rule", RULES)
def test_fifty_steps(rule, limit):
    given, make = RULES[rule]
    model, weights, forward = both("tanh")
    model.compile(type(given)(**(given.get_config() | {"global_clipnorm": limit})), "mse")
    optimizer = make(weights)
    batches = [(np.float32(normal(9, 5, seed=i)), np.float32(normal(9, 3, seed=i + 9)))
               for i in range(3)]
    with pyggml.Trainer(model, batch_size=9) as trainer:
        for i in range(50):
            x, y = batches[i % 3]
            loss = trainer.step(x, y)
            optimizer.zero_grad()
            expected = F.mse_loss(forward(x), torch.tensor(y).double())
            expected.backward()
            if limit is not None:
                torch.nn.utils.clip_grad_norm_(weights, limit)
            optimizer.step()
            assert loss == pytest.approx(expected.item(), rel=1e-4)
        for got, want in zip(trainer.get_weights(), weights, strict=True):
            assert relative_error(got, want.detach().numpy()) < 1e-4
