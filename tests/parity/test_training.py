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


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2; PyTorch has none."""

    def __init__(self, params, lr, betas):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                w -= group["lr"] * torch.sign(b1 * m + (1 - b1) * w.grad)
                m.mul_(b2).add_(w.grad, alpha=1 - b2)


class RMSprop(torch.optim.Optimizer):
    """With epsilon inside the root, as Keras has it; PyTorch adds it to the root."""

    def __init__(self, params, lr, rho, epsilon, centered=False):
        super().__init__(params, {"lr": lr, "rho": rho, "epsilon": epsilon, "centered": centered})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                s = self.state[w].setdefault("s", torch.zeros_like(w))
                s.mul_(group["rho"]).addcmul_(w.grad, w.grad, value=1 - group["rho"])
                spread = s
                if group["centered"]:
                    a = self.state[w].setdefault("a", torch.zeros_like(w))
                    a.lerp_(w.grad, 1 - group["rho"])
                    spread = s - a ** 2
                w -= group["lr"] * w.grad / torch.sqrt(spread + group["epsilon"])


mine, theirs = pyggml.optimizers, torch.optim
RULES = {
    "sgd": (mine.SGD(0.05), lambda w: theirs.SGD(w, 0.05)),
    "momentum": (mine.SGD(0.02, momentum=0.9), lambda w: theirs.SGD(w, 0.02, momentum=0.9)),
    "nesterov": (mine.SGD(0.02, momentum=0.9, nesterov=True),
                 lambda w: theirs.SGD(w, 0.02, momentum=0.9, nesterov=True)),
    "adam": (mine.Adam(0.003), lambda w: theirs.Adam(w, 0.003)),
    "adam with its own betas and epsilon": (
        mine.Adam(0.01, 0.7, 0.9, 1e-2),
        lambda w: theirs.Adam(w, 0.01, betas=(0.7, 0.9), eps=1e-2)),
    "adamw": (mine.AdamW(0.003, weight_decay=0.1),
              lambda w: theirs.AdamW(w, 0.003, weight_decay=0.1)),
    "rmsprop": (mine.RMSprop(0.003, rho=0.9, epsilon=0),
                lambda w: theirs.RMSprop(w, 0.003, alpha=0.9, eps=0)),
    "rmsprop with momentum": (
        mine.RMSprop(0.002, rho=0.95, momentum=0.8, epsilon=0),
        lambda w: theirs.RMSprop(w, 0.002, alpha=0.95, momentum=0.8, eps=0)),
    "rmsprop centered": (
        mine.RMSprop(0.003, rho=0.9, epsilon=1e-3, centered=True),
        lambda w: RMSprop(w, 0.003, 0.9, 1e-3, centered=True)),
    "rmsprop with epsilon": (mine.RMSprop(0.003, rho=0.9, epsilon=1e-3),
                             lambda w: RMSprop(w, 0.003, 0.9, 1e-3)),
    "adagrad": (mine.Adagrad(0.02, initial_accumulator_value=0.1, epsilon=0),
                lambda w: theirs.Adagrad(w, 0.02, initial_accumulator_value=0.1, eps=0)),
    "lion": (mine.Lion(0.0007, 0.9, 0.99), lambda w: Lion(w, 0.0007, (0.9, 0.99))),
}


def clip(weights, limits):
    """What is done to gradients before a step, in PyTorch's words."""
    if "global_clipnorm" in limits:
        torch.nn.utils.clip_grad_norm_(weights, limits["global_clipnorm"])
    if "clipnorm" in limits:
        for w in weights:
            torch.nn.utils.clip_grad_norm_([w], limits["clipnorm"])
    if "clipvalue" in limits:
        torch.nn.utils.clip_grad_value_(weights, limits["clipvalue"])


@pytest.mark.parametrize("limits", [{}, {"global_clipnorm": 0.1}, {"clipnorm": 0.05},
                                    {"clipvalue": 0.02}], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_a_hundred_steps(rule, limits):
    given, make = RULES[rule]
    model, weights, forward = both("tanh")
    model.compile(type(given)(**(given.get_config() | limits)), "mse")
    optimizer = make(weights)
    batches = [(np.float32(normal(9, 5, seed=i)), np.float32(normal(9, 3, seed=i + 9)))
               for i in range(3)]
    with pyggml.Trainer(model, batch_size=9) as trainer:
        for i in range(100):
            x, y = batches[i % 3]
            loss = trainer.step(x, y)
            optimizer.zero_grad()
            expected = F.mse_loss(forward(x), torch.tensor(y).double())
            expected.backward()
            clip(weights, limits)
            optimizer.step()
            assert loss == pytest.approx(expected.item(), rel=1e-5)
        for got, want in zip(trainer.get_weights(), weights, strict=True):
            assert relative_error(got, want.detach().numpy()) < 1e-5
