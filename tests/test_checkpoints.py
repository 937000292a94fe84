"""Checkpoints: everything that the next step depends on, and nothing half applied."""

import json
import os

import numpy as np
import pytest
from interrupts import interrupt_everywhere

import pyggml
from pyggml import checkpoints, layers, ops
from pyggml._container import Container, write

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(8, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def _one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def network(optimizer="adam", hidden=8):
    model = pyggml.Sequential([
        pyggml.Input((6,)), layers.Dense(hidden, "tanh", name="a"), layers.Dropout(0.3, name="d"),
        layers.Dense(2, name="b")], name="net")
    model.compile(optimizer, "mse")
    return model


def state_of(trainer):
    """All arrays and scalars of a trainer, as bytes that can be compared."""
    s = trainer._get_state()
    found = {k: s[k] for k in checkpoints._scalars} | {"lr": trainer.lr}
    for part in ("weights", "gradients"):
        found |= {(part, n): v.numpy().tobytes() for n, v in s[part].items()}
    found |= {(n, i): v.numpy().tobytes() for n, vs in s["slots"].items()
              for i, v in enumerate(vs)}
    return found


def trained(steps=5, logical=None, **arguments):
    trainer = pyggml.Trainer(network(**arguments), 8, logical)
    for _ in range(steps):
        trainer.step(X, Y)
    return trainer


def parts(path):
    """Metadata and float32 tensors of a file, to be written again with changes."""
    with Container(path) as c:
        meta = {k: c.get(k) for k in c.metadata_keys() if "checksum" not in k}
        arrays = {name: c.read(name) for name in c.entries}
    return meta, [(n, a.shape, "f32", lambda a=a: a) for n, a in arrays.items()]


# ---- the trainer ----------------------------------------------------------------------------

@pytest.mark.parametrize("change", [
    lambda model: model.freeze_bn_stats(), lambda model: model.freeze_weights(),
    lambda model: model.unfreeze_bn_stats(), lambda model: model.unfreeze_weights(),
    lambda model: model.freeze_weights(layer_names="norm")])
@pytest.mark.parametrize("before", [
    lambda model: None, lambda model: model.freeze_bn_stats(),
    lambda model: model.freeze_weights(layer_names="norm"),
    lambda model: model.freeze_weights(layer_names="inner")])
def test_what_is_frozen_for_other_trainers_is_not_for_the_one_that_is_resumed(
        before, change, tmp_path):
    block = pyggml.Sequential([layers.Dense(3, name="inner"), layers.BatchNormalization(
        momentum=0.9, name="norm")], name="block")
    model = pyggml.Sequential([pyggml.Input((6,)), block, layers.Dense(2, name="last")])
    model.compile("adam", "mse")
    before(model)
    trainer = pyggml.Trainer(model, 8)
    trainer.step(X, Y)
    change(model)
    trainer.save_checkpoint(tmp_path / "run")
    again = pyggml.Trainer.from_checkpoint(tmp_path / "run")
    for _ in range(3):
        assert trainer.step(X, Y) == again.step(X, Y)
    assert [w.tobytes() for w in trainer.get_weights()] == [
        w.tobytes() for w in again.get_weights()]


@pytest.mark.parametrize("logical, steps", [(None, 5), (24, 3), (24, 4), (24, 5)])
def test_every_part_of_the_state_comes_back(logical, steps, tmp_path):
    with trained(steps, logical) as first:
        first.set_lr(0.123)
        first.save_checkpoint(tmp_path / "c")
        assert bool(first._get_state()["gradients"]) is (logical is not None and steps % 3 > 0)
        with pyggml.Trainer.from_checkpoint(tmp_path / "c") as second:
            assert state_of(second) == state_of(first)
            for _ in range(4):
                assert second.step(X, Y) == first.step(X, Y)
            assert state_of(second) == state_of(first)


def test_masks_and_weight_decay_come_back(tmp_path):
    for mask in (1, 2):
        model = network("adamw")
        with pyggml.Trainer(model, 8, loss_mask=mask, weight_decay=0.25) as first:
            w = np.arange(8.0) if mask == 1 else np.arange(16.0).reshape(8, 2)
            first.step(X, Y, w)
            first.save_checkpoint(tmp_path / "c")
            with pyggml.Trainer.from_checkpoint(tmp_path / "c") as second:
                assert second.weight_decay == 0.25
                assert second.step(X, Y, w) == first.step(X, Y, w)


def test_a_given_model_is_used_and_left_as_it_was(tmp_path):
    with trained() as first:
        first.save_checkpoint(tmp_path / "c")
        model = network()
        before = model.get_weights()
        with pyggml.Trainer.from_checkpoint(tmp_path / "c", model) as second:
            assert state_of(second) == state_of(first)
            assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))
            assert second.compiled is model


