"""Tries to reach the assertions of ggml that docs/assertions.md lists: all end as exceptions.

One child process a group makes every attempt of it, with the lowering on and off; one that got
through to ggml would end it by a signal.
"""

import sys
from pathlib import Path

import pytest
from child import run_child

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import assertions  # noqa: E402

PREPARE = """
import math
import numpy as np
import pyggml
from pyggml import layers, losses, ops, opt
pyggml.set_num_threads(2)

class Twisted(layers.Layer):
    def __init__(self, function, weights=()):
        super().__init__()
        self.function, self.shapes = function, weights
    def build(self, input_shape):
        self.w = [self.add_weight(f"w{i}", s, "ones") for i, s in enumerate(self.shapes)]
    def call(self, x):
        return self.function(x, *[x.graph.weight(w) for w in self.w])

def graph(shape=(4, 3), training=True, dtype="float32", batch=4):
    g = opt.Graph(batch, training=training)
    return g, g.input(shape, dtype)

def var(*shape, axes=None):
    return pyggml.Variable(shape, "w", axes=axes)

def context(kind="mse", optimizer="sgd", **more):
    g, x = graph()
    return opt.OptContext(x, ops.linear(x, var(3, 2, axes=(1, 0))), kind, optimizer, **more)

g, x = graph()
i = g.input((4,), "int32")
img = g.input((2, 3, 5, 5))
x3 = g.input((2, 3, 4))
"""

