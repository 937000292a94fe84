"""Print where the wheel libggml-python keeps its headers, its libraries, and its version."""

import importlib.metadata
import importlib.util
import pathlib
import sys


def main():
    spec = importlib.util.find_spec("libggml")
    if spec is None or spec.origin is None:
        sys.exit("libggml-python is not installed in the build environment")
    root = pathlib.Path(spec.origin).parent
    libdir = next((root / d for d in ("lib64", "lib") if (root / d).is_dir()), None)
    if libdir is None:
        sys.exit(f"no lib or lib64 folder in {root}")
    print((root / "include").as_posix())
    print(libdir.as_posix())
    print(".".join(importlib.metadata.version("libggml-python").split(".")[:3]))


main()
