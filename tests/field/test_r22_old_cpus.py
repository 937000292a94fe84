"""R22: the binary package runs on the oldest CPU it promises.

Documented choice: kernels are chosen at run time down to the baseline of x86-64. The prebuilt ggml
needs more (AVX2, FMA, F16C, BMI2), so with it ``import pyggml`` on an older CPU is an
``ImportError`` that names what is missing.
"""

import io
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest
from child import run_child

from pyggml import _kernels, _lowering

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ["baseline", "avx2", "avx512"]

RUN = """
import io, json
import numpy as np
import pyggml
from pyggml import layers
pyggml.set_num_threads(1)
pyggml.set_seed(1)
rng = np.random.default_rng(0)

def three_steps(x, y, *stack):
    model = pyggml.Sequential([pyggml.Input(x.shape[1:]), *stack])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=len(x) // 3, verbose=0, shuffle=False)
    return [model.predict(x).ravel().tolist(), [w.ravel().tolist() for w in model.get_weights()]]

y = rng.integers(0, 3, 48)
results = [
    three_steps(rng.normal(size=(48, 37)), y, layers.Dense(33, "gelu"),
                layers.LayerNormalization(), layers.Dense(3, "softmax")),
    three_steps(rng.normal(size=(48, 2, 9, 9)), y, layers.Conv2D(5, 3, activation="relu"),
                layers.BatchNormalization(momentum=0.9), layers.MaxPooling2D(2),
                layers.Flatten(), layers.Dense(3, "softmax")),
    three_steps(rng.normal(size=(48, 5, 7)), y, layers.LSTM(9), layers.Dense(3, "softmax")),
]
report = io.StringIO()
pyggml.show_config(report)
print(json.dumps([results, report.getvalue()]))
"""


def flat(nested):
    return np.concatenate([flat(n) if isinstance(n, list) else [n] for n in nested])


def check_against_native(output, level):
    results, report = json.loads(output)
    wanted, _ = json.loads(run_child(RUN, env={"PYGGML_LOWERING": "1"}))
    np.testing.assert_allclose(flat(results), flat(wanted), rtol=0, atol=1e-4)
    assert re.search(rf"used by kernels\s+{level}\n", report), report


@pytest.mark.parametrize("level", LEVELS)
def test_r22a_every_path_gives_the_same_numbers_and_says_which_it_is(level):
    if not _kernels.isa_available(level):
        pytest.skip("not on this CPU")
    check_against_native(run_child(RUN, env={"PYGGML_ISA": level, "PYGGML_LOWERING": "1"}), level)


def test_r22a_the_path_in_use_is_reported():
    assert _lowering.isa() in LEVELS
    assert run_child("""
        import pyggml
        print(pyggml.config()["cpu"]["used by kernels"])
    """, env={"PYGGML_LOWERING": "0"}) == "none\n"


# ---- on other CPUs, emulated -------------------------------------------------------------------

def emulated(cpu, code):
    """Run code on another CPU; returns the exit status, what it printed and its errors."""
    start = "import site, sys\n" + "".join(
        f"site.addsitedir({path!r})\n" for path in site.getsitepackages())
    process = subprocess.run(
        ["qemu-x86_64", "-cpu", cpu, os.path.realpath(sys.executable), "-c",
         start + textwrap.dedent(code)],
        capture_output=True, text=True, timeout=600, check=False, cwd=ROOT / "tests")
    return process.returncode, process.stdout, process.stderr


needs_emulator = pytest.mark.skipif(shutil.which("qemu-x86_64") is None,
                                    reason="needs qemu-x86_64 (Debian: qemu-user)")


@pytest.mark.slow
@needs_emulator
@pytest.mark.parametrize(("cpu", "lacks"), [
    ("Nehalem", "AVX, F16C, FMA, BMI2, AVX2"), ("SandyBridge", "F16C, FMA, BMI2, AVX2"),
    ("IvyBridge", "FMA, BMI2, AVX2")])
def test_r22a_an_older_cpu_runs_or_is_told_what_it_lacks(cpu, lacks):
    """No AVX; AVX without AVX2 and FMA. Never an illegal instruction."""
    status, out, err = emulated(cpu, RUN)
    if status == 0:  # a ggml that was built for it
        check_against_native(out, "baseline")
    else:
        assert status == 1, (status, err)
        last = err.strip().splitlines()[-1]
        assert last.startswith("ImportError: the ggml library found was compiled for "), err
        assert f"compiled for {lacks}, which this CPU lacks" in last