# Every attempt: code, and the exceptions that are right for it.
ATTEMPTS = {
    "shapes": {
        "ops.add(x, g.input((4, 2)))": "ValueError",
        "ops.subtract(x, g.input((3, 3)))": "ValueError",
        "ops.multiply(x, g.input((2, 4, 2)))": "ValueError",
        "ops.divide(var(5), x)": "ValueError",
        "ops.broadcast_to(x, (4, 4))": "ValueError",
        "ops.broadcast_to(x, (3,))": "ValueError",
        "ops.reshape(x, (5, 3))": "ValueError",
        "ops.reshape(x, (1, 1, 1, 4, 3))": "ValueError",
        "ops.reshape(x, (-1, 0))": "ValueError",
        "ops.reshape(x, (-1, -1))": "ValueError",
        "ops.transpose(x, (0, 0))": "ValueError",
        "ops.transpose(x, (0, 2))": "ValueError",
        "ops.transpose(x, (0, 1, 2))": "ValueError",
        "ops.linear(x, var(4, 2))": "ValueError",
        "ops.linear(x, var(3))": "ValueError",
        "ops.linear(x, var(3, 2, 1))": "ValueError",
        "ops.matmul(x, x)": "ValueError",
        "ops.matmul(x3, ops.transpose(x3, (1, 2, 0)))": "ValueError",
        "ops.matmul_transposed(x, x3)": "ValueError",
        "ops.matmul_transposed(x3, var(3, 3, 4))": "ValueError",
        "ops.slice(x, (0, 2), (4, 2))": "ValueError",
        "ops.slice(x, (-1, 0), (4, 1))": "ValueError",
        "ops.slice(x, (0, 0), (0, 1))": "ValueError",
        "ops.split(x, 2)": "ValueError",
        "ops.split(x, (1, 1))": "ValueError",
        "ops.split(x, (4, -1))": "ValueError",
        "ops.concatenate([x, g.input((4, 3, 1))])": "ValueError",
        "ops.concatenate([x, g.input((3, 2))])": "ValueError",
        "ops.concatenate([])": "ValueError",
        "ops.stack([x, g.input((3, 4))])": "ValueError",
        "ops.stack([img, img])": "ValueError",
        "ops.pad(x, [(0, -1), (0, 0)])": "ValueError",
        "ops.pad(x, [(0, 1)])": "ValueError",
        "ops.repeat(x, 0, 0)": "ValueError",
        "ops.repeat(x, 2**63, 0)": "ValueError",
        "ops.repeat(x, 2**61, 0)": "MemoryError",
        "ops.repeat(x, float('inf'), 0)": "TypeError",
        "ops.flip(x, 2)": "ValueError",
        "ops.mask_future(g.input((4,)))": "ValueError",
        "ops.sum(x, axis=2)": "ValueError",
        "ops.mean(x, axis=(0, -3))": "ValueError",
        "g.input((1, 2, 3, 4, 5))": "ValueError",
        "g.input((0, 3))": "ValueError",
        "g.input((-1,))": "ValueError",
        "var(1, 1, 1, 1, 1)": "ValueError",
        "var(0)": "ValueError",
        "ops.constant(x, np.zeros((1, 1, 1, 1, 1)))": "ValueError",
        "ops.constant(x, np.zeros((0, 3)))": "ValueError",
    },
    "images": {
        "ops.conv2d(x, var(2, 3, 2, 2))": "ValueError",
        "ops.conv2d(img, var(2, 4, 2, 2))": "ValueError",
        "ops.conv2d(img, var(2, 3, 6, 6))": "ValueError",
        "ops.conv2d(img, var(2, 3, 2, 2), strides=(0, 1))": "ValueError",
        "ops.conv2d(img, var(2, 3, 2, 2), dilation=(1, -1))": "ValueError",
        "ops.conv2d(img, var(2, 3, 2, 2), padding=((-1, 0), (0, 0)))": "ValueError",
        "ops.conv2d(img, var(2, 3, 2, 2), strides=(2**40, 1))": "ValueError",
        "ops.conv2d(img, var(2, 3, 2, 2), bias=var(3))": "ValueError",
        "ops.depthwise_conv2d(img, var(2, 1, 2, 2))": "ValueError",
        "ops.max_pool2d(img, (6, 1), (1, 1))": "ValueError",
        "ops.max_pool2d(img, (2, 2), (1, 1), ((2, 0), (0, 0)))": "ValueError",
        "ops.average_pool2d(img, (0, 1), (1, 1))": "ValueError",
        "ops.average_pool2d(x, (1, 1), (1, 1))": "ValueError",
        "ops.spread(img, (0, 1))": "ValueError",
        "layers.Conv2D(2, 3)(pyggml.Input((3, 2, 2)))": "ValueError",
        "layers.MaxPooling2D(4)(pyggml.Input((3, 2, 2)))": "ValueError",
    },
    "types": {
        "ops.add(x, i)": "TypeError",
        "ops.exp(i)": "TypeError",
        "ops.linear(i, var(4, 2))": "TypeError",
        "ops.concatenate([i, i])": "TypeError",
        "ops.take(x, x)": "TypeError",
        "ops.take(x, ops.reshape(i, (2, 2)))": "ValueError",
        "ops.take(x, np.array([0, 4]))": "ValueError",
        "ops.take(x, np.array([-1]))": "ValueError",
        "ops.take(x, np.array([0.5]))": "TypeError",
        "ops.take(x, np.zeros((1, 1, 1, 1), int))": "ValueError",
        "ops.take(x3, i)": "ValueError",
        "ops.add(x, opt.Graph(4).input((4, 3)))": "ValueError",
        "ops.take(x, opt.Graph(4).input((4,), 'int32'))": "ValueError",
        "ops.add('x', 'y')": "TypeError",
        "ops.exp(None)": "TypeError",
        "ops.constant(x, np.array(['a']))": "TypeError",
        "ops.rms_normalize(x, 0.0)": "ValueError",
        "ops.rms_normalize(x, float('nan'))": "ValueError",
        "ops.clip(x, 1, 0)": "ValueError",
        "pyggml.Variable((2,), 'w').assign(np.zeros(3))": "ValueError",
        "pyggml.Variable((2,), 'w').assign(np.zeros(2, complex))": "TypeError",
    },
    "graphs": {
        # No weight, no loss that depends on one, an operation on what has no gradient.
        "opt.OptContext(x, x, 'mse')": "ValueError",
        "opt.OptContext(x, ops.sign(ops.linear(x, var(3, 2))), 'mse')": "ValueError",
        "opt.OptContext(*(lambda a: (a[1], ops.linear(a[1], var(3, 1))))"
        "(graph(training=False)), 'mse')": "ValueError",
        "opt.OptContext(x, ops.linear(g.input((5, 3)), var(3, 2)))": "ValueError",
        "opt.OptContext(ops.exp(x), ops.linear(x, var(3, 2)))": "ValueError",
        "(lambda a: opt.OptContext(a[0].input((4,), 'int32'), ops.linear(a[1], var(3, 2))))"
        "(graph())": "NotImplementedError",
        "(lambda a: opt.OptContext(a[1], a[0].input((4,), 'int32')))(graph())": "TypeError",
        "opt.OptContext(x, x3)": "ValueError",
        "opt.OptContext([], [])": "ValueError",
        "opt.OptContext(x, None)": "TypeError",
        "opt.OptContext(x, graph()[1])": "ValueError",
        "twice()": "ValueError",
        "deep(3000)": "NotImplementedError",
        "deep(600)": "NotImplementedError",
        "train(layers.Lambda(lambda t: ops.sign(t)))": "ValueError",
        "train(layers.Flatten())": "ValueError",
        "train(layers.Dense(2, trainable=False))": "ValueError",
        "train(layers.Lambda(lambda t: 3.0))": "TypeError",
        "train(layers.Lambda(lambda t: None))": "TypeError",
        "train(layers.Lambda(lambda t: ops.sum(t)))": "ValueError",
        "train(layers.Activation(lambda t: ops.sum(t, axis=-1)))": "ValueError",
        "train(layers.Dense(2), loss=lambda a, b: 3.0)": "TypeError",
        "train(layers.Dense(2), loss=lambda a, b: ops.sum(b))": "ValueError",
        "train(layers.Dense(2, kernel_regularizer=lambda w: w))": "TypeError",
        "train(layers.Dense(2, kernel_regularizer=lambda w: 1.0))": "TypeError",
    },
    "gradients": {
        # Chains whose backward pass meets what aborts in ggml; each has to train.
        "step(lambda t, w: ops.sigmoid(ops.multiply(t, w)), (4,))": "",
        "step(lambda t, w: ops.tanh(ops.multiply(t, w)), (4,))": "",
        "step(lambda t, w: ops.transpose(ops.transpose(ops.multiply(t, w), (1, 0)), (1, 0)),"
        " (4,))": "",
        "step(lambda t, w: ops.subtract(t, w), (1,))": "",
        "step(lambda t, w: ops.divide(t, ops.add(w, 2.0)), (1, 1))": "",
        "step(lambda t, w: ops.concatenate([ops.multiply(t, w), t]), (4,))": "",
        "step(lambda t, w: ops.broadcast_to(ops.sum(ops.multiply(t, w), -1, True), t.shape),"
        " (4,))": "",
        "step(lambda t, w: ops.softmax(ops.multiply(t, w)), (4,))": "",
        "step(lambda t, w: ops.log_softmax(ops.multiply(t, w)), (4,))": "",
        "step(lambda t, w: ops.max_last(ops.multiply(t, w)), (4,))": "",
        "step(lambda t, w: ops.take(w, np.zeros(t.shape[0], int)), (3, 2))": "",
        "step(lambda t, w: ops.slice(ops.multiply(t, w), (0, 1), (t.shape[0], 2)), (4,))": "",
        "step(lambda t, w: ops.pad(ops.multiply(t, w), [(0, 0), (1, 2)], 0.5), (4,))": "",
        "step(lambda t, w: ops.flip(ops.multiply(t, w), 1), (4,))": "",
        "step(lambda t, w: ops.repeat(ops.multiply(t, w), 2, 1), (4,))": "",
        "step(lambda t, w: ops.matmul(ops.multiply(t, w), ops.constant(t, np.ones((4, 3)))),"
        " (4,))": "",
        "step(lambda t, w: ops.rms_normalize(ops.multiply(t, w)), (4,))": "",
        "step(lambda t, w: ops.softmax(ops.mask_future(ops.multiply(t, w))), (4,))": "",
        "step(lambda t, w: ops.expm1(ops.clip(ops.multiply(t, w), -1, 1)), (4,))": "",
        "step(lambda t, w: ops.dropout(ops.multiply(t, w), 0.5), (4,))": "ValueError",
        "step(lambda t, w: ops.dropout(t * w, 0.5) if t.graph.training else t * w, (4,))": "",
        "step(lambda t, w: ops.mean(ops.stack([ops.multiply(t, w), t], 1), 1), (4,))": "",
        "step(lambda t, w: ops.reshape(ops.conv2d(ops.reshape(t, (-1, 1, 2, 2)), w), (-1, 2)),"
        " (2, 1, 2, 2))": "",
        "step(lambda t, w: ops.reshape(ops.max_pool2d(ops.reshape(ops.multiply(t, w),"
        " (-1, 1, 2, 2)), (2, 2), (1, 1), ((1, 0), (0, 1))), (-1, 4)), (4,))": "",
        "step(lambda t, w: ops.multiply(t, ops.multiply(w, 0.0)), (4,))": "",
    },
    "contexts": {
        "context('mse', 'sgd', params={'learning_rate': 0.0})": "ValueError",
        "context('mse', 'sgd', params={'learning_rate': float('nan')})": "ValueError",
        "context('mse', 'adamw', params={'beta_1': 1.0})": "ValueError",
        "context('mse', 'adamw', params={'beta_2': -0.1})": "ValueError",
        "context('mse', 'adamw', params={'epsilon': -1.0})": "ValueError",
        "context('mse', 'adamw', params={'weight_decay': 1.5})": "ValueError",
        "context('mse', 'adam')": "ValueError",
        "context('mean_error')": "ValueError",
        "context('mse', opt_period=0)": "ValueError",
        "context('mse', opt_period=2**31)": "ValueError",
        "context().set_lr(0)": "ValueError",
        "context().set_lr(1e-60)": "ValueError",
        "context().eval()": "RuntimeError",
        "(lambda c: (c.alloc(), c.alloc()))(context())": "RuntimeError",
        "(lambda c: (c.alloc(), c.reset()))(context())": "RuntimeError",
        "(lambda c: (c.step(np.ones((4, 3)), np.ones((4, 2))), c.alloc(False)))"
        "(context(opt_period=2))": "RuntimeError",
        "context(forward_only=True).alloc()": "RuntimeError",
        "opt.OptContext.dynamic().alloc()": "RuntimeError",
        "context().prepare_alloc(x, x)": "RuntimeError",
        "(lambda c: (c.free(), c.step(np.ones((4, 3)), np.ones((4, 2)))))(context())":
            "RuntimeError",
        "(lambda c: (c.free(), c.alloc()))(context())": "RuntimeError",
        "context().step(np.ones((5, 3)), np.ones((5, 2)))": "ValueError",
        "context().step(np.ones((4, 3)))": "ValueError",
        "(lambda r: (context().step(np.ones((4, 3)), np.ones((4, 2)), None, r),"
        " context('sum').step(np.ones((4, 3)), None, None, r)))(opt.Result())": "ValueError",
        "pyggml.optimizers.SGD(float('nan'))": "ValueError",
        "pyggml.optimizers.Adam(beta_1=1.0)": "ValueError",
        "trained().set_lr(-1e-9)": "ValueError",
    },
    "data sets": {
        "opt.Dataset(0, 1, 4)": "ValueError",
        "opt.Dataset(3, -1, 4)": "ValueError",
        "opt.Dataset(3, 1, 0)": "ValueError",
        "opt.Dataset(3, 1, 5, 2)": "ValueError",
        "opt.Dataset(3, 1, 4, 0)": "ValueError",
        "opt.Dataset(2**40, 1, 2**40)": "MemoryError",
        "opt.Dataset(2**63, 1, 1)": "ValueError MemoryError",
        "opt.Dataset(3, 2, 4).get_batch(3, 1)": "IndexError",
        "opt.Dataset(3, 2, 4, 2).get_batch(3, 0)": "ValueError",
        "opt.Dataset(3, 2, 4).get_batch(8, 0)": "IndexError",
        "opt.Dataset(3, 2, 4).get_batch(2, -1)": "ValueError",
        "opt.Dataset(3, 2, 4).shuffle(context(), 5)": "ValueError",
        "opt.Dataset(3, 2, 4, 2).shuffle(context(), 3)": "ValueError",
        "opt.Dataset(3, 2, 4).shuffle(None)": "TypeError",
        "opt.Dataset(3, 2, 4).shuffle((lambda c: (c.free(), c)[1])(context()))": "RuntimeError",
        "(lambda d: (d.free(), d.data))(opt.Dataset(3, 2, 4))": "RuntimeError",
        "opt.epoch(context(), opt.Dataset(3, 2, 6))": "ValueError",
        "opt.epoch(context(), opt.Dataset(3, 2, 8), idata_split=3)": "ValueError",
        "opt.epoch(context(), None)": "TypeError",
        "opt.epoch(None, opt.Dataset(3, 2, 8))": "TypeError",
        "opt.epoch(context(), opt.Dataset(5, 2, 8))": "ValueError",
        "opt.fit_opt(x, ops.linear(x, var(3, 2)), opt.Dataset(3, 2, 8), val_split=1.0)":
            "ValueError",
    },
    "files": {
        "model().save('/tmp', quantize='q9')": "ValueError",
        "pyggml._gguf.quantize(np.ones((2, 33), np.float32), 'q8_0')": "ValueError",
        "pyggml._gguf.quantize(np.ones((2, 32), np.float32), 'f32')": "ValueError",
        "pyggml._gguf.dequantize(np.zeros(33, np.uint8), 'q8_0', np.zeros(32, np.float32))":
            "ValueError",
        "pyggml._gguf.dequantize(np.zeros(4, np.uint8), 'i32', np.zeros(1, np.float32))":
            "ValueError",
    },
    "threads": {
        "pyggml.set_num_threads(0)": "ValueError",
        "pyggml.set_num_threads(513)": "ValueError",
        "pyggml.set_num_threads(2**70)": "ValueError",
        "pyggml.set_num_threads('2')": "TypeError",
    },
}

