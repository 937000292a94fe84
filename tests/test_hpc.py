"""pyggml.hpc: stopping in time, and the example that is killed again and again."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pyggml import hpc

EXAMPLES = Path(__file__).parent.parent / "examples" / "hpc"
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


# ---- PreemptionHandler ----------------------------------------------------------------------

@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1] if os.name == "posix" else [])
def test_a_signal_sets_the_flag_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with hpc.PreemptionHandler(time_limit=None) as stop:
        assert not stop.requested and stop.reason is None
        os.kill(os.getpid(), number)
        assert stop.requested and stop.reason == number.name
        saved = []
        with pytest.raises(SystemExit) as caught:
            stop.stop_if_requested(lambda: saved.append(1))
        assert caught.value.code == 75 == hpc.EXIT_REQUEUE and saved == [1]
    assert signal.getsignal(number) is before


@posix
def test_handlers_are_put_back_when_one_cannot_be_installed_and_after_a_second_entry():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError):
        hpc.PreemptionHandler([signal.SIGTERM, signal.SIGKILL]).__enter__()
    assert signal.getsignal(signal.SIGTERM) is before
    with hpc.PreemptionHandler(time_limit=None) as stop:
        with pytest.raises(RuntimeError, match="entered already"), stop:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("limit, seconds", [
    (90, 90), ("90", 90), ("1:30", 90), ("01:00:00", 3600), ("2-00:00:01", 172801)])
def test_time_limits_are_seconds_or_what_batch_systems_write(limit, seconds):
    assert hpc._seconds(limit) == seconds


@pytest.mark.parametrize("limit, error", [
    ("soon", ValueError), ("1:2:3:4", ValueError), (-1, ValueError), (float("nan"), ValueError),
    (True, TypeError), ([1], TypeError)])
def test_other_time_limits_are_refused(limit, error):
    with pytest.raises(error, match="time_limit"):
        hpc.PreemptionHandler(time_limit=limit)


def test_the_margin_before_the_limit_is_kept_for_saving():
    assert hpc.PreemptionHandler(time_limit=100, margin=101).reason is None
    assert hpc.PreemptionHandler(time_limit=100, margin=101).requested
    assert not hpc.PreemptionHandler(time_limit=100, margin=50).requested


@pytest.mark.parametrize("name, value, requested", [
    ("SLURM_JOB_END_TIME", lambda: int(time.time()) + 30, True),
    ("SLURM_JOB_END_TIME", lambda: int(time.time()) + 3000, False),
    ("PBS_WALLTIME", lambda: 30, True), ("PBS_WALLTIME", lambda: 3000, False),
    ("PBS_WALLTIME", lambda: "unlimited", False)])
def test_the_batch_systems_own_limit_is_found(name, value, requested, monkeypatch):
    for key in ("SLURM_JOB_END_TIME", "PBS_WALLTIME"):
        monkeypatch.delenv(key, raising=False)
    assert not hpc.PreemptionHandler().requested
    monkeypatch.setenv(name, str(value()))
    assert hpc.PreemptionHandler().requested is requested


def test_other_threads_are_told_that_they_get_no_signals():
    caught = []

    def enter():
        try:
            hpc.PreemptionHandler().__enter__()
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]


# ---- run_until ------------------------------------------------------------------------------

def test_run_until_saves_between_and_at_the_end():
    done, saves = [], []
    hpc.run_until(lambda: len(done) == 5, lambda: done.append(0),
                  lambda: saves.append(len(done)), save_every=0)
    assert saves == [1, 2, 3, 4, 5, 5]


@posix
def test_run_until_finishes_the_step_saves_and_exits():
    done, saves = [], []

    def step():
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        done.append(0)

    with pytest.raises(SystemExit) as caught:
        hpc.run_until(lambda: len(done) == 5, step, lambda: saves.append(len(done)))
    assert (caught.value.code, len(done), saves) == (hpc.EXIT_REQUEUE, 3, [3])


def test_a_failing_step_is_not_saved():
    saves = []

    def step():
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        hpc.run_until(lambda: False, step, lambda: saves.append(0))
    assert saves == []


# ---- ShuffledBatches ------------------------------------------------------------------------

def test_every_epoch_has_each_row_at_most_once_and_another_order():
    batches = hpc.ShuffledBatches(22, 5, seed=4)
    epochs = [np.concatenate([next(batches) for _ in range(4)]) for _ in range(3)]
    for rows in epochs:
        assert len(set(rows.tolist())) == 20 and rows.min() >= 0 and rows.max() < 22
    assert len({tuple(rows) for rows in epochs}) == 3


@pytest.mark.parametrize("taken", [0, 3, 4, 5, 11])
def test_batches_go_on_where_they_were(taken):
    first = hpc.ShuffledBatches(22, 5, seed=4)
    for _ in range(taken):
        next(first)
    second = hpc.ShuffledBatches(22, 5, seed=4)
    second.set_state(first.get_state())
    for _ in range(9):
        assert (next(first) == next(second)).all()


def test_a_place_in_other_batches_is_refused():
    state = hpc.ShuffledBatches(22, 5, seed=4).get_state()
    for other in (hpc.ShuffledBatches(23, 5, 4), hpc.ShuffledBatches(22, 4, 4),
                  hpc.ShuffledBatches(22, 5, 3)):
        with pytest.raises(ValueError, match="the state has"):
            other.set_state(state)
    with pytest.raises(ValueError, match="no batch"):
        hpc.ShuffledBatches(22, 5, 4).set_state(state | {"position": 5})
    with pytest.raises(ValueError, match="batch_size"):
        hpc.ShuffledBatches(3, 4)
    with pytest.raises(TypeError, match="seed must be an integer"):
        hpc.ShuffledBatches(3, 3, seed=1.5)


# ---- the example ----------------------------------------------------------------------------

def _start(folder, steps, **extra):
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / "train.py"), "--steps", str(steps), "--save-every", "0.03",
         "--time-limit", "1-00:00:00"],
        cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYGGML_NUM_THREADS": "1"},
        **extra)


def _finish(folder, steps):
    with _start(folder, steps) as child:
        out = child.stdout.read()
    assert child.returncode == 0
    return out.splitlines()


def _is_killed_and_ends_the_same(tmp_path, kills, steps):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    straight.mkdir()
    stopped.mkdir()
    wanted = _finish(straight, steps)
    rng = random.Random(9)
    reached = []
    for i in range(kills):
        with _start(stopped, steps) as child:
            line = child.stdout.readline()
            assert line.startswith("step ")
            reached.append(int(line.split()[1]))
            time.sleep(rng.uniform(0, 0.2))
            child.send_signal((signal.SIGKILL, signal.SIGTERM)[i % 2])
            child.stdout.read()
        assert child.returncode == (-signal.SIGKILL, hpc.EXIT_REQUEUE)[i % 2]
    assert reached == sorted(reached) and 0 < reached[-1] < steps
    found = _finish(stopped, steps)
    assert found[-2:] == wanted[-2:]
    assert found[-1].startswith("weights ")
    assert (stopped / "run.ckpt").read_bytes() == (straight / "run.ckpt").read_bytes()
    assert (stopped / "model.gguf").read_bytes() == (straight / "model.gguf").read_bytes()


@posix
def test_the_example_is_killed_and_ends_with_the_same_bits(tmp_path):
    _is_killed_and_ends_the_same(tmp_path, kills=4, steps=120000)


@posix
@pytest.mark.slow
def test_the_example_is_killed_twenty_times_and_ends_with_the_same_bits(tmp_path):
    _is_killed_and_ends_the_same(tmp_path, kills=20, steps=800000)


@posix
@pytest.mark.parametrize("script, number, asked", [
    ("slurm.sh", "SIGUSR1", "scontrol requeue 17"), ("slurm.sh", "SIGTERM", "scontrol requeue 17"),
    ("pbs.sh", "SIGTERM", "qsub pbs.sh")])
def test_the_job_scripts_queue_the_job_again(script, number, asked, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    calls = tmp_path / "calls"
    for name in ("scontrol", "qsub"):
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $@" >> {calls}\n')
    (tools / "srun").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (tools / "python").write_text(f'#!/bin/sh\nshift\nexec {sys.executable} '
                                  f'{EXAMPLES / "train.py"} "$@" --save-every 1\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "17",
                        "PBS_O_WORKDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(["bash", str(EXAMPLES / script)], cwd=tmp_path, env=env, text=True,
                          stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == "step 0\n"
        time.sleep(0.1)
        child.send_signal(getattr(signal, number))
        child.stdout.read()
    assert child.returncode == 0
    assert calls.read_text().strip() == asked
    assert (tmp_path / "run.ckpt").exists() and not (tmp_path / "model.gguf").exists()
