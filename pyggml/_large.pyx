# cython: language_level=3
"""Training graphs of more operations than ggml-opt's static graphs hold.

ggml-opt's have 2048 nodes and leaves at most, and a larger one ends the process. Its other form
takes graphs of any size, but builds gradients and steps anew for every batch. Here ggml's own
backward pass is built once, as ggml-opt builds it.
"""

from libc.stddef cimport size_t
from libc.stdlib cimport calloc, free

from pyggml cimport _ggml
from pyggml._graph cimport Graph, Tensor
from pyggml._plan cimport expand, place
from pyggml._runtime cimport Context, Scheduler
from pyggml._variable cimport Variable

from pyggml._graph import GraphFull

# The most tensors that the backward pass makes of one operation, with its own.
cdef enum:
    _PER_OPERATION = 12


cdef size_t measure(Graph graph, _ggml.ggml_tensor * total) except 0:
    """Return how many nodes and leaves training takes, at most; the graph stays as it is.

    Raises
    ------
    GraphFull
        The graph has no room for its backward pass.
    """
    cdef size_t most = _PER_OPERATION * (graph.compute.count() + graph.inputs.count()
                                         + graph.weights.count() + 8)
    cdef Context scratch = Context(most, most, 1)
    cdef _ggml.ggml_cgraph * trial = _ggml.ggml_new_graph_custom(scratch.ptr, most, True)
    cdef _ggml.ggml_tensor * loss = _ggml.ggml_sum(scratch.ptr, total)
    cdef size_t before, made
    _ggml.ggml_set_loss(loss)
    expand(trial, loss)
    before = scratch.room()
    _ggml.ggml_build_backward_expand(scratch.ptr, trial, NULL)
    made = before - scratch.room() + 2 * len(graph.variables)
    if graph.compute.room() < <int>made + 8:
        raise GraphFull
    return (_ggml.ggml_graph_n_nodes(trial) + len(graph.variables) + 5 * len(graph.aliases)
            + graph.inputs.count() + 16)


cdef class LargeGraph:
    """Forward and backward pass of a network; the steps are appended by who knows the rule.

    Parameters
    ----------
    graph : Graph
    total : Tensor of shape (1,)
        The loss.
    size : int
        What :func:`measure` returned.
    gradients : dict of Variable to Variable, optional
        Where gradients are added up.
    """

    def __init__(self, Graph graph, Tensor total, size_t size, dict gradients=None):
        cdef int n = 0
        cdef int i
        cdef _ggml.ggml_tensor * node
        cdef _ggml.ggml_tensor ** sums
        cdef Tensor alias
        self.size = size
        self.results = Context(len(graph.aliases) + 8, size, 2)
        self.cgraph = _ggml.ggml_new_graph_custom(self.results.ptr, size, True)
        self.loss = Variable((1,), "loss", trainable=False)
        self.seed = Variable((1,), "seed", trainable=False)
        node = _on(self.loss, _ggml.ggml_sum(self.results.ptr, total.ptr))
        _ggml.ggml_set_output(node)
        _ggml.ggml_set_loss(node)
        expand(self.cgraph, node)
        targets = {}
        if gradients is not None:
            for variable, alias in list(graph.aliases.items()):
                if alias.requires_grad:
                    targets[<size_t>alias.ptr] = gradients[graph.bindings.get(variable, variable)]
        n = _ggml.ggml_graph_n_nodes(self.cgraph)
        sums = <_ggml.ggml_tensor **>calloc(n, sizeof(_ggml.ggml_tensor *))
        if sums is NULL:
            raise MemoryError
        try:
            for i in range(n):
                node = _ggml.ggml_graph_node(self.cgraph, i)
                target = targets.get(<size_t>node)
                if node.flags & _ggml.GGML_TENSOR_FLAG_LOSS:
                    target = self.seed
                if target is not None:
                    sums[i] = _on(target, _ggml.ggml_new_tensor(
                        self.results.ptr, _ggml.GGML_TYPE_F32, 4, node.ne))
            _ggml.ggml_build_backward_expand(graph.compute.ptr, self.cgraph, sums)
        finally:
            free(sums)

    cdef int plan(self, Scheduler scheduler) except -1:
        """Give the results their memory, once the graph is complete and lowered."""
        cdef _ggml.ggml_cgraph * ordered = _ggml.ggml_new_graph_custom(
            self.results.ptr, self.size, False)
        cdef int i
        # Lowered nodes may depend on others that come later in the graph as it was built.
        for i in range(_ggml.ggml_graph_n_nodes(self.cgraph)):
            _ggml.ggml_build_forward_expand(ordered, _ggml.ggml_graph_node(self.cgraph, i))
        self.cgraph = ordered
        self.memory = place(ordered)
        if not _ggml.ggml_backend_sched_alloc_graph(scheduler.ptr, self.cgraph):
            raise MemoryError("no memory to train this network")
        return 0


cdef _ggml.ggml_tensor * _on(Variable variable, _ggml.ggml_tensor * t):
    """Let a tensor lie in a variable's memory."""
    _ggml.ggml_backend_tensor_alloc(variable.buffer.ptr, t, variable.data)
    return t
