"""Callbacks: hooks in Keras' order, and what each one does at its edges."""

import csv

import numpy as np
import pytest

import pyggml
from pyggml import callbacks, layers, optimizers

X, Y = np.ones((6, 1), np.float32), np.ones(6, np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def model_of(rate=0.1, metrics=None):
    model = pyggml.Sequential([pyggml.Input((1,)), layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizers.SGD(rate), "mse", metrics)
    return model


class Script(callbacks.Callback):
    """Puts values into the logs."""

    def __init__(self, name, values):
        super().__init__()
        self.name, self.values = name, values

    def on_epoch_end(self, epoch, logs=None):
        if self.values[epoch] is not None:
            logs[self.name] = self.values[epoch]


class Recorder(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls = []


def _record(name):
    def hook(self, *arguments):
        self.calls.append((name[3:], *[a if isinstance(a, int) else sorted(a or ())
                                       for a in arguments]))
    return hook


for _name in [n for n in vars(callbacks.Callback) if n.startswith("on_")]:
    setattr(Recorder, _name, _record(_name))


def test_hooks_come_in_keras_order():
    recorder = Recorder()
    model_of().fit(X, Y, batch_size=3, epochs=1, verbose=0, validation_data=(X, Y),
                   callbacks=[recorder])
    names = [call[0] for call in recorder.calls]
    test = ["test_begin", "test_batch_begin", "test_batch_end", "test_batch_begin",
            "test_batch_end", "test_end"]
    assert names == ["train_begin", "epoch_begin",
                     *["train_batch_begin", "train_batch_end"] * 2, *test, "epoch_end",
                     "train_end"]
    assert ("epoch_end", 0, ["loss", "val_loss"]) in recorder.calls
    assert ("train_batch_end", 1, ["loss"]) in recorder.calls
    assert recorder.calls[-1] == ("train_end", ["loss", "val_loss"])


def test_batch_logs_are_means_so_far():
    seen = []
    model_of(0.0).fit(X, [0, 0, 0, 2, 2, 2], batch_size=3, shuffle=False, verbose=0, callbacks=[
        callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: seen.append(logs["loss"]))])
    assert seen == [0, 2]


def test_on_batch_hooks_are_called_too():
    class Old(callbacks.Callback):
        n = 0

        def on_batch_end(self, batch, logs=None):
            self.n += 1

    old = Old()
    model_of().fit(X, Y, batch_size=2, verbose=0, callbacks=old)
    assert old.n == 3


def test_params_tell_how_training_is_run():
    recorder = Recorder()
    model_of(metrics=["mae"]).fit(X, Y, batch_size=2, epochs=2, initial_epoch=3, verbose=0,
                                  validation_split=0.5, callbacks=[recorder])
    assert recorder.params == {
        "epochs": 5, "steps": 2, "verbose": 0, "initial_epoch": 3, "batch_size": 2,
        "metrics": ["loss", "mae", "val_loss", "val_mae"]}


def test_train_end_is_called_however_training_ends():
    first, last = Recorder(), Recorder()
    fail = callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model_of().fit(X, Y, verbose=0, callbacks=[first, fail, last])
    assert first.calls[-1] == last.calls[-1] == ("train_end", [])


def test_a_callback_list_serves_a_loop_of_your_own():
    recorder = Recorder()
    hooks = callbacks.CallbackList([recorder], model_of(), {"steps": 1})
    hooks.append(callbacks.TerminateOnNaN())
    hooks.on_train_begin()
    hooks.on_epoch_end(0, {"loss": 1.0})
    hooks.on_train_end()
    assert [call[0] for call in recorder.calls] == ["train_begin", "epoch_end", "train_end"]
    assert len(hooks) == 2
    with pytest.raises(TypeError, match="Callback objects, got function"):
        callbacks.CallbackList([lambda: None])


def test_a_callback_added_later_is_told_what_the_others_were():
    model, late = model_of(), Recorder()
    hooks = callbacks.CallbackList([Recorder()], model, {"steps": 1})
    hooks.append(late)
    assert late.model is model and late.params == hooks.params == {"steps": 1}
    with pytest.raises(TypeError, match="Callback objects"):
        hooks.append("late")
    assert len(hooks) == 2 and hooks.params == {"steps": 1}


def test_lambda_callback_refuses_names_that_are_no_hook():
    with pytest.raises(TypeError, match="'on_epoch' is no hook"):
        callbacks.LambdaCallback(on_epoch=print)
    with pytest.raises(TypeError, match="must be callable"):
        callbacks.LambdaCallback(on_epoch_end=3)


# ---- EarlyStopping ----------------------------------------------------------------------------

def epochs_until(values, monitor="v", **arguments):
    stopping = callbacks.EarlyStopping(monitor, **arguments)
    history = model_of().fit(X, Y, epochs=len(values), verbose=0,
                             callbacks=[Script(monitor, values), stopping])
    return len(history.epoch), stopping


def test_arguments_in_the_order_of_keras_are_refused_where_ours_differs():
    with pytest.raises(TypeError, match="positional"):
        callbacks.EarlyStopping("val_loss", 0, 5)
    with pytest.raises(TypeError, match="positional"):
        callbacks.ReduceLROnPlateau("val_loss", 0.2, 5, 1)


def test_a_flat_value_with_patience_2_ends_after_3_epochs():
    assert epochs_until([1.0] * 9, patience=2)[0] == 3


@pytest.mark.parametrize(("monitor", "mode"), [
    ("val_loss", "min"), ("loss", "min"), ("out_loss", "min"), ("accuracy", "max"),
    ("val_auc", "max"), ("mae", "min"), ("v", "max"),
])
def test_auto_mode(monitor, mode):
    assert callbacks.EarlyStopping(monitor).mode == mode


def test_an_improvement_resets_the_wait():
    assert epochs_until([1, 1, 2, 2, 3, 3, 3, 3], patience=2)[0] == 7


def test_min_delta_sets_what_counts():
    assert epochs_until([1, 1.05, 1.1, 1.15, 1.2], patience=2, min_delta=0.5)[0] == 3
    assert epochs_until([1, 2, 3, 4, 5], patience=2, min_delta=0.5)[0] == 5


def test_start_from_epoch_and_baseline():
    assert epochs_until([1] * 8, patience=2, start_from_epoch=3)[0] == 6
    assert epochs_until([1, 2, 3, 4, 5, 6], patience=2, baseline=9)[0] == 2


def test_the_best_epoch_is_restored_even_if_none_reached_the_baseline():
    weights = []
    model = model_of()
    stopping = callbacks.EarlyStopping("v", patience=4, baseline=9, restore_best_weights=True)
    history = model.fit(X, Y, epochs=6, verbose=0, callbacks=[
        Script("v", [1, 3, 2, 2, 2, 2]), stopping, callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: weights.append(model.get_weights()))])
    assert len(history.epoch) == 4 and (stopping.best, stopping.best_epoch) == (3, 1)
    assert all((a == b).all() for a, b in zip(model.get_weights(), weights[1], strict=True))


def test_the_wait_begins_anew_only_beyond_the_baseline():
    assert epochs_until([1, 2, 9.5, 9.5, 9.6, 9.6, 9.6], patience=3, baseline=9)[0] == 7


def test_nan_is_passed_over_with_one_warning():
    with pytest.warns(RuntimeWarning, match="v is NaN") as caught:
        n, stopping = epochs_until([1, np.nan, np.nan, np.nan, 2], patience=2)
    assert n == 5 and stopping.best == 2 and stopping.best_epoch == 4
    assert len(caught) == 1


def test_a_value_that_goes_missing_is_passed_over_with_one_warning():
    with pytest.warns(RuntimeWarning, match="v is missing") as caught:
        assert epochs_until([1, None, None, None, 2], patience=2)[0] == 5
    assert len(caught) == 1


def test_epochs_without_validation_do_not_count():
    stopping = callbacks.EarlyStopping(patience=2)
    history = model_of(0.0).fit(X, Y, epochs=12, verbose=0, validation_data=(X, Y),
                                validation_freq=3, callbacks=[stopping])
    assert len(history.epoch) == 9


def test_a_second_fit_starts_the_wait_anew_and_a_state_goes_on():
    model = model_of(0.0)
    stopping = callbacks.EarlyStopping("loss", patience=3)
    assert len(model.fit(X, Y, epochs=2, verbose=0, callbacks=[stopping]).epoch) == 2
    state = stopping.get_state()
    assert len(model.fit(X, Y, epochs=9, verbose=0, callbacks=[stopping]).epoch) == 4
    resumed = callbacks.EarlyStopping("loss", patience=3)
    resumed.set_state(state)
    assert len(model.fit(X, Y, epochs=9, initial_epoch=2, verbose=0,
                         callbacks=[resumed]).epoch) == 2


@pytest.mark.parametrize("arguments", [{"patience": -1}, {"mode": "up"}, {"patience": 1.5},
                                       {"monitor": 3}, {"min_delta": np.nan},
                                       {"baseline": np.nan}])
def test_bad_arguments_of_early_stopping(arguments):
    with pytest.raises((TypeError, ValueError), match=next(iter(arguments))):
        callbacks.EarlyStopping(**arguments)


# ---- ReduceLROnPlateau ------------------------------------------------------------------------

def rates(values, **arguments):
    plateau = callbacks.ReduceLROnPlateau("v", mode="min", **arguments)
    return model_of(0.1).fit(X, Y, epochs=len(values), verbose=0, callbacks=[
        Script("v", values), plateau]).history["learning_rate"]


def test_the_rate_is_cut_after_patience_and_the_wait_resets():
    assert rates([1] * 7, patience=2) == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025])


