"""What ``fit`` returns."""


class History:
    """Losses and metrics of each epoch.

    Attributes
    ----------
    epoch : list of int
        Numbers of the epochs that were run.
    history : dict of str to list of float
        One value an epoch for ``loss``, every metric, and ``val_`` of each.
    """

    def __init__(self):
        self.epoch = []
        self.history = {}

    def append(self, epoch, logs):
        """Add one epoch."""
        self.epoch.append(epoch)
        for key, value in logs.items():
            self.history.setdefault(key, []).append(value)

    def plot(self, ax=None):
        """Draw the losses over the epochs.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default of a new figure.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is missing; it comes with ``pip install 'pyggml[examples]'``.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("History.plot needs matplotlib: pip install 'pyggml[examples]'"
                              ) from error
        if ax is None:
            _, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
        names = {"loss": "training", "val_loss": "validation"}
        for key, label in names.items():
            if key in self.history:
                ax.plot(self.epoch, self.history[key], label=label)
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss")
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        return ax.figure

    def __repr__(self):
        return f"<History of {len(self.epoch)} epochs: {', '.join(self.history)}>"
