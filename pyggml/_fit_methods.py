"""The methods of models that train, measure and predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyggml import _fitting, training
from pyggml._meter import Meter
from pyggml._snapshot import check_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from pyggml.history import History

# Arguments that were left out, or mean as much, are these very objects; bool 0 and array 0 are not.
_ZERO, _NONE = 0, ()


class FitMethods:
    """What :class:`pyggml.Model` offers for training.

    Attributes
    ----------
    stop_training : bool
        Set it, in a callback or from a signal handler, to end ``fit`` after the batch.
    history : History or None
        Of the last ``fit``, also of one that an exception ended.
    """

    stop_training: bool = False
    history: History | None = None

    if TYPE_CHECKING:  # what models bring
        compiled: Any
        _program: Any
        _predictor: Any
        require_compiled: Callable[[], None]
        _build_from: Callable[[Any], None]

    def fit(self, x=None, y=None, batch_size=32, epochs=1, verbose=1, callbacks=(),
            validation_split=0.0, validation_data=None, shuffle=True, class_weight=None,
            sample_weight=None, initial_epoch=0, steps_per_epoch=None, validation_steps=None,
            validation_batch_size=None, validation_freq=1, generator=None,
            validation_generator=None, calibration_generator=None, calibration_steps=None,
            nbatch_logical=None, shuffle_before_split=False, workers=0, seed=None) -> History:
        """Train on arrays, or on batches that a generator makes.

        The optimizer's state is kept: a second call goes on where the first stopped, and
        ``compile`` starts afresh.

        Parameters
        ----------
        x : array_like of shape (n, ...), or list or dict of them
            Any number of rows, any real dtype, strides and byte order; memory maps, pandas
            objects, and arrays in files (h5py, zarr), which are read batch by batch. Never
            copied as a whole. A generator here is the same as ``generator``.
        y : array_like of shape (n, ...), or list or dict of them
        batch_size : int
            The last batch of an epoch may be smaller, and is weighted by its rows. A
            generator's batches must have just so many rows.
        epochs : int
            How many to run. (In Keras it is the number of the last one.)
        verbose : {1, "auto", 0, 2}
            A progress bar (plain lines where the output is no terminal), the same, nothing,
            plain lines.
        callbacks : list of Callback
        validation_split : float
            In [0, 1): this share of the rows, from the end, is set apart for validation.
        validation_data : tuple, optional
            ``(x, y)`` or ``(x, y, sample_weight)``.
        shuffle : bool
            Whether rows are drawn in a new order every epoch. A generator decides for itself.
        class_weight : dict of int to float, optional
            Weights by class, multiplied with ``sample_weight``; for training only. All classes
            that are present must be there.
        sample_weight : array_like of shape (n,) or (n, outputs), optional
            Loss = sum(w * l) / N, never renormalised.
        initial_epoch : int
            Shifts the numbers of the epochs that callbacks, schedules and history see:
            ``initial_epoch=10, epochs=3`` runs epochs 10, 11 and 12.
        steps_per_epoch : int, optional
            Batches of an epoch; needed for a generator that never ends. Of arrays, the first so
            many in the epoch's order: the next epoch begins anew.
        validation_steps, validation_batch_size : int, optional
            The most batches of a validation, and their rows.
        validation_freq : int
            Validate after every so many epochs.
        generator : optional
            A callable without arguments that returns ``(x, y)`` or ``(x, y, sample_weight)`` or,
            at the end of an epoch, None; a generator function, an iterable (started anew every
            epoch), an iterator, a sequence of batches, a DataLoader. See
            :class:`pyggml.data.Stream`.
        validation_generator : optional
            The same for validation; its batches may have any number of rows.
        calibration_generator : optional
            Batches from which batch-norm statistics are computed after training where layers
            do not keep running ones (``momentum=None``): up to 1024 rows. By default training
            rows are used.
        calibration_steps : int, optional
            The most batches to draw for that.
        nbatch_logical : int, optional
            Rows between two updates, a multiple of ``batch_size``. What is left over at the end
            of an epoch makes an update of its own, averaged over its rows.
        shuffle_before_split : bool
            Whether rows are shuffled before ``validation_split`` takes the last ones.
        workers : int
            From 0 to 256: threads that prepare batches of a generator or a file ahead, in order.
        seed : int, optional
            For shuffles, splits and dropout. The order of an epoch then depends on the seed and
            its number alone; without, orders come from :func:`pyggml.set_seed`'s stream.

        Returns
        -------
        History

        Raises
        ------
        ValueError, TypeError
            Arguments that do not fit, before anything was computed; a generator's batch that
            does not, before its update.

        Notes
        -----
        What a generator or a callback raises comes out as it is. After an exception, Ctrl-C
        included, the model has the weights of the last update and can be used and trained
        further; gradients of a window (``nbatch_logical``) that was not full are dropped.

        Examples
        --------
        >>> import numpy as np
        >>> import pyggml
        >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> history = model.fit(np.ones((50, 4)), np.ones(50), epochs=3, verbose=0)
        >>> len(history.history["loss"])
        3
        """
        return _fitting.fit(
            self, x, y, batch_size=batch_size, epochs=epochs, verbose=verbose,
            callbacks=callbacks, validation_split=validation_split,
            validation_data=validation_data, shuffle=shuffle, class_weight=class_weight,
            sample_weight=sample_weight, initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch, validation_steps=validation_steps,
            validation_batch_size=validation_batch_size, validation_freq=validation_freq,
            generator=generator, validation_generator=validation_generator,
            calibration_generator=calibration_generator, calibration_steps=calibration_steps,
            nbatch_logical=nbatch_logical, shuffle_before_split=shuffle_before_split,
            workers=workers, seed=seed)

    def fit_generator(self, generator, steps_per_epoch=None, epochs=1, batch_size=32,
                      initial_epoch=0, validation_generator=None, validation_steps=None,
                      calibration_generator=None, calibration_steps=None, verbose=1,
                      callbacks=(), class_weight=None, nbatch_logical=None, workers=0,
                      seed=None) -> History:
        """Train on batches that a generator makes; only the current one is in memory.

        Parameters
        ----------
        generator, steps_per_epoch, epochs, batch_size, initial_epoch, validation_generator,
        validation_steps, calibration_generator, calibration_steps, verbose, callbacks,
        class_weight, nbatch_logical, workers, seed
            As for :meth:`fit`.

        Returns
        -------
        History

        Raises
        ------
        ValueError
            ``generator`` is None, and what :meth:`fit` raises.

        Examples
        --------
        >>> import numpy as np
        >>> import pyggml
        >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> rng = np.random.default_rng(1)
        >>> def batch():
        ...     x = rng.normal(size=(8, 4))
        ...     return x, x.sum(axis=1)
        >>> history = model.fit_generator(batch, steps_per_epoch=5, batch_size=8, verbose=0)
        >>> history.epoch
        [0]
        """
        if generator is None:
            raise ValueError("generator must be given")
        return self.fit(
            generator=generator, steps_per_epoch=steps_per_epoch, epochs=epochs,
            batch_size=batch_size, initial_epoch=initial_epoch,
            validation_generator=validation_generator, validation_steps=validation_steps,
            calibration_generator=calibration_generator, calibration_steps=calibration_steps,
            verbose=verbose, callbacks=callbacks, class_weight=class_weight,
            nbatch_logical=nbatch_logical, workers=workers, seed=seed)

    def evaluate(self, x, y=None, batch_size=32, sample_weight=None, return_dict=False,
                 steps=None, verbose=0, callbacks=(), workers=0) -> Any:
        """Return the loss, and the metrics if there are any, over all rows.

        Parameters
        ----------
        x, y, sample_weight
            As for :meth:`fit`; or x is a generator, whose batches may have any number of rows.
        batch_size : int
            Does not change the result beyond rounding.
        return_dict : bool
        steps : int, optional
            The most batches to look at.
        verbose : int
            Whether to print the result.
        callbacks : list of Callback
        workers : int
            As for :meth:`fit`.

        Returns
        -------
        float, list of float or dict of str to float
            The loss; or the loss, the losses of the outputs if there are several, and metrics.
            Loss = sum(w * l) / N over all rows: that of the predictions, without the penalties of
            regularizers, which training adds.
        """
        logs = training.evaluate(self, x, y, batch_size, sample_weight, steps, callbacks, verbose,
                                 workers)
        return _result(logs, return_dict)

    def predict(self, x, batch_size=None, matmul_precision=None, steps=None, callbacks=(),
                workers=0, verbose=0) -> NDArray[np.float32] | Any:
        """Return the outputs in evaluation mode.

        Parameters
        ----------
        x : array_like of shape (n, ...), or list or dict of them
            Of any kind that :meth:`fit` takes; or a generator of x, or of tuples that begin
            with x. Rows of float32 in C order are read where they lie, without the GIL: another
            thread must not change them meanwhile.
        batch_size : int, optional
            Rows computed at once. By default 32, as in Keras, where callbacks, ``steps`` or a
            progress bar count batches; else from 32 to 512, the fewer the wider the layers.
        matmul_precision : {None, "default", "float32"}
            ggml's hint for matrix products; on the CPU all are float32.
        steps : int, optional
            The most batches to look at.
        callbacks : list of Callback
        workers : int
            As for :meth:`fit`.
        verbose : {0, 1, 2, "auto"}
            Whether to show progress.

        Returns
        -------
        numpy.ndarray of float32, or list of them for several outputs
            Arrays that own their memory.
        """
        if (matmul_precision is None and steps is None and callbacks is _NONE
                and workers is _ZERO and verbose is _ZERO and self._program is not None):
            # Nothing to show or to tell: the short way, for one observation after another.
            found = self._predictor.predict_plain(x, batch_size)
            if found is not None:
                return found
        check_precision(matmul_precision)
        found = training.predict(self, x, batch_size, steps, callbacks, workers, verbose)
        return found[0] if len(found) == 1 else found

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None,
                       return_dict: bool = False) -> float | list[float] | dict[str, float]:
        """Make one step on all rows of x, with the optimizer that ``fit`` goes on with.

        A :class:`pyggml.Trainer` does the same faster. Statistics of batch norm layers without a
        momentum stay as they are, with a warning: ``fit`` computes them at its end.

        Parameters
        ----------
        x, y, sample_weight, class_weight
            As for :meth:`fit`.
        return_dict : bool

        Returns
        -------
        float, list of float or dict of str to float
            As :meth:`evaluate`: what was measured before the update, with dropout.

        Examples
        --------
        >>> import numpy as np
        >>> import pyggml
        >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> losses = [model.train_on_batch(np.ones((8, 4)), np.ones(8)) for _ in range(2)]
        >>> losses[1] < losses[0]
        True
        """
        return _result(_fitting.train_on_batch(self, x, y, sample_weight, class_weight),
                       return_dict)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict: bool = False
                      ) -> float | list[float] | dict[str, float]:
        """Measure on all rows of x at once; otherwise as :meth:`evaluate`.

        Parameters
        ----------
        x, y, sample_weight, return_dict
            As for :meth:`evaluate`.

        Returns
        -------
        float, list of float or dict of str to float
        """
        self._build_from(x)
        return self.evaluate(x, y, max(1, training.rows_of(self, x)), sample_weight, return_dict)

    def predict_on_batch(self, x) -> NDArray[np.float32] | Any:
        """Predict all rows of x at once; otherwise as :meth:`predict`.

        Parameters
        ----------
        x : array_like of shape (n, ...), or list or dict of them

        Returns
        -------
        numpy.ndarray of float32, or list of them for several outputs
        """
        self._build_from(x)
        return self.predict(x, max(1, training.rows_of(self, x)))

    @property
    def metrics_names(self) -> list[str]:
        """Names of what :meth:`evaluate` returns, in its order."""
        self.require_compiled()
        compiled = self.compiled
        return Meter(compiled.criterion, compiled.make_metrics()).names

    def predict_proba(self, x, batch_size: int = 32) -> NDArray[np.float32]:
        """Return the outputs as probabilities.

        Parameters
        ----------
        x, batch_size
            As for :meth:`predict`.

        Returns
        -------
        numpy.ndarray of float32
            What the model gives; softmax or sigmoid of it where the model was compiled with a
            loss of logits (``from_logits=True``).
        """
        return training.probabilities(self, self.predict(x, batch_size))

    def predict_classes(self, x, batch_size: int = 32) -> NDArray[np.int64]:
        """Return the most probable class of each row.

        Parameters
        ----------
        x, batch_size
            As for :meth:`predict`.

        Returns
        -------
        numpy.ndarray of int64
            The last axis is gone. With one output, 1 where its probability is above 0.5.
        """
        return training.classes(self, self.predict(x, batch_size))


def _result(logs, return_dict):
    if return_dict:
        return logs
    values = list(logs.values())
    return values[0] if len(values) == 1 else values
