import os
import pathlib
import subprocess
import sys

import pytest

from pyggml import _kernels as K

NAMES = [n for n in ("baseline", "avx2", "avx512") if K.isa_available(n)]


@pytest.mark.parametrize("name", NAMES)
def test_choice_by_environment(name):
    code = "from pyggml import _kernels as K; print(K.isa_name())"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                         env={**os.environ, "PYGGML_ISA": name})
    assert out.stdout.strip() == name


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if n != K.isa_name()])
def test_all_kernels_on_other_sets(name):
    """The other kernel tests once more, in a process that uses another instruction set."""
    here = pathlib.Path(__file__).parent
    tests = sorted(str(p) for p in here.glob("test_kernels_*.py")
                   if p.name not in ("test_kernels_isa.py", "test_kernels_pool.py"))
    out = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                          "--import-mode=importlib", *tests], capture_output=True, text=True,
                         cwd=here, env={**os.environ, "PYGGML_ISA": name})
    assert out.returncode == 0, out.stdout[-4000:] + out.stderr[-2000:]
