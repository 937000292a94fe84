"""What does not fit into memory is a MemoryError that names the bytes, and the process goes on."""

import re
import sys

import pytest
from child import run_child

from pyggml import _memory

resource = pytest.importorskip("resource")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

PREPARE = """
import gc, os, resource
import numpy as np
import pyggml
from pyggml import layers, ops, opt
pyggml.set_num_threads(1)
pyggml.set_seed(1)

def leave(mib):
    '''Let the address space grow by so much more.'''
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (mib << 20), resource.RLIM_INFINITY))

def free():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def make(*units, optimizer="adam"):
    model = pyggml.Sequential([pyggml.Input((64,)), *[layers.Dense(n, "tanh") for n in units],
                               layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model

def refused(call):
    try:
        call()
    except MemoryError as error:
        print(error)
    else:
        print("no error")
    gc.collect()

x, y = np.ones((32, 64), np.float32), np.ones((32, 1), np.float32)
model = make(32)
trainer = pyggml.Trainer(model, 32)
trainer.step(x, y)
model.predict(x)
model.fit(x, y, verbose=0)

def state():
    return ([w.tobytes() for w in trainer.get_weights() + model.get_weights()],
            trainer.n_steps, trainer.n_updates)

before = state()
"""

AFTER = """
assert state() == before
free()
first = trainer.step(x, y)
assert trainer.step(x, y) < first
model.fit(x, y, verbose=0)
assert model.predict(x).shape == (32, 1)
"""

CASES = {
    "a model": ("make(1 << 20)", 4 * 64 << 20),
    "a trainer": ("pyggml.Trainer(big, 8)", None),
    "a batch": ("pyggml.Trainer(model, 1 << 20)", None),
    "a batch of a deep model": ("pyggml.Trainer(deep, 1 << 15)", None),
    "a fit": ("deep.fit(wide, wide[:, :1], batch_size=1 << 15, verbose=0)", None),
    "an evaluation": ("deep.evaluate(wide, wide[:, :1], batch_size=1 << 15, verbose=0)", None),
    "a prediction": ("deep.predict(wide, batch_size=1 << 15)", None),
    "a variable": ("pyggml.Variable((1 << 14, 1 << 14))", 1 << 30),
    "a data set": ("opt.Dataset(1 << 14, 1, 1 << 14)", None),
    "a snapshot": ("[trainers[0].snapshot() for _ in range(64)]", None),
    "a copy of a model": ("[big.copy() for _ in range(64)]", None),
    "a trainer's model": ("[trainers[0].model() for _ in range(64)]", None),
    "a low-level context": ("context()", None),
}


@linux
@pytest.mark.parametrize("case", CASES)
def test_a_limit_on_the_address_space_is_a_memory_error_for(case):
    call, nbytes = CASES[case]
    said = run_child(PREPARE + f"""
big = make(1 << 17)
deep = make(*[512] * 12)
trainers = [pyggml.Trainer(big, 8)] if "trainers" in {call!r} else []
wide = np.ones((1 << 15, 64), np.float32)

def context():
    graph = opt.Graph(1 << 14, training=True)
    a = graph.input((1 << 14, 64))
    h = ops.tanh(ops.linear(a, pyggml.Variable((64, 2048), "w", axes=(1, 0))))
    opt.OptContext(a, ops.linear(h, pyggml.Variable((2048, 1), "v", axes=(1, 0))))

leave(100)
for _ in range(3):
    refused(lambda: {call})
""" + AFTER, timeout=300).splitlines()
    assert len(said) == 3
    for line in said:
        # NumPy's own words are in units, ours in bytes.
        found = re.match(r"(\d+) bytes for .* could not be allocated"
                         r"|Unable to allocate [\d.]+ [KMG]iB", line)
        assert found, line
        if nbytes is not None:
            assert int(found[1]) == nbytes, line


