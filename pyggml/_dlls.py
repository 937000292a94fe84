"""Let Windows find the libraries that the extension modules link to.

Imported first, and only on Windows: it has no rpath, and since Python 3.8 PATH is not searched.
"""

import importlib.util
import os
import pathlib

# The import packages that bring libraries, and where in them these lie. Both folders of libggml
# hold the same files. pyggml/lib is there when ggml was built from source.
_FOLDERS = {"libggml": ("bin", "lib"), "scipy_openblas32": ("lib",), "pyggml": ("lib",)}


def _library_folders():
    for package, names in _FOLDERS.items():
        spec = importlib.util.find_spec(package)  # finds without importing
        if spec is None or spec.origin is None:
            continue
        root = pathlib.Path(spec.origin).parent
        folder = next((root / name for name in names if (root / name).is_dir()), None)
        if folder is not None:
            yield folder


# Kept, for closing a handle takes its folder off the search path again.
_HANDLES = [os.add_dll_directory(str(folder))  # type: ignore[attr-defined]
            for folder in _library_folders()]
