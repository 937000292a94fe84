from typing import Any, final

import numpy as np
from numpy.typing import NDArray

TYPES: dict[str, int]
NAMES: dict[int, str]
DTYPES: dict[str, np.dtype[Any]]

def layout(name: str) -> tuple[int, int]: ...

@final
class Checksum:
    def update(self, data: Any) -> None: ...
    def hexdigest(self) -> str: ...

def quantize(rows: NDArray[np.float32], name: str) -> NDArray[np.uint8]: ...
def dequantize(data: Any, name: str, out: NDArray[np.float32]) -> None: ...
