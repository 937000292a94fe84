"""The container: what a file says about itself is checked before it is believed."""

import os
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import pyggml
from pyggml import _container, _durable, _gguf, layers
from pyggml._container import Container, FileFormatError, write

TOOL = Path(__file__).parent.parent / "tools" / "fuzz_files.py"
META = {"pyggml.format": 1, "text": "häß", "yes": True, "pi": 3.5}


def make(path, **arrays):
    write(path, META, [(name, a.shape, {"f": "f32", "i": "i32"}[a.dtype.kind], lambda a=a: a)
                       for name, a in arrays.items()])


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good"
    make(path, a=np.arange(6, dtype="f4").reshape(2, 3), b=np.arange(5, dtype="i4"))
    return path


# ---- checksum and quantisation --------------------------------------------------------------

@pytest.mark.parametrize("data, digest", [
    (b"", "ef46db3751d8e999"), (b"a", "d24ec4f1a98c6e5b"), (b"abc", "44bc2cf5ad770999"),
    (b"Nobody inspects the spammish repetition", "fbcea83c8a378bf1")])
def test_the_checksum_is_xxh64(data, digest):
    for cut in range(0, len(data) + 1, 5):
        checksum = _gguf.Checksum()
        checksum.update(data[:cut])
        checksum.update(data[cut:])
        assert checksum.hexdigest() == digest


def _python_f16(row):
    return row.astype(np.float16).astype(np.float32)


def _python_bf16(row):
    bits = row.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def _python_q8_0(row):
    blocks = row.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    q = np.floor(np.abs(blocks / scale) + 0.5) * np.sign(blocks)
    return (q * scale.astype(np.float16).astype(np.float32)).reshape(row.shape)


@pytest.mark.parametrize("kind, reference", [
    ("f16", _python_f16), ("bf16", _python_bf16), ("q8_0", _python_q8_0)])
def test_quantisation_equals_its_definition(kind, reference):
    rows = np.random.default_rng(3).normal(size=(4, 96)).astype(np.float32)
    out = np.empty(rows.size, np.float32)
    _gguf.dequantize(_gguf.quantize(rows, kind), kind, out)
    np.testing.assert_allclose(out.reshape(rows.shape), reference(rows), rtol=2e-7, atol=1e-9)


def test_rows_that_are_no_whole_blocks_are_refused_before_ggml_sees_them():
    for columns, kind in ((33, "q8_0"), (128, "q4_K"), (0, "q8_0")):
        with pytest.raises(ValueError, match="multiple"):
            _gguf.quantize(np.ones((2, columns), np.float32), kind)
    with pytest.raises(ValueError, match="f16"):
        _gguf.quantize(np.ones((2, 32), np.float32), "i8")
    with pytest.raises(ValueError, match="elements"):
        _gguf.dequantize(bytes(33), "q8_0", np.empty(32, np.float32))


# ---- writing and reading --------------------------------------------------------------------

def test_what_was_written_is_read(good):
    with Container(good) as c:
        assert list(c.entries) == ["a", "b"] and c.entries["a"].shape == (2, 3)
        assert {k: c.get(k) for k in META} == META
        assert c.get("none") is None
        c.verify()
        assert (c.read("b") == np.arange(5)).all() and c.read("b").dtype == np.int32
        target = np.empty((2, 3), np.float32)
        c.read_all({"a": target})
        assert (target.ravel() == np.arange(6)).all()
        for wrong in (np.empty((3, 2), "f4"), np.empty((2, 3), "f8"), np.empty((3, 2), "f4").T):
            with pytest.raises(ValueError, match="'a'"):
                c.read_all({"a": wrong})
        with pytest.raises(ValueError, match="i32"):
            c.read_into("b", np.empty(5, np.float32))


