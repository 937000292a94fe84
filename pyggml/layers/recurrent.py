"""Recurrent layers."""

from pyggml import activations, initializers, ops, regularizers
from pyggml._graph import Tensor
from pyggml.layers.base import Layer, Symbol, positive_int, share


def joined(x, states, mask):
    """Return the inputs of a recurrent layer as one list, and how to take it apart."""
    if mask is not None:
        if len(mask.shape) != 2 or mask.shape[1:] != x.shape[1:2]:
            raise ValueError(f"mask must have shape {x.shape[:2]}, got {mask.shape}")
        return [x, *states, mask], {"masked": True}
    return ([x, *states] if states else x), {}


class _Recurrent(Layer):
    """What recurrent layers share: arguments, states, and the product with the kernel."""

    gates = 1
    n_states = 1

    def __init__(self, units, activation="tanh", use_bias=True,
                 kernel_initializer="glorot_uniform", recurrent_initializer="orthogonal",
                 bias_initializer="zeros", kernel_regularizer=None, recurrent_regularizer=None,
                 bias_regularizer=None, return_sequences=False, return_state=False,
                 go_backwards=False, dropout=0.0, recurrent_dropout=0.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.units = positive_int(units, "units")
        self.activation = activations.get(activation)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = regularizers.get(recurrent_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.return_sequences = bool(return_sequences)
        self.return_state = bool(return_state)
        self.go_backwards = bool(go_backwards)
        self.dropout = share(dropout, "dropout")
        self.recurrent_dropout = share(recurrent_dropout, "recurrent_dropout")

    def __call__(self, sequences, initial_state=None, mask=None):
        """Apply the layer.

        Parameters
        ----------
        sequences : Symbol or Tensor of shape (batch, time, features)
            Or a list of them and of the initial states.
        initial_state : Symbol or Tensor of shape (batch, units), or list of them, optional
            ``[h]``, or ``[h, c]`` for an LSTM; zeros by default.
        mask : Symbol or Tensor of shape (batch, time), optional
            A step at which it is 0 is passed over: state and output stay as they were. See
            :class:`pyggml.layers.PaddingMask`. What lies there must be finite.

        Returns
        -------
        Symbol or Tensor, or list of them
            The output, and with ``return_state`` the final states.
        """
        x, *states = sequences if isinstance(sequences, (list, tuple)) else [sequences]
        if initial_state is not None:
            states += ([initial_state] if isinstance(initial_state, (Symbol, Tensor))
                       else initial_state)
        self._check_states(states)
        inputs, arguments = joined(x, states, mask)
        return super().__call__(inputs, **arguments)

    def _check_states(self, states):
        if len(states) not in (0, self.n_states) or any(
                tuple(s.shape[1:]) != (self.units,) for s in states):
            raise ValueError(f"layer {self.name!r} takes {self.n_states} initial states of shape "
                             f"(batch, {self.units}), got {[s.shape for s in states]}")

    def _sequence(self, shapes):
        """The shape of the sequences, from one shape or that and those of other inputs."""
        sequence = shapes[0] if isinstance(shapes, list) else shapes
        if len(sequence) != 3:
            raise ValueError(f"layer {self.name!r} takes sequences (batch, time, features), got "
                             f"shape {sequence}")
        return sequence

    def bias_shape(self):
        """Return the shape of the bias."""
        return (self.gates * self.units,)

    def build(self, input_shape):
        features = self._sequence(input_shape)[-1]
        width = self.gates * self.units
        self.kernel = self.add_weight("kernel", (features, width), self.kernel_initializer,
                                      regularizer=self.kernel_regularizer)
        self.recurrent_kernel = self.add_weight(
            "recurrent_kernel", (self.units, width), self.recurrent_initializer,
            regularizer=self.recurrent_regularizer)
        if self.use_bias:
            shape = self.bias_shape()
            self.bias = self.add_weight("bias", shape, self.bias_initializer,
                                        regularizer=self.bias_regularizer,
                                        axes=tuple(range(len(shape))))

    def input_bias(self, graph):
        """Return what is added to the product with the kernel.

        Parameters
        ----------
        graph : Graph

        Returns
        -------
        Tensor
        """
        return graph.weight(self.bias)

    def scan(self, xw, states, how):
        """Return the output and the list of final states.

        Parameters
        ----------
        xw : Tensor of shape (batch, time, gates * units)
        states : list of Tensor or None
        how : dict
            Arguments of the functions of :mod:`pyggml.ops`.

        Returns
        -------
        tuple of Tensor and list of Tensor
        """
        raise NotImplementedError(f"{type(self).__name__}.scan")

    def call(self, x, masked=False, training=False):
        """Return the output, and the final states if they are asked for.

        Parameters
        ----------
        x : Tensor of shape (batch, time, features), or list of it, states and mask
        masked : bool
            Whether the last of the list is the mask.
        training : bool

        Returns
        -------
        Tensor, or list of Tensor
        """
        x, *states = x if isinstance(x, (list, tuple)) else [x]
        mask = states.pop() if masked else None
        self._sequence(x.shape)
        self._check_states(states)
        n, _, features = x.shape
        how = {"activation": self.activation, "go_backwards": self.go_backwards,
               "return_sequences": self.return_sequences, "mask": mask}
        if training and self.dropout:
            x = ops.multiply(x, x.graph.mask((n, 1, features), self.dropout))
        if training and self.recurrent_dropout:
            how["recurrent_mask"] = x.graph.mask((n, self.units), self.recurrent_dropout)
        xw = ops.linear(x, self.kernel)
        if self.use_bias:
            xw = ops.add(xw, self.input_bias(x.graph))
        y, final = self.scan(xw, states or [None] * self.n_states, how)
        return [y, *final] if self.return_state else y

    def compute_output_shape(self, input_shape):
        batch, time, features = self._sequence(input_shape)
        if features != self.kernel.shape[0]:
            raise ValueError(f"layer {self.name!r} was built for {self.kernel.shape[0]} features, "
                             f"got shape {input_shape}")
        y = (batch, time, self.units) if self.return_sequences else (batch, self.units)
        return [y] + [(batch, self.units)] * self.n_states if self.return_state else y

    def get_config(self):
        return super().get_config() | {
            "units": self.units,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": self.kernel_initializer,
            "recurrent_initializer": self.recurrent_initializer,
            "bias_initializer": self.bias_initializer,
            "kernel_regularizer": self.kernel_regularizer,
            "recurrent_regularizer": self.recurrent_regularizer,
            "bias_regularizer": self.bias_regularizer,
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "go_backwards": self.go_backwards,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
        }


class SimpleRNN(_Recurrent):
    """``h = activation(x_t @ kernel + h @ recurrent_kernel + bias)`` over a sequence.

    Elman, "Finding structure in time" (1990).

    Parameters
    ----------
    units : int
    activation : str or callable
    use_bias : bool
    kernel_initializer, recurrent_initializer, bias_initializer : str or Initializer
    kernel_regularizer, recurrent_regularizer, bias_regularizer : str or callable, optional
    return_sequences : bool
        Whether the output holds every time step, or the last only.
    return_state : bool
        Whether the final state comes as a second output.
    go_backwards : bool
        Whether to start at the last time step; the output is in the order of computation.
    dropout, recurrent_dropout : float
        In [0, 1): the share of the features, and of the state where it enters the product, that
        training sets to 0, the same ones at every time step of a sequence (Gal and Ghahramani,
        "A theoretically grounded application of dropout in recurrent neural networks", 2016).
    name : str, optional
    trainable : bool

    Notes
    -----
    Input (batch, time, features), called as ``layer(x)`` or ``layer(x, initial_state=h)``;
    output (batch, units) or (batch, time, units). Weights: ``kernel`` (features, units),
    ``recurrent_kernel`` (units, units), ``bias`` (units,). With tanh, sequences of any length
    are trained on the CPU as one node; with another activation, as operations step by step.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.SimpleRNN(8)(pyggml.Input((10, 4))).shape
    (None, 8)
    """

    def scan(self, xw, states, how):
        return ops.simple_rnn_sequence(xw, self.recurrent_kernel, *states, **how)


class LSTM(_Recurrent):
    """Long short-term memory.

    Hochreiter and Schmidhuber, "Long short-term memory" (1997), with a forget gate::

        i, f, o = recurrent_activation(z_i, z_f, z_o),  g = activation(z_g)
        c = f * c + i * g,  h = o * activation(c)

    where z = x_t @ kernel + h @ recurrent_kernel + bias, in the order i, f, g, o.

    Parameters
    ----------
    units : int
    activation, recurrent_activation : str or callable
    use_bias : bool
    kernel_initializer, recurrent_initializer, bias_initializer : str or Initializer
    unit_forget_bias : bool
        Whether the forget gate's bias starts at 1.
    kernel_regularizer, recurrent_regularizer, bias_regularizer : str or callable, optional
    return_sequences : bool
        Whether the output holds every time step, or the last only.
    return_state : bool
        Whether the final h and c come as further outputs.
    go_backwards : bool
        Whether to start at the last time step; the output is in the order of computation.
    dropout, recurrent_dropout : float
        In [0, 1): the share of the features, and of the state where it enters the product, that
        training sets to 0, the same ones at every time step of a sequence (Gal and Ghahramani,
        "A theoretically grounded application of dropout in recurrent neural networks", 2016).
    name : str, optional
    trainable : bool

    Notes
    -----
    Input (batch, time, features), called as ``layer(x)`` or ``layer(x, initial_state=[h, c])``;
    output (batch, units) or (batch, time, units). Weights: ``kernel`` (features, 4 * units),
    ``recurrent_kernel`` (units, 4 * units), ``bias`` (4 * units,). With tanh and sigmoid,
    sequences of any length are trained on the CPU as one node; with other activations, as
    operations step by step; so are sequences with a mask or ``recurrent_dropout``.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.LSTM(8, return_sequences=True)(pyggml.Input((10, 4))).shape
    (None, 10, 8)
    """

    gates = 4
    n_states = 2

    def __init__(self, units, activation="tanh", recurrent_activation="sigmoid", use_bias=True,
                 *, unit_forget_bias=True, **kwargs) -> None:
        super().__init__(units, activation, use_bias, **kwargs)
        self.recurrent_activation = activations.get(recurrent_activation)
        self.unit_forget_bias = bool(unit_forget_bias)

    def build(self, input_shape):
        super().build(input_shape)
        if self.use_bias and self.unit_forget_bias:
            self.bias.numpy(copy=False)[self.units:2 * self.units] = 1.0

    def scan(self, xw, states, how):
        return ops.lstm_sequence(xw, self.recurrent_kernel, *states, **how,
                                 recurrent_activation=self.recurrent_activation)

    def get_config(self):
        return super().get_config() | {
            "recurrent_activation": activations.serialize(self.recurrent_activation),
            "unit_forget_bias": self.unit_forget_bias}


class GRU(_Recurrent):
    """Gated recurrent unit.

    Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014)::

        z, r = recurrent_activation(gates of x_t and h)
        h = z * h + (1 - z) * activation(candidate of x_t and r)

    Parameters
    ----------
    units : int
    activation, recurrent_activation : str or callable
    use_bias : bool
    kernel_initializer, recurrent_initializer, bias_initializer : str or Initializer
    kernel_regularizer, recurrent_regularizer, bias_regularizer : str or callable, optional
    reset_after : bool
        Whether r applies after the product with the recurrent kernel (the default, with a second
        bias) or to h before it.
    return_sequences : bool
        Whether the output holds every time step, or the last only.
    return_state : bool
        Whether the final state comes as a second output.
    go_backwards : bool
        Whether to start at the last time step; the output is in the order of computation.
    dropout, recurrent_dropout : float
        In [0, 1): the share of the features, and of the state where it enters the product, that
        training sets to 0, the same ones at every time step of a sequence (Gal and Ghahramani,
        "A theoretically grounded application of dropout in recurrent neural networks", 2016).
    name : str, optional
    trainable : bool

    Notes
    -----
    Input (batch, time, features), called as ``layer(x)`` or ``layer(x, initial_state=h)``;
    output (batch, units) or (batch, time, units). Weights, with gates in the order z, r, h:
    ``kernel`` (features, 3 * units), ``recurrent_kernel`` (units, 3 * units), ``bias`` (2, 3 *
    units), or (3 * units,) without ``reset_after``. With tanh and sigmoid,
    sequences of any length are trained on the CPU as one node; with other activations, as
    operations step by step; so are sequences with a mask or ``recurrent_dropout``.

    Examples
    --------
    >>> import pyggml
    >>> pyggml.layers.GRU(8)(pyggml.Input((10, 4))).shape
    (None, 8)
    """

    gates = 3

    def __init__(self, units, activation="tanh", recurrent_activation="sigmoid", use_bias=True,
                 *, reset_after=True, **kwargs) -> None:
        super().__init__(units, activation, use_bias, **kwargs)
        self.recurrent_activation = activations.get(recurrent_activation)
        self.reset_after = bool(reset_after)

    def bias_shape(self):
        width = 3 * self.units
        return (2, width) if self.reset_after else (width,)

    def _bias_row(self, graph, row):
        bias = graph.weight(self.bias)
        width = 3 * self.units
        return ops.reshape(ops.slice(bias, (row, 0), (1, width)), (width,))

    def input_bias(self, graph):
        return self._bias_row(graph, 0) if self.reset_after else graph.weight(self.bias)

    def scan(self, xw, states, how):
        bias = self._bias_row(xw.graph, 1) if self.use_bias and self.reset_after else None
        return ops.gru_sequence(xw, self.recurrent_kernel, bias, *states, **how,
                                recurrent_activation=self.recurrent_activation,
                                reset_after=self.reset_after)

    def get_config(self):
        return super().get_config() | {
            "recurrent_activation": activations.serialize(self.recurrent_activation),
            "reset_after": self.reset_after}
