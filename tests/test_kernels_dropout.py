import numpy as np
import pytest

from pyggml import _kernels as K


def reference_bits(seed, step, stream, n):
    """The documented hash in Python's integers."""
    m64, m32 = 2**64 - 1, 2**32 - 1

    def mix64(x):
        x = (x + 0x9E3779B97F4A7C15) & m64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & m64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & m64
        return x ^ (x >> 31)

    k = mix64(mix64(mix64(seed) ^ step) ^ stream)
    k0, k1 = k & m32, k >> 32
    out = []
    for i in range(n):
        x = i ^ k0
        x ^= x >> 16
        x = (x * 0x85EBCA6B) & m32
        x ^= x >> 13
        x = ((x + k1) & m32) * 0xC2B2AE35 & m32
        x ^= x >> 16
        x = (x * 0x27D4EB2F) & m32
        out.append(x ^ (x >> 15))
    return np.array(out, np.uint32)


def test_same_numbers_everywhere(threads):
    for key in ((0, 0, 0), (2**63 + 5, 12, 3), (7, 2**40, 2**32 - 1)):
        np.testing.assert_array_equal(K.random_bits(*key, 1003), reference_bits(*key, 1003))


def test_uniform(threads):
    u = np.empty(200000, np.float32)
    K.random_uniform(1, 2, 3, u)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005
    counts = np.histogram(u, 50, (0, 1))[0]
    assert ((counts - 4000) ** 2 / 4000).sum() < 100  # 49 degrees of freedom
    v = np.empty_like(u)
    for key in ((1, 2, 4), (1, 3, 3), (2, 2, 3)):
        K.random_uniform(*key, v)
        assert abs(np.corrcoef(u, v)[0, 1]) < 0.01
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.01


@pytest.mark.parametrize("n", [1, 7, 33, 100001])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.9])
def test_dropout(rng, threads, rate, n):
    x = rng.normal(size=n).astype(np.float32)
    mask, y = np.empty_like(x), np.empty_like(x)
    K.dropout_mask(5, 6, 7, rate, mask)
    assert np.isin(mask, [0, np.float32(1) / (np.float32(1) - np.float32(rate))]).all()
    if n > 1000:
        assert abs((mask > 0).mean() - (1 - rate)) < 0.01
    K.dropout(5, 6, 7, rate, x, y)
    np.testing.assert_array_equal(y, x * mask)
    K.dropout(5, 6, 7, rate, np.full(n, np.nan, np.float32), y)
    np.testing.assert_array_equal(np.isnan(y), mask > 0)
    u = np.empty_like(x)
    K.random_uniform(5, 6, 7, u)
    np.testing.assert_array_equal(mask > 0, u >= np.float32(rate))
