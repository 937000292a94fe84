from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyggml._snapshot import Snapshot
from pyggml.models import Model

_Arrays: TypeAlias = ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike]
_Float32: TypeAlias = NDArray[np.float32]

class Trainer:
    lr: float
    def __init__(
        self,
        model: Model,
        batch_size: int = 32,
        nbatch_logical: int | None = None,
        loss_mask: int | None = None,
        weight_decay: float | None = None,
        share: Trainer | Sequence[Trainer] | None = None,
    ) -> None: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def nbatch_logical(self) -> int: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def n_steps(self) -> int: ...
    @property
    def n_updates(self) -> int: ...
    def step(
        self, x: _Arrays, y: _Arrays | None = None, sample_weight: _Arrays | None = None
    ) -> float: ...
    def step_many(
        self,
        x: _Arrays,
        y: _Arrays | None = None,
        idx: ArrayLike | None = None,
        sample_weight: _Arrays | None = None,
    ) -> NDArray[np.float64]: ...
    def eval(
        self, x: _Arrays, y: _Arrays | None = None, sample_weight: _Arrays | None = None
    ) -> float: ...
    def predict(
        self, x: _Arrays, batch_size: int | None = None, matmul_precision: str | None = None
    ) -> _Float32 | Any: ...  # a list for several outputs
    def gradients(
        self, x: _Arrays, y: _Arrays | None = None, sample_weight: _Arrays | None = None
    ) -> dict[str, _Float32]: ...
    def apply_gradients(self, gradients: Mapping[str, ArrayLike]) -> None: ...
    def model(self) -> Model: ...
    def snapshot(self) -> Snapshot: ...
    def update_target(self, target: Snapshot | Trainer | Model, tau: float = 1.0) -> None: ...
    def restore(self, source: Snapshot | Trainer | Model) -> None: ...
    def calibrate_bn(self, x: _Arrays | Iterator[Any]) -> None: ...
    def get_weights(self, copy: bool = True) -> list[_Float32]: ...
    def set_lr(self, lr: float) -> None: ...
    def free(self) -> None: ...
    def close(self) -> None: ...
    def save_checkpoint(
        self,
        path: str | PathLike[str],
        keep: int = 1,
        objects: Mapping[str, Any] | None = None,
        extra: Any = None,
    ) -> None: ...
    @staticmethod
    def from_checkpoint(
        path: str | PathLike[str],
        model: Model | None = None,
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Trainer: ...
    def __enter__(self) -> Trainer: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
