"""Keep docs/assertions.md complete: the assertions of ggml that calls of pyggml can reach.

    python tools/assertions.py                       # fails if a function called is not in the map
    python tools/assertions.py --ggml subprojects/ggml   # lists what each function can reach

The tree is what tools/unpack_ggml.py unpacks. The reading of C is a rough one: a function is what
stands at the beginning of a line before a brace, a call is a known name before a parenthesis.
Kernels of ggml's CPU backend are listed by the operation that runs them.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "assertions.md"

SOURCES = ("ggml.c", "ggml-alloc.c", "ggml-backend.cpp", "ggml-backend-reg.cpp", "ggml-opt.cpp",
           "ggml-quants.c", "ggml-threading.cpp", "ggml-cpu/ggml-cpu.c", "ggml-cpu/ggml-cpu.cpp",
           "ggml-cpu/ops.cpp", "ggml-cpu/unary-ops.cpp", "ggml-cpu/binary-ops.cpp")

# What one function reaches through a pointer, or a table, that reading does not follow.
INDIRECT = {
    "ggml_backend_sched_graph_compute": ("ggml_backend_cpu_graph_compute",),
    "ggml_opt_eval": ("ggml_backend_cpu_graph_compute",),
}

_definition = re.compile(r"^(?:[A-Za-z_][\w\s\*&:<>,]*?[\s\*&])?([A-Za-z_]\w*)\s*\(", re.M)
_call = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_assert = re.compile(r"\bGGML_(?:ASSERT|ABORT)\w*\s*\(")


def called():
    """Return the functions of ggml that the Cython sources call or pass on, with the files."""
    found = {}
    for path in sorted((ROOT / "pyggml").glob("*.pyx")):
        for name in re.findall(r"_ggml\.(ggml_\w+)", path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(path.name)
    declared = (ROOT / "pyggml" / "_ggml.pxd").read_text(encoding="utf-8")
    functions = set(re.findall(r"\b(ggml_\w+)\(", declared))
    # Only what is declared as a function: the rest are types and constants.
    return {name: files for name, files in found.items() if name in functions}


def mapped(text):
    """Return the functions that the map has a heading or a row for."""
    return set(re.findall(r"`(ggml_\w+)`", text))


def missing():
    """Return the functions that are called and not in the map."""
    return sorted(set(called()) - mapped(MAP.read_text(encoding="utf-8")))


def tests_named(text):
    """Return the tests that the map names, as ``file::test``."""
    return set(re.findall(r"`(test_\w+\.py::test_\w+)`", text))


def groups_named(text):
    """Return the groups of attempts of tests/test_assertions.py that the map names."""
    return set(re.findall(r"attempts \*([\w ]+)\*", text))


def read_functions(tree):
    """Return a dict from function to (file, names it calls, assertions)."""
    functions = {}
    for name in SOURCES:
        text = (tree / "src" / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        at = 0
        while at < len(lines):
            # A definition may take several lines up to its brace.
            head = ""
            end = at
            if lines[at] and not lines[at][0].isspace() and lines[at][0] not in "#}/{":
                while end < len(lines) and "{" not in lines[end] and ";" not in lines[end]:
                    head += lines[end] + " "
                    end += 1
                if end < len(lines):
                    head += lines[end]
            before = head.split("{")[0]
            match = _definition.match(before)
            if not head or "{" not in head or ";" in before or "=" in before or match is None:
                at += 1
                continue
            close = end
            while close < len(lines) and lines[close] != "}" \
                    and not (close == end and lines[end].rstrip().endswith("}")):
                close += 1
            body = lines[end:close + 1]
            calls = {c for line in body for c in _call.findall(line)}
            asserts = [(end + 1 + i, line.strip()) for i, line in enumerate(body)
                       if _assert.search(line)]
            known = functions.setdefault(match[1], (name, set(), []))
            known[1].update(calls)
            known[2].extend(asserts)
            at = close + 1
    return functions


def reachable(functions, name):
    """Return the functions that one reaches, itself first."""
    found, open_ = [], [name]
    while open_:
        f = open_.pop()
        if f in found or f not in functions:
            continue
        found.append(f)
        open_ += sorted(functions[f][1]) + list(INDIRECT.get(f, ()))
    return found


def report(tree, stream=sys.stdout):
    """Print, for every function called, the assertions that it can reach."""
    functions = read_functions(tree)
    seen = set()
    for name in sorted(called()):
        if name not in functions:
            print(f"## {name}: not found in the sources", file=stream)
            continue
        print(f"## {name}", file=stream)
        for f in reachable(functions, name):
            if f in seen:
                continue
            seen.add(f)
            file, _, asserts = functions[f]
            for line, text in asserts:
                print(f"  {file}:{line} {f}: {text}", file=stream)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ggml", type=Path, help="an unpacked tree of ggml")
    given = parser.parse_args()
    if given.ggml is not None:
        report(given.ggml)
        return
    lacking = missing()
    if lacking:
        sys.exit(f"{MAP} says nothing about {', '.join(lacking)}")
    print(f"{len(called())} functions of ggml are called, all of them in {MAP}")


if __name__ == "__main__":
    main()
