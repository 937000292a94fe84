"""Everything public is documented, in numpydoc's form, and the examples do what they say.

Checked mechanically: a summary, every parameter, what is returned and raised, and an example of
each class and function.
"""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap

import numpy as np
import pytest

import pyggml

# Programs and adapters that need what is not installed everywhere are imported where they are.
EXPORTED = {n for n in pyggml.__all__ if inspect.ismodule(getattr(pyggml, n))} | {"foreign"}
MODULES = ["pyggml", *sorted(f"pyggml.{n}" for n in EXPORTED)]
OTHERS = sorted(f"pyggml.{m.name}" for m in pkgutil.iter_modules(pyggml.__path__)
                if m.name not in EXPORTED | {"_dlls"})  # for Windows alone


def load(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:  # an optional extra
        if error.name.split(".")[0] == "pyggml":
            raise
        pytest.skip(f"needs {error.name}")


def public_names(module):
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, v in vars(module).items() if not n.startswith("_")
                 and getattr(v, "__module__", None) == module.__name__]
    return names


def owned(kind):
    """Whether an object is ours, and not NumPy's or Python's."""
    return (getattr(kind, "__module__", None) or "").split(".")[0] == "pyggml"


def members(name, kind):
    """A class's own public methods and properties."""
    for key, value in vars(kind).items():
        if key.startswith("_") and key != "__call__":
            continue
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property) or inspect.isroutine(value) \
                or inspect.isgetsetdescriptor(value):
            yield f"{name}.{key}", value, kind, key


def collect():
    """(name, object, class it is a member of, its key) of everything public, each once.

    Members that come from a base are those of the base where that is public itself.
    """
    exported, seen = [], set()
    for module_name in MODULES:
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError:
            continue
        for key in public_names(module):
            value = getattr(module, key)
            if owned(value) and callable(value) and id(value) not in seen:
                seen.add(id(value))
                exported.append((f"{module_name}.{key}", value, None, key))
    found = list(exported)
    for name, value, _, _ in exported:
        if inspect.isclass(value):
            for kind in value.__mro__:
                if owned(kind) and (kind is value or id(kind) not in seen):
                    found += members(name, kind)
    return found


# Compiled functions whose source cannot be looked at, and which return nothing.
RETURN_NOTHING = {"pyggml.set_num_threads", "pyggml.snapshot_free"}
OBJECTS = {name: rest for name, *rest in reversed(collect())}


def sections(doc):
    """The summary and the sections of a numpydoc docstring, by title."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", doc, flags=re.MULTILINE)
    return parts[0].strip(), dict(zip(parts[1::2], parts[2::2], strict=True))


def named(section):
    """The names that a Parameters section describes."""
    found = set()
    for line in section.splitlines():
        if line and not line[0].isspace():
            found |= {n.strip().lstrip("*") for n in line.split(" :")[0].split(",") if n.strip()}
    return found


def documented(value, kind, key):
    """The docstrings of a member, and of what it overrides: that is its contract too."""
    docs = [value.__doc__ or ""]
    for base in () if kind is None else kind.__mro__[1:]:
        if key in vars(base) and owned(base):
            inherited = vars(base)[key]
            if isinstance(inherited, (staticmethod, classmethod)):
                inherited = inherited.__func__
            docs.append(inherited.__doc__ or "")
    return [inspect.cleandoc(doc) for doc in docs if doc]


def parameters(value):
    """Names of what an object is called with; none where Python cannot tell."""
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError):
        return []
    return [n for n, p in signature.parameters.items()
            if n not in ("self", "cls") and not n.startswith("_")
            and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def body(value):
    """The syntax tree of a function written in Python, without functions inside it, or None."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError, IndentationError, SyntaxError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    nodes, stack = [], list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        nodes.append(node)
        stack += ast.iter_child_nodes(node)
    return nodes


def returns_something(nodes):
    return any(isinstance(n, ast.Return) and n.value is not None and not (
        isinstance(n.value, ast.Constant) and n.value.value is None) for n in nodes)


def raised(nodes):
    """Names of the exceptions that a function itself raises for its caller to see."""
    found = set()
    for n in nodes:
        if isinstance(n, ast.Raise) and n.exc is not None:
            exc = n.exc.func if isinstance(n.exc, ast.Call) else n.exc
            if isinstance(exc, ast.Name) and exc.id[0].isupper():
                found.add(exc.id)
    return found - {"NotImplementedError", "StopIteration", "AttributeError"}


def gaps(name):
    """What is missing from the docstring of a public object."""
    value, kind, key = OBJECTS[name]
    docs = documented(value, kind, key)
    if inspect.isgetsetdescriptor(value):  # an attribute of a compiled class
        for owner in (kind, OBJECTS[name.rsplit(".", 1)[0]][0]):
            parts = sections(inspect.cleandoc(owner.__doc__ or ""))[1]
            if key in named(parts.get("Attributes", "") + parts.get("Parameters", "")):
                return []
    if not docs:
        return ["docstring"]
    summary = sections(docs[0])[0]
    missing = [] if summary else ["summary"]
    if isinstance(value, property) or inspect.isgetsetdescriptor(value):
        return missing
    parts = {}
    for doc in docs:
        for title, text in sections(doc)[1].items():
            parts[title] = parts.get(title, "") + text
    described = named(parts.get("Parameters", ""))
    absent = [p for p in parameters(value) if p not in described]
    if absent:
        missing.append(f"parameters {absent}")
    if kind is None and "Examples" not in parts:
        missing.append("example")
    if inspect.isclass(value):
        return missing
    returns = {"Returns", "Yields"} & set(parts)
    if kind is not None:  # a method's one sentence may say it all
        returns = returns or any(doc.startswith(("Return ", "Whether ", "Yield "))
                                 for doc in docs)
    nodes = body(value)
    wanted = kind is None if nodes is None else returns_something(nodes)
    if wanted and not returns and name not in RETURN_NOTHING:
        missing.append("returns")
    if nodes is not None and value.__doc__:
        said = parts.get("Raises", "") + " ".join(sections(doc)[0] for doc in docs)
        unsaid = [e for e in sorted(raised(nodes)) if e not in said]
        if unsaid:
            missing.append(f"raises {unsaid}")
    return missing


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_a_public_object_is_documented(name):
    assert gaps(name) == []


def test_public_objects_are_found():
    assert len(OBJECTS) > 700
    for name in ("pyggml.Trainer.step", "pyggml.layers.Dense", "pyggml.ops.linear",
                 "pyggml.Model.fit", "pyggml.set_seed"):
        assert name in OBJECTS, name


# ---- examples -----------------------------------------------------------------------------------

def modules_with_examples():
    names = MODULES + OTHERS
    layers = importlib.import_module("pyggml.layers")
    return names + sorted(f"pyggml.layers.{m.name}" for m in pkgutil.iter_modules(layers.__path__))


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name, tmp_path, monkeypatch):
    module = load(name)
    monkeypatch.chdir(tmp_path)
    before = pyggml.get_num_threads()
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    output = []
    try:
        # Compiled modules list their examples in __test__.
        for test in finder.find(module, name, extraglobs={"np": np}):
            runner.run(test, out=output.append)
    finally:
        pyggml.set_num_threads(before)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
