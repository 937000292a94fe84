"""The graph of a model's layers as text in Graphviz' language, and as a picture."""

import os
from typing import Any

_formats = ("png", "svg", "pdf", "jpg")


def _quoted(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _shapes(symbols):
    return ", ".join(str(tuple("None" if n is None else n for n in s.shape)).replace("'", "")
                     for s in symbols)


def model_to_dot(model, show_shapes=True, show_layer_names=True, rankdir="TB", dpi=200) -> str:
    """Return the graph of a model's layers in Graphviz' language; needs no other package.

    Parameters
    ----------
    model : Model
        Whose input shape is known.
    show_shapes : bool
        Whether each layer shows the shape of its output.
    show_layer_names : bool
        Whether each layer shows its name, or only its type.
    rankdir : {"TB", "BT", "LR", "RL"}
        Direction in which layers follow.
    dpi : int

    Returns
    -------
    str

    Raises
    ------
    ValueError
        An unknown ``rankdir``.

    Examples
    --------
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2, name="out")])
    >>> "out" in pyggml.utils.model_to_dot(model)
    True
    """
    if rankdir not in ("TB", "BT", "LR", "RL"):
        raise ValueError(f"rankdir must be 'TB', 'BT', 'LR' or 'RL', got {rankdir!r}")
    program = model.program
    nodes = [s.node for s in program.inputs] + list(program.nodes)
    number = {id(node): i for i, node in enumerate(nodes)}
    lines = [
        f"digraph {_quoted(model.name)} {{",
        f"  graph [rankdir={rankdir}, dpi={int(dpi)}, bgcolor=white];",
        '  node [shape=box, style="rounded", fontname="Helvetica", fontsize=10, penwidth=0.8];',
        "  edge [arrowsize=0.6, penwidth=0.8];",
    ]
    for i, node in enumerate(nodes):
        layer = node.layer
        kind = type(layer).__name__
        text = f"{layer.name} ({kind})" if show_layer_names else kind
        if show_shapes:
            symbols = node.outputs or [s for s in program.inputs if s.node is node]
            text += f"\n{_shapes(symbols)}"
        lines.append(f"  n{i} [label={_quoted(text)}];")
    for node in program.nodes:
        lines += [f"  n{number[id(s.node)]} -> n{number[id(node)]};" for s in node.inputs]
    return "\n".join([*lines, "}", ""])


def plot_model(model, to_file="model.dot", show_shapes=True, show_layer_names=True, rankdir="TB",
               dpi=200) -> Any:
    """Write the graph of a model's layers into a file.

    Parameters
    ----------
    model : Model
    to_file : str or path-like
        ``.dot`` or ``.gv`` for text; ``.png``, ``.svg``, ``.pdf`` or ``.jpg`` for a picture.
    show_shapes, show_layer_names, rankdir, dpi
        As for :func:`model_to_dot`.

    Returns
    -------
    str
        The path.

    Raises
    ------
    ImportError
        A picture needs the package graphviz; it comes with ``pip install 'pyggml[plot]'``.
    RuntimeError
        Graphviz' program ``dot`` is not installed.
    ValueError
        Another ending.

    Examples
    --------
    >>> import pyggml
    >>> from pyggml import utils
    >>> model = pyggml.Sequential([pyggml.Input((2,)), pyggml.layers.Dense(1)])
    >>> utils.plot_model(model, "model.dot")
    'model.dot'
    """
    path = os.fspath(to_file)
    ending = os.path.splitext(path)[1][1:].lower()
    if ending not in ("dot", "gv", *_formats):
        raise ValueError(f"to_file must end in .dot, .gv or .{', .'.join(_formats)}, got {path!r}")
    text = model_to_dot(model, show_shapes, show_layer_names, rankdir, dpi)
    if ending in ("dot", "gv"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("a picture needs the package graphviz: pip install 'pyggml[plot]'; text "
                          "(.dot) needs none") from error
    try:
        picture = graphviz.Source(text).pipe(format=ending)
    except graphviz.ExecutableNotFound as error:
        raise RuntimeError("Graphviz' program dot is not installed; text (.dot) needs none"
                           ) from error
    with open(path, "wb") as f:
        f.write(picture)
    return path
