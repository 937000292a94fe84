"""Makes ``from reference import ...`` work in every test, and knows the parity marker."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config):
    config.addinivalue_line("markers", "parity: compares with PyTorch; skipped without it")


@pytest.fixture(params=["kernels", "composed"])
def form(request):
    """Both forms of a layer: kernels on single nodes, and ggml's own operations."""
    from pyggml import _lowering

    kept = _lowering.enabled()
    _lowering.set_enabled(request.param == "kernels")
    yield request.param
    _lowering.set_enabled(kept)
