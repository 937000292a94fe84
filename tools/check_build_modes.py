"""Build pyggml with ggml and the BLAS from each place they may come from, and try what was built.

Every mode has a copy of the working tree and a virtual environment of its own, imports all
modules there, trains a model, and runs a part of the tests; each prints one line. Needs cmake, an
installed OpenBLAS for blas-system, and some minutes a mode: ggml is compiled twice.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What the build is told, beside the place of an installed ggml.
MODES = {
    "wheel": ["-Dggml=wheel"],
    "system": ["-Dggml=system"],
    "system-cmake": ["-Dggml=system"],
    "subproject": ["-Dggml=subproject"],
    "blas-system": ["-Dggml=wheel", "-Dblas=system"],
    "blas-none": ["-Dggml=wheel", "-Dblas=none"],
}
# What depends on ggml or the BLAS.
TESTS = ("test_runtime.py", "test_variable.py", "test_ops.py", "test_kernels_gemm.py",
         "test_kernels_isa.py", "test_training_numbers.py", "test_trainer_contract.py",
         "test_opt.py")

# Runs in the new environment, from another folder: import every extension module, train, then say
# which files of ggml and the BLAS the process has mapped, and on how many threads an OpenBLAS
# runs (Linux only).
PROBE = """
import ctypes, importlib, json, pathlib, pkgutil, sys
import numpy as np
import pyggml, pyggml._config as config, pyggml._kernels as kernels
modules = [m.name for m in pkgutil.iter_modules(pyggml.__path__) if m.name.startswith("_")]
for name in modules:
    if name != "_dlls":
        importlib.import_module("pyggml." + name)
