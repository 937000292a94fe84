"""What a model computes, as a list of layer calls that can be run on any graph."""

import math

from pyggml._graph import Tensor
from pyggml._slot import Slot


class Program:
    """The calls between input and output symbols, in an order in which they can be run.

    Parameters
    ----------
    inputs, outputs : list of Symbol

    Attributes
    ----------
    layers : list of Layer
        Each once: those of the inputs, then the others in Keras' order, which that of the
        weights follows.
    variables : list of Variable
    widest : int
        Elements of a row, where there are most.
    """

    def __init__(self, inputs, outputs):
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        for what, symbols in (("inputs", self.inputs), ("outputs", self.outputs)):
            if not symbols:
                raise ValueError(f"{what} must not be empty")
        if len({id(s) for s in self.inputs}) != len(self.inputs):
            raise ValueError("inputs holds the same symbol twice")
        self.nodes, reached = self._sort()
        self._check_inputs()
        symbols = self.inputs + [s for node in self.nodes for s in node.outputs]
        self.widest = max(math.prod(s.shape[1:]) for s in symbols)
        self.layers = list(dict.fromkeys([s.node.layer for s in self.inputs]
                                         + self._listed(reached)))
        names = set()
        for layer in self.layers:
            if layer.name in names:
                raise ValueError(f"two layers are named {layer.name!r}")
            names.add(layer.name)
        self.input_names = [s.node.layer.name for s in self.inputs]
        self.variables = list(dict.fromkeys(v for layer in self.layers for v in layer.weights))

    def _sort(self):
        """Order the nodes between inputs and outputs; without recursion, models may be deep.

        Also returned: the layers, numbered as they are come upon from the outputs.
        """
        given = {id(s) for s in self.inputs}
        order, done, begun, reached = [], set(), set(), {}
        stack = [(s, False) for s in reversed(self.outputs)]
        while stack:
            symbol, ready = stack.pop()
            node = symbol.node
            if id(symbol) in given or id(node) in done:
                continue
            if ready:
                done.add(id(node))
                order.append(node)
                continue
            if not node.inputs:
                raise ValueError(
                    f"the outputs depend on input {node.layer.name!r}, which is not among inputs")
            if id(node) in begun:  # what it depends on led back to it
                raise ValueError(f"the layers form a loop through {node.layer.name!r}")
            begun.add(id(node))
            reached.setdefault(node.layer, len(reached))
            stack.append((symbol, True))
            stack += [(s, False) for s in reversed(node.inputs)]
        return order, reached

    def _listed(self, reached):
        """Return the layers as Keras lists them: those that most calls follow come first.

        Of those that as many follow, in the order in which they are come upon from the outputs.
        Lists of weights can be handed over only where both sides agree on it.
        """
        after = {id(node): 0 for node in self.nodes}  # calls between a call and the outputs
        most = {}
        for node in reversed(self.nodes):
            depth = most[node.layer] = max(after[id(node)], most.get(node.layer, 0))
            for symbol in node.inputs:
                if id(symbol.node) in after:
                    after[id(symbol.node)] = max(after[id(symbol.node)], depth + 1)
        return sorted(most, key=lambda layer: (-most[layer], reached[layer]))

    def _check_inputs(self):
        """Refuse inputs that no output depends on."""
        used = {id(s) for node in self.nodes for s in node.inputs} | {id(s) for s in self.outputs}
        for symbol in self.inputs:
            if id(symbol) not in used:
                raise ValueError(f"no output depends on input {symbol.node.layer.name!r}")

    def make_inputs(self, graph):
        """Make the input tensors in a graph; returns a list of Slot."""
        many = len(self.inputs) > 1
        return [Slot(graph.input((graph.batch_size, *s.shape[1:]), s.dtype),
                     f"x[{s.node.layer.name!r}]" if many else "x",
                     "index" if s.dtype == "int32" else "dense")
                for s in self.inputs]

    def run(self, graph, tensors, nested=False):
        """Return the output tensors for input tensors.

        Raises
        ------
        ValueError
            A layer uses a weight that would be trained if the model knew of it. A program that is
            ``nested`` in another leaves this check to that one.
        """
        values = {id(s): t for s, t in zip(self.inputs, tensors, strict=True)}
        for node in self.nodes:
            arguments = [values[id(s)] for s in node.inputs]
            result = node.layer._run(graph, arguments if node.nested else arguments[0],
                                     dict(node.arguments))
            for symbol, t in zip(node.outputs, [result] if node.single else result, strict=True):
                _check_result(node.layer, symbol, t, graph)
                values[id(symbol)] = t
        if not nested:
            self._refuse_strangers(graph)
        return [values[id(s)] for s in self.outputs]

    def _refuse_strangers(self, graph):
        own = set(self.variables)
        for v in graph.aliases:
            if v.trainable and v not in own:
                raise ValueError(
                    f"weight {v.name!r} of shape {v.shape} is used, but no layer of the model has "
                    "it, so it would be neither trained nor saved: a layer finds the layers that "
                    "are its attributes, alone or in a list, tuple or dict; or set its trainable "
                    "to False")

    def split_inputs(self, x):
        """Return one array for each input from an array, a list or a dict."""
        return split(x, self.input_names, "x")


def _check_result(layer, symbol, t, graph):
    """Refuse what functions of users return in place of a tensor of the announced shape."""
    if not isinstance(t, Tensor) or t.graph is not graph:
        what = "a tensor of another graph" if isinstance(t, Tensor) else type(t).__name__
        raise TypeError(f"layer {layer.name!r} must return a tensor of its graph, got {what}")
    shape = (graph.batch_size, *symbol.shape[1:])
    if t.shape != shape:
        raise ValueError(f"layer {layer.name!r} must return shape {shape}, which it announced, "
                         f"got {t.shape}")


def split(value, names, what):
    """Distribute a list or a dict over names; a single array serves a single name.

    Raises
    ------
    ValueError
        Too few, too many, or names that are not known.
    """
    if isinstance(value, dict):
        if set(value) != set(names):
            raise ValueError(f"{what} must have the keys {names}, got {sorted(value)}")
        return [value[name] for name in names]
    if len(names) == 1:
        if isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        return [value]
    if not isinstance(value, (list, tuple)) or len(value) != len(names):
        got = len(value) if isinstance(value, (list, tuple)) else type(value).__name__
        raise ValueError(f"{what} must be a list of {len(names)} arrays or a dict with the keys "
                         f"{names}, got {got}")
    return list(value)
