"""Models as flat lists, so that copying and pickling a deep model needs no deep recursion."""

import copy

from pyggml.layers.base import Node, Symbol


def flatten(program):
    """Return layers and wiring of a program without references from layer to layer.

    Returns
    -------
    dict
        ``layers`` (a list), ``calls`` (layer index, symbol indices, nested, arguments, single,
        output shapes), ``inputs`` and ``outputs`` (symbol indices).
    """
    number = {id(s): i for i, s in enumerate(program.inputs)}
    calls = []
    for node in program.nodes:
        calls.append((program.layers.index(node.layer), [number[id(s)] for s in node.inputs],
                      node.nested, node.arguments, node.single, [s.shape for s in node.outputs]))
        for s in node.outputs:
            number[id(s)] = len(number)
    return {"layers": program.layers, "calls": calls, "n_inputs": len(program.inputs),
            "outputs": [number[id(s)] for s in program.outputs]}


def restore(state, layers):
    """Return input and output symbols for a flattened program on the given layers."""
    symbols = [layer.symbol for layer in layers[:state["n_inputs"]]]
    for index, inputs, nested, arguments, single, shapes in state["calls"]:
        node = Node(layers[index], [symbols[i] for i in inputs], nested, arguments)
        node.single = single
        node.outputs = [Symbol(shape, "float32", node, i) for i, shape in enumerate(shapes)]
        symbols += node.outputs
    return symbols[:state["n_inputs"]], [symbols[i] for i in state["outputs"]]


def copy_layers(layers, memo):
    """Deep-copy layers one by one; their weights get memory of their own."""
    return [copy.deepcopy(layer, memo) for layer in layers]