def test_a_trainer_of_the_files_own_model_works_on_its_weights(tmp_path):
    with trained() as first:
        first.save_checkpoint(tmp_path / "c")
        with pyggml.Trainer.from_checkpoint(tmp_path / "c") as second:
            second.step(X, Y)
            assert (second.compiled.predict(X) == second.predict(X)).all()
            kept, at_end = second.compiled, second.predict(X)
            copied, step = second.model(), second.snapshot()
            second.step(X, Y)
            assert (copied.predict(X) == at_end).all() and (step.predict(X) == at_end).all()
            at_end = second.predict(X)
        assert (kept.predict(X) == at_end).all()


@pytest.mark.parametrize("given", [False, True])
def test_weights_that_a_file_lacks_or_gives_twice_are_an_error(given, tmp_path):
    with trained(hidden=2) as trainer:
        trainer.save_checkpoint(tmp_path / "c")
    meta, tensors = parts(tmp_path / "c")
    records = json.loads(meta["pyggml.weights"])
    assert [r["name"] for r in records] == ["a/kernel", "a/bias", "b/kernel", "b/bias"]
    twice = [*records[:3], records[3] | {"tensor": records[1]["tensor"]}]
    for weights, reason in (([], "a/kernel|no room"), (records[:-1], "b/bias|no room"),
                            (twice, "two variables")):
        write(tmp_path / "f", meta | {"pyggml.weights": json.dumps(weights)}, tensors)
        with pytest.raises(pyggml.FileFormatError, match=reason):
            pyggml.Trainer.from_checkpoint(tmp_path / "f", network(hidden=2) if given else None)
        with trained(1, hidden=2) as other, checkpoints.load(tmp_path / "f") as saved:
            before = state_of(other)
            with pytest.raises(pyggml.FileFormatError, match=reason):
                saved.resume(other)
            assert state_of(other) == before


@pytest.mark.parametrize("extra", [
    {"$": "what"}, {"$": ["list"]}, {"$": "float", "value": "x"}, {"$": "bytes", "hex": "0"},
    {"$": "tuple", "items": 3}, {"$": "dict", "items": [[[], 1]]},
    {"$": "scalar", "dtype": "f4", "hex": "00"}, {"$": "scalar", "dtype": "O", "hex": ""},
    {"$": "array", "dtype": "f4", "shape": [2]}, {"$": "array", "dtype": "f4", "shape": [0, -1]},
    {"$": "array", "dtype": "f4", "shape": [0, 1 << 70]}, {"$": "array", "shape": [0]},
    {"$": "array", "dtype": "f4", "shape": [2], "tensor": "none"},
    {"$": "array", "dtype": "f4", "shape": [3], "tensor": "a/bias"},
    {"$": "array", "dtype": "f8", "shape": [2], "tensor": "a/bias"}, "deep"])
def test_values_that_cannot_have_been_saved_are_refused(extra, tmp_path):
    with trained(1, hidden=2) as trainer:
        trainer.save_checkpoint(tmp_path / "c")
    meta, tensors = parts(tmp_path / "c")
    text = "[" * 900 + "]" * 900 if extra == "deep" else json.dumps({"nested": [extra]})
    write(tmp_path / "f", meta | {"pyggml.extra": text}, tensors)
    with pytest.raises(pyggml.FileFormatError, match=r"cannot be read|is not JSON") as caught:
        checkpoints.load(tmp_path / "f")
    assert caught.value.path == str(tmp_path / "f") and caught.value.reason.count("damaged") == 1