def test_cooldown_delays_the_next_cut():
    assert rates([1] * 7, patience=1, cooldown=2) == pytest.approx(
        [0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125])


def test_the_rate_stops_at_its_minimum():
    assert rates([1] * 6, patience=1, factor=0.1, min_lr=0.004) == pytest.approx(
        [0.1, 0.1, 0.01, 0.004, 0.004, 0.004])


def test_defaults_are_the_references():
    plateau = callbacks.ReduceLROnPlateau()
    assert (plateau.monitor, plateau.factor, plateau.patience, plateau.min_lr, plateau.min_delta,
            plateau.mode) == ("val_loss", 0.5, 5, 1e-7, 1e-4, "min")
    stopping = callbacks.EarlyStopping()
    assert (stopping.monitor, stopping.patience, stopping.min_delta, stopping.mode) == (
        "val_loss", 5, 0, "min")


@pytest.mark.parametrize("arguments", [{"factor": 1.0}, {"factor": 0}, {"min_lr": -1}])
def test_bad_arguments_of_the_plateau(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        callbacks.ReduceLROnPlateau(**arguments)


# ---- ModelCheckpoint --------------------------------------------------------------------------

def checkpoints(values, path="{epoch:02d}", **arguments):
    saved = []
    checkpoint = callbacks.ModelCheckpoint(path, "v", mode="min",
                                           save=lambda model, p: saved.append(p), **arguments)
    model_of().fit(X, Y, batch_size=2, epochs=len(values), verbose=0,
                   callbacks=[Script("v", values), checkpoint])
    return saved


def test_checkpoints_every_epoch_or_only_the_best():
    assert checkpoints([3, 1, 2]) == ["01", "02", "03"]
    assert checkpoints([3, 1, 2, 0], save_best_only=True) == ["01", "02", "04"]
    assert checkpoints([3, 1], save_best_only=True, initial_value_threshold=2) == ["02"]
    assert checkpoints([0.25], "m-{epoch}-{v:.1f}") == ["m-1-0.2"]


def test_checkpoints_by_batches():
    assert checkpoints([1, 1, 1, 1], save_freq=5) == ["02", "04"]


def test_a_path_that_names_what_is_not_logged_says_what_is():
    with pytest.raises(ValueError, match="'nope', which is not in the logs; they have epoch, loss"):
        checkpoints([1], "{nope}")


def test_checkpoints_call_the_models_method():
    model = model_of()
    saved = []
    model.save = saved.append
    model.save_weights = lambda path: saved.append(f"weights {path}")
    for weights_only in (False, True):
        model.fit(X, Y, verbose=0, callbacks=[
            callbacks.ModelCheckpoint("m.gguf", save_weights_only=weights_only)])
    assert saved == ["m.gguf", "weights m.gguf"]


def test_a_failed_save_comes_out_and_the_best_stays():
    def save(model, path):
        raise OSError("disk is full")

    checkpoint = callbacks.ModelCheckpoint("m", "loss", save_best_only=True, save=save)
    with pytest.raises(OSError, match="disk is full"):
        model_of().fit(X, Y, verbose=0, callbacks=[checkpoint])
    assert checkpoint.best == np.inf


# ---- the others -------------------------------------------------------------------------------

def test_csv_logger_writes_appends_and_leaves_out(tmp_path):
    path = tmp_path / "log.csv"
    model = model_of()
    for first in (0, 2):
        model.fit(X, Y, epochs=2, initial_epoch=first, verbose=0, validation_data=(X, Y),
                  validation_freq=2, callbacks=[callbacks.CSVLogger(path, append=first > 0)])
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    assert list(rows[0]) == ["epoch", "loss", "val_loss"]
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["val_loss"] == "" for row in rows] == [True, False, True, False]
    assert float(rows[3]["loss"]) == model.history.history["loss"][1]


