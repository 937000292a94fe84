# cython: language_level=3
"""Graphs of any size: the order in which nodes are computed, and where in memory they lie.

ggml walks a graph by recursion, which a deep one takes beyond the end of the stack, and its
planner of memory ends the process where there are more than 256 gaps between tensors in use.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from pyggml cimport _ggml
from pyggml._memory cimport require
from pyggml._runtime cimport Buffer, allocate_bytes, buffer_type

cdef enum:
    _ALIGNMENT = 64


cdef int expand(_ggml.ggml_cgraph * graph, _ggml.ggml_tensor * result) except -1:
    """Append what a tensor depends on, and the tensor, as ``ggml_build_forward_expand`` does."""
    cdef _ggml.ggml_tensor * t
    cdef _ggml.ggml_tensor * source
    cdef int i
    cdef bint ready
    done = set()
    stack = [<size_t>result]
    while stack:
        t = <_ggml.ggml_tensor *><size_t>stack[-1]
        ready = True
        for i in range(_ggml.GGML_MAX_SRC):
            source = t.src[i]
            # A CAST names itself as a source.
            if source is not NULL and source is not t and <size_t>source not in done:
                stack.append(<size_t>source)
                ready = False
                break
        if ready:
            _ggml.ggml_build_forward_expand(graph, t)  # its sources are there: no recursion
            done.add(<size_t>t)
            stack.pop()
    return 0


cdef struct _Gap:
    size_t start
    size_t end


cdef class _Gaps:
    """The free parts of a stretch of memory that may grow at its end, in order."""
    cdef _Gap * items
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef size_t top  # where the part begins that nothing has ever used

    def __dealloc__(self):
        free(self.items)

    cdef int insert(self, Py_ssize_t at, size_t start, size_t end) except -1:
        cdef _Gap * items
        if self.count == self.room:
            items = <_Gap *>realloc(self.items, (2 * self.room + 64) * sizeof(_Gap))
            if items is NULL:
                raise MemoryError
            self.items = items
            self.room = 2 * self.room + 64
        memmove(&self.items[at + 1], &self.items[at], (self.count - at) * sizeof(_Gap))
        self.items[at].start = start
        self.items[at].end = end
        self.count += 1
        return 0

    cdef void remove(self, Py_ssize_t at) noexcept:
        self.count -= 1
        memmove(&self.items[at], &self.items[at + 1], (self.count - at) * sizeof(_Gap))

    cdef size_t take(self, size_t size) noexcept:
        """Return the offset of so many bytes, in the smallest gap that holds them."""
        cdef Py_ssize_t i
        cdef Py_ssize_t best = -1
        cdef size_t offset, have
        cdef size_t least = 0
        for i in range(self.count):
            have = self.items[i].end - self.items[i].start
            if have >= size and (best < 0 or have < least):
                best, least = i, have
        if best >= 0:
            offset = self.items[best].start
            self.items[best].start += size
            if self.items[best].start == self.items[best].end:
                self.remove(best)
            return offset
        if self.count and self.items[self.count - 1].end == self.top:
            offset = self.items[self.count - 1].start
            self.count -= 1
        else:
            offset = self.top
        self.top = offset + size
        return offset

    cdef int give(self, size_t start, size_t end) except -1:
        """Make a part free again."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.items[middle].start < start:
                low = middle + 1
            else:
                high = middle
        if low and self.items[low - 1].end == start:
            self.items[low - 1].end = end
            if low < self.count and self.items[low].start == end:
                self.items[low - 1].end = self.items[low].end
                self.remove(low)
        elif low < self.count and self.items[low].start == end:
            self.items[low].start = start
        else:
            self.insert(low, start, end)
        return 0


cdef _ggml.ggml_tensor * _root(_ggml.ggml_tensor * t) noexcept:
    """The tensor whose memory t is a view of, or t."""
    while t.view_src is not NULL:
        t = t.view_src
    return t


cdef int _see(_ggml.ggml_tensor * t) except -1:
    """Let a view point into the memory that its source has by now."""
    if t.view_src is NULL or t.buffer is not NULL:
        return 0
    _see(t.view_src)
    t.buffer = t.view_src.buffer
    t.data = <uint8_t *>t.view_src.data + t.view_offs
    return 0


