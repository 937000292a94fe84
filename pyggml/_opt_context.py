"""ggml-opt's context as users see it."""

import numpy as np

from pyggml._feed import read
from pyggml._opt_core import OptCore
from pyggml._opt_result import check_result
from pyggml._rowwise import argmax_last


class OptContext(OptCore):
    """ggml-opt's context: forward pass, backward pass and step on a graph that you built.

    Parameters
    ----------
    inputs : Tensor or list of Tensor
        From :meth:`Graph.input`.
    outputs : Tensor or list of Tensor
        Of the same graph, which was made with ``training=True``. A graph serves one context.
    loss_type : str or list of str
        One of :data:`LOSS_TYPES`, one for all outputs or one an output. "mean" and "sum" are of
        the outputs themselves and take no labels; the cross-entropies take logits.
    optimizer : {"adamw", "sgd"}
    opt_period : int
        Evaluations between two updates; their gradients are averaged.
    params : dict, optional
        What differs from :func:`default_params`.
    loss_weights : list of float, optional
        By which the losses of several outputs are multiplied before they are added.
    label_offsets : list of int, optional
        Where in the labels of a data set those of each output begin; by default one after the
        other.
    forward_only : bool
        Whether to evaluate only.
    huber_delta : float

    Attributes
    ----------
    graph : Graph
    heads : list
        What belongs to each output: output, labels, weights, loss.
    input_slots : list
    loss_types : list of str
    loss_weights : list of float
    offsets : list of int
    optimizer_name : str
    opt_period : int
    static_graphs : bool
    forward_only : bool
        Whether there is no backward pass.
    lock : RLock
        Held by every method.

    Raises
    ------
    TypeError, ValueError
        What ggml would end the process for: tensors of different graphs, no trainable weight, a
        rate that is not positive.
    NotImplementedError
        More operations than ggml-opt's static graphs hold.

    Notes
    -----
    Without graph, as ``OptContext.dynamic(...)``, a new graph is given for every evaluation with
    :meth:`prepare_alloc`. Losses other than ggml's four are built from operations; all are
    scaled by ``1 / opt_period`` inside, except "sum", as in ggml.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> from pyggml import ops, opt
    >>> graph = opt.Graph(8, training=True)
    >>> x = graph.input((8, 3))
    >>> kernel = pyggml.Variable((3, 1), "kernel", axes=(1, 0))
    >>> context = opt.OptContext(x, ops.linear(x, kernel), "mse", "sgd")
    >>> losses = [context.step(np.ones((8, 3)), np.ones((8, 1))) for _ in range(2)]
    >>> losses[1] < losses[0]
    True
    """

    @classmethod
    def init_for_fit(cls, inputs, outputs, loss_type="mse", optimizer="adamw", opt_period=1,
                     params=None):
        """Make a context for one output.

        Parameters
        ----------
        inputs, outputs, loss_type, optimizer, opt_period, params
            As for :class:`OptContext`.

        Returns
        -------
        OptContext
        """
        return cls(inputs, outputs, loss_type, optimizer, opt_period, params)

    @classmethod
    def init_for_fit_multi(cls, inputs, outputs, loss_types, loss_weights=None,
                           label_offsets=None, optimizer="adamw", opt_period=1, params=None):
        """Make a context for several outputs.

        Parameters
        ----------
        inputs, outputs, loss_types, loss_weights, label_offsets, optimizer, opt_period, params
            As for :class:`OptContext`.

        Returns
        -------
        OptContext
        """
        return cls(inputs, outputs, loss_types, optimizer, opt_period, params, loss_weights,
                   label_offsets)

    @classmethod
    def dynamic(cls, loss_type="mse", optimizer="adamw", opt_period=1, params=None,
                loss_weights=None, label_offsets=None, huber_delta=1.0):
        """Make a context without a graph: :meth:`prepare_alloc` gives one an evaluation.

        Parameters
        ----------
        loss_type, optimizer, opt_period, params, loss_weights, label_offsets, huber_delta
            As for :class:`OptContext`.

        Returns
        -------
        OptContext
        """
        self = cls.__new__(cls)
        self._configure(loss_type, optimizer, opt_period, params, loss_weights, label_offsets,
                        False, huber_delta)
        self._start()
        return self

    def set_inputs(self, x):
        """Fill the input tensors.

        Parameters
        ----------
        x : array_like of shape (batch, ...), or list of them
            Of any real dtype. Rows may come flat.

        Raises
        ------
        ValueError
            Another shape.
        """
        with self.lock:
            self.has_graph()
            values = x if isinstance(x, (list, tuple)) and len(self.input_slots) > 1 else [x]
            self.load("inputs", self.input_slots, values)

    def set_labels(self, labels, weights=None):
        """Fill the label tensors, and those of weights.

        Parameters
        ----------
        labels : array_like of shape (batch, n_outputs), or list of them
            One for every output that takes labels. Labels of several outputs may come as one
            array with ``label_offsets``.
        weights : array_like of shape (batch, 1) or (batch, n_outputs), or list, optional
            For "weighted_mse"; by default ones.

        Raises
        ------
        ValueError
            Labels that do not fit.
        """
        with self.lock:
            self.has_graph()
            labelled = [head for head in self.heads if head.labels is not None]
            if labels is None and not labelled:
                return
            if labels is None:
                raise ValueError("labels must be given")
            if not labelled:
                raise ValueError(f"loss_type {self.loss_types[0]!r} takes no labels")
            if not isinstance(labels, (list, tuple)) or len(labelled) == 1:
                labels = self._columns(labels, labelled)
            self.load("labels", [head.labels for head in labelled], labels)
            weighted = [head for head in self.heads if head.weights is not None]
            if weights is None:
                for head in weighted:
                    self.ones(head.weights)
                return
            if not weighted:
                raise ValueError("only loss_type 'weighted_mse' takes weights")
            given = weights if isinstance(weights, (list, tuple)) and len(weighted) > 1 \
                else [weights] * len(weighted)
            if len(given) != len(weighted):
                raise ValueError(f"weights must be {len(weighted)} arrays, got {len(given)}")
            spread = []
            for head, value in zip(weighted, given, strict=True):
                value = np.asarray(value)
                shape = head.output.shape
                if value.shape in ((shape[0],), (shape[0], 1)):
                    value = np.broadcast_to(value.reshape(-1, 1), shape)
                spread.append(value)
            self.load("weights", [head.weights for head in weighted], spread)

    def _columns(self, labels, labelled):
        """Cut the columns of each output out of one array."""
        labels = np.asarray(labels)
        if len(labelled) == 1 and self.offsets is None:
            return [labels]
        if labels.ndim != 2:
            raise ValueError(f"labels must have 2 axes, got shape {labels.shape}")
        found, at = [], 0
        for i, head in enumerate(self.heads):
            width = head.output.shape[1]
            first = at if self.offsets is None else self.offsets[i]
            if head.labels is None:
                continue
            if first + width > labels.shape[1]:
                raise ValueError(f"labels have {labels.shape[1]} columns, but output {i} takes "
                                 f"columns {first} to {first + width}")
            found.append(labels[:, first:first + width])
            at = first + width
        if self.offsets is None and at != labels.shape[1]:
            raise ValueError(f"labels have {labels.shape[1]} columns, but the outputs take {at}; "
                             "give label_offsets if others are to be left out")
        return found

    def step(self, x, labels=None, weights=None, result=None):
        """Fill inputs and labels, and evaluate with backward; returns the loss.

        Parameters
        ----------
        x : array_like, or list of them
        labels, weights : array_like, or list of them, optional
            As for :meth:`set_labels`.
        result : Result, optional
            Takes the values in.

        Returns
        -------
        float
        """
        with self.lock:
            return self._run(x, labels, weights, result, True)

    def evaluate(self, x, labels=None, weights=None, result=None):
        """Fill inputs and labels, and evaluate without backward; returns the loss.

        Parameters
        ----------
        x : array_like, or list of them
        labels, weights : array_like, or list of them, optional
            As for :meth:`set_labels`.
        result : Result, optional
            Takes the values in.

        Returns
        -------
        float
        """
        with self.lock:
            return self._run(x, labels, weights, result, False)

    def _run(self, x, labels, weights, result, backward):
        check_result(result)
        if not self.static_graphs:
            raise RuntimeError("step and evaluate need static graphs; use prepare_alloc, "
                               "set_inputs, set_labels, alloc and eval")
        self.set_inputs(x)
        self.set_labels(labels, weights)
        self.alloc(backward)
        return self.eval(result)

    # -- what there is to see --------------------------------------------------------------

    @property
    def batch_size(self):
        """Rows of a batch."""
        self.has_graph()
        return self.graph.batch_size

    @property
    def inputs(self):
        """Views on the input tensors, a list; to be filled."""
        self.has_graph()
        return [read(slot.tensor) for slot in self.input_slots]

    @property
    def outputs(self):
        """Copies of the outputs as the last evaluation left them, a list."""
        return [self.outputs_i(i) for i in range(self.n_loss)]

    def outputs_i(self, i):
        """Return a copy of one output.

        Parameters
        ----------
        i : int

        Returns
        -------
        numpy.ndarray
        """
        return np.array(read(self._head(i).output))

    @property
    def labels(self):
        """Views on the label tensors, to be filled; None for outputs that take none."""
        self.has_graph()
        return [None if head.labels is None else read(head.labels.tensor) for head in self.heads]

    def _head(self, i):
        self.has_graph()
        if isinstance(i, bool) or not hasattr(i, "__index__"):
            raise TypeError(f"i must be an integer, got {i!r}")
        if not 0 <= i < len(self.heads):
            raise IndexError(f"there are {len(self.heads)} outputs, got {i}")
        return self.heads[i]

    @property
    def loss(self):
        """The loss of the last evaluation: of several outputs the weighted sum."""
        self.has_graph()
        factors = self.loss_weights or [1.0] * len(self.heads)
        return float(sum(w * float(read(head.part)[0])
                         for w, head in zip(factors, self.heads, strict=True)))

    def loss_i(self, i):
        """Return the loss of one output, unweighted.

        Parameters
        ----------
        i : int

        Returns
        -------
        float
        """
        return float(read(self._head(i).part)[0])

    @property
    def n_loss(self):
        """Number of outputs, each with its loss."""
        self.has_graph()
        return len(self.heads)

    @property
    def loss_per_datapoint(self):
        """Whether losses are means over the batch."""
        return self.loss_types != ["sum"]

    @property
    def pred(self):
        """Class of each row of the first output with a cross-entropy, or None."""
        self.has_graph()
        for head in self.heads:
            if head.loss_type == "cross_entropy":
                return argmax_last(read(head.output)).astype(np.int32)
        return None

    @property
    def ncorrect(self):
        """How many of :attr:`pred` are where the label is largest, or None."""
        self.has_graph()
        for head in self.heads:
            if head.loss_type == "cross_entropy":
                return int((argmax_last(read(head.output))
                            == argmax_last(read(head.labels.tensor))).sum())
        return None
