"""Names that Keras users look for here."""

from pyggml._random import set_seed as set_random_seed
from pyggml.data import Stream
from pyggml.plotting import model_to_dot, plot_model

__all__ = ["Stream", "model_to_dot", "plot_model", "set_random_seed"]
