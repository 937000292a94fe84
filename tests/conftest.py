"""Fixtures of all tests, and where they find what they share."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# A shell without job control starts what is in the background so, and children inherit it: tests
# that interrupt them would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def away_from_the_source():
    """Run where no uncompiled package lies: children look for imports where they start."""
    before = Path.cwd()
    os.chdir(Path(__file__).parent)
    yield
    os.chdir(before)


def pytest_configure(config):
    config.addinivalue_line("markers", "parity: compares with PyTorch or Keras; skipped without it")


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


@pytest.fixture(params=["kernels", "composed"])
def form(request):
    """Both forms of a layer: kernels on single nodes, and ggml's own operations."""
    from pyggml import _lowering

    kept = _lowering.enabled()
    _lowering.set_enabled(request.param == "kernels")
    yield request.param
    _lowering.set_enabled(kept)