HELPERS = """
def model(*stack, loss="mse"):
    made = pyggml.Sequential([pyggml.Input((4,)), *(stack or (layers.Dense(2),))])
    made.compile("sgd", loss)
    return made

def train(layer, loss="mse"):
    pyggml.Trainer(model(layer, loss=loss), 3)

def trained():
    return pyggml.Trainer(model(), 3)

def step(function, shape, loss="mse"):
    made = model(Twisted(function, [shape]), loss=loss)
    rows = 4
    t = pyggml.Trainer(made, rows)
    x = np.random.default_rng(0).uniform(0.1, 0.9, (rows, 4))
    y = None if loss == "output" else np.zeros((rows, *made.output_shape[1:]))
    t.step(x, y)
    t.predict(x)
    t.gradients(x, y)

def twice():
    g, x = graph()
    out = ops.linear(x, var(3, 2))
    opt.OptContext(x, out)
    opt.OptContext(x, out)

def deep(n):
    g, x = graph((4, 3))
    h = x
    for _ in range(n):
        h = ops.linear(h, var(3, 3, axes=(1, 0)))
    opt.OptContext(x, h, "mse")
"""


def _attempt(group, env=None):
    return run_child(PREPARE + HELPERS + f"""
import pyggml._gguf
for call, kinds in {ATTEMPTS[group]!r}.items():
    try:
        eval(call)
    except Exception as error:
        names = {{c.__name__ for c in type(error).__mro__}}
        if not names & set(kinds.split()):
            print(f"{{call}}: {{type(error).__name__}}: {{error}}")
    else:
        if kinds:
            print(f"{{call}}: went through")
# Nothing was broken on the way.
t = pyggml.Trainer(model(), 4)
first = t.step(np.ones((4, 4)), np.ones((4, 2)))
if not t.step(np.ones((4, 4)), np.ones((4, 2))) < first:
    print("training does not work any more")
c = context()
c.step(np.ones((4, 3)), np.ones((4, 2)))
""", timeout=300, env=env)


