"""Compile pyggml's kernels alone with a C compiler of your choice and compare them with loops.

    python tools/check_kernels.py
    python tools/check_kernels.py clang -fsanitize=address,undefined
    python tools/check_kernels.py --run 'qemu-aarch64 -L /usr/aarch64-linux-gnu' \\
        aarch64-linux-gnu-gcc
    python tools/check_kernels.py gcc -DPG_SIMD_VEXT     # what other processors get; or SCALAR
    python tools/check_kernels.py 'python -m ziglang cc -target aarch64-macos' --build-only

For other processors than this one, and other compilers: it needs neither Python headers nor ggml.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent
KERNELS = TOOLS.parent / "pyggml" / "kernels"
FLAGS = ["-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wall",
         "-Wextra", "-Werror"]
SETS = {"avx2": ["-mavx2", "-mfma"],
        "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma",
                   "-mprefer-vector-width=512"]}


def words(command):
    """Split a command; on Windows, where paths have backslashes, quotes stay as they are."""
    return shlex.split(command, posix=os.name != "nt")


def build(compiler, flags, folder):
    """Compile everything; returns the program's path. The compiler is a list of words."""
    machine = subprocess.run([*compiler, "-dumpmachine"], check=True, capture_output=True,
                             text=True).stdout
    x86 = machine.startswith("x86_64") and not any(f.startswith("-DPG_SIMD") for f in flags)
    windows = "mingw" in machine or "windows" in machine
    sets = {"baseline": []} | (SETS if x86 else {})
    jobs = []
    for path in sorted(KERNELS.glob("*.c")):
        for name, more in sets.items() if path.stem.endswith("_isa") or path.stem == "isa_table" \
                else [("", ["-D_GNU_SOURCE", *(["-DPG_X86_SETS"] if x86 else [])])]:
            given = [*more, f"-DPG_ISA_SUFFIX={name}"] if name else more
            jobs.append((path, given, folder / f"{path.stem}-{name}.o"))
    jobs.append((TOOLS / "check_kernels.c", [], folder / "main.o"))
    for path, given, target in jobs:
        subprocess.run([*compiler, *FLAGS, *flags, *given, f"-I{KERNELS}", "-c", path,
                        "-o", target], check=True)
    program = folder / ("check.exe" if windows else "check")
    subprocess.run([*compiler, *flags, *(target for _, _, target in jobs), "-o", program,
                    *([] if windows else ["-pthread", "-lm"])], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compiler", nargs="?", default="cc", help="may have several words")
    parser.add_argument("--run", metavar="COMMAND", default="",
                        help="what runs programs for that machine")
    parser.add_argument("--build-only", action="store_true")
    args, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(words(args.compiler), flags, pathlib.Path(folder))
        if args.build_only:
            print("built")
            return
        sys.exit(subprocess.run([*words(args.run), program], check=False).returncode)


main()
