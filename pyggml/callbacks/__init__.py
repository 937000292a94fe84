"""Callbacks: what training calls at its turning points.

The hooks, their arguments and their order are Keras'. What differs: ``on_train_end`` is called
however training ends, by an exception or Ctrl-C too.
"""

from pyggml._backup import BackupAndRestore
from pyggml._callback import Callback, CallbackList, LambdaCallback
from pyggml.callbacks.logs import CSVLogger, ProgbarLogger, TensorBoard
from pyggml.callbacks.monitors import (
    EarlyStopping,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TerminateOnNaN,
)
from pyggml.schedules import LearningRateScheduler

__all__ = [
    "BackupAndRestore", "CSVLogger", "Callback", "CallbackList", "EarlyStopping", "LambdaCallback",
    "LearningRateScheduler", "ModelCheckpoint", "ProgbarLogger", "ReduceLROnPlateau",
    "TensorBoard", "TerminateOnNaN",
]
