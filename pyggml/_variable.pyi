from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

class Variable:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def axes(self) -> tuple[int, ...]: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    trainable: bool
    decay: bool
    initializer: Callable[..., Any] | None
    regularizer: Callable[..., Any] | None
    def __new__(
        cls,
        shape: Sequence[int],
        name: str = "variable",
        axes: Sequence[int] | None = None,
        trainable: bool = True,
        decay: bool = True,
        initializer: Callable[..., Any] | None = None,
        regularizer: Callable[..., Any] | None = None,
        clear: bool = True,
    ) -> Self: ...
    def numpy(self, copy: bool = True) -> NDArray[np.float32]: ...
    def assign(self, value: ArrayLike) -> None: ...
    def check(self, value: ArrayLike) -> NDArray[np.float32]: ...
    def initialize(self, rng: np.random.Generator) -> None: ...
    def clone(self, values: bool = True) -> Variable: ...

def assign_checked(variables: list[Variable], arrays: list[NDArray[np.float32]]) -> None: ...
