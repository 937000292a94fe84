"""Put ggml's source into subprojects/ggml without reaching GitHub.

The tree comes out of the source archive of libggml-python. With --install PREFIX it is also
built, as shared libraries, and installed there, to try -Dggml=system.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "subprojects" / "ggml"
# The source archive of 0.20.2 itself has no ggml in it.
REQUIREMENT = "libggml-python==0.20.2.post1"

CMAKE_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_INSTALL_LIBDIR": "lib",
    "BUILD_SHARED_LIBS": "ON",
    "GGML_BUILD_EXAMPLES": "OFF",
    "GGML_BUILD_TESTS": "OFF",
    "GGML_CCACHE": "OFF",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
}


def download(folder):
    """Return the path of the source archive, downloaded into `folder`."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-binary",
            "libggml-python",
            "--dest",
            folder,
            REQUIREMENT,
        ],
        check=True,
    )
    return next(pathlib.Path(folder).glob("*.tar.gz"))


def unpack(archive, target):
    """Extract the folder ggml of `archive` as `target`."""
    with tarfile.open(archive) as tar:
        members = []
        for member in tar.getmembers():
            parts = pathlib.PurePosixPath(member.name).parts
            if len(parts) > 2 and parts[1] == "ggml" and ".." not in parts:
                member.name = "/".join(parts[2:])
                members.append(member)
        if not {"CMakeLists.txt", "include/ggml-opt.h"} <= {m.name for m in members}:
            sys.exit(f"{archive.name} holds no ggml source tree; {REQUIREMENT} does")
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(target, members=members, **safe)


def install(tree, prefix, jobs):
    """Build `tree` with CMake and install it into `prefix`."""
    if shutil.which("cmake") is None:
        sys.exit("--install needs cmake")
    definitions = [f"-D{name}={value}" for name, value in CMAKE_OPTIONS.items()]
    with tempfile.TemporaryDirectory() as build:
        subprocess.run(
            ["cmake", "-S", tree, "-B", build, f"-DCMAKE_INSTALL_PREFIX={prefix}", *definitions],
            check=True,
        )
        subprocess.run(
            ["cmake", "--build", build, "--config", "Release", "--parallel", str(jobs)], check=True
        )
        subprocess.run(["cmake", "--install", build, "--config", "Release"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=pathlib.Path, help="use this archive, download none")
    parser.add_argument("--target", type=pathlib.Path, default=TREE, help="default: %(default)s")
    parser.add_argument("--force", action="store_true", help="replace a tree that is there")
    parser.add_argument("--install", type=pathlib.Path, metavar="PREFIX")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()

    if args.target.exists() and args.force:
        shutil.rmtree(args.target)
    if not args.target.exists():
        with tempfile.TemporaryDirectory() as folder:
            unpack(args.archive or download(folder), args.target)
    elif args.install is None:
        sys.exit(f"{args.target} is there already; --force replaces it")
    if args.install is not None:
        install(args.target, args.install.resolve(), args.jobs)


main()
