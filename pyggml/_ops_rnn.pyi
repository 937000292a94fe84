from collections.abc import Callable

from pyggml._graph import Tensor
from pyggml._variable import Variable

def simple_rnn_sequence(
    xw: Tensor,
    recurrent_kernel: Tensor | Variable,
    h0: Tensor | None = None,
    *,
    activation: Callable[[Tensor], Tensor],
    go_backwards: bool = False,
    return_sequences: bool = False,
    mask: Tensor | None = None,
    recurrent_mask: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]: ...
def lstm_sequence(
    xw: Tensor,
    recurrent_kernel: Tensor | Variable,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    *,
    activation: Callable[[Tensor], Tensor],
    recurrent_activation: Callable[[Tensor], Tensor],
    go_backwards: bool = False,
    return_sequences: bool = False,
    mask: Tensor | None = None,
    recurrent_mask: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]: ...
def gru_sequence(
    xw: Tensor,
    recurrent_kernel: Tensor | Variable,
    recurrent_bias: Tensor | Variable | None = None,
    h0: Tensor | None = None,
    *,
    activation: Callable[[Tensor], Tensor],
    recurrent_activation: Callable[[Tensor], Tensor],
    reset_after: bool = True,
    go_backwards: bool = False,
    return_sequences: bool = False,
    mask: Tensor | None = None,
    recurrent_mask: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]: ...
