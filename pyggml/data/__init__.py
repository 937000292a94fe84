"""Data as users have it: arrays of any kind and whoever else makes batches.

Arrays are what knows its number of rows: NumPy arrays, memory maps, lists, pandas objects, and
arrays in files (h5py, zarr and the like) that are read slice by slice. A :class:`Stream` is
everything that hands out batches one after the other.
"""

from pyggml.data.arrays import Arrays, LazyArray, adapt, pack
from pyggml.data.class_weights import ClassWeights
from pyggml.data.streams import Stream, is_stream, unpack

__all__ = ["Arrays", "ClassWeights", "LazyArray", "Stream", "adapt", "is_stream", "pack", "unpack"]