@linux
def test_a_step_whose_kernels_find_no_memory_moves_nothing():
    """The columns of a convolution are the threads' own memory, taken at the first step."""
    said = run_child(PREPARE + """
def image(kind):
    made = pyggml.Sequential([pyggml.Input((64, 40, 40)), layers.Conv2D(96, 5, activation="relu"),
                              layers.BatchNormalization(momentum=0.9),
                              layers.GlobalAveragePooling2D(), layers.Dense(1)])
    made.compile(kind, "mse")
    return made

a = np.random.default_rng(1).normal(size=(4, 64, 40, 40)).astype(np.float32)
b = np.ones((4, 1), np.float32)
failed = 0
for kind in ("adam", "rmsprop"):
    for logical in (4, 8):
        found = image(kind)
        want = pyggml.Trainer(found, 4, logical)
        t = pyggml.Trainer(found, 4, logical)
        for left in range(40):  # as little as lets it begin, then a little more
            held = [w.tobytes() for w in t.get_weights()], t.n_steps, t.n_updates
            leave(0)
            with open("/proc/self/statm") as file:
                size = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + (left << 16), resource.RLIM_INFINITY))
            try:
                t.step(a, b)
            except MemoryError:
                failed += 1
                free()
                assert ([w.tobytes() for w in t.get_weights()], t.n_steps, t.n_updates) == held
            else:
                break
        free()
        while t.n_steps < 4:
            t.step(a, b)
        for _ in range(4):
            want.step(a, b)
        assert t.n_updates == want.n_updates
        same = [(u == v).all() for u, v in zip(t.get_weights(), want.get_weights())]
        assert all(same), (kind, logical, same)
""", env={"PYGGML_LOWERING": "1"})
    assert said == ""


@linux
def test_a_limit_on_data_is_a_memory_error_too():
    said = run_child(PREPARE + """
if not hasattr(resource, "RLIMIT_DATA"):
    raise SystemExit
with open("/proc/self/statm") as file:
    size = int(file.read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (size + (64 << 20), resource.RLIM_INFINITY))
refused(lambda: make(1 << 20))
refused(lambda: pyggml.Trainer(model, 1 << 20))
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
""" + AFTER)
    assert [line.split(" for ")[0] for line in said.splitlines()] == [
        "268435456 bytes", "276824072 bytes"]


def test_what_the_machine_does_not_have_is_refused_before_it_is_taken(monkeypatch):
    """Linux gives more memory than there is, and ends the process that uses it."""
    left, where = _memory.available()
    assert left > 0 and where
    if where == "nobody":
        pytest.skip("this system does not tell")
    with pytest.raises(MemoryError, match=rf"{2 * left} bytes for a test could not be allocated"):
        _memory.check(2 * left, "a test")
    _memory.check(left // 4, "a test")


def test_a_control_group_bounds_what_is_available(tmp_path):
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    membership = tmp_path / "cgroup"
    membership.write_text("0::/jobs/one\n")
    root = tmp_path / "fs"
    write(root / "jobs" / "memory.max", "1000000\n")
    write(root / "jobs" / "memory.current", "400000\n")
    write(root / "jobs" / "memory.stat", "anon 1\ninactive_file 50000\nactive_file 0\n")
    write(root / "jobs" / "one" / "memory.max", "max\n")
    assert _memory._group(str(root), str(membership)) == 650000
    membership.write_text("5:cpu,memory:/batch\n4:pids:/\n")
    write(root / "memory" / "batch" / "memory.limit_in_bytes", "5000\n")
    write(root / "memory" / "batch" / "memory.usage_in_bytes", "6000\n")
    assert _memory._group(str(root), str(membership)) == 0
    assert _memory._group(str(root), str(tmp_path / "none")) is None


def test_sizes_that_do_not_fit_into_numbers_are_refused():
    assert run_child(PREPARE + """
graph = opt.Graph(4, training=True)
a = graph.input((4, 4))
for call in (lambda: graph.input((1 << 31, 1 << 31, 4)),
             lambda: ops.broadcast_to(ops.reshape(a, (4, 1, 4)), (4, 1 << 45, 4)),
             lambda: ops.broadcast_to(ops.reshape(a, (4, 4, 1, 1)), (4, 4, 1 << 39, 1 << 39)),
             lambda: pyggml.Variable((1 << 40, 1 << 40))):
    try:
        call()
    except MemoryError as error:
        assert "does not fit into memory" in str(error), error
    else:
        print("no error")
""" + AFTER) == ""
