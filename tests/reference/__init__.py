"""Independent float64 references in NumPy for the numbers that pyggml computes.

Formulas and argument names are those of Keras 3; arrays are row-major with the batch first, images
are ``[N, C, H, W]``, sequences ``[N, T, F]``. Nothing here imports pyggml, and clarity goes before
speed.

Every layer is a function ``out, backward = layer(inputs, weights, ...)``. ``backward(dout)`` gives
a dictionary of gradients whose keys are the names of the arguments.
"""
