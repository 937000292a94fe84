"""Build with sanitizers and run tests under them.

    python tools/sanitize.py memory      # AddressSanitizer and UndefinedBehaviorSanitizer
    python tools/sanitize.py memory test_trainer_contract.py -k step
    python tools/sanitize.py threads     # ThreadSanitizer

Everything after the kind goes to pytest, which runs in the folder tests; without it the files in
PARTS run, each in a process of its own. The build lies in build/sanitize-KIND and is put before the
installed package; the sanitizer's library is loaded before Python. ggml, NumPy and Python are those
that are installed and are not instrumented: what they do wrong inside themselves is not seen, what
they are given is.

Processes that tests start inherit all this. What the sanitizers report, in whatever process, goes
to files in build/sanitize-KIND/reports; one is enough for the run to fail. The kind is in
PYGGML_SANITIZER: where it is set, children of tests have longer, and limits of memory are lifted
that the sanitizer itself would break. AddressSanitizer of GCC 12 registers no handler of forks:
a forked child that hangs, rarely, may have got a lock of its allocator that a thread held.

``threads`` first runs tests/pool_driver.c, which is the pool and nothing else, so that
everything in it is instrumented; then the tests of the pool.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "pyggml" / "kernels"

PARTS = {
    "memory": ["test_*.py", "field/test_*.py"],
    "threads": ["test_kernels_pool.py", "test_locks.py", "test_trainer_share.py",
                "test_trainer_threads.py", "field/test_r20_threads.py"],
}

# Lines in reports, no more: the rest of -g doubles the time to compile.
DEBUG = "-g1 -fno-omit-frame-pointer"
FLAGS = {
    # Not part of "undefined": conversions of floats that do not fit the integer.
    "memory": ("address,undefined", DEBUG + " -fsanitize=float-cast-overflow"),
    "threads": ("thread", DEBUG),
}
LIBRARIES = {"memory": ["libasan.so", "libubsan.so", "libstdc++.so"], "threads": ["libtsan.so"]}

OPTIONS = {
    "memory": {
        # Python and NumPy keep memory until the end: leaks are looked for by other tests.
        # A failed allocation is what the tests of memory ask for; faulthandler has the signals.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:"
                        "handle_segv=0:log_path={reports}/address",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
    "threads": {
        # Tests fork while the pool has threads; the child starts a pool of its own.
        "TSAN_OPTIONS": "suppressions={suppressions}:log_path={reports}/thread:die_after_fork=0:"
                        "history_size=7",
    },
}

# Code that is not instrumented synchronises where ThreadSanitizer does not look: Python's lock,
# the pools of ggml and of NumPy's BLAS. Races inside them are not ours to find. Of Python only the
# innermost frame counts: every stack begins in the interpreter. The loader frees the thread-local
# memory of a thread that has ended when another begins, in an order that it alone knows.
SUPPRESSIONS = """\
called_from_lib:libggml.so
called_from_lib:libggml-base.so
called_from_lib:libggml-cpu.so
called_from_lib:libscipy_openblas.so
called_from_lib:libscipy_openblas64_
called_from_lib:_multiarray_umath
race_top:libpython
race_top:^_Py
race_top:^Py
race:_dl_deallocate_tls
"""

# Read by every Python that starts. The current folder, which may hold the uncompiled package, comes
# before PYTHONPATH.
START = """\
import importlib.machinery, sys

class First:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pyggml":
            return importlib.machinery.PathFinder.find_spec(name, [{site!r}])

