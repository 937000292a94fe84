"""Progress in notebooks, and by time instead of by batch."""

import importlib.util

import pytest
from child import run_child

from pyggml import _progress

_notebook = """
    import warnings
    warnings.simplefilter("ignore")
    import sys
    import IPython, numpy as np, pyggml
    from pyggml import _progress

    class ZMQInteractiveShell:  # how a notebook's shell is called
        pass

    IPython.get_ipython = ZMQInteractiveShell
    if {missing}:
        sys.modules["ipywidgets"] = None
    made = []
    chosen = _progress._bar_class()

    class Seen(chosen):
        def __init__(self, *a, **k):
            super().__init__(*a, **k)
            made.append(self)

    _progress._bar_class = lambda: Seen
    model = pyggml.Sequential([pyggml.Input((3,)), pyggml.layers.Dense(1)])
    model.compile("sgd", "mse")
    if {missing}:
        sys.stderr = sys.stdout
    model.fit(np.ones((64, 3)), np.ones(64), epochs=2, batch_size=8)
    assert [(bar.n, bar.total, bar.disable) for bar in made] == [(8, 8, True)] * 2, made
    print([base.__module__ for base in chosen.__mro__[:2]][1])
    if not {missing}:
        left, middle, right = made[0].container.children
        print(left.value, middle.value, middle.bar_style, right.value)
"""
needs_ipython = pytest.mark.skipif(
    importlib.util.find_spec("ipywidgets") is None or importlib.util.find_spec("IPython") is None,
    reason="needs IPython and ipywidgets")


@needs_ipython
def test_a_notebook_gets_widgets():
    lines = run_child(_notebook.format(missing=False)).splitlines()
    assert lines[-2] == "tqdm.notebook"
    shown = lines[-1].replace("\u2007", " ")
    assert "epoch 1/2: 100% 8.0 success" in shown and "loss " in shown


@needs_ipython
def test_a_notebook_without_widgets_gets_text():
    printed = run_child(_notebook.format(missing=True))
    assert "epoch 2/2: 100%" in printed.replace("\r", "\n")
    assert printed.splitlines()[-1] == "tqdm.std"


def test_the_bar_is_drawn_by_time_not_by_batch(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: now[0])
    drawn = []

    class Bar:
        n = 0

        def __init__(self, **arguments):
            pass

        def set_postfix_str(self, text, refresh):
            drawn.append((now[0], text))

        def update(self, n):
            self.n += n

        def refresh(self):
            pass

        def close(self):
            pass

    class Means:
        def shown(self):
            return {"loss": 0.5}

    monkeypatch.setattr(_progress, "_bar_class", lambda: Bar)
    monkeypatch.setattr(_progress, "_interval", 0.125)
    display = _progress.Display(1, None, 1000)
    display.begin(0)
    for batch in range(1000):
        now[0] = 0.03125 * batch
        display.batch(batch + 1, Means())
    assert [when for when, _ in drawn] == [0.125 * i for i in range(1, 250)]
    assert display.bar.n == 997
    display.end(0, {"loss": 0.25})
    assert drawn[-1][1] == "loss 0.25"
