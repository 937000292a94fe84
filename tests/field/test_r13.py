"""R13: a save that is interrupted never costs the previous good file."""

import errno
import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pyggml
from pyggml import _durable, layers

WRITER = Path(__file__).parent / "r13_writer.py"
sys.path.insert(0, str(WRITER.parent))

import r13_writer


def _leftovers(folder):
    return [name for name in os.listdir(folder) if ".tmp-" in name]


def _kill_and_load(folder, kills, seed):
    path = folder / "run.ckpt"
    rng = random.Random(seed)
    with r13_writer.trainer() as made:
        r13_writer.mark(made, 0)
        made.save_checkpoint(path, extra={"number": 0})
    last, interrupted = 0, 0
    for _ in range(kills):
        with subprocess.Popen([sys.executable, str(WRITER), str(path), str(last + 1)],
                              stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"started\n"
            time.sleep(rng.uniform(0, 0.25))
            child.kill()
            written = [int(line) for line in child.stdout.read().split()]
        assert len(_leftovers(folder)) <= 1
        interrupted += len(_leftovers(folder))
        with pyggml.checkpoints.load(path) as saved, saved.trainer() as made:
            number = saved.extra["number"]
            assert r13_writer.numbers(made) == {float(number)}
        reported = written[-1] if written else last
        # The last save may have taken effect before it was reported.
        assert number in (reported, reported + 1)
        last = number
    with r13_writer.trainer() as made:
        made.save_checkpoint(path)
    assert _leftovers(folder) == []
    return interrupted


def test_a_killed_while_saving_leaves_the_old_or_the_new_file(tmp_path):
    _kill_and_load(tmp_path, kills=5, seed=1)


@pytest.mark.slow
def test_a_killed_while_saving_fifty_times(tmp_path):
    assert _kill_and_load(tmp_path, kills=50, seed=2) > 0


# ---- b: writes that fail --------------------------------------------------------------------

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def model():
    return pyggml.Sequential([pyggml.Input((3,)), layers.Dense(2)])


def _still_good(path, wanted, model):
    assert _leftovers(os.path.dirname(path)) == []
    assert (pyggml.load_model(path).predict(X) == wanted).all()
    model.predict(X)
    model.save(path)
    assert (pyggml.load_model(path).predict(X) == model.predict(X)).all()


def _change(model):
    model.set_weights([w + 1 for w in model.get_weights()])


@pytest.mark.parametrize("call, number", [
    ("write", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EACCES),
    ("open", errno.EROFS)])
def test_b_a_failing_call_leaves_the_old_file_and_the_model(call, number, model, tmp_path,
                                                            monkeypatch):
    path = str(tmp_path / "model")
    model.save(path)
    wanted = model.predict(X)
    _change(model)

    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if call == "write":
            real = pyggml._container._write_all
            calls = []

            def half(file, data):  # half of the first tensor reaches the disk
                calls.append(0)
                real(file, memoryview(data)[:len(data) // 2])
                if len(calls) > 1:
                    fail()

            patch.setattr(pyggml._container, "_write_all", half)
        else:
            patch.setattr(_durable.os, call, fail)
        with pytest.raises(OSError) as caught:
            model.save(path)
    assert caught.value.errno == number
    assert caught.value.filename == path
    _still_good(path, wanted, model)


def test_b_an_exception_in_the_write_call_leaves_the_old_file(model, tmp_path, monkeypatch):
    path = str(tmp_path / "model")
    model.save(path)
    wanted = model.predict(X)
    _change(model)

    def interrupt(file, data):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pyggml._container, "_write_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.save(path)
    _still_good(path, wanted, model)


_limited = """
import os, resource, sys
import pyggml
from pyggml import layers
path, kind = sys.argv[1:]
model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(20000)])
if kind == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
elif os.geteuid() == 0:
    os.seteuid(65534)
try:
    model.save(path)
except OSError as error:
    print(type(error).__name__, error.errno, error.filename)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits and modes of POSIX")
@pytest.mark.parametrize("kind, number", [("full", errno.EFBIG), ("read-only", errno.EACCES)])
def test_b_no_room_or_no_right_to_write(kind, number, model, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = str(folder / "model")
    model.save(path)
    wanted = model.predict(X)
    for part in (tmp_path, *list(tmp_path.parents)[:2]):
        part.chmod(0o755)
    if kind == "read-only":
        folder.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", _limited, path, kind], check=True,
                          capture_output=True, text=True)
    folder.chmod(0o755)
    name, given, filename = done.stdout.split()
    assert (int(given), filename) == (number, path)
    assert name == {"full": "OSError", "read-only": "PermissionError"}[kind]
    _still_good(path, wanted, model)


def test_b_a_directory_that_does_not_exist(model, tmp_path):
    path = tmp_path / "missing" / "model"
    with pytest.raises(FileNotFoundError) as caught:
        model.save(path)
    assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_b_a_symbolic_link_stays_a_link(model, tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("real") / "model")
    for _ in range(2):
        model.save(link)
        assert link.is_symlink() and (tmp_path / "real" / "model").is_file()
        assert (pyggml.load_model(link).predict(X) == model.predict(X)).all()
        _change(model)
    assert _leftovers(tmp_path / "real") == _leftovers(tmp_path) == []


# ---- c: readers -----------------------------------------------------------------------------

_reader = """
import hashlib, sys
with open(sys.argv[1], "rb", buffering=0) as file:
    data = file.read(100)
    print("open", flush=True)
    sys.stdin.readline()
    while part := file.read(4096):
        data += part
print(hashlib.sha256(data).hexdigest())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")
def test_c_a_reader_sees_the_complete_old_file(tmp_path):
    model = pyggml.Sequential([pyggml.Input((100,)), layers.Dense(1000)])
    path = tmp_path / "model"
    model.save(path)
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    with subprocess.Popen([sys.executable, "-c", _reader, str(path)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "open\n"
        _change(model)
        model.save(path)
        seen, _ = child.communicate("go\n")
    assert seen.strip() == old
    assert hashlib.sha256(path.read_bytes()).hexdigest() != old
