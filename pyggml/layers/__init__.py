"""Layers."""

from pyggml.layers.activation import Activation
from pyggml.layers.base import Layer
from pyggml.layers.dense import Dense
from pyggml.layers.dropout import Dropout
from pyggml.layers.input import Input, InputLayer
from pyggml.layers.reshaping import Flatten

__all__ = ["Activation", "Dense", "Dropout", "Flatten", "Input", "InputLayer", "Layer"]