@pytest.mark.slow
@needs_emulator
def test_r22a_a_cpu_without_avx512_uses_avx2():
    status, out, err = emulated("Haswell", RUN)
    assert status == 0, err
    check_against_native(out, "avx2")


# ---- b: a build from the source archive --------------------------------------------------------

OFFLINE = ["unshare", "--map-root-user", "--net"]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a source repository")
@pytest.mark.skipif(sys.platform == "linux" and shutil.which("patchelf") is None,
                    reason="needs patchelf, which meson-python requires on Linux")
def test_r22b_a_build_from_the_source_archive_in_a_path_with_a_space(tmp_path):
    """Without network, and without instructions that only this machine may have."""
    folder = tmp_path / "with a space"
    folder.mkdir()
    offline = OFFLINE
    if shutil.which("unshare") is None or subprocess.run([*offline, "true"], check=False,
                                                         capture_output=True).returncode:
        offline = []

    def run(*command, cwd):
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    make = f"import mesonpy; mesonpy.build_sdist({str(folder)!r})"
    run(sys.executable, "-c", make, cwd=ROOT)
    archive, = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    source, = (p for p in folder.iterdir() if p.is_dir())
    run(*offline, sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-index",
        "--no-build-isolation", "--wheel-dir", str(folder), f"-Cbuild-dir={folder / 'build'}",
        cwd=source)
    commands = (folder / "build" / "compile_commands.json").read_text()
    assert "-march=native" not in commands and "-mtune=native" not in commands
    for command in json.loads(commands):  # sets beyond the baseline only where they are chosen
        if "-mavx" in command["command"]:
            assert "_isa" in command["output"] or "avx" in command["output"], command

    wheel, = folder.glob("*.whl")
    installed = folder / "installed here"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for name in ("libggml", "scipy_openblas32"):  # found beside the package
        (installed / name).symlink_to(Path(__import__(name).__file__).parent)
    assert json.loads(run_child(f"""
        import sys
        sys.meta_path[:] = [f for f in sys.meta_path if "Mesonpy" not in type(f).__name__]
        sys.path.insert(0, {str(installed)!r})
        import pyggml
        assert pyggml.__file__.startswith({str(installed)!r}), pyggml.__file__
    """ + "\n" + textwrap.indent(RUN, "        ")))[0]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a source repository")
@pytest.mark.skipif(shutil.which("meson") is None or shutil.which("ninja") is None,
                    reason="needs meson and ninja")
@pytest.mark.parametrize(("options", "hidden", "says"), [
    (["-Dggml=wheel"], ["libggml"], "-Dggml=wheel: libggml-python in "),
    (["-Dggml=system"], [], "-Dggml=system: no installed ggml found. Put the folder of its "
                            "ggml.pc into PKG_CONFIG_PATH"),
    (["-Dggml=auto"], ["libggml"], "tools/unpack_ggml.py fills subprojects/ggml; or install "
                                   "libggml-python for -Dggml=wheel"),
    (["-Dblas=scipy-openblas"], ["scipy_openblas32"], "-Dblas=scipy-openblas: scipy-openblas32"),
], ids=["wheel", "system", "auto", "blas"])
def test_r22b_a_build_without_network_names_what_is_missing(options, hidden, says, tmp_path):
    if shutil.which("unshare") is None or subprocess.run([*OFFLINE, "true"], check=False,
                                                         capture_output=True).returncode:
        pytest.skip("cannot switch the network off")
    source = tmp_path / "with a space"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(source, filter="data")
    for name in hidden:  # a package of that name, found first, with nothing in it
        (tmp_path / "hides" / name).mkdir(parents=True)
        (tmp_path / "hides" / name / "__init__.py").touch()
    nothing = {"PKG_CONFIG_PATH": "", "CMAKE_PREFIX_PATH": ""}
    done = subprocess.run(
        [*OFFLINE, "meson", "setup", str(tmp_path / "build here"), *options], cwd=source, text=True,
        env=os.environ | nothing | {"PYTHONPATH": str(tmp_path / "hides")}, check=False,
        capture_output=True, timeout=300)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert says in done.stdout.replace("\n", " ")
