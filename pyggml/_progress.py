"""Progress on stderr: a bar on a terminal or in a notebook, else a line an epoch."""

import os
import sys
import time
import warnings

# A bar is drawn anew at most so often.
_interval = 0.1


def _in_notebook():
    shell = sys.modules.get("IPython")
    if shell is None or shell.get_ipython() is None:
        return False
    return type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def _bar_class():
    """Return tqdm's class for where the output goes, or None for plain lines."""
    if _in_notebook():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it warns where widgets are missing
                import ipywidgets  # noqa: F401
                from tqdm.notebook import tqdm
        except ImportError:
            from tqdm import tqdm
    elif sys.stderr is not None and sys.stderr.isatty():
        from tqdm import tqdm
    else:
        return None
    # tqdm's monitor is a thread that would outlive the training; bars here are updated by time.
    return type("Bar", (tqdm,), {"monitor_interval": 0})


def _screen():
    """Return tqdm's arguments for a terminal that knows no size: it would draw nothing."""
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return {}
    return {} if size.columns and size.lines else {"ncols": 80, "nrows": 24}


def format_logs(logs):
    """Return losses and metrics as text."""
    return "  ".join(f"{key} {value:.4g}" for key, value in logs.items())


class Display:
    """Shows how training goes on.

    Parameters
    ----------
    verbose : {"auto", 0, 1, 2}
        Nothing, a bar where there can be one, plain lines.
    optimizer : Optimizer, optional
        Whose rate is shown.
    batches : int, optional
        In an epoch, where that is known.
    epochs : int
        Number of the last epoch, counted from 1.
    """

    def __init__(self, verbose, optimizer, batches=None, epochs=1):
        if verbose not in ("auto", 0, 1, 2):
            raise ValueError(f"verbose must be 'auto', 0, 1 or 2, got {verbose!r}")
        self.verbose = 1 if verbose == "auto" else verbose
        self.optimizer = optimizer
        self.batches = batches
        self.epochs = epochs
        self.bar = None
        self.bar_class = _bar_class() if self.verbose == 1 else None
        self.due = float("inf")
        self.done = 0

    def begin(self, epoch):
        """Start an epoch, or with None a prediction."""
        self.started = time.perf_counter()
        self.name = "predict" if epoch is None else f"epoch {epoch + 1}/{self.epochs}"
        if self.bar_class is not None:
            self.bar = self.bar_class(total=self.batches, desc=self.name, unit="batch",
                                      leave=True, miniters=1, mininterval=_interval,
                                      file=sys.stderr, **_screen())
            self.due = self.started + _interval

    def batch(self, done, meter=None):
        """Show the means of so many batches, if it is time to."""
        self.done = done
        if time.perf_counter() >= self.due:
            self.due = time.perf_counter() + _interval
            self._show({} if meter is None else meter.shown())

    def _show(self, logs):
        self.bar.set_postfix_str(self._text(logs), refresh=False)
        self.bar.update(self.done - self.bar.n)

    def _text(self, logs):
        text = format_logs(logs)
        if self.optimizer is not None and "learning_rate" not in logs:
            text += f"  lr {self.optimizer.learning_rate:.3g}"
        return text

    def end(self, epoch, logs):
        """Show the results of an epoch."""
        if self.bar is not None:
            self._show(logs)
            self.bar.refresh()
            self.abandon()
        elif self.verbose:
            seconds = time.perf_counter() - self.started
            print(f"{self.name}  {seconds:.2f} s  {self._text(logs)}", file=sys.stderr)

    def message(self, logs):
        """Show results that are of no epoch."""
        print(format_logs(logs), file=sys.stderr)

    def abandon(self):
        """Close the bar where it stands."""
        self.due = float("inf")
        if self.bar is not None:
            self.bar.close()
            self.bar = None
