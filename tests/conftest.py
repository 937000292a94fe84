import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    """Run with so many threads in the kernels' pool."""
    from pyggml import _kernels

    before = _kernels.get_num_threads()
    _kernels.set_num_threads(request.param)
    yield request.param
    _kernels.set_num_threads(before)


def assert_close(got, want, rtol=1e-5):
    """Relative to the largest entry: sums that cancel keep the error of their terms."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    scale = np.max(np.abs(want), initial=0.0)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale)


@pytest.fixture
def close():
    return assert_close
