"""BackupAndRestore: a training that is killed anywhere ends as one that was not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import backup_job
import numpy as np
import pytest

import pyggml
from pyggml import callbacks, checkpoints, hpc, layers, optimizers, schedules

JOB = Path(backup_job.__file__)


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def start(case, folder, strike):
    """Run the job in a process of its own; return its exit status."""
    return subprocess.run([sys.executable, str(JOB), case, str(folder), f"{folder}.json",
                           str(strike)], check=False).returncode


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("case", backup_job.CASES)
def test_a_killed_training_goes_on_at_the_very_batch_bit_for_bit(case, tmp_path):
    straight = backup_job.run(case, str(tmp_path / "straight"))
    assert not (tmp_path / "straight").exists()
    # Within the first epoch, on the last batch of an epoch, and inside a window.
    folder = tmp_path / "run"
    assert start(case, folder, 5) == hpc.EXIT_REQUEUE
    assert start(case, folder, -11) == -signal.SIGKILL
    assert start(case, folder, 14) == hpc.EXIT_REQUEUE
    assert start(case, folder, 0) == 0
    found = json.loads((tmp_path / "run.json").read_text())
    # The killed process had saved after 9 batches of its own; the others at once.
    assert found.pop("batches") == straight.pop("batches") - 5 - 9 - 14
    assert found == json.loads(json.dumps(straight))
    assert not folder.exists()


@pytest.mark.parametrize("strike", range(1, 14, 3))
def test_every_place_of_an_epoch_can_be_resumed(strike, tmp_path):
    straight = backup_job.run("window", str(tmp_path / "straight"))

    class Stop(Exception):
        pass

    class Handler:
        """Asks to stop after so many looks."""

        looks = 0

        @property
        def requested(self):
            self.looks += 1
            return self.looks == strike

    def fit(handler):
        pyggml.set_seed(8)
        model = backup_job.network("adam")
        backup = callbacks.BackupAndRestore(tmp_path / "run", save_freq=1, handler=handler)
        history = model.fit(*backup_job.data(), batch_size=backup_job.BATCH, verbose=0,
                            epochs=backup_job.EPOCHS, nbatch_logical=12, callbacks=[backup])
        return model, history

    with pytest.raises(SystemExit) as stopped:
        fit(Handler())
    assert stopped.value.code == hpc.EXIT_REQUEUE
    with checkpoints.load(tmp_path / "run" / "training.ckpt") as saved:
        assert saved.n_steps == strike
        assert saved.extra["fit"]["step"] == strike
    _, history = fit(None)
    for name in ("mae", "r2"):
        assert len(history.history[name]) == len(straight["history"][name])
    # Without the other callbacks of the job the rate is another; the sums within agree.
    plain = pyggml.set_seed(8) or backup_job.network("adam")
    wanted = plain.fit(*backup_job.data(), batch_size=backup_job.BATCH, verbose=0,
                       epochs=backup_job.EPOCHS, nbatch_logical=12)
    assert history.history == wanted.history


def linear(name="d"):
    model = pyggml.Sequential([pyggml.Input((3,), name="x"), layers.Dense(1, name=name)])
    model.compile(optimizers.Adam(0.01), "mse")
    return model


X = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
Y = X.sum(axis=1)


def interrupted(folder, at=2, model=None, extra=(), **arguments):
    """Leave a backup of a training that an exception ended at the beginning of an epoch."""
    def stop(epoch, logs):
        if epoch == at:
            raise ZeroDivisionError

    model = linear() if model is None else model
    with pytest.raises(ZeroDivisionError):
        model.fit(X, Y, batch_size=4, epochs=5, verbose=0, callbacks=[
            callbacks.BackupAndRestore(folder, **arguments), *extra,
            callbacks.LambdaCallback(on_epoch_begin=stop)])
    return model


def test_a_backup_stays_after_an_exception_and_is_deleted_at_the_end(tmp_path):
    interrupted(tmp_path / "b")
    assert os.listdir(tmp_path / "b") == ["training.ckpt"]
    backup = callbacks.BackupAndRestore(tmp_path / "b")
    model = linear()
    history = model.fit(X, Y, batch_size=4, epochs=5, verbose=0, callbacks=[backup])
    assert backup.restored == str(tmp_path / "b" / "training.ckpt")
    assert history.epoch == [0, 1, 2, 3, 4]
    assert model.compiled.trainer.n_steps == 25
    assert not (tmp_path / "b").exists()


def test_other_files_in_the_directory_are_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("text")
    linear().fit(X, Y, verbose=0, callbacks=[callbacks.BackupAndRestore(tmp_path)])
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_delete_checkpoint_false_keeps_it_and_a_finished_training_is_not_repeated(tmp_path):
    for runs in range(2):
        model = linear()
        backup = callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
        history = model.fit(X, Y, epochs=3, verbose=0, callbacks=[backup])
        assert history.epoch == [0, 1, 2]
        assert model.compiled.trainer.n_steps == 3
        assert (backup.restored is None) is (runs == 0)


def test_double_checkpoint_falls_back_on_the_one_before(tmp_path):
    interrupted(tmp_path, at=3, double_checkpoint=True)
    newest = tmp_path / "training.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    backup = callbacks.BackupAndRestore(tmp_path, double_checkpoint=True)
    model = linear()
    model.fit(X, Y, batch_size=4, epochs=5, verbose=0, callbacks=[backup])
    assert backup.restored == str(newest) + ".1"
    assert model.compiled.trainer.n_steps == 25
    assert os.listdir(tmp_path.parent).count(tmp_path.name) == 0


def test_a_single_damaged_backup_is_an_error_not_a_fresh_start(tmp_path):
    interrupted(tmp_path)
    path = tmp_path / "training.ckpt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(checkpoints.FileFormatError, match=r"training\.ckpt"):
        linear().fit(X, Y, epochs=5, verbose=0, callbacks=[callbacks.BackupAndRestore(tmp_path)])


@pytest.mark.parametrize(("change", "message"), [
    ({"model": lambda: linear("other")}, "other/kernel"),
    ({"extra": [callbacks.EarlyStopping("loss")]}, "EarlyStopping"),
    ({"batch_size": 5}, "batch_size"),
    ({"shuffle": False}, "shuffle"),
    ({"nbatch_logical": 8}, "nbatch_logical"),
])
def test_a_backup_of_something_else_is_refused(change, message, tmp_path):
    class Stop:
        requested = True

    with pytest.raises(SystemExit):
        linear().fit(X, Y, batch_size=4, epochs=3, verbose=0,
                     callbacks=[callbacks.BackupAndRestore(tmp_path, handler=Stop())])
    arguments = {"batch_size": 4} | change
    model = arguments.pop("model", linear)()
    extra = arguments.pop("extra", [])
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, epochs=3, verbose=0,
                  callbacks=[callbacks.BackupAndRestore(tmp_path), *extra], **arguments)
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def test_a_split_that_was_drawn_anew_is_refused(tmp_path):
    def fit(stop):
        model = linear()
        model.fit(X, Y, epochs=3, verbose=0, validation_split=0.5, shuffle_before_split=True,
                  callbacks=[callbacks.BackupAndRestore(tmp_path), callbacks.LambdaCallback(
                      on_epoch_begin=lambda epoch, logs: 1 / 0 if epoch == stop else None)])

    pyggml.set_seed(1)
    with pytest.raises(ZeroDivisionError):
        fit(1)
    pyggml.set_seed(2)
    with pytest.raises(ValueError, match="validation_split now takes other rows"):
        fit(None)


def test_the_model_can_be_copied_and_pickled_while_it_is_backed_up(tmp_path):
    import copy
    import pickle

    model, copies = linear(), []

    def take(epoch, logs):
        copies.append((copy.deepcopy(model), pickle.loads(pickle.dumps(model))))

    model.fit(X, Y, epochs=2, verbose=0, callbacks=[
        callbacks.BackupAndRestore(tmp_path), callbacks.LambdaCallback(on_epoch_end=take)])
    for other in copies[-1]:
        assert (other.predict(X) == model.predict(X)).all()


def test_early_stopping_ends_a_resumed_training_where_it_would_have_ended(tmp_path):
    def watch():
        return callbacks.EarlyStopping("loss", patience=3, min_delta=1e9,
                                       restore_best_weights=True)

    interrupted(tmp_path / "b", at=2, extra=[watch()])
    early = watch()
    model = linear()
    history = model.fit(X, Y, batch_size=4, epochs=50, verbose=0, callbacks=[
        callbacks.BackupAndRestore(tmp_path / "b"), early, callbacks.LambdaCallback()])
    assert history.epoch == [0, 1, 2, 3]  # the first value is better than none
    assert (early.best_epoch, early.stopped_epoch) == (0, 3)
    assert not (tmp_path / "b").exists()


def test_a_rate_that_a_plateau_cut_stays_cut(tmp_path):
    def watch():
        return callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=1e9)

    interrupted(tmp_path, at=2, extra=[watch()])
    model = linear()
    history = model.fit(X, Y, batch_size=4, epochs=4, verbose=0, callbacks=[
        callbacks.BackupAndRestore(tmp_path), watch(), callbacks.LambdaCallback()])
    assert history.history["learning_rate"] == pytest.approx([1e-2, 1e-2, 1e-3, 1e-4])


def test_a_generator_without_a_state_goes_on_with_a_warning(tmp_path):
    class Stop:
        looks = 0

        @property
        def requested(self):
            self.looks += 1
            return self.looks == 2

    def fit(handler):
        model = linear()
        model.fit_generator(lambda: (X, Y), steps_per_epoch=5, epochs=2, batch_size=20, verbose=0,
                            callbacks=[callbacks.BackupAndRestore(tmp_path, handler=handler)])
        return model

    with pytest.raises(SystemExit):
        fit(Stop())
    with pytest.warns(RuntimeWarning, match="no get_state and set_state"):
        model = fit(None)
    assert model.compiled.trainer.n_steps == 10


@pytest.mark.parametrize("bad", [0, -1, True, "batch", 1.5, None])
def test_other_frequencies_are_refused(bad, tmp_path):
    with pytest.raises(ValueError, match="save_freq must be"):
        callbacks.BackupAndRestore(tmp_path, save_freq=bad)


def test_moments_of_frozen_weights_are_kept(tmp_path):
    def make():
        model = pyggml.Sequential([pyggml.Input((3,), name="x"), layers.Dense(4, name="a"),
                                   layers.Dense(1, name="b")], name="m")
        model.compile(optimizers.Adam(0.01), "mse")
        return model

    pyggml.set_seed(4)
    straight = make()
    straight.fit(X, Y, verbose=0, epochs=2, seed=1)
    straight.freeze_weights(layer_names=["a"])
    straight.fit(X, Y, verbose=0, epochs=2, seed=1)
    straight.save(tmp_path / "model")
    checkpoints.save(tmp_path / "run", straight.compiled.trainer)
    straight.unfreeze_weights()
    straight.fit(X, Y, verbose=0, epochs=2, seed=1)

    loaded = pyggml.load_model(tmp_path / "model")
    loaded.unfreeze_weights()
    loaded.fit(X, Y, verbose=0, epochs=2, seed=1)
    prepared = make()
    prepared.freeze_weights(layer_names=["a"])
    with checkpoints.load(tmp_path / "run") as saved:
        saved.prepare(prepared)
    prepared.unfreeze_weights()
    prepared.fit(X, Y, verbose=0, epochs=2, seed=1)
    for other in (loaded, prepared):
        for wanted, found in zip(straight.get_weights(), other.get_weights(), strict=True):
            assert wanted.tobytes() == found.tobytes()


@pytest.mark.parametrize("epochs", [3, 9])
def test_a_training_that_had_ended_ends_again_with_the_weights_of_its_best_epoch(epochs, tmp_path):
    def fit():
        pyggml.set_seed(3)
        model = linear()
        values = iter([1.0, 3.0, 2.0])
        early = callbacks.EarlyStopping("mine", mode="min", patience=2, restore_best_weights=True)
        model.fit(X, Y, batch_size=4, epochs=epochs, verbose=0, callbacks=[
            callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: logs.update(mine=next(values))),
            callbacks.BackupAndRestore(tmp_path / "run", delete_checkpoint=False), early])
        return model, early, next(values, None)

    first, _, left = fit()
    assert left is None  # three epochs were run, of which the first was the best
    again, early, left = fit()
    assert left == 1.0  # none was
    assert early.best_epoch == 0
    for a, b in zip(again.get_weights(), first.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()


def test_the_rate_that_a_schedule_gave_last_is_that_of_the_resumed_history_too(tmp_path):
    def fit(stop):
        pyggml.set_seed(3)
        model = linear()
        model.compile(optimizers.Adam(schedules.ExponentialDecay(
            0.9, initial_learning_rate=0.1)), "mse")
        plateau = callbacks.ReduceLROnPlateau("loss", patience=100)
        # After the last batch of the first epoch, before its end.
        handler = SimpleNamespace(requested=False)
        watch = callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: setattr(
            handler, "requested", stop and batch == 4))
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[
            watch, plateau, callbacks.BackupAndRestore(tmp_path / "run", handler=handler)])
        return model

    straight = fit(False)
    with pytest.raises(SystemExit):
        fit(True)
    resumed = fit(False)
    assert resumed.history.history == straight.history.history
    assert straight.history.history["learning_rate"] == pytest.approx([0.1 * 0.9**4, 0.1 * 0.9**9])
    assert resumed.optimizer.learning_rate == straight.optimizer.learning_rate
