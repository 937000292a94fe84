"""Print where a build dependency lies, for meson.build to read.

locate.py wheel PACKAGE DIST FROM
    Five lines: the include folder, the library folder, that folder as seen from the
    folder FROM, the version without suffixes, the version of the distribution.
locate.py source FOLDER
    One line: the version of the ggml source tree in FOLDER.

Nothing is imported from the packages, so that a broken one cannot break the build.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys


def locate_wheel(package, distribution, seen_from):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{distribution} is not installed in the build environment")
    root = pathlib.Path(spec.origin).resolve().parent
    libdir = next((root / d for d in ("lib64", "lib") if (root / d).is_dir()), None)
    if libdir is None or not (root / "include").is_dir():
        sys.exit(f"{distribution} in {root} has no include and lib folders")
    try:
        relative = os.path.relpath(libdir, os.path.realpath(seen_from))
    except ValueError:  # another drive: only on Windows, where it is not used
        relative = libdir
    full = importlib.metadata.version(distribution)
    release = re.match(r"\d+(\.\d+)*", full).group()
    return [
        (root / "include").as_posix(),
        libdir.as_posix(),
        pathlib.Path(relative).as_posix(),
        release,
        full,
    ]


def locate_source(folder):
    text = (pathlib.Path(folder) / "CMakeLists.txt").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"set\(GGML_VERSION_(MAJOR|MINOR|PATCH) +(\d+)\)", text))
    if len(numbers) != 3:
        sys.exit(f"no ggml version in {folder}/CMakeLists.txt")
    return [".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))]


def main():
    kind, *args = sys.argv[1:]
    lines = {"wheel": locate_wheel, "source": locate_source}[kind](*args)
    print("\n".join(lines))


main()
