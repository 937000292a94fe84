"""What ``fit`` returns."""

from __future__ import annotations

import math
from typing import Any

from pyggml._scalars import number


class History:
    """Losses and metrics of each epoch.

    Attributes
    ----------
    epoch : list of int
        Numbers of the epochs that were run.
    history : dict of str to list of float
        One value an epoch for ``loss``, every metric, and ``val_`` of each; those of validation
        only for the epochs in which there was one.
    params : dict
        What the callbacks were told.

    Examples
    --------
    >>> import pyggml
    >>> history = pyggml.History()
    >>> history.append(0, {"loss": 0.5, "accuracy": 0.75})
    >>> history.history["loss"]
    [0.5]
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}
        self.params: dict[str, Any] = {}
        self._rows: list[dict[str, float]] = []

    def append(self, epoch, logs):
        """Add one epoch.

        Parameters
        ----------
        epoch : int
        logs : dict of str to float

        Raises
        ------
        TypeError
            A value that is no number; nothing is added then.
        """
        row = {key: number(value, f"logs[{key!r}]") for key, value in logs.items()}
        self.epoch.append(epoch)
        self._rows.append(row)
        for key, value in row.items():
            self.history.setdefault(key, []).append(value)

    def rows(self):
        """Return a list of (epoch, logs), one an epoch."""
        return [(e, dict(row)) for e, row in zip(self.epoch, self._rows, strict=True)]

    def last(self):
        """Return the logs of the last epoch, empty where there is none."""
        return dict(self._rows[-1]) if self._rows else {}

    def column(self, name: str) -> list[float]:
        """Return one value an epoch, NaN where there was none.

        Parameters
        ----------
        name : str

        Raises
        ------
        KeyError
            No epoch has it; the message lists what there is.
        """
        if name not in self.history:
            raise KeyError(f"{name!r} is not in the history; it has {', '.join(self.history)}")
        return [row.get(name, math.nan) for row in self._rows]

    def to_frame(self):
        """Return a pandas DataFrame with a row an epoch, indexed by its number.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ImportError
            pandas is missing; it comes with ``pip install 'pyggml[pandas]'``.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("History.to_frame needs pandas: pip install 'pyggml[pandas]'"
                              ) from error
        columns = {name: self.column(name) for name in self.history}
        return pandas.DataFrame(columns, index=pandas.Index(self.epoch, name="epoch"))

    def plot(self, metrics=None, ax=None):
        """Draw losses and metrics over the epochs, one panel each, for print.

        Parameters
        ----------
        metrics : str or list of str, optional
            Names without ``val_``; by default the loss and all metrics of training.
        ax : matplotlib.axes.Axes or list of them, optional
            One a metric; by default of a new figure, a column of text wide a panel.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is missing; it comes with ``pip install 'pyggml[examples]'``.
        KeyError
            A metric that is not in the history.
        ValueError
            Another number of axes than of metrics.
        """
        try:
            from matplotlib.figure import Figure
            from matplotlib.ticker import MaxNLocator
        except ImportError as error:
            raise ImportError("History.plot needs matplotlib: pip install 'pyggml[examples]'"
                              ) from error
        if metrics is None:
            metrics = ["loss"] if ax is not None and not _many(ax) else [
                name for name in self.history
                if name != "learning_rate" and not (
                    name.startswith("val_") and name[4:] in self.history)]
        elif isinstance(metrics, str):
            metrics = [metrics]
        for name in metrics:
            self.column(name)
        axes = None if ax is None else list(ax) if _many(ax) else [ax]
        if axes is None:
            axes = _new_axes(Figure, len(metrics))
        if len(axes) != len(metrics):
            raise ValueError(f"ax has {len(axes)} axes for {len(metrics)} metrics {metrics}")
        for i, (panel, name) in enumerate(zip(axes, metrics, strict=True)):
            # Okabe and Ito's colours, told apart by everybody; dashes for grey prints.
            panel.plot(self.epoch, self.column(name), color="#0072B2",
                       marker=_marker(self.epoch), label="training")
            if f"val_{name}" in self.history:
                values = self.column(f"val_{name}")
                shown = [(e, v) for e, v in zip(self.epoch, values, strict=True) if v == v]
                panel.plot(*zip(*shown, strict=True), color="#D55E00", linestyle="--",
                           marker=_marker(shown), label="validation")
                if i == 0:
                    panel.legend(frameon=False)
            panel.set_xlabel("Epoch")
            panel.set_ylabel(name.replace("_", " ").capitalize())
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            if len(self.epoch) == 1:  # an axis of no length would get fractions for ticks
                panel.set_xlim(self.epoch[0] - 1, self.epoch[0] + 1)
                panel.set_xticks(self.epoch)
            panel.spines[["top", "right"]].set_visible(False)
        return axes[0].figure

    def __repr__(self):
        return f"<History of {len(self.epoch)} epochs: {', '.join(self.history)}>"


def _marker(points):
    """A line of one point is not seen."""
    return "o" if len(points) == 1 else None


def _many(ax):
    return hasattr(ax, "__len__")


def _new_axes(Figure, n):
    """Return panels of a new figure; in a notebook, or with pyplot in use, one that is shown."""
    import sys

    size = (3.4 * n, 2.5)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        figure = Figure(figsize=size, layout="constrained")
    else:
        figure = pyplot.figure(figsize=size, layout="constrained")
    return list(figure.subplots(1, n, squeeze=False)[0])
