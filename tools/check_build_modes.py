"""Build pyggml with ggml from each place it may come from, and import what was built.

Every mode has a copy of the working tree and a virtual environment of its own; each prints one
line. Needs cmake, and some minutes, for ggml is compiled twice.
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
MODES = ("wheel", "system", "system-cmake", "subproject")

# Runs in the new environment, from another folder: import every extension module, then say which
# files of ggml and OpenBLAS the process has mapped (Linux only).
PROBE = """
import importlib, json, pathlib, pkgutil, sys
import pyggml, pyggml._config as config
modules = [m.name for m in pkgutil.iter_modules(pyggml.__path__) if m.name.startswith("_")]
for name in modules:
    if name != "_dlls":
        importlib.import_module("pyggml." + name)
maps = pathlib.Path("/proc/self/maps")
lines = maps.read_text().splitlines() if maps.exists() else []
files = sorted({line.split()[-1] for line in lines if "/libggml" in line or "openblas" in line})
print(json.dumps({"package": pyggml.__file__, "source": config.GGML_SOURCE,
    "blas": config.BLAS_SOURCE, "files": files, "version": config.GGML_VERSION}))
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


def check_mode(mode, work, prefix):
    """Build and import in `mode`; return what the line says about it."""
    log = work / "log.txt"
    source = work / "source"
    copy_tree(source)
    python = make_environment(work / "venv")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    option = mode.partition("-")[0]
    if mode == "system":
        environment["PKG_CONFIG_PATH"] = str(prefix / "lib" / "pkgconfig")
    elif mode == "system-cmake":
        environment["CMAKE_PREFIX_PATH"] = str(prefix)
    elif mode == "subproject":
        run(python, source / "tools" / "unpack_ggml.py", log=log)

    start = time.perf_counter()
    run(
        python,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--wheel-dir",
        work,
        f"-Csetup-args=-Dggml={option}",
        source,
        log=log,
        env=environment,
    )
    seconds = time.perf_counter() - start
    wheel = next(work.glob("*.whl"))
    run(sys.executable, ROOT / "tools" / "check_wheel.py", wheel, option, log=log)

    # Without libggml-python, except where it is meant to be used.
    needs = ["numpy", "scipy-openblas32", "tqdm"]
    needs += ["libggml-python==0.20.2.*"] if mode == "wheel" else []
    run(python, "-m", "pip", "install", *needs, log=log)
    run(python, "-m", "pip", "install", "--no-deps", wheel, log=log)
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    # Only what was installed may be used.
    shutil.rmtree(source)
    done = subprocess.run(
        [python, "-c", PROBE], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"import failed:\n{done.stderr}")
    facts = json.loads(done.stdout.splitlines()[-1])
    expected = {"wheel": work / "venv", "subproject": work / "venv"}.get(mode, prefix)
    ggml_files = [f for f in facts["files"] if "libggml" in f]
    for file in ggml_files:
        if not pathlib.Path(file).resolve().is_relative_to(expected.resolve()):
            raise RuntimeError(f"loaded {file}, expected one in {expected}")
    if facts["source"] != option:
        raise RuntimeError(f"_config.py says {facts['source']}")
    names = ", ".join(sorted(pathlib.Path(f).name for f in facts["files"]))
    return (
        f"ggml {facts['version']}, BLAS {facts['blas']}, wheel built in {seconds:.0f} s, "
        f"{wheel.stat().st_size / 1024:.0f} KiB; loaded {names or 'unknown'}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of {', '.join(MODES)}")
    parser.add_argument("--prefix", type=pathlib.Path, help="an installed ggml for system")
    args = parser.parse_args()
    modes = args.modes or MODES
    if unknown := set(modes) - set(MODES):
        parser.error(f"unknown mode {unknown.pop()!r}")

    failed = 0
    with tempfile.TemporaryDirectory(prefix="pyggml-modes-") as folder:
        base = pathlib.Path(folder).resolve()
        prefix = args.prefix
        if prefix is None and any(mode.startswith("system") for mode in modes):
            prefix = base / "prefix"
            run(
                sys.executable,
                ROOT / "tools" / "unpack_ggml.py",
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
                print(f"{mode}: {check_mode(mode, work, prefix)}", flush=True)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{mode}: FAILED: {error}", flush=True)
    print(f"{len(modes) - failed} modes built and imported, {failed} failed")
    sys.exit(1 if failed else 0)


main()