@pytest.mark.parametrize("stream", ["null", "{}", '{"bit_generator": "MT19937", "state": 1}'])
def test_a_random_stream_that_does_not_fit_changes_nothing(stream, tmp_path):
    with trained(hidden=2) as trainer:
        trainer.save_checkpoint(tmp_path / "c")
    meta, tensors = parts(tmp_path / "c")
    write(tmp_path / "f", meta | {"pyggml.random": stream}, tensors)
    with trained(1, hidden=2) as other, checkpoints.load(tmp_path / "f") as saved:
        before = state_of(other)
        with pytest.raises(pyggml.FileFormatError, match="random stream"):
            saved.resume(other)
        assert state_of(other) == before
    with pytest.raises(pyggml.FileFormatError, match="random stream"):
        pyggml.Trainer.from_checkpoint(tmp_path / "f")


def test_a_model_that_cannot_be_described_is_given_again(tmp_path):
    def make():
        model = pyggml.Sequential([pyggml.Input((6,), name="x"),
                                   layers.Dense(2, lambda x: ops.square(x), name="a")], name="m")
        model.compile("adam", lambda t, p: ops.square(ops.subtract(t, p)))
        return model

    with pyggml.Trainer(make(), 8) as first:
        first.step(X, Y)
        first.save_checkpoint(tmp_path / "c")
        for load in (pyggml.Trainer.from_checkpoint, pyggml.load_model):
            with pytest.raises(pyggml.FileFormatError, match=r"holds no model.*lambda"):
                load(tmp_path / "c")
        with pyggml.Trainer.from_checkpoint(tmp_path / "c", make()) as second:
            assert state_of(second) == state_of(first)


def test_a_checkpoint_is_a_model_file(tmp_path):
    with trained() as trainer:
        trainer.save_checkpoint(tmp_path / "c")
        model = pyggml.load_model(tmp_path / "c")
        assert (model.predict(X) == trainer.predict(X)).all()
        other = network()
        other.load_weights(tmp_path / "c", by_name=True)
        assert (other.predict(X) == trainer.predict(X)).all()
    with pytest.raises(pyggml.FileFormatError, match="'model', but 'checkpoint'"):
        model.save(tmp_path / "m")
        checkpoints.load(tmp_path / "m")


def test_resume_sets_a_trainer_that_exists(tmp_path):
    with trained(7, 24) as first, trained(2, 24) as second:
        first.save_checkpoint(tmp_path / "c")
        with checkpoints.load(tmp_path / "c") as saved:
            saved.resume(second)
        assert state_of(second) == state_of(first)
        assert second.step(X, Y) == first.step(X, Y)


def test_the_global_stream_comes_back(tmp_path):
    pyggml.set_seed(4)
    with trained(1) as trainer:
        trainer.save_checkpoint(tmp_path / "c")
        wanted = pyggml._random.generator().integers(1 << 62, size=5)
        pyggml.set_seed(99)
        pyggml.Trainer.from_checkpoint(tmp_path / "c").free()
        assert (pyggml._random.generator().integers(1 << 62, size=5) == wanted).all()


@pytest.mark.parametrize("arguments, message", [
    ({"hidden": 9}, "shape"), ({"optimizer": "sgd"}, "SGD"),
    ({"optimizer": pyggml.optimizers.Adam(epsilon=1e-3)}, "epsilon"),
    ({"logical": 16}, r"\(8, 24\), not \(8, 16\)")])
def test_a_state_that_does_not_fit_changes_nothing(arguments, message, tmp_path):
    with trained(4, 24) as first:
        first.save_checkpoint(tmp_path / "c")
    arguments = {"logical": 24} | arguments
    with trained(1, **arguments) as second:
        before = state_of(second)
        stream = pyggml._random.generator().bit_generator.state
        with checkpoints.load(tmp_path / "c") as saved, \
                pytest.raises(pyggml.FileFormatError, match=message) as caught:
            saved.resume(second)
        assert str(tmp_path / "c") in str(caught.value)
        assert state_of(second) == before
        assert pyggml._random.generator().bit_generator.state == stream