def test_every_type_of_metadata_is_read(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "f", "other")
    wanted = {}
    for kind, value in (("uint8", 7), ("int8", -7), ("uint16", 700), ("int16", -700),
                        ("uint32", 70000), ("int32", -70000), ("uint64", 1 << 40),
                        ("int64", -(1 << 40)), ("float32", 0.5), ("float64", 0.1),
                        ("bool", True), ("string", "text")):
        getattr(writer, f"add_{kind}")(f"k.{kind}", value)
        wanted[f"k.{kind}"] = value
    writer.add_array("k.numbers", [1, 2, 3])
    writer.add_array("k.words", ["a", "", "bcd"])
    wanted |= {"k.numbers": [1, 2, 3], "k.words": ["a", "", "bcd"]}
    data = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    writer.add_tensor("t", data)
    writer.add_tensor("q", gguf.quantize(data, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with Container(tmp_path / "f") as c:
        assert {k: c.get(k) for k in wanted} == wanted
        assert (c.read("t") == data).all()
        q = gguf.quants.dequantize(gguf.quantize(data, gguf.GGMLQuantizationType.Q8_0),
                                   gguf.GGMLQuantizationType.Q8_0)
        assert (c.read("q") == q).all() and c.read("q").shape == (3, 64)
    with pytest.raises(FileFormatError, match="not one of pyggml"):
        pyggml.load_model(tmp_path / "f")


def test_a_file_without_tensors_and_one_of_four_axes(tmp_path):
    make(tmp_path / "none")
    make(tmp_path / "four", x=np.arange(120, dtype="f4").reshape(2, 3, 4, 5))
    with Container(tmp_path / "none") as c:
        assert c.entries == {}
        c.verify()
    with Container(tmp_path / "four") as c:
        assert (c.read("x").ravel() == np.arange(120)).all()


# ---- damage ---------------------------------------------------------------------------------

@pytest.mark.parametrize("data, reason", [
    (b"", "not a GGUF file"), (b"GG", "not a GGUF file"), (b"\x89PNG\r\n\x1a\n" * 9, "PNG"),
    (b"GGUF", "cut short"), (b"GGUF" + struct.pack("<I", 1) + bytes(16), "version 1"),
    (b"FUGG" + bytes(30), "FUGG"),
    (b"GGUF" + struct.pack("<Iqq", 3, 1 << 60, 0), "claims"),
    (b"GGUF" + struct.pack("<Iqq", 3, -1, 0), "claims"),
    (b"GGUF" + struct.pack("<Iqq", 3, 0, 1) + struct.pack("<Q", 1 << 62), "cut short"),
    (b"GGUF" + struct.pack("<IqqQ", 3, 0, 1, 1) + b"k" + struct.pack("<iiQ", 9, 8, 1 << 61),
     "strings"),
    (b"GGUF" + struct.pack("<IqqQ", 3, 0, 1, 1) + b"k" + struct.pack("<iiQ", 9, 4, 1 << 61),
     "cut short"),
    (b"GGUF" + struct.pack("<IqqQ", 3, 0, 1, 1) + b"k" + struct.pack("<i", 77) + bytes(50),
     "unknown type 77"),
    (b"GGUF" + struct.pack("<IqqQ", 3, 0, 1, 1) + b"k" + struct.pack("<iiQ", 9, 9, 1) + bytes(50),
     "unknown type 9"),
])
def test_foreign_and_forged_files_are_refused_at_once(data, reason, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    for load in (pyggml.load_model, pyggml.checkpoints.load):
        with pytest.raises(FileFormatError, match=reason) as caught:
            load(path)
        assert caught.value.path == str(path) and str(path) in str(caught.value)


def test_every_single_bit_and_every_length_matters(good, tmp_path):
    data = good.read_bytes()
    path = tmp_path / "bad"

    def refused(changed):
        path.write_bytes(changed)
        with pytest.raises(FileFormatError), Container(path) as c:
            if c.get("pyggml.format") is None:
                c.fail("its key is damaged: not a file of pyggml any more")
            c.verify()

    for i in range(len(data)):
        changed = bytearray(data)
        changed[i] ^= 1 << (i % 8)
        refused(bytes(changed))
        refused(data[:i])
    refused(data + b"\0")
    refused(data + data)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(good):
    with Container(good) as c:
        os.truncate(good, os.path.getsize(good) - 32)
        with pytest.raises(FileFormatError, match="ended while it was read"):
            c.verify()


def test_a_file_that_is_written_to_between_check_and_use_is_an_error(good):
    with Container(good) as c:
        c.verify()
        os.utime(good, ns=(0, 0))
        target = np.zeros((2, 3), np.float32)
        with pytest.raises(FileFormatError, match="written to while it was read"):
            c.reading({"a": target}).run()
        assert not target.any()
        c.verify()
        c.reading({"a": target}).run()
        assert (target == np.arange(6).reshape(2, 3)).all()
        with pytest.raises(ValueError, match="does not go into"):
            c.reading({"a": target, "b": np.empty(5)})


def test_writing_ahead_is_a_hint_that_cannot_fail(tmp_path):
    for arguments in ((-1, 0, 1), (10**6, -5, 1 << 40)):
        _gguf.write_ahead(*arguments)
    values = np.arange(_container._AHEAD // 2, dtype="f4")  # of 4 bytes: two parts and some
    make(tmp_path / "f", a=values, b=values[:3].astype("i4"))
    with Container(tmp_path / "f") as c:
        c.verify()
        assert (c.read("a") == values).all() and (c.read("b") == [0, 1, 2]).all()


def test_a_newer_format_says_so(tmp_path):
    write(tmp_path / "f", {"pyggml.format": 99, "pyggml.kind": "model", "pyggml.version": "9"}, [])
    with pytest.raises(FileFormatError, match=r"format 99 by pyggml 9.*up to format 1"):
        pyggml.load_model(tmp_path / "f")


def test_an_architecture_larger_than_its_file_is_refused_before_memory_is_taken(tmp_path):
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(4, use_bias=False)], name="m")
    model.save(tmp_path / "m")
    with Container(tmp_path / "m") as c:
        meta = {k: c.get(k) for k in c.metadata_keys() if "checksum" not in k}
        kernel = c.read(next(iter(c.entries)))
    text = meta["pyggml.model"].replace('"units":4', '"units":9999999999')
    assert text != meta["pyggml.model"]
    name = next(iter(c.entries))
    write(tmp_path / "f", meta | {"pyggml.model": text}, [(name, kernel.shape, "f32",
                                                          lambda: kernel)])
    with pytest.raises(FileFormatError, match="more weights than the file"):
        pyggml.load_model(tmp_path / "f")


def test_missing_files_and_directories_are_os_errors(tmp_path):
    for load in (pyggml.load_model, pyggml.checkpoints.load):
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "none")
        with pytest.raises(OSError):
            load(tmp_path)


def _fuzz(*arguments):
    done = subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "loads succeeded" in done.stdout


def test_damaged_files_neither_crash_nor_hang_nor_take_memory():
    _fuzz("--count", "600", "--seed", str(random.SystemRandom().randrange(1 << 40)))


@pytest.mark.slow
def test_twenty_thousand_damaged_files():
    _fuzz("--count", "20000")


def test_bytes_chosen_by_hypothesis_are_refused(good, tmp_path):
    hypothesis = pytest.importorskip("hypothesis")
    from hypothesis import strategies as st

    data = good.read_bytes()
    path = tmp_path / "case"

    @hypothesis.settings(max_examples=300, deadline=None, database=None)
    @hypothesis.given(st.integers(0, len(data)), st.integers(0, 64), st.binary(max_size=64))
    def check(at, n, put):
        changed = data[:at] + put + data[at + n:]
        hypothesis.assume(changed != data)
        path.write_bytes(changed)
        with pytest.raises(FileFormatError), Container(path) as c:
            if c.get("pyggml.format") is None:
                c.fail("not a file of pyggml any more")
            c.verify()

    check()


# ---- memory ---------------------------------------------------------------------------------

_costs = """
import os, resource, sys
import pyggml
from pyggml import checkpoints
kind, path = sys.argv[1:]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def read():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])
def resume():
    with checkpoints.load(path) as saved:
        saved.resume(kept)
load = pyggml.load_model if "model" in kind else pyggml.Trainer.from_checkpoint
run = {"load_model": lambda: load(path), "from_checkpoint": lambda: load(path),
       "model.load_weights": lambda: kept.load_weights(path),
       "model.save": lambda: kept.save(path + ".copy"),
       "model given": lambda: pyggml.Trainer.from_checkpoint(path, kept),
       "save_checkpoint": lambda: kept.save_checkpoint(path + ".copy"),
       "resume": resume}[kind]
kept = None if kind in ("load_model", "from_checkpoint") else load(path)
before, at = peak(), read()
result = run()
print((peak() - before) / os.path.getsize(path), (read() - at) / os.path.getsize(path))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is in kilobytes there")
@pytest.mark.parametrize("kind, most, reads", [
    ("load_model", 1.2, 1), ("from_checkpoint", 1.2, 1), ("model given", 1.2, 1),
    ("model.load_weights", 0.2, 2), ("resume", 0.2, 3), ("model.save", 0.2, 0),
    ("save_checkpoint", 0.2, 0)])
def test_loading_and_saving_hold_no_second_copy_and_read_no_more_than_they_must(
        kind, most, reads, tmp_path):
    model = pyggml.Sequential([pyggml.Input((2000,)), layers.Dense(2000, use_bias=False)])
    model.compile("adam", "mse")
    with pyggml.Trainer(model, 1) as trainer:
        trainer.save_checkpoint(tmp_path / "m")
    done = subprocess.run([sys.executable, "-c", _costs, kind, str(tmp_path / "m")], check=True,
                          capture_output=True, text=True)
    memory, read = map(float, done.stdout.split())
    assert memory < most
    assert read < reads + 0.1


def test_the_largest_header_that_is_read_takes_bounded_memory(tmp_path):
    keys = b"".join(struct.pack("<Q8siB", 8, b"%08d" % i, 0, 0) for i in range(1 << 16))
    path = tmp_path / "f"
    path.write_bytes(b"GGUF" + struct.pack("<Iqq", 3, 0, 1 << 16) + keys + bytes(-len(keys) % 32))
    tracemalloc.start()
    with pytest.raises(FileFormatError):
        Container(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(keys) < peak < len(keys) + (32 << 20)


# ---- durable --------------------------------------------------------------------------------

def test_two_savers_do_not_take_each_others_files_away(tmp_path):
    path = tmp_path / "f"

    def outer(file):
        file.write(b"outer")
        _durable.replace(path, lambda inner: inner.write(b"inner"))
        assert path.read_bytes() == b"inner"

    _durable.replace(path, outer)
    assert path.read_bytes() == b"outer" and os.listdir(tmp_path) == ["f"]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_the_mode_of_the_file_stays(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"")
    path.chmod(0o640)
    _durable.replace(path, lambda file: file.write(b"x"))
    assert path.stat().st_mode & 0o777 == 0o640


def test_rotation_works_without_hard_links_and_after_a_kill_in_between(tmp_path, monkeypatch):
    path = tmp_path / "f"
    for text in (b"1", b"2", b"3"):
        _durable.replace(path, lambda file, text=text: file.write(text), keep=3)
    os.unlink(tmp_path / "f.1")
    os.link(path, tmp_path / "f.1")  # what a kill between the two renames leaves
    _durable.replace(path, lambda file: file.write(b"4"), keep=3)
    assert [(tmp_path / n).read_bytes() for n in ("f", "f.1", "f.2")] == [b"4", b"3", b"1"]

    def no_links(*args):
        raise PermissionError("no links")

    monkeypatch.setattr(_durable.os, "link", no_links)
    _durable.replace(path, lambda file: file.write(b"5"), keep=2)
    assert [(tmp_path / n).read_bytes() for n in ("f", "f.1")] == [b"5", b"4"]


def test_a_rotation_over_very_many_files_takes_those_that_there_are(tmp_path):
    """What is to be kept may be any number; other files of like names stay as they are."""
    path = tmp_path / "f"
    (tmp_path / "f.01").write_bytes(b"other")
    (tmp_path / "f.x").write_bytes(b"other")
    for text in (b"1", b"2", b"3"):
        _durable.replace(path, lambda file, text=text: file.write(text), keep=2**62)
    os.rename(tmp_path / "f.2", tmp_path / "f.9")
    _durable.replace(path, lambda file: file.write(b"4"), keep=2**62)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {
        "f": b"4", "f.1": b"3", "f.2": b"2", "f.10": b"1", "f.01": b"other", "f.x": b"other"}


def test_a_device_is_no_place_for_a_model():
    if not os.path.exists("/dev/null"):
        pytest.skip("no /dev/null")
    with pytest.raises(OSError, match="not a regular file"):
        pyggml.Sequential([pyggml.Input((4,)), layers.Dense(4)]).save("/dev/null")
    assert not os.path.isfile("/dev/null")


def test_errors_can_be_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(_container.FileFormatError("p", "r")))
    assert (error.path, error.reason, str(error)) == ("p", "r", "p: r")
