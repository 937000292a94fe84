"""Build with sanitizers and run tests under them.

    python tools/sanitize.py memory      # AddressSanitizer and UndefinedBehaviorSanitizer
    python tools/sanitize.py memory tests/test_trainer_contract.py -k step
    python tools/sanitize.py threads     # ThreadSanitizer

Everything after the kind goes to pytest; without it the tests in PARTS run. The build lies in
build/sanitize-KIND and is put before the installed package; the sanitizer's library is loaded
before Python. ggml, NumPy and Python are those that are installed and are not instrumented:
what they do wrong inside themselves is not seen, what they are given is.

``threads`` first runs tests/pool_driver.c, which is the pool and nothing else, so that
everything in it is instrumented; then the tests of the pool.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "pyggml" / "kernels"

# The kernels against their references, the objects that own memory, and random programs.
PARTS = {
    "memory": ["test_kernels_*.py", "test_arrays.py", "test_variable.py", "test_trainer_*.py",
               "test_opt.py", "test_ops.py", "test_models.py", "test_fused.py",
               "test_saving_container.py", "test_assertions.py", "test_fuzz.py"],
    "threads": ["test_kernels_pool.py", "test_trainer_share.py"],
}

OPTIONS = {
    # Python and NumPy keep memory until the end: leaks are looked for by other tests.
    # A failed allocation is what the tests of memory ask for.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:"
                    "handle_segv=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:suppressions={suppressions}",
}

# Code that is not instrumented synchronises where ThreadSanitizer does not look: Python's lock,
# the pools of ggml and of NumPy's BLAS. Races inside them are not ours to find.
SUPPRESSIONS = """\
called_from_lib:libggml
called_from_lib:libscipy_openblas
called_from_lib:_multiarray_umath
race:libpython
race:_Py
race:PyObject
"""


def library(compiler, name):
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True,
                           check=True).stdout.strip()
    if not os.path.isabs(found):
        sys.exit(f"{compiler} has no {name}")
    return found


def build(kind, flags):
    """Configure and compile; returns the folder that holds the package."""
    folder = ROOT / "build" / f"sanitize-{kind}"
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", folder, ROOT, f"-Db_sanitize={flags}",
                        "-Db_lundef=false", "-Dbuildtype=debugoptimized",
                        f"-Dpython.purelibdir={folder}/site", f"-Dpython.platlibdir={folder}/site"],
                       check=True)
    subprocess.run(["meson", "compile", "-C", folder], check=True)
    shutil.rmtree(folder / "site", ignore_errors=True)
    subprocess.run(["meson", "install", "-C", folder, "--no-rebuild", "--quiet",
                    "--tags=runtime,python-runtime"], check=True)
    # The libraries are looked for beside the package.
    site = Path(sysconfig.get_path("purelib"))
    for name in ("libggml", "scipy_openblas32"):
        if (site / name).exists():
            (folder / "site" / name).symlink_to(site / name)
    return folder


def run_driver(compiler, folder):
    """Compile the pool and its driver with ThreadSanitizer, and run it."""
    program = folder / "pool_driver"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-std=gnu11", "-O1", "-g", "-fsanitize=thread",
                    "-D_GNU_SOURCE", f"-I{KERNELS}",
                    ROOT / "tests" / "pool_driver.c", KERNELS / "pool.c", KERNELS / "scratch.c",
                    "-o", program, "-lpthread"], check=True)
    subprocess.run([program], check=True, env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1"})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("memory", "threads"))
    parser.add_argument("--driver-only", action="store_true", help="of threads: only the C driver")
    given, rest = parser.parse_known_args()
    if not sys.platform.startswith("linux"):
        sys.exit("needs Linux and GCC or Clang")
    compiler = os.environ.get("CC", "cc")
    environment = os.environ | {"MESONPY_EDITABLE_SKIP": str(ROOT / "build" / "cp{}{}".format(
        *sys.version_info[:2]))}
    if given.kind == "threads":
        run_driver(compiler, ROOT / "build" / "sanitize-driver")
        print("the pool is clean")
        if given.driver_only:
            return
        folder = build("threads", "thread")
        libraries = ["libtsan.so"]
    else:
        folder = build("memory", "address,undefined")
        libraries = ["libasan.so", "libubsan.so", "libstdc++.so"]
    suppressions = folder / "suppressions"
    suppressions.write_text(SUPPRESSIONS, encoding="utf-8")
    for name, value in OPTIONS.items():
        if name == "TSAN_OPTIONS" and given.kind != "threads":
            continue
        if name == "ASAN_OPTIONS" and given.kind == "threads":
            continue
        environment[name] = value.format(suppressions=suppressions)
    environment["LD_PRELOAD"] = " ".join(library(compiler, name) for name in libraries)
    environment["PYTHONPATH"] = str(folder / "site")
    environment["PYTHONMALLOC"] = "malloc"  # so that every object of Python has borders too
    tests = rest or [str(path) for part in PARTS[given.kind]
                     for path in sorted((ROOT / "tests").glob(part))]
    command = [sys.executable, "-c", "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))",
               "-p", "no:cacheprovider", "-q", *tests]
    sys.exit(subprocess.run(command, env=environment, cwd=ROOT / "tests").returncode)


if __name__ == "__main__":
    main()