@pytest.mark.parametrize("started", [False, True])
def test_a_model_is_prepared_for_its_next_fit_or_left_as_it_was(started, tmp_path):
    with trained(5, 24) as first:
        first.save_checkpoint(tmp_path / "c")
        wanted = state_of(first)
    model, other = network(), network("sgd")
    if started:
        for each in (model, other):
            each.fit(X, Y, verbose=0)
    before = other.get_weights()
    with checkpoints.load(tmp_path / "c") as saved:
        with pytest.raises(ValueError, match="SGD"):
            saved.prepare(other)
        assert all((a == b).all() for a, b in zip(before, other.get_weights(), strict=True))
        other.fit(X, Y, verbose=0)
        saved.prepare(model)
    found = state_of(model.compiled.trainer)
    kept = {key for key in wanted if key[0] != "gradients" and key != "window_rows"}
    assert kept | {"window_rows"} == set(found) and found["window_rows"] == 0
    assert all(found[key] == wanted[key] for key in kept)


def test_a_damaged_file_changes_nothing(tmp_path):
    with trained() as first, trained(2) as second:
        first.save_checkpoint(tmp_path / "c")
        data = bytearray((tmp_path / "c").read_bytes())
        before = state_of(second)
        with checkpoints.load(tmp_path / "c") as saved:
            with open(tmp_path / "c", "r+b") as file:  # damaged after it was opened
                file.seek(len(data) - 40)
                file.write(b"\xff")
            with pytest.raises(pyggml.FileFormatError, match="checksum"):
                saved.resume(second)
        assert state_of(second) == before
        with pytest.raises(pyggml.FileFormatError, match="checksum"):
            checkpoints.load(tmp_path / "c")


def test_a_freed_trainer_is_not_saved(tmp_path):
    trainer = trained(1)
    trainer.free()
    with pytest.raises(RuntimeError, match="freed"):
        trainer.save_checkpoint(tmp_path / "c")
    assert os.listdir(tmp_path) == []


# ---- objects and extra values ---------------------------------------------------------------

class Wait:
    """As a callback keeps its state: numbers, infinity, arrays."""

    def __init__(self):
        self.state = {"best": float("inf"), "wait": 0, "weights": None}

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