def test_a_graph_with_more_holes_than_ggml_plans_for_still_runs():
    """Hundreds of results of growing sizes that live at once, with one that ends between each."""
    assert run_child("""
        import numpy as np, pyggml
        from pyggml import layers, ops
        class Holes(layers.Layer):
            def build(self, input_shape):
                self.w = self.add_weight("w", (1,), "ones")
            def call(self, x):
                base = ops.multiply(ops.mean(x, axis=-1, keepdims=True), x.graph.weight(self.w))
                kept = []
                for i in range(1, 290):
                    t = ops.broadcast_to(base, (x.shape[0], 16 * i))
                    kept.append(ops.pad(t, [(0, 0), (0, 8)], 1.0))
                total = base
                for k in reversed(kept):
                    total = ops.mean(ops.add(k, total), axis=-1, keepdims=True)
                return total
        a = pyggml.Input((4,))
        model = pyggml.Model(a, Holes()(a))
        x = np.ones((2, 4), np.float32)
        want = 1 + sum((16 * i * 1.0 + 8) / (16 * i + 8) for i in range(1, 290))
        print(np.allclose(model.predict(x), want, rtol=1e-5))
    """, env={"PYGGML_LOWERING": "0"}) == "True\n"


@pytest.mark.parametrize("lowering", ["0", "1"])
@pytest.mark.parametrize("group", ATTEMPTS)
def test_ggml_is_not_reached_by(group, lowering):
    assert _attempt(group, {"PYGGML_LOWERING": lowering}) == ""


