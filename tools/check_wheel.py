"""Check what is in a wheel of pyggml: check_wheel.py WHEEL [wheel|system|subproject].

The second argument says where ggml came from; only a ggml built from source may be inside.
"""

import pathlib
import re
import sys
import zipfile


def problems(path, ggml_source):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        extensions = [n for n in names if n.startswith("pyggml/_") and n.endswith((".so", ".pyd"))]
        for name in extensions:
            # An rpath to it would let whoever makes that folder later choose what is loaded.
            if re.search(rb"[/\\](pip-)?build-env-", wheel.read(name)):
                yield f"{name} names the folder of its build environment"
    if not extensions:
        yield "no extension module"
    for wanted in ("pyggml/__init__.py", "pyggml/_config.py"):
        if wanted not in names:
            yield f"no {wanted}"
    for name in names:
        if name.endswith((".a", ".lib", ".h", ".c", ".cpp", ".cmake")) or "openblas" in name:
            yield f"{name} should not be there"
        if not name.startswith(("pyggml/", "pyggml-")):
            yield f"{name} lies outside the package"
    copies = [n for n in names if re.search(r"(lib)?ggml[-_.\w]*\.(so|dylib|dll)", n)]
    copies = [n for n in copies if n not in extensions]
    if ggml_source == "subproject" and len(copies) < 3:
        yield f"ggml's libraries should be inside, found {copies}"
    if ggml_source != "subproject" and copies:
        yield f"{copies} should not be there"


def main():
    path = pathlib.Path(sys.argv[1])
    found = list(problems(path, sys.argv[2] if len(sys.argv) > 2 else "wheel"))
    if found:
        sys.exit(f"{path.name}: " + "; ".join(found))
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB, contents as they should be")


main()
