"""A recurrent layer in both directions."""

from pyggml import ops
from pyggml._graph import Tensor
from pyggml.layers._spatial import choice
from pyggml.layers.base import Layer, Symbol
from pyggml.layers.recurrent import GRU, LSTM, SimpleRNN, _Recurrent, joined

_kinds = {"SimpleRNN": SimpleRNN, "LSTM": LSTM, "GRU": GRU}
_modes = ("concat", "sum", "mul", "ave")


class Bidirectional(Layer):
    """Run a recurrent layer over the sequence in both directions and merge the outputs.

    Schuster and Paliwal, "Bidirectional recurrent neural networks" (1997).

    Parameters
    ----------
    layer : SimpleRNN, LSTM or GRU
        What both directions are made like; it is used for the forward one.
    merge_mode : {"concat", "sum", "mul", "ave"}
        How the outputs are merged; sequences are brought to the order of the input first.
    backward_layer : SimpleRNN, LSTM or GRU, optional
        For the other direction, with ``go_backwards=True``. By default made from the
        configuration of ``layer``.
    name : str, optional
    trainable : bool

    Raises
    ------
    TypeError, ValueError
        Not a recurrent layer, or layers that do not go with one another.

    Notes
    -----
    With ``return_state`` the final states of the forward layer follow the output, then those of
    the backward layer. Weights: those of the forward layer, then those of the backward layer.

    Examples
    --------
    >>> import pyggml
    >>> layer = pyggml.layers.Bidirectional(pyggml.layers.GRU(8))
    >>> layer(pyggml.Input((10, 4))).shape
    (None, 16)
    """

    def __init__(self, layer, merge_mode="concat", backward_layer=None, **kwargs) -> None:
        super().__init__(**kwargs)
        for given, what in ((layer, "layer"), (backward_layer, "backward_layer")):
            if not isinstance(given, _Recurrent) and (what == "layer" or given is not None):
                raise TypeError(f"{what} must be a recurrent layer, got {type(given).__name__}")
        self.merge_mode = choice(merge_mode, _modes, "merge_mode")
        self.forward_layer = layer
        if backward_layer is None:
            config = layer.get_config() | {
                "name": f"backward_{layer.name}", "go_backwards": not layer.go_backwards}
            backward_layer = type(layer).from_config(config)
        for name in ("return_sequences", "return_state", "units"):
            if getattr(layer, name) != getattr(backward_layer, name):
                raise ValueError(f"layer and backward_layer must have the same {name}")
        if layer.go_backwards == backward_layer.go_backwards:
            raise ValueError("layer and backward_layer must go in opposite directions")
        self.backward_layer = backward_layer

    def __call__(self, sequences, initial_state=None, mask=None):
        """Apply the layer.

        Parameters
        ----------
        sequences : Symbol or Tensor of shape (batch, time, features)
            Or a list of them and of the initial states.
        initial_state : list of Symbol or Tensor of shape (batch, units), optional
            Those of the forward layer, then those of the backward layer.
        mask : Symbol or Tensor of shape (batch, time), optional
            0 for steps that both directions pass over. With ``return_sequences`` the merged output
            is 0 there, as in Keras: what each direction would carry on is another step's.

        Returns
        -------
        Symbol or Tensor, or list of them
            The output, and with ``return_state`` the final states of both directions.

        Raises
        ------
        TypeError
            One state where both directions need theirs.
        ValueError
            States or a mask of other shapes.
        """
        x, *states = sequences if isinstance(sequences, (list, tuple)) else [sequences]
        if initial_state is not None:
            if isinstance(initial_state, (Symbol, Tensor)):
                raise TypeError("initial_state must be a list of the states of both directions")
            states += initial_state
        if len(states) % 2:
            raise ValueError(f"layer {self.name!r} takes the initial states of both directions, "
                             f"got {len(states)}")
        half = len(states) // 2
        self.forward_layer._check_states(states[:half])
        self.backward_layer._check_states(states[half:])
        inputs, arguments = joined(x, states, mask)
        return super().__call__(inputs, **arguments)

    def build(self, input_shape):
        for layer in (self.forward_layer, self.backward_layer):
            layer._ensure_built(input_shape)

    def call(self, inputs, masked=False):
        """Return the merged outputs, and the states if they are asked for.

        Parameters
        ----------
        inputs : Tensor, or list of Tensor
        masked : bool
            Whether the last of the inputs is the mask.

        Returns
        -------
        Tensor, or list of Tensor
        """
        x, *states = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        mask = states.pop() if masked else None
        half = len(states) // 2
        a = self.forward_layer([x, *states[:half]], mask=mask)
        b = self.backward_layer([x, *states[half:]], mask=mask)
        states = []
        if self.forward_layer.return_state:
            (a, *states), (b, *others) = a, b
            states += others
        if self.forward_layer.return_sequences:
            if self.backward_layer.go_backwards:
                b = ops.flip(b, 1)
            else:
                a = ops.flip(a, 1)
        if self.merge_mode == "concat":
            y = ops.concatenate([a, b], -1)
        elif self.merge_mode == "mul":
            y = ops.multiply(a, b)
        else:
            y = ops.add(a, b)
            if self.merge_mode == "ave":
                y = ops.affine(y, 0.5)
        if mask is not None and self.forward_layer.return_sequences:
            used = ops.step(ops.absolute(ops.to_float(mask)))
            y = ops.multiply(y, ops.reshape(used, (*used.shape, 1)))
        return [y, *states] if self.forward_layer.return_state else y

    def compute_output_shape(self, input_shape):
        shape = self.forward_layer.compute_output_shape(input_shape)
        states = []
        if isinstance(shape, list):
            shape, *states = shape
        if self.merge_mode == "concat":
            shape = (*shape[:-1], 2 * shape[-1])
        return [shape, *states, *states] if self.forward_layer.return_state else shape

    def get_config(self):
        def described(layer):
            return {"class_name": type(layer).__name__, "config": layer.get_config()}

        return super().get_config() | {
            "layer": described(self.forward_layer),
            "merge_mode": self.merge_mode,
            "backward_layer": described(self.backward_layer),
        }

    @classmethod
    def from_config(cls, config):
        """Make the layer anew from :meth:`get_config`'s dict.

        Parameters
        ----------
        config : dict

        Returns
        -------
        Bidirectional
        """
        config = dict(config)
        for key in ("layer", "backward_layer"):
            if isinstance(config.get(key), dict):
                kind = _kinds[config[key]["class_name"]]
                config[key] = kind.from_config(config[key]["config"])
        return cls(**config)