def test_csv_logger_says_what_the_header_of_an_older_file_lacks(tmp_path):
    path = tmp_path / "log.csv"
    model_of().fit(X, Y, verbose=0, callbacks=[callbacks.CSVLogger(path)])
    with pytest.warns(RuntimeWarning, match="has no column for mae, val_loss, val_mae") as caught:
        model_of(metrics=["mae"]).fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y),
                                      callbacks=[callbacks.CSVLogger(path, append=True)])
    assert len(caught) == 1
    assert [len(line.split(",")) for line in path.read_text().splitlines()] == [2] * 4


def test_csv_logger_closes_its_file_after_an_error(tmp_path):
    logger = callbacks.CSVLogger(tmp_path / "log.csv")
    fail = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model_of().fit(X, Y, verbose=0, callbacks=[logger, fail])
    assert logger._file is None
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 2


def test_terminate_on_nan_ends_in_the_batch():
    model = model_of()
    x = X.copy()
    x[2] = np.inf
    stop = callbacks.TerminateOnNaN()
    with pytest.warns(RuntimeWarning, match="the loss is"):
        history = model.fit(x, Y, batch_size=1, shuffle=False, epochs=5, verbose=0,
                            callbacks=[stop])
    assert stop.stopped and history.epoch == [0]
    assert model.compiled.trainer.n_steps == 3
    assert not np.isfinite(history.history["loss"][0])