cdef Buffer place(_ggml.ggml_cgraph * graph):
    """Give every tensor of a graph that has no memory its place in a new buffer.

    Tensors that are not needed at the same time share memory. What has been placed is left
    alone by ggml's own planner.
    """
    cdef int n = _ggml.ggml_graph_n_nodes(graph)
    cdef int i, j
    cdef _ggml.ggml_tensor * node
    cdef _ggml.ggml_tensor * t
    cdef _Gaps gaps = _Gaps()
    cdef size_t size, address
    cdef Buffer buffer
    last = {}  # use of each tensor, in the order of first use
    begin = [[] for _ in range(n)]
    end = [[] for _ in range(n + 1)]
    for i in range(n):
        node = _ggml.ggml_graph_node(graph, i)
        for j in range(-1, _ggml.GGML_MAX_SRC):
            t = node if j < 0 else node.src[j]
            if t is NULL:
                continue
            t = _root(t)
            if t.data is not NULL:
                continue
            if <size_t>t not in last:
                begin[i].append(<size_t>t)
            last[<size_t>t] = n if t.flags & _ggml.GGML_TENSOR_FLAG_OUTPUT else i
    for address, i in last.items():
        end[i].append(address)
    offsets = {}
    for i in range(n):
        for address in begin[i]:
            offsets[address] = gaps.take(_padded(<_ggml.ggml_tensor *>address))
        for address in end[i]:
            size = offsets[address]
            gaps.give(size, size + _padded(<_ggml.ggml_tensor *>address))
    buffer = allocate_bytes(gaps.top + _ALIGNMENT, "the results of a graph", False)
    cdef size_t base = <size_t>_ggml.ggml_backend_buffer_get_base(buffer.ptr)
    for address, size in offsets.items():
        _ggml.ggml_backend_tensor_alloc(
            buffer.ptr, <_ggml.ggml_tensor *>address, <void *>(base + size))
    for i in range(n):
        node = _ggml.ggml_graph_node(graph, i)
        for j in range(-1, _ggml.GGML_MAX_SRC):
            t = node if j < 0 else node.src[j]
            if t is not NULL:
                _see(t)
    return buffer


cdef size_t _padded(_ggml.ggml_tensor * t) noexcept:
    cdef size_t size = _ggml.ggml_nbytes(t)
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


cdef int keep_apart(_ggml.ggml_cgraph * graph) except -1:
    """Give every result memory of its own where very many are alive at once.

    ggml's plan has room for 256 holes between results, and ends the process where it finds more.
    A hole lies between two results that are alive, so that fewer results leave fewer holes.

    Returns
    -------
    int
        How many are alive at once, at most; not counted in small graphs.
    """
    cdef int n = _ggml.ggml_graph_n_nodes(graph)
    cdef int i, j
    cdef int alive = 0
    cdef int most = 0
    cdef _ggml.ggml_tensor * t
    cdef _ggml.ggml_tensor * source
    if n <= MANY_RESULTS:
        return n
    uses = {}
    for i in range(n):
        t = _ggml.ggml_graph_node(graph, i)
        for j in range(_ggml.GGML_MAX_SRC):
            if t.src[j] is not NULL:
                source = t.src[j] if t.src[j].view_src is NULL else t.src[j].view_src
                uses[<size_t>source] = uses.get(<size_t>source, 0) + 1
    for i in range(n):
        t = _ggml.ggml_graph_node(graph, i)
        if t.data is NULL and t.view_src is NULL:
            alive += 1
            most = max(most, alive)
        for j in range(_ggml.GGML_MAX_SRC):
            if t.src[j] is NULL:
                continue
            source = t.src[j] if t.src[j].view_src is NULL else t.src[j].view_src
            uses[<size_t>source] -= 1
            if uses[<size_t>source] == 0 and source.data is NULL and source.op:
                alive -= 1
    if most > MANY_RESULTS:
        for i in range(n):
            _ggml.ggml_set_output(_ggml.ggml_graph_node(graph, i))
    return most


cdef size_t planned_bytes(_ggml.ggml_cgraph * graph) except? 0:
    """How much memory a scheduler will allocate for the results of a graph."""
    cdef size_t nbytes = 0
    cdef _ggml.ggml_gallocr_t plan
    keep_apart(graph)
    require(<size_t>_ggml.ggml_graph_n_nodes(graph) * 1024 + (1 << 16), "a plan of the memory")
    plan = _ggml.ggml_gallocr_new(buffer_type())
    _ggml.ggml_gallocr_reserve_n_size(plan, graph, NULL, NULL, &nbytes)
    _ggml.ggml_gallocr_free(plan)
    return nbytes
