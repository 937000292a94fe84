"""Makes ``from _models import ...`` work, and keeps small models on one thread."""

import sys
from pathlib import Path

import pytest

import pyggml

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)