def test_progbar_logger_in_a_loop_of_your_own(capsys):
    hooks = callbacks.CallbackList([callbacks.ProgbarLogger()], model_of(), {"steps": 2,
                                                                              "epochs": 1})
    hooks.on_train_begin()
    hooks.on_epoch_begin(0)
    hooks.on_train_batch_end(0, {"loss": 2.0})
    hooks.on_epoch_end(0, {"loss": 2.0})
    hooks.on_train_end()
    assert "epoch 1/1" in capsys.readouterr().err


def test_tensorboard_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pyggml\[tensorboard\]"):
        callbacks.TensorBoard()


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_writes_event_files(tmp_path):
    pytest.importorskip("tensorboardX")
    model_of().fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y),
                   callbacks=[callbacks.TensorBoard(tmp_path, histogram_freq=1, update_freq=1)])
    for name in ("train", "validation"):
        files = list((tmp_path / name).glob("events*"))
        assert len(files) == 1 and b"epoch_loss" in files[0].read_bytes()


def test_logs_of_batches_are_computed_only_for_those_who_listen():
    end, schedule = Recorder(), pyggml.schedules.OneCycle(1.0)
    assert callbacks.CallbackList([end]).end_hooks and callbacks.CallbackList([end]).begin_hooks
    by_step = callbacks.CallbackList([schedule])
    assert by_step.begin_hooks and not by_step.end_hooks
    by_epoch = callbacks.CallbackList([
        pyggml.schedules.StepDecay(), callbacks.EarlyStopping(), callbacks.ModelCheckpoint("m")])
    assert not by_epoch.begin_hooks and not by_epoch.end_hooks
    assert callbacks.CallbackList([callbacks.ModelCheckpoint("m", save_freq=2)]).end_hooks


def test_a_checkpoint_by_batches_says_that_they_have_no_validation(tmp_path):
    keep = callbacks.ModelCheckpoint(tmp_path / "m.gguf", save_best_only=True, save_freq=1)
    with pytest.warns(RuntimeWarning, match="val_loss is not in the logs of batches") as caught:
        model_of().fit(X, Y, batch_size=2, verbose=0, validation_data=(X, Y), callbacks=[keep])
    assert len(caught) == 1 and keep.last_path is None
