import numpy as np
import pytest

from pyggml import _kernels as K

LR, WD, SCALE = 0.01, 0.1, 0.5


def reference(rule, w, g, s, t, nesterov=0, centered=0, momentum=0.0):
    """One step in float64; s is a list of state arrays."""
    g = g * SCALE
    w = w * (1 - LR * WD)
    if rule == "sgd":
        return w - LR * g
    if rule == "momentum":
        s[0] = momentum * s[0] - LR * g
        return w + (momentum * s[0] - LR * g if nesterov else s[0])
    if rule == "adam":
        s[0] = 0.9 * s[0] + 0.1 * g
        s[1] = 0.99 * s[1] + 0.01 * g * g
        return w - LR * (s[0] / (1 - 0.9**t)) / (np.sqrt(s[1] / (1 - 0.99**t)) + 1e-5)
    if rule == "rmsprop":
        s[0] = 0.8 * s[0] + 0.2 * g * g
        d = s[0]
        if centered:
            s[2] = 0.8 * s[2] + 0.2 * g
            d = d - s[2] ** 2
        i = LR * g / np.sqrt(d + 1e-5)
        if momentum:
            s[1] = i = momentum * s[1] + i
        return w - i
    if rule == "adagrad":
        s[0] = s[0] + g * g
        return w - LR * g / np.sqrt(s[0] + 1e-5)
    u = np.sign(0.9 * s[0] + 0.1 * g)
    s[0] = 0.99 * s[0] + 0.01 * g
    return w - LR * u


CASES = [
    ("sgd", {}), ("momentum", {"momentum": 0.9}), ("momentum", {"momentum": 0.9, "nesterov": 1}),
    ("adam", {}), ("rmsprop", {}), ("rmsprop", {"momentum": 0.9}), ("rmsprop", {"centered": 1}),
    ("rmsprop", {"momentum": 0.9, "centered": 1}), ("adagrad", {}), ("lion", {}),
]


@pytest.mark.parametrize("n", [1, 3, 7, 17, 33, 1000, 100003])
@pytest.mark.parametrize("rule, options", CASES)
def test_hundred_steps(rng, close, threads, rule, options, n):
    w = rng.normal(size=n).astype(np.float32)
    state = [np.zeros(n, np.float32) for _ in range(3)]
    w64, state64 = w.astype(np.float64), [s.astype(np.float64) for s in state]
    for t in range(1, 101 if n < 10000 else 6):
        g = rng.normal(size=n).astype(np.float32)
        K.step(rule, w, g, *state, lr=LR, weight_decay=WD, grad_scale=SCALE, beta1=0.9,
               beta2=0.99, eps=1e-5, rho=0.8, h1=1 / (1 - 0.9**t), h2=1 / (1 - 0.99**t), **options)
        w64 = reference(rule, w64, g.astype(np.float64), state64, t, **options)
    close(w, w64, rtol=1e-4 if rule == "lion" else 1e-5)


@pytest.mark.parametrize(("rule", "options", "slot", "want"), [
    ("rmsprop", {"rho": 0.9999}, 0, 9e-4), ("rmsprop", {"rho": 0.9999, "centered": 1}, 2, 3e-4),
    ("lion", {"beta2": 0.9999}, 0, 3e-4),
])
def test_a_mean_takes_up_1_minus_beta_of_what_is_new(rule, options, slot, want):
    state = np.zeros((3, 21), np.float32)
    K.step(rule, np.ones(21, np.float32), np.full(21, 3, np.float32), *state, **options)
    np.testing.assert_allclose(state[slot], want, rtol=3e-7)


def test_lion_leaves_weights_without_gradient():
    w, m = np.ones(5, np.float32), np.zeros(5, np.float32)
    K.step("lion", w, np.zeros(5, np.float32), m, lr=0.1)
    assert (w == 1).all()


def test_nan_gradient_stays_with_its_weight(rng):
    for rule, options in CASES:
        w = np.ones(40, np.float32)
        g = np.ones(40, np.float32)
        g[11] = np.nan
        K.step(rule, w, g, *np.zeros((3, 40), np.float32), **options)
        np.testing.assert_array_equal(np.isnan(w), np.arange(40) == 11)


def test_sum_of_squares_does_not_depend_on_threads(rng, threads):
    for n in (0, 1, 17, 5000, 300001):
        x = rng.normal(size=n).astype(np.float32)
        got = K.sum_squares(x)
        np.testing.assert_allclose(got, (x.astype(np.float64) ** 2).sum(), rtol=1e-6)
        K.set_num_threads(1)
        assert K.sum_squares(x) == got
        K.set_num_threads(threads)


@pytest.mark.parametrize("n", [1, 15, 17, 40003])
@pytest.mark.parametrize("rule, options", CASES)
def test_a_clipped_gradient_is_the_limited_one(rng, threads, rule, options, n):
    g = rng.normal(size=n).astype(np.float32)
    w = rng.normal(size=n).astype(np.float32)
    both = []
    for grad, clip in ((g, 0.25), (np.clip(g, -0.5, 0.5), 0.0)):
        state = np.zeros((3, n), np.float32)
        x = w.copy()
        for _ in range(3):
            K.step(rule, x, grad, *state, lr=LR, grad_scale=SCALE, clip=clip, **options)
        both.append(x.tobytes() + state.tobytes())
    assert both[0] == both[1]


@pytest.mark.parametrize("rule, options", CASES)
def test_at_rate_0_the_state_moves_and_the_weight_does_not(rng, rule, options):
    w = rng.normal(size=37).astype(np.float32)
    w[3] = 1e-39  # a denormal
    before = w.tobytes()
    state = np.ones((3, 37), np.float32)
    g = np.full(37, 0.5, np.float32)
    g[5], g[30] = np.nan, np.inf
    K.step(rule, w, g, *state, lr=0.0, weight_decay=WD, **options)
    assert w.tobytes() == before
    if rule != "sgd":
        assert not (state[0] == 1).all()


def test_a_variance_below_0_by_rounding_counts_as_0(close):
    w, g = np.ones(19, np.float32), np.full(19, 3e3, np.float32)
    s, a = np.full(19, 9e6, np.float32), np.full(19, 3e3 + 1, np.float32)
    b = np.zeros(19, np.float32)
    K.step("rmsprop", w, g, s, b, a, lr=1e-6, rho=0.9, eps=1e-6, centered=1)
    close(w, np.full(19, 1 - 1e-6 * 3e3 / 1e-3))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_sum_of_squares_neither_overflows_nor_vanishes(rng, threads, size):
    x = (rng.normal(size=70001) * size).astype(np.float32)
    np.testing.assert_allclose(K.sum_squares(x), (x.astype(np.float64) ** 2).sum(), rtol=1e-12)