VALUES = {
    "none": None, "flag": True, "count": -(1 << 70), "rate": 0.1, "nan": float("nan"),
    "text": "häß\n", "bytes": b"\0\xff", "list": [1, [2.5]], "tuple": (1, (2,)),
    "int_keys": {1: "a", (2, 3): "b"}, "dollar": {"$": 1}, "scalar": np.float32(0.1),
    **{str(np.dtype(t)): np.arange(6).reshape(2, 3).astype(t)
       for t in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")},
    "big_endian": np.arange(3, dtype=">i4"), "empty": np.empty((0, 3), np.float32),
    "five": np.ones((1, 2, 1, 2, 1)), "strided": np.arange(10)[::2],
}


def _equal(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype.newbyteorder(
            a.dtype.byteorder) and a.shape == b.shape and (a == b).all()
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, float) and a != a:
        return b != b
    return type(a) is type(b) and a == b


def test_values_of_all_kinds_come_back(tmp_path):
    with trained(1) as trainer:
        trainer.save_checkpoint(tmp_path / "c", extra=VALUES)
    with checkpoints.load(tmp_path / "c") as saved:
        for key, value in VALUES.items():
            assert _equal(value, saved.extra[key]), key
        assert saved.n_steps == saved.n_updates == 1


def test_objects_get_their_states_back(tmp_path):
    wait, rng, old = Wait(), np.random.default_rng(3), np.random.RandomState(4)
    other = np.random.Generator(np.random.MT19937(5))
    rng.normal(size=3)
    old.normal(size=3)
    other.integers(9, size=700)
    wait.state["weights"] = [np.arange(4.0), np.ones((2, 2), np.float32)]
    objects = {"wait": wait, "rng": rng, "old": old, "other": other}
    with trained(1) as trainer:
        trainer.save_checkpoint(tmp_path / "c", objects=objects)
    again = {"wait": Wait(), "rng": np.random.default_rng(), "old": np.random.RandomState(),
             "other": np.random.Generator(np.random.MT19937())}
    with checkpoints.load(tmp_path / "c") as saved:
        assert saved.objects == sorted(objects)
        saved.restore(again)
        with pytest.raises(KeyError, match=r"'more'"):
            saved.restore({"wait": wait, "more": wait})
        with pytest.raises(pyggml.FileFormatError, match=r"'rng'.*MT19937"):
            saved.restore({"rng": other})
    assert again["wait"].state["best"] == float("inf")
    for a, b in zip(wait.state["weights"], again["wait"].state["weights"], strict=True):
        assert a.dtype == b.dtype and (a == b).all()
    for name in ("rng", "old", "other"):
        assert (again[name].normal(size=9) == objects[name].normal(size=9)).all()


@pytest.mark.parametrize("given, message", [
    ({"objects": {"o": object()}}, "objects\\['o'\\]"), ({"extra": {"a": {1, 2}}}, "extra/a"),
    ({"extra": np.array(["text"])}, "extra"), ({"extra": {"z": 1j}}, "extra/z"),
    ({"keep": 0}, "keep")])
def test_what_cannot_be_saved_is_refused_and_nothing_written(given, message, tmp_path):
    with trained(1) as trainer, pytest.raises((TypeError, ValueError), match=message):
        trainer.save_checkpoint(tmp_path / "c", **given)
    assert os.listdir(tmp_path) == []


# ---- the newest good one --------------------------------------------------------------------

def test_latest_passes_over_damaged_files(tmp_path):
    path = tmp_path / "c"
    assert checkpoints.latest(path) is None
    with trained(0) as trainer:
        for _ in range(3):
            trainer.step(X, Y)
            trainer.save_checkpoint(path, keep=3)
    assert checkpoints.latest(path) == str(path)
    for damaged, left in ((path, f"{path}.1"), (tmp_path / "c.1", f"{path}.2")):
        with open(damaged, "r+b") as file:
            file.truncate(1000)
        assert checkpoints.latest(path) == left
    with checkpoints.load(checkpoints.latest(path)) as saved:
        assert saved.n_steps == 1
    os.truncate(tmp_path / "c.2", 10)
    with pytest.raises(pyggml.FileFormatError, match="cut short"):
        checkpoints.latest(path)


def test_latest_finds_what_a_rotation_without_links_left(tmp_path):
    with trained(1) as trainer:
        trainer.save_checkpoint(tmp_path / "c")
    os.rename(tmp_path / "c", tmp_path / "c.1")
    assert checkpoints.latest(tmp_path / "c") == str(tmp_path / "c.1")


# ---- interrupts -----------------------------------------------------------------------------

# Between open() and "with" nobody closes a file but the end of its last reference.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("schedule", [False, True])
def test_an_exception_between_any_two_lines_resumes_all_or_nothing(schedule, tmp_path):
    rate = pyggml.schedules.ExponentialDecay(0.5, initial_learning_rate=0.1, by="step")
    optimizer = pyggml.optimizers.Adam(rate if schedule else 0.1)
    trainer = pyggml.Trainer(network(optimizer), 8, 16)
    old = state_of(trainer)
    for _ in range(3):
        trainer.step(X, Y)
    trainer.save_checkpoint(tmp_path / "old")
    old = state_of(trainer)
    for _ in range(4):
        trainer.step(X, Y)
    trainer.save_checkpoint(tmp_path / "new")
    new = state_of(trainer)
    assert all(old[key] != new[key] for key in ("steps", "updates", ("weights", "b/kernel")))
    assert (old["lr"] == new["lr"]) is not schedule
    found = []

    def call():
        with checkpoints.load(tmp_path / "new") as saved:
            saved.resume(trainer)

    def check(line):
        state = state_of(trainer)
        assert state in (old, new), line
        found.append(state == new)
        if found[-1]:
            with checkpoints.load(tmp_path / "old") as saved:
                saved.resume(trainer)
            assert state_of(trainer) == old

    with checkpoints.load(tmp_path / "old") as saved:
        saved.resume(trainer)
    interrupt_everywhere(call, check)
    assert set(found) == {False, True}
