"""Makes ``from reference import ...`` work in every test, and knows the parity marker."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config):
    config.addinivalue_line("markers", "parity: compares with PyTorch; skipped without it")