sys.meta_path.insert(0, First)
"""
# libubsan writes where it is told by its own copy of this function: of the two that are loaded, the
# loader finds AddressSanitizer's, and UBSAN_OPTIONS=log_path is lost. pytest would hide what comes
# on standard error.
START_MEMORY = """\
import ctypes, os
ctypes.CDLL("libubsan.so.1").__sanitizer_set_report_path(os.fsencode({path!r}))
"""


def library(compiler, name):
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True,
                           check=True).stdout.strip()
    if not os.path.isabs(found):
        sys.exit(f"{compiler} has no {name}")
    return found


def build(kind):
    """Configure and compile; returns the folder that holds the package."""
    folder = ROOT / "build" / f"sanitize-{kind}"
    flags, arguments = FLAGS[kind]
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", folder, ROOT, f"-Db_sanitize={flags}",
                        "-Db_lundef=false", "-Ddebug=true", "-Doptimization=1",
                        f"-Dc_args={arguments}",
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


def prepare(kind, compiler, folder):
    """Return the environment in which the instrumented package is imported."""
    reports, suppressions = folder / "reports", folder / "suppressions"
    site = folder / "site"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    suppressions.write_text(SUPPRESSIONS, encoding="utf-8")
    environment = os.environ | {
        "MESONPY_EDITABLE_SKIP": str(ROOT / "build" / "cp{}{}".format(*sys.version_info[:2])),
        "LD_PRELOAD": " ".join(library(compiler, name) for name in LIBRARIES[kind]),
        "PYTHONPATH": str(site),
        "PYTHONMALLOC": "malloc",  # so that every object of Python has borders too
        "PYGGML_SANITIZER": kind,
    }
    start = START.format(site=str(site))
    if kind == "memory":
        start += START_MEMORY.format(path=str(reports / "undefined"))
    (site / "sitecustomize.py").write_text(start, encoding="utf-8")
    for name, value in OPTIONS[kind].items():
        environment[name] = value.format(suppressions=suppressions, reports=reports)
    return environment


def run(tests, environment, log=None):
    """Run pytest; returns its exit status."""
    command = [sys.executable, "-c", "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))",
               "-p", "no:cacheprovider", "-q", *tests]
    return subprocess.run(command, env=environment, cwd=ROOT / "tests", stdout=log,
                          stderr=subprocess.STDOUT if log else None, check=False).returncode


def run_each(kind, environment, folder):
    """Run the files in PARTS one by one; returns the names of those that failed."""
    logs, failed = folder / "logs", []
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    for path in (path for part in PARTS[kind] for path in sorted((ROOT / "tests").glob(part))):
        log = logs / f"{path.stem}.log"
        with open(log, "w", encoding="utf-8") as file:
            status = run([str(path)], environment, file)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(f"{path.name}: {lines[-1] if lines else 'status'} [{status}]", flush=True)
        if status not in (0, 5):  # 5: no tests, as where all are slow
            failed.append(path.name)
    return failed


def findings(folder):
    """Return what was reported, as pairs of path and text."""
    texts = [(path, path.read_text(encoding="utf-8", errors="replace"))
             for path in sorted((folder / "reports").iterdir())]
    # Tests ask for more memory than there is.
    return [(path, text) for path, text in texts
            if not all("failed to allocate" in line for line in text.splitlines() if line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("memory", "threads"))
    parser.add_argument("--driver-only", action="store_true", help="of threads: only the C driver")
    given, rest = parser.parse_known_args()
    if not sys.platform.startswith("linux"):
        sys.exit("needs Linux and GCC or Clang")
    # A shell that starts this in the background has it ignored; tests interrupt their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    compiler = os.environ.get("CC", "cc")
    if given.kind == "threads":
        run_driver(compiler, ROOT / "build" / "sanitize-driver")
        print("the pool is clean")
        if given.driver_only:
            return
    folder = build(given.kind)
    environment = prepare(given.kind, compiler, folder)
    failed = run(rest, environment) if rest else run_each(given.kind, environment, folder)
    reports = findings(folder)
    for path, text in reports:
        print(f"\n{path}\n{text}")
    if failed and not rest:
        print("failed:", *failed)
    print(f"{len(reports)} reports of the sanitizer")
    sys.exit(1 if failed or reports else 0)


if __name__ == "__main__":
    main()
