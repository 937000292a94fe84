"""The type files fit the package and serve scripts (needs mypy)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyggml

pytest.importorskip("mypy")
here = Path(__file__).parent
package = Path(pyggml.__file__).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a module of mypy on the package where it is installed."""
    environment = os.environ | {"MYPY_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    if package.parent.name != "site-packages":  # an editable install, which mypy does not follow
        environment["MYPYPATH"] = str(package.parent)

    def run(module, config, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", module, config, here.parent / "pyproject.toml", *arguments],
            capture_output=True, text=True, check=False, env=environment, cwd=here)
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_package_is_consistent(run):
    status, output = run("mypy", "--config-file")
    assert status == 0, output


def test_a_script_is_checked_strictly_without_complaint(run):
    status, output = run("mypy", "--config-file", "--strict", "--follow-imports=silent",
                         "typed_script.py")
    assert status == 0, output


MISTAKES = {
    "pyggml.Traner": "has no attribute",
    "pyggml.ops.rellu": "has no attribute",
    "pyggml.opt.Datasets": "has no attribute",
    "pyggml.ops.add(1)": "Missing positional argument",
    "trainer.step(1, weights=2)": "Unexpected keyword argument",
    "trainer.n_steps = 3": "read-only",
    "loss: str = trainer.step(1)": "Incompatible types",
    "model.fit(1, epoch=2)": "Unexpected keyword argument",
    "h: dict[str, int] = model.fit(1)": "Incompatible types",
    "pyggml.layers.Dense()": "Missing positional argument",
    "pyggml.load_model(3)": "incompatible type",
}


def test_mistakes_are_found(run, tmp_path):
    script = tmp_path / "mistakes.py"
    body = "".join(f"    {line}\n" for line in MISTAKES)
    script.write_text("import pyggml\ndef use(model: pyggml.Model, trainer: pyggml.Trainer) -> "
                      f"None:\n{body}")
    _, output = run("mypy", "--config-file", script)
    found = dict(re.findall(r"mistakes\.py:(\d+): error: (.*)", output))
    for number, (line, message) in enumerate(MISTAKES.items(), 3):
        assert message in found.get(str(number), ""), (line, output)


def test_type_files_and_the_package_say_the_same(run):
    status, output = run("mypy.stubtest", "--mypy-config-file", "--allowlist",
                         "stubtest-allowlist.txt", "--ignore-unused-allowlist",
                         "--ignore-disjoint-bases", "pyggml")
    assert status == 0, output
