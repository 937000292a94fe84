"""What models have for files."""

from __future__ import annotations

from os import PathLike

from pyggml import saving


class FileMethods:
    """Saving and loading, for models."""

    def save(self, path: str | PathLike[str], quantize: str | None = None,
             include_optimizer: bool = True, keep: int = 1) -> None:
        """Save architecture, weights, ``compile``'s arguments and optimizer state in a GGUF file.

        The file is written under another name in the same directory and takes its name when it
        is on the disk: whatever happens, there is a good file at ``path``. A symbolic link stays
        one. :func:`pyggml.load_model` loads it.

        Parameters
        ----------
        path : str or path-like
        quantize : {None, "f16", "bf16", "q8_0", "q4_K"}
            For prediction: weights of two and more axes in fewer bits, without the optimizer's
            state. Rows that are no multiple of a block (32 for q8_0, 256 for q4_K) are kept in
            f16, numbers beyond f16 in f32.
        include_optimizer : bool
            Whether training can go on from the file; without, it starts with new moments.
        keep : int
            How many files to keep: the one before is then at ``<path>.1``, and so on.

        Raises
        ------
        TypeError
            A layer, loss or function cannot be described: it has no ``get_config`` or no name.
        OSError
            With the path; what was there is still there.

        Examples
        --------
        >>> import os, tempfile
        >>> import pyggml
        >>> model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.gguf"), quantize="f16")
        """
        saving.save_model(self, path, quantize, include_optimizer, keep)

    def save_weights(self, path: str | PathLike[str], keep: int = 1) -> None:
        """Save the weights alone.

        Parameters
        ----------
        path : str or path-like
        keep : int
            As for :meth:`save`.
        """
        saving.save_weights(self, path, keep)

    def load_weights(self, path: str | PathLike[str], by_name: bool = False,
                     skip_mismatch: bool = False) -> list[str]:
        """Load weights from a file of :meth:`save_weights`, :meth:`save` or a checkpoint.

        The optimizer's state is neither loaded nor changed.

        Parameters
        ----------
        path : str or path-like
        by_name : bool
            False: weights are taken in order, and have to agree in the class of their layer,
            their name in it, and shape. True: by ``"layer/weight"`` and shape.
        skip_mismatch : bool
            With ``by_name``: load what fits.

        Returns
        -------
        list of str
            The weights that were not loaded; empty without ``skip_mismatch``.

        Raises
        ------
        FileFormatError
            A ``ValueError`` that lists what does not fit, or what is wrong with the file.
            Nothing is changed then, unless it says so: where another program writes to the file
            after it was checked, while it is read.
        OSError
            The file cannot be read.
        """
        return saving.load_weights(self, path, by_name, skip_mismatch)