layers = pyggml.layers
pyggml.set_seed(0)
model = pyggml.Sequential([pyggml.Input((3, 8, 8)), layers.Conv2D(8, 3, activation="relu"),
                           layers.Flatten(), layers.Dense(256, "relu"), layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(256, 3, 8, 8))
losses = model.fit(x, x.mean(axis=(1, 2, 3)), epochs=8, verbose=0).history["loss"]
assert losses[-1] < losses[0] / 2, losses
maps = pathlib.Path("/proc/self/maps")
lines = maps.read_text().splitlines() if maps.exists() else []
mapped = {line.split()[-1] for line in lines if "/" in line}
names = {f: pathlib.PurePath(f).name for f in mapped}
files = sorted(f for f, name in names.items() if "libggml" in name or "blas" in name)
threads = 1
for name in files:
    # NumPy has one of its own.
    if "numpy" not in name and "openblas" in name:
        library = ctypes.CDLL(name)
        for prefix in ("scipy_", ""):
            if hasattr(library, prefix + "openblas_get_num_threads"):
                threads = getattr(library, prefix + "openblas_get_num_threads")()
print(json.dumps({"package": pyggml.__file__, "source": config.GGML_SOURCE,
    "blas": config.BLAS_SOURCE, "have_blas": kernels.have_blas(), "blas_threads": threads,
    "files": [f for f in files if "numpy" not in f], "version": config.GGML_VERSION}))
"""


def run(*command, log, **keywords):
    """Run `command`, its output going to `log`; on failure show the end of that."""
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(f"+ {command}\n")
        stream.flush()
        done = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, **keywords)
    if done.returncode != 0:
        tail = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")[-4000:]
        raise RuntimeError(f"{command[0]} failed:\n{tail}")


def copy_tree(target):
    """Copy what git tracks, and new files that it does not ignore, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def make_environment(folder):
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def passed(log):
    """Return what pytest said last."""
    lines = pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    return next(line.split(" in ")[0] for line in reversed(lines) if " passed" in line)


def check_mode(mode, work, prefix, build_type, archive):
    """Build, import, train and test in `mode`; return what the line says about it."""
    log = work / "log.txt"
    source = work / "source"
    copy_tree(source)
    python = make_environment(work / "venv")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    options = [*MODES[mode], f"-Dbuildtype={build_type}"]
    ggml = options[0].partition("=")[2]
    blas = {"blas-system": "system", "blas-none": "none"}.get(mode, "scipy-openblas")
    if mode == "system":
        environment["PKG_CONFIG_PATH"] = str(prefix / "lib" / "pkgconfig")
    elif mode == "system-cmake":
        environment["CMAKE_PREFIX_PATH"] = str(prefix)
    elif mode == "subproject":
        given = ["--archive", archive.resolve()] if archive else []
        run(python, source / "tools" / "unpack_ggml.py", *given, log=log)

    start = time.perf_counter()
    run(
        python,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--wheel-dir",
        work,
        *(f"-Csetup-args={option}" for option in options),
        source,
        log=log,
        env=environment,
    )
    seconds = time.perf_counter() - start
    wheel = next(work.glob("*.whl"))
    run(sys.executable, ROOT / "tools" / "check_wheel.py", wheel, ggml, log=log)

    # Without libggml-python and scipy-openblas32, except where they are meant to be used.
    needs = ["numpy", "tqdm", "pytest"]
    needs += ["scipy-openblas32"] if blas == "scipy-openblas" else []
    needs += ["libggml-python==0.20.2.*"] if ggml == "wheel" else []
    run(python, "-m", "pip", "install", *needs, log=log)
    run(python, "-m", "pip", "install", "--no-deps", wheel, log=log)
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    # Only what was installed may be used.
    shutil.copytree(source / "tests", elsewhere / "tests")
    shutil.copy2(source / "pyproject.toml", elsewhere)
    shutil.rmtree(source)
    done = subprocess.run(
        [python, "-c", PROBE], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"import failed:\n{done.stderr}")
    facts = json.loads(done.stdout.splitlines()[-1])
    expected = prefix if ggml == "system" else work / "venv"
    ggml_files = [f for f in facts["files"] if "libggml" in f]
    for file in ggml_files:
        if not pathlib.Path(file).resolve().is_relative_to(expected.resolve()):
            raise RuntimeError(f"loaded {file}, expected one in {expected}")
    if (facts["source"], facts["blas"]) != (ggml, blas):
        raise RuntimeError(f"_config.py says {facts['source']}, {facts['blas']}")
    if facts["have_blas"] != (blas != "none") or facts["blas_threads"] != 1:
        raise RuntimeError(f"BLAS: {facts['have_blas']}, {facts['blas_threads']} threads")
    tests = [elsewhere / "tests" / name for name in TESTS]
    run(python, "-m", "pytest", "-q", *tests, log=log, cwd=elsewhere / "tests", env=environment)
    names = ", ".join(sorted(pathlib.Path(f).name for f in facts["files"]))
    return (
        f"ggml {facts['version']}, BLAS {facts['blas']}, wheel built in {seconds:.0f} s, "
        f"{passed(log)}, "
        f"{wheel.stat().st_size / 1024:.0f} KiB; loaded {names or 'unknown'}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of {', '.join(MODES)}")
    parser.add_argument("--prefix", type=pathlib.Path, help="an installed ggml for system")
    parser.add_argument("--archive", type=pathlib.Path,
                        help="libggml-python's source archive, to download none")
    parser.add_argument("--build-type", default="release",
                        help="plain compiles faster (default: %(default)s)")
    args = parser.parse_args()
    modes = args.modes or MODES
    if unknown := set(modes) - set(MODES):
        parser.error(f"unknown mode {unknown.pop()!r}")

    failed = 0
    with tempfile.TemporaryDirectory(prefix="pyggml-modes-") as folder:
        base = pathlib.Path(folder).resolve()
        prefix = args.prefix and args.prefix.resolve()
        if prefix is None and any(mode.startswith("system") for mode in modes):
            prefix = base / "prefix"
            run(
                sys.executable,
                ROOT / "tools" / "unpack_ggml.py",
                *(["--archive", args.archive.resolve()] if args.archive else []),
                "--target",
                base / "ggml",
                "--install",
                prefix,
                log=base / "log.txt",
            )
        for mode in modes:
            work = base / mode
            work.mkdir()
            try:
                line = check_mode(mode, work, prefix, args.build_type, args.archive)
                print(f"{mode}: {line}", flush=True)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{mode}: FAILED: {error}", flush=True)
    print(f"{len(modes) - failed} modes built and tested, {failed} failed")
    sys.exit(1 if failed else 0)


main()
