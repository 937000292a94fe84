from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

class Variable:
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    name: str
    trainable: bool
    decay: bool
    size: int
    initializer: Callable[..., Any] | None
    regularizer: Callable[..., Any] | None
    def __init__(
        self,
        shape: Sequence[int],
        name: str = "variable",
        axes: Sequence[int] | None = None,
        trainable: bool = True,
        decay: bool = True,
        initializer: Callable[..., Any] | None = None,
        regularizer: Callable[..., Any] | None = None,
    ) -> None: ...
    def numpy(self, copy: bool = True) -> NDArray[np.float32]: ...
    def assign(self, value: ArrayLike) -> None: ...
    def check(self, value: ArrayLike) -> NDArray[Any]: ...
    def initialize(self, rng: np.random.Generator) -> None: ...
    def clone(self) -> Variable: ...