def test_every_function_of_ggml_that_is_called_is_in_the_map():
    assert assertions.missing() == []


def test_the_map_names_nothing_that_is_not_there():
    text = (ROOT / "docs" / "assertions.md").read_text(encoding="utf-8")
    for group in assertions.groups_named(text):
        assert group in ATTEMPTS, group
    for name in assertions.tests_named(text):
        file, test = name.split("::")
        assert f"def {test}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), name


def test_a_function_that_the_map_lacks_is_noticed(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "assertions.md").read_text(encoding="utf-8")
    thinner = tmp_path / "assertions.md"
    thinner.write_text(text.replace("`ggml_acc`", "ggml_acc"), encoding="utf-8")
    monkeypatch.setattr(assertions, "MAP", thinner)
    assert assertions.missing() == ["ggml_acc"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_threads_that_cannot_start_are_an_exception():
    said = run_child("""
        import os, resource, sys
        os.sched_getaffinity = lambda pid: set(range(64))  # no more threads than processors
        import numpy as np
        import pyggml
        pyggml.set_num_threads(1)
        model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2)])
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        # Stacks of 8 MiB for 63 threads do not fit.
        resource.setrlimit(resource.RLIMIT_AS, (size + (128 << 20), resource.RLIM_INFINITY))
        pyggml.set_num_threads(64)
        try:
            model.predict(np.ones((2, 4)))
        except (RuntimeError, MemoryError) as error:
            print(error)
        pyggml.set_num_threads(2)
        print(model.predict(np.ones((2, 4))).shape)
    """, env={"PYGGML_LOWERING": "0"}).splitlines()
    assert said[-1] == "(2, 2)"
    assert said[0].startswith("64 threads could not be started")
