"""A table of vectors."""

from pyggml import initializers, ops, regularizers
from pyggml.layers.base import Layer, Symbol, positive_int
from pyggml.layers.input import InputLayer


class Embedding(Layer):
    """Replace every index by a row of a table.

    Parameters
    ----------
    input_dim : int
        Number of rows: indices must lie in [0, input_dim).
    output_dim : int
        Size of a row.
    embeddings_initializer : str or Initializer
    embeddings_regularizer : str or callable, optional
    mask_zero : bool
        Keras' way to mask padding; use :class:`pyggml.layers.PaddingMask`.
    name : str, optional
    trainable : bool

    Raises
    ------
    NotImplementedError
        With ``mask_zero``.
    ValueError
        Indices that come out of another layer. An index out of range is refused by the model's
        methods, with the index, its row and the range.

    Notes
    -----
    Input (batch, ...) of int32 with at most three axes, made by ``Input(shape,
    dtype="int32")``; output (batch, ..., output_dim). Weight: ``embeddings`` (input_dim,
    output_dim).

    Examples
    --------
    >>> import pyggml
    >>> words = pyggml.Input((10,), dtype="int32")
    >>> pyggml.layers.Embedding(1000, 16)(words).shape
    (None, 10, 16)
    """

    input_dtype = "int32"

    def __init__(self, input_dim, output_dim, embeddings_initializer="uniform",
                 embeddings_regularizer=None, mask_zero=False, **kwargs) -> None:
        if mask_zero:
            raise NotImplementedError("masks do not travel with the data: give recurrent layers "
                                      "mask=layers.PaddingMask()(indices)")
        super().__init__(**kwargs)
        self.input_dim = positive_int(input_dim, "input_dim")
        self.output_dim = positive_int(output_dim, "output_dim")
        if embeddings_initializer == "uniform":
            embeddings_initializer = initializers.RandomUniform(-0.05, 0.05)
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)

    def __call__(self, inputs, **arguments):
        """Apply the layer.

        Parameters
        ----------
        inputs : Symbol or Tensor of shape (batch, ...)
            An Input of int32.
        **arguments
            None are known.

        Returns
        -------
        Symbol or Tensor of shape (batch, ..., output_dim)

        Raises
        ------
        TypeError
            The input is not int32.
        ValueError
            It is not an Input.
        """
        if isinstance(inputs, Symbol):
            if not isinstance(inputs.node.layer, InputLayer):
                raise ValueError(f"layer {self.name!r} takes an Input, not the output of "
                                 f"{inputs.node.layer.name!r}")
            if inputs.dtype != "int32":
                raise TypeError(f"layer {self.name!r} takes indices: make its input with "
                                "Input(shape, dtype='int32')")
        return super().__call__(inputs, **arguments)

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            "embeddings", (self.input_dim, self.output_dim), self.embeddings_initializer,
            regularizer=self.embeddings_regularizer, axes=(0, 1))

    def call(self, x):
        return ops.take(self.embeddings, x)

    def get_config(self):
        return super().get_config() | {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": self.embeddings_initializer,
            "embeddings_regularizer": self.embeddings_regularizer,
        }
