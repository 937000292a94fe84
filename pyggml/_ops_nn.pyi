from pyggml._graph import Tensor
from pyggml._variable import Variable

def matmul_transposed(x: Tensor | Variable, y: Tensor | Variable) -> Tensor: ...
def rms_normalize(x: Tensor, epsilon: float = 1e-6) -> Tensor: ...
def mask_future(x: Tensor) -> Tensor: ...
def conv2d(
    x: Tensor,
    kernel: Tensor | Variable,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    dilation: tuple[int, int] = (1, 1),
    bias: Tensor | Variable | None = None,
) -> Tensor: ...
def depthwise_conv2d(
    x: Tensor,
    kernel: Tensor | Variable,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    dilation: tuple[int, int] = (1, 1),
    bias: Tensor | Variable | None = None,
) -> Tensor: ...
def spread(x: Tensor, strides: tuple[int, int]) -> Tensor: ...
def max_pool2d(
    x: Tensor,
    size: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
) -> Tensor: ...
def average_pool2d(
    x: Tensor,
    size: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
) -> Tensor: ...
def dropout(x: Tensor, rate: float) -> Tensor: ...
