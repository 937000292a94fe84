"""Attention."""

import math

import numpy as np

from pyggml import _fused, initializers, ops, regularizers
from pyggml.layers.base import Layer, Symbol, positive_int, share

_lowest = -3e38  # a score that no exponential survives, yet finite: a row may hold nothing else


class MultiHeadAttention(Layer):
    """Let every query mix the values whose keys it matches, in several heads at once.

    Vaswani et al., "Attention is all you need" (2017): in each head
    ``softmax(q @ k.T / sqrt(key_dim)) @ v``, of projections of the inputs, and a projection of
    all heads to the output.

    Parameters
    ----------
    num_heads : int
    key_dim : int
        Size of queries and keys in each head.
    value_dim : int, optional
        Size of values in each head; by default ``key_dim``.
    dropout : float
        In [0, 1): the share of attention weights that training sets to 0.
    use_bias : bool
    output_shape : int, optional
        Size of the output; by default that of the query.
    kernel_initializer, bias_initializer : str or Initializer
    kernel_regularizer, bias_regularizer : str or callable, optional
    name : str, optional
    trainable : bool

    Raises
    ------
    TypeError, ValueError
        Sizes that are not positive integers, inputs or masks whose shapes do not fit.

    Notes
    -----
    Weights, D being the size of the input: ``query_kernel``, ``key_kernel`` (D, num_heads,
    key_dim), ``value_kernel`` (D, num_heads, value_dim), each followed by its bias (num_heads,
    size), then ``output_kernel`` (num_heads, value_dim, output) and ``output_bias`` (output,). A
    query that may see no key gets attention weights of 0.

    Examples
    --------
    >>> import pyggml
    >>> x = pyggml.Input((10, 16))
    >>> pyggml.layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True).shape
    (None, 10, 16)
    """

    def __init__(self, num_heads, key_dim, value_dim=None, dropout=0.0, use_bias=True,
                 output_shape=None, kernel_initializer="glorot_uniform", bias_initializer="zeros",
                 kernel_regularizer=None, bias_regularizer=None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive_int(num_heads, "num_heads")
        self.key_dim = positive_int(key_dim, "key_dim")
        self.value_dim = self.key_dim if value_dim is None else positive_int(value_dim, "value_dim")
        self.dropout = share(dropout, "dropout")
        self.use_bias = bool(use_bias)
        self.output_size = (None if output_shape is None
                            else positive_int(output_shape, "output_shape"))
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)

    def __call__(self, query, value=None, key=None, attention_mask=None, use_causal_mask=False,
                 query_mask=None, value_mask=None, key_mask=None, return_attention_scores=False):
        """Apply the layer to symbols of a functional model or to tensors of a graph.

        Parameters
        ----------
        query : Symbol or Tensor of shape (batch, queries, D)
        value : Symbol or Tensor of shape (batch, keys, D)
        key : Symbol or Tensor of shape (batch, keys, D), optional
            By default the value.
        attention_mask : Symbol, Tensor or array_like, optional
            Of shape (batch, queries, keys) or (queries, keys); what is not 0 lets a query see a
            key. An array must serve every batch: (queries, keys).
        use_causal_mask : bool
            Whether query i sees the keys up to i only.
        query_mask : Symbol or Tensor of shape (batch, queries), optional
        value_mask, key_mask : Symbol or Tensor of shape (batch, keys), optional
            0 for padding; see :class:`pyggml.layers.PaddingMask`.
        return_attention_scores : bool
            Whether to return the attention weights too, as they are before dropout.

        Returns
        -------
        Symbol or Tensor of shape (batch, queries, output)
            Or a list of it and the attention weights (batch, num_heads, queries, keys).

        Raises
        ------
        TypeError
            ``value`` is missing.
        ValueError
            Shapes that do not fit.
        """
        if value is None:
            raise TypeError("value must be given; self-attention is layer(x, x)")
        given = {"query": query, "value": value, "key": value if key is None else key,
                 "attention_mask": attention_mask, "query_mask": query_mask,
                 "value_mask": value_mask, "key_mask": key_mask}
        arguments = {"use_causal_mask": bool(use_causal_mask), "array_mask": None}
        if attention_mask is not None and not isinstance(attention_mask, Symbol) \
                and not hasattr(attention_mask, "requires_grad"):
            array = np.asarray(given.pop("attention_mask"))
            if array.ndim != 2:
                raise ValueError("attention_mask given as an array must have shape (queries, "
                                 f"keys), got {array.shape}")
            arguments["array_mask"] = (array != 0).astype(int).tolist()  # what a file can hold
        given = {role: item for role, item in given.items() if item is not None}
        arguments["roles"] = tuple(given)
        if return_attention_scores:
            arguments["return_attention_scores"] = True
        return super().__call__(list(given.values()), **arguments)

    def build(self, input_shape):
        query, value, key = input_shape[:3]
        for shape in (query, value, key):
            if len(shape) != 3:
                raise ValueError(f"layer {self.name!r} takes sequences (batch, time, features), "
                                 f"got shape {shape}")
        heads = self.num_heads
        for role, shape, size in (("query", query, self.key_dim), ("key", key, self.key_dim),
                                  ("value", value, self.value_dim)):
            self._add(role, (shape[-1], heads, size), 1, (1, 2, 0), (heads, size))
        out = self.output_size or query[-1]
        self._add("output", (heads, self.value_dim, out), 2, (2, 0, 1), (out,))

    def _add(self, role, shape, rows, axes, bias_shape):
        kernel = self.add_weight(f"{role}_kernel", shape,
                                 initializers._of_matrix(self.kernel_initializer, rows), axes=axes,
                                 regularizer=self.kernel_regularizer)
        setattr(self, f"{role}_kernel", kernel)
        if self.use_bias:
            bias = self.add_weight(f"{role}_bias", bias_shape, self.bias_initializer,
                                   regularizer=self.bias_regularizer,
                                   axes=tuple(range(len(bias_shape))))
            setattr(self, f"{role}_bias", bias)

    def _product(self, x, role, rows):
        kernel = ops.reshape(x.graph.weight(getattr(self, f"{role}_kernel")), (rows, -1))
        if kernel.shape[1] != x.shape[-1]:
            raise ValueError(f"layer {self.name!r} was built for {role} of size "
                             f"{kernel.shape[1]}, got shape {x.shape}")
        x = ops.matmul_transposed(x, kernel)
        if self.use_bias:
            bias = x.graph.weight(getattr(self, f"{role}_bias"))
            x = ops.add(x, ops.reshape(bias, (rows,)))
        return x

    def _projection(self, x, role, size):
        """The projection of an input, (batch, time, heads * size)."""
        if len(x.shape) != 3:
            raise ValueError(f"{role} must have shape (batch, time, features), got {x.shape}")
        return self._product(x, role, self.num_heads * size)

    def _heads(self, x):
        """A projection as (batch, heads, time, size)."""
        shape = (*x.shape[:2], self.num_heads, x.shape[2] // self.num_heads)
        return ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3))

    def call(self, inputs, roles=("query", "value", "key"), use_causal_mask=False, array_mask=None,
             return_attention_scores=False, training=False):
        """Return the output, and the attention weights if they are asked for.

        Parameters
        ----------
        inputs : list of Tensor
        roles : tuple of str
            What each of them is.
        use_causal_mask : bool
        array_mask : array_like of shape (queries, keys), optional
        return_attention_scores, training : bool

        Returns
        -------
        Tensor, or list of two

        Raises
        ------
        ValueError
            Shapes that do not fit.
        """
        given = dict(zip(roles, inputs, strict=True))
        query, value, key = given["query"], given["value"], given["key"]
        if key.shape[:2] != value.shape[:2]:
            raise ValueError(f"key and value must have the same time steps, got shapes "
                             f"{key.shape} and {value.shape}")
        q = self._projection(query, "query", self.key_dim)
        k = self._projection(key, "key", self.key_dim)
        v = self._projection(value, "value", self.value_dim)
        sees = self._mask(given, array_mask, q, k)
        mixed = seen = None
        if not (training and self.dropout) and not return_attention_scores:
            mixed = self._as_one_node(q, k, v, sees, use_causal_mask)
        if mixed is None:
            mixed, seen = self._composed(q, k, v, sees, use_causal_mask, training)
        out = self._product(mixed, "output", self.output_kernel.shape[2])
        return [out, seen] if return_attention_scores else out

    def _as_one_node(self, q, k, v, sees, causal):
        """All heads side by side, (batch, queries, heads * value_dim), or None without kernels."""
        if not q.graph.carries("attention"):
            return None
        if sees is not None:
            n, _, queries, _ = sees.shape
            keys = k.shape[1]
            sees = ops.reshape(ops.broadcast_to(sees, (n, 1, queries, keys)), (n, queries, keys))
        return _fused.attention(q, k, v, sees, self.num_heads, 1 / math.sqrt(self.key_dim), causal)

    def _composed(self, q, k, v, sees, causal, training):
        q, k, v = (self._heads(x) for x in (q, k, v))
        scores = ops.matmul_transposed(ops.affine(q, 1 / math.sqrt(self.key_dim)), k)
        if sees is not None:
            scores = ops.add(scores, ops.affine(sees, -_lowest, _lowest))
        if causal:
            scores = ops.mask_future(scores)
        weights = ops.softmax(scores)
        if sees is not None:  # where all scores are the lowest, softmax makes them equal
            weights = ops.multiply(weights, sees)
        seen = weights
        if training and self.dropout:
            weights = ops.multiply(weights, weights.graph.mask(weights.shape, self.dropout))
        mixed = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return ops.reshape(mixed, (*mixed.shape[:2], self.num_heads * self.value_dim)), seen

    def _mask(self, given, array_mask, q, k):
        """All masks but the causal one, as 0 and 1, shaped to go with the scores."""
        n, queries, keys = q.shape[0], q.shape[1], k.shape[1]
        masks = []
        if array_mask is not None:
            array_mask = np.asarray(array_mask, np.float32)
            if array_mask.shape != (queries, keys):
                raise ValueError(f"attention_mask must have shape {(queries, keys)}, got "
                                 f"{array_mask.shape}")
            masks.append(ops.reshape(ops.constant(q, array_mask), (1, 1, queries, keys)))
        for role, shapes in (
                ("attention_mask", {(n, queries, keys): (n, 1, queries, keys),
                                    (n, 1, keys): (n, 1, 1, keys)}),
                ("query_mask", {(n, queries): (n, 1, queries, 1)}),
                ("value_mask", {(n, keys): (n, 1, 1, keys)}),
                ("key_mask", {(n, keys): (n, 1, 1, keys)})):
            mask = given.get(role)
            if mask is None:
                continue
            if mask.shape not in shapes:
                raise ValueError(f"{role} must have shape {next(iter(shapes))}, got {mask.shape}")
            masks.append(ops.reshape(ops.step(ops.absolute(mask)), shapes[mask.shape]))
        if not masks:
            return None
        joined = masks[0]
        for mask in masks[1:]:
            shape = np.broadcast_shapes(joined.shape, mask.shape)
            joined = ops.multiply(ops.broadcast_to(joined, shape), mask)
        return joined

    def compute_output_shape(self, input_shape):
        query = input_shape[0]
        return (*query[:-1], self.output_kernel.shape[2])

    def _output_shape(self, input_shape, arguments):
        shape = self.compute_output_shape(input_shape)
        if not arguments.get("return_attention_scores"):
            return shape
        (batch, queries, _), (_, keys, _) = input_shape[:2]
        return [shape, (batch, self.num_heads, queries, keys)]

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self.output_size,
            "kernel_initializer": self.kernel_initializer,
            "bias_initializer": self.bias_initializer,
            "kernel_regularizer": self.kernel_regularizer,
            "bias_regularizer": self.bias_regularizer,
        }
