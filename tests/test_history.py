"""History as lists, as a frame, as a figure; the layer graph as text and picture."""

import math

import numpy as np
import pytest

import pyggml
from pyggml import layers


def filled():
    history = pyggml.History()
    for epoch in range(5):
        logs = {"loss": 1 / (epoch + 1), "accuracy": epoch / 5}
        if epoch % 2:
            logs["val_loss"] = 2 / (epoch + 1)
        history.append(epoch + 10, logs)
    return history


def test_lists_and_columns():
    history = filled()
    assert history.epoch == [10, 11, 12, 13, 14]
    assert history.history["val_loss"] == [1.0, 0.5]
    column = history.column("val_loss")
    assert [math.isnan(v) for v in column] == [True, False, True, False, True]
    assert history.last() == {"loss": 0.2, "accuracy": 0.8}
    with pytest.raises(KeyError, match="it has loss, accuracy, val_loss"):
        history.column("nope")
    assert "5 epochs" in repr(history)


@pytest.mark.parametrize("value", ["low", [1.0, 2.0], None])
def test_a_value_that_is_no_number_is_named_and_adds_nothing(value):
    history = filled()
    with pytest.raises(TypeError, match=r"logs\['mood'\] must be a number, got"):
        history.append(15, {"loss": 0.1, "mood": value})
    assert len(history.epoch) == len(history.rows()) == len(history.history["loss"]) == 5


def test_frame_has_a_row_an_epoch():
    pandas = pytest.importorskip("pandas")
    frame = filled().to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.index.tolist() == [10, 11, 12, 13, 14] and frame.index.name == "epoch"
    assert frame["val_loss"].isna().tolist() == [True, False, True, False, True]


def test_figure_has_a_panel_a_metric(tmp_path):
    pytest.importorskip("matplotlib")
    figure = filled().plot()
    assert [a.get_ylabel() for a in figure.axes] == ["Loss", "Accuracy"]
    loss = figure.axes[0]
    assert [line.get_label() for line in loss.lines] == ["training", "validation"]
    assert loss.lines[1].get_xydata().tolist() == [[11, 1.0], [13, 0.5]]
    assert loss.lines[0].get_linestyle() != loss.lines[1].get_linestyle()
    figure.savefig(tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").stat().st_size > 1000


def test_figure_of_one_epoch_shows_points_at_its_number():
    pytest.importorskip("matplotlib")
    history = pyggml.History()
    history.append(3, {"loss": 1.0, "val_loss": 2.0})
    panel = history.plot().axes[0]
    assert panel.get_xticks().tolist() == [3]
    assert [line.get_marker() for line in panel.lines] == ["o", "o"]
    history.append(4, {"loss": 1.0})
    panel = history.plot().axes[0]
    assert [line.get_marker() for line in panel.lines] == ["None", "o"]
    assert all(tick == int(tick) for tick in panel.get_xticks())


def test_figure_on_given_axes():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2)
    history = filled()
    assert history.plot(ax=axes[0]) is axes[0].figure
    assert axes[0].get_ylabel() == "Loss"
    history.plot(["accuracy", "loss"], ax=axes)
    assert axes[0].get_ylabel() == "Accuracy"
    with pytest.raises(ValueError, match="2 axes for 1 metrics"):
        history.plot("loss", ax=axes)
    with pytest.raises(KeyError, match="nope"):
        history.plot("nope")


@pytest.mark.parametrize(("module", "call", "extra"), [
    ("pandas", "to_frame", "pandas"), ("matplotlib.figure", "plot", "examples")])
def test_missing_packages_are_named(monkeypatch, module, call, extra):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ImportError, match=rf"pyggml\[{extra}\]"):
        getattr(filled(), call)()


def test_the_model_keeps_the_history_of_its_last_fit():
    model = pyggml.Sequential([pyggml.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    assert model.history is None
    history = model.fit(np.ones((4, 2)), np.ones(4), verbose=0)
    assert model.history is history
    assert history.params["steps"] == 1


# ---- plot_model -------------------------------------------------------------------------------

def branches():
    x = pyggml.Input((4,), name="in")
    a = layers.Dense(3, name='a "quoted"')(x)
    b = layers.Dense(2, name="b")(x)
    return pyggml.Model(x, [a, b], name="two")


def test_dot_text_has_a_node_a_call_and_an_edge_an_input():
    text = pyggml.utils.model_to_dot(branches())
    assert text.startswith('digraph "two" {') and text.endswith("}\n")
    assert text.count("[label=") == 3 and text.count("->") == 2
    assert r'a \"quoted\" (Dense)\n(None, 3)' in text
    plain = pyggml.utils.model_to_dot(branches(), show_shapes=False, show_layer_names=False)
    assert '[label="Dense"]' in plain


def test_dot_files_need_no_package(tmp_path):
    path = tmp_path / "model.dot"
    assert pyggml.utils.plot_model(branches(), path) == str(path)
    assert path.read_text() == pyggml.utils.model_to_dot(branches())
    with pytest.raises(ValueError, match=r"must end in \.dot"):
        pyggml.utils.plot_model(branches(), tmp_path / "model.bmp")
    with pytest.raises(ValueError, match="rankdir"):
        pyggml.utils.model_to_dot(branches(), rankdir="XY")


def test_pictures_name_the_extra_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "graphviz", None)
    with pytest.raises(ImportError, match=r"pyggml\[plot\]"):
        pyggml.utils.plot_model(branches(), tmp_path / "model.png")


def test_pictures_come_from_graphviz(tmp_path):
    graphviz = pytest.importorskip("graphviz")
    path = tmp_path / "model.svg"
    try:
        graphviz.version()
    except graphviz.ExecutableNotFound:
        with pytest.raises(RuntimeError, match="dot is not installed"):
            pyggml.utils.plot_model(branches(), path)
        return
    pyggml.utils.plot_model(branches(), path)
    assert "<svg" in path.read_text()
