"""Losses of pyggml against PyTorch in double precision, with every kind of weights."""

import numpy as np
import pytest
from layer_check import Given, random
from reference.gradcheck import relative_error

import pyggml
from pyggml import layers, losses

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.parity


def double(array, grad=False):
    return torch.tensor(np.asarray(array, np.float64), requires_grad=grad)


def probabilities(*sizes, seed=0):
    return torch.softmax(double(random(*sizes, seed=seed)), -1).numpy().astype(np.float32)


def shares(*sizes, seed=0):
    return torch.sigmoid(double(random(*sizes, seed=seed))).numpy().astype(np.float32)


def onehot(*sizes):
    return np.eye(sizes[-1], dtype=np.float32)[classes(*sizes)]


def classes(*sizes):
    return np.arange(np.prod(sizes[:-1], dtype=int)).reshape(sizes[:-1]) * 2 % sizes[-1]


def binary(*sizes):
    return np.float32(random(*sizes, seed=5) > 0)


def dense(*sizes):
    return random(*sizes, seed=5)


def bce(x, y):
    return F.binary_cross_entropy_with_logits(x, y, reduction="none")


def nll(x, y):
    """Cross-entropy of logits in the last axis with labels of the same shape."""
    return F.cross_entropy(x.movedim(-1, 1), y.movedim(-1, 1), reduction="none")


def smoothed(y, share):
    return y * (1 - share) + share / y.shape[-1]


def of_classes(function):
    return lambda x, y: function(x, F.one_hot(y.long(), x.shape[-1]).double())


def focal(x, y):
    logs = torch.log_softmax(x, -1)
    return -(0.25 * (1 - logs.exp()) ** 2 * y * logs).sum(-1)


def binary_focal(x, y):
    p = torch.sigmoid(x)
    return bce(x, y) * (y * (1 - p) + (1 - y) * p) ** 1.5 * (0.3 * y + 0.7 * (1 - y))


# loss, activation of the output, labels, what PyTorch makes of what goes into the activation
ELEMENTS = {
    "mse": ("mse", None, dense, lambda p, y: F.mse_loss(p, y, reduction="none")),
    "mae": ("mae", None, dense, lambda p, y: F.l1_loss(p, y, reduction="none")),
    "huber": (losses.Huber(0.7), None, dense,
              lambda p, y: F.huber_loss(p, y, reduction="none", delta=0.7)),
    "log_cosh": ("log_cosh", None, dense, lambda p, y: torch.log(torch.cosh(p - y))),
    "hinge": ("hinge", None, lambda *s: 2 * binary(*s) - 1, lambda p, y: torch.relu(1 - p * y)),
    "poisson": ("poisson", "exponential", lambda *s: np.abs(dense(*s)),
                lambda x, y: F.poisson_nll_loss(x.exp(), y, False, reduction="none", eps=1e-7)),
    "bce of sigmoid": ("binary_crossentropy", "sigmoid", shares, bce),
    "bce of logits": (losses.BinaryCrossentropy(from_logits=True), None, binary, bce),
    "bce smoothed": (losses.BinaryCrossentropy(label_smoothing=0.2), "sigmoid", binary,
                     lambda x, y: bce(x, 0.8 * y + 0.1)),
    "bce of probabilities": (
        "binary_crossentropy", "hard_sigmoid", binary,
        lambda x, y: F.binary_cross_entropy(F.hardsigmoid(x).clamp(1e-7, 1 - 1e-7), y,
                                            reduction="none")),
    "binary focal": (losses.BinaryFocalCrossentropy(True, 0.3, 1.5), "sigmoid", binary,
                     binary_focal),
}
ROWS = {
    "crossentropy of softmax": ("categorical_crossentropy", "softmax", onehot, nll),
    "crossentropy of logits": (losses.CategoricalCrossentropy(from_logits=True), None,
                               probabilities, nll),
    "crossentropy smoothed": (losses.CategoricalCrossentropy(label_smoothing=0.1), "softmax",
                              onehot, lambda x, y: nll(x, smoothed(y, 0.1))),
    "sparse": ("sparse_categorical_crossentropy", "softmax", classes, of_classes(nll)),
    "sparse smoothed of logits": (
        losses.SparseCategoricalCrossentropy(from_logits=True, label_smoothing=0.3), None, classes,
        of_classes(lambda x, y: nll(x, smoothed(y, 0.3)))),
    "focal": ("categorical_focal_crossentropy", "softmax", onehot, focal),
    "kl_divergence": ("kl_divergence", "softmax", probabilities,
                      lambda x, y: F.kl_div(F.log_softmax(x, -1), y, reduction="none").sum(-1)),
    "cosine_similarity": ("cosine_similarity", None, dense,
                          lambda p, y: -F.cosine_similarity(p, y, -1)),
}
SIZES = [(1, 1), (1, 3), (7, 3), (3, 33), (2, 5, 7)]


def compare(case, sizes, weights):
    """``weights`` draws those of rows or of elements, or is None."""
    loss, activation, labels, function = case
    given = Given(random(*sizes, scale=1.5), name="given")
    stack = [given] + ([layers.Activation(activation)] if activation else [])
    model = pyggml.Sequential([pyggml.Input(sizes[1:]), *stack])
    model.compile("sgd", loss)
    y, x = labels(*sizes), double(given.value, True)
    values = function(x, double(y))
    w = None if weights is None else weights(sizes)
    spread = 1.0 if w is None else double(w).reshape(
        w.shape + (1,) * (values.ndim - w.ndim))
    want = (values * spread).sum() / values.numel()
    want.backward()
    zeros = np.zeros(sizes, np.float32)
    mask = None if w is None else w[0].size
    with pyggml.Trainer(model, sizes[0], loss_mask=mask) as trainer:
        value = trainer.eval(zeros, y, w)
        (got,) = trainer.gradients(zeros, y, w).values()
    assert value == pytest.approx(want.item(), rel=1e-5, abs=1e-6)
    # where the gradient is 0 (softmax of one class), what is left of it is rounding
    assert relative_error(got, x.grad.numpy(), tiny=1e-3) < 1e-4


def by_row(sizes):
    return np.float32(np.arange(sizes[0]) % 3 / 2)


def by_element(sizes):
    return np.float32(np.abs(random(*sizes, seed=8)) * (random(*sizes, seed=9) > -0.5))


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("weights", [None, by_row])
def test_losses_of_elements(name, sizes, weights):
    compare(ELEMENTS[name], sizes, weights)


@pytest.mark.parametrize("sizes", SIZES[:4], ids=str)
@pytest.mark.parametrize("name", ELEMENTS)
def test_losses_of_elements_with_a_weight_for_each(name, sizes):
    compare(ELEMENTS[name], sizes, by_element)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("weights", [None, by_row])
def test_losses_of_rows(name, sizes, weights):
    compare(ROWS[name], sizes, weights)
