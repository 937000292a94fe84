"""Layers."""

from pyggml.layers.activation import Activation
from pyggml.layers.attention import MultiHeadAttention
from pyggml.layers.base import Layer
from pyggml.layers.bidirectional import Bidirectional
from pyggml.layers.convolutional import Conv1D, Conv2D, Conv2DTranspose, DepthwiseConv2D
from pyggml.layers.dense import Dense
from pyggml.layers.dropout import Dropout
from pyggml.layers.embedding import Embedding
from pyggml.layers.input import Input, InputLayer
from pyggml.layers.lambda_layer import Lambda
from pyggml.layers.masking import PaddingMask
from pyggml.layers.merging import (
    Add,
    Average,
    Concatenate,
    Dot,
    Maximum,
    Multiply,
    Subtract,
)
from pyggml.layers.normalization import (
    BatchNormalization,
    LayerNormalization,
    RMSNormalization,
)
from pyggml.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    MaxPooling1D,
    MaxPooling2D,
)
from pyggml.layers.recurrent import GRU, LSTM, SimpleRNN
from pyggml.layers.reshaping import Flatten, Permute, Reshape, UpSampling2D, ZeroPadding2D

__all__ = [
    "GRU",
    "LSTM",
    "Activation",
    "Add",
    "Average",
    "AveragePooling1D",
    "AveragePooling2D",
    "BatchNormalization",
    "Bidirectional",
    "Concatenate",
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Dense",
    "DepthwiseConv2D",
    "Dot",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "Input",
    "InputLayer",
    "Lambda",
    "Layer",
    "LayerNormalization",
    "MaxPooling1D",
    "MaxPooling2D",
    "Maximum",
    "MultiHeadAttention",
    "Multiply",
    "PaddingMask",
    "Permute",
    "RMSNormalization",
    "Reshape",
    "SimpleRNN",
    "Subtract",
    "UpSampling2D",
    "ZeroPadding2D",
]
