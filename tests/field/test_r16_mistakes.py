"""R16: no user mistake kills the interpreter.

All mistakes are made in one process; each is an exception that names the argument, nothing goes
to stderr, and a model that was there before is what it was.
"""

import sys

import pytest
from child import run_child

PRELUDE = """
import numpy as np
import pyggml
from pyggml import callbacks, layers, losses, optimizers
pyggml.set_num_threads(1)
x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
y = (x @ [[1.0], [2], [3], [4]]).astype(np.float32)
image = np.ones((2, 1, 4, 4), np.float32)

def sequential(*stack, shape=(4,)):
    model = pyggml.Sequential([pyggml.Input(shape), *stack])
    model.compile("sgd", "mse")
    return model

def make():
    pyggml.set_seed(1)
    return sequential(layers.Dense(3, "tanh"), layers.Dense(1))

def two():
    a, b = pyggml.Input((4,), name="a"), pyggml.Input((4,), name="b")
    model = pyggml.Model([a, b], [layers.Dense(1, name="p")(a), layers.Dense(1, name="q")(b)])
    model.compile("sgd", "mse")
    return model

def generator_of(n):
    while True:
        yield x[:n], y[:n]

good, trained = make(), make()
trained.fit(x, y, verbose=0)
trainer = pyggml.Trainer(make(), 8)
snapshot = trainer.snapshot()

def loop_in_symbols():
    a = pyggml.Input((4,))
    b = layers.Dense(4)(a)
    c = layers.Dense(4)(b)
    b.node.inputs[0] = c
    pyggml.Model(a, c)

def loop_of_models():
    model = pyggml.Sequential([layers.Dense(4)])
    model.add(model)

def loop_through_two_models():
    inner, outer = pyggml.Sequential([layers.Dense(4)]), pyggml.Sequential()
    outer.add(inner)
    inner.add(outer)
    outer.build((4,))

def unconnected_input():
    a, b = pyggml.Input((4,), name="left"), pyggml.Input((4,), name="right")
    pyggml.Model([a, b], layers.Dense(1)(a))

def missing_input():
    a, b = pyggml.Input((4,), name="left"), pyggml.Input((4,), name="right")
    pyggml.Model(a, layers.Add()([a, b]))

def trainer_by_keyword(**arguments):
    return pyggml.Trainer(make(), **arguments)
"""

# The call, and what its message must hold: the argument's name, or what was given.
MISTAKES = {
    # shapes
    "good.predict(np.ones((8, 5)))": "x must have shape (n, 4), got (8, 5)",
    "good.fit(np.ones((8, 5)), y)": "x must have shape (n, 4), got (8, 5)",
    "good.evaluate(np.ones((8, 5)), y)": "x must have shape (n, 4), got (8, 5)",
    "trainer.step(np.ones((8, 5)), y)": "x must have shape (n, 4), got (8, 5)",
    "snapshot.predict(np.ones((8, 5)))": "x must have shape (n, 4), got (8, 5)",
    "good.predict(x[:, :, None])": "x must have shape (n, 4), got (8, 4, 1)",
    "good.fit(x[:, :, None], y)": "x must have shape (n, 4), got (8, 4, 1)",
    "trainer.step(x[:, :, None], y)": "x must have shape (n, 4), got (8, 4, 1)",
    "trainer.eval(x, y[:, :, None])": "y must have shape",
    "good.fit(x, np.ones((8, 2)))": "y must have shape",
    "good.fit(x, y[:7])": "x has 8 rows (shape (8, 4)), but y has 7",
    "good.evaluate(x, y[:7])": "x has 8 rows (shape (8, 4)), but y has 7",
    "good.fit(x, y, validation_data=(x, y[:7]))": "but y has 7",
    "trainer.step(x, y[:7])": "y has 7 rows",
    "trainer.step_many(x, y[:7], [range(8)])": "rows",
    "trainer.step_many(x, y, [range(7)])": "idx must have shape (k, 8)",
    # numbers of inputs and outputs
    "two().predict(x)": "x must be a list of 2 arrays",
    "two().predict([x, x, x])": "x must be a list of 2 arrays",
    "two().fit([x, x], y)": "y must be a list of 2 arrays",
    "two().fit({'a': x, 'c': x}, [y, y])": "x must have the keys",
    "pyggml.Trainer(two(), 8).step([x], [y, y])": "x must be a list of 2 arrays",
    "pyggml.Trainer(two(), 8).step([x, x[:7]], [y, y])": "7 rows",
    "good.fit([x, x], y)": "x has 2 rows (shape (2, 8, 4))",
    # batch sizes and counts
    **{f"good.{call}, batch_size={size})": "batch_size"
       for call in ("fit(x, y", "evaluate(x, y", "predict(x")
       for size in ("0", "-1", "2.5", "'8'", "2**40", "10**30")},
    **{f"trainer_by_keyword(batch_size={size})": "batch_size"
       for size in ("0", "-1", "2.5", "'8'", "None", "2**40", "10**30")},
    "trainer.predict(x, batch_size=2**40)": "batch_size",
    "snapshot.predict(x, batch_size=2**40)": "batch_size",
    "good.fit(x, y, validation_data=(x, y), validation_batch_size=2**40)": "validation_batch_size",
    "good.fit(x, y, nbatch_logical=2**70)": "nbatch_logical",
    "good.fit_generator(generator_of(8), batch_size=2**40, steps_per_epoch=1)": "batch_size",
    "good.fit(x, y, batch_size=2**30)": "bytes",
    "trainer_by_keyword(batch_size=2**30)": "bytes",
    "good.fit(x, y, epochs=-1)": "epochs must not be negative, got -1",
    "good.fit(x, y, epochs=1.5)": "epochs",
    "good.fit(x, y, initial_epoch=-1)": "initial_epoch",
    "good.fit(x, y, steps_per_epoch=0)": "steps_per_epoch",
    "good.fit(x, y, validation_split=1.5)": "validation_split",
    "trainer_by_keyword(batch_size=8, nbatch_logical=2**70)": "nbatch_logical",
    # layers
    "layers.Dense(0)": "units must be positive, got 0",
    "layers.Dense(-3)": "units must be positive, got -3",
    "sequential(layers.Dense(2**40))": "kernel",
    "sequential(layers.Dense(2**62))": "units",
    "sequential(layers.Dense(10**30))": "units",
    "sequential(layers.Dense(2**33))": "bytes",
    "sequential(layers.LSTM(2**20), shape=(3, 2**20))": "bytes",
    "pyggml.Sequential([layers.Embedding(2**35, 64)]).build((3,))": "bytes",
    "pyggml.Sequential([layers.Embedding(2**20, 64)]).compile('sgd', 2)": "loss",
    "sequential(layers.Dense(1), shape=(2**40,))": "bytes",
    "sequential(layers.Conv2D(2, 5), shape=(1, 4, 4))": "kernel",
    "sequential(layers.Conv1D(2, 5), shape=(1, 4))": "kernel",
    "sequential(layers.DepthwiseConv2D(5), shape=(1, 4, 4))": "kernel",
    "sequential(layers.MaxPooling2D(5), shape=(1, 4, 4))": "a window of 5",
    "layers.Conv2D(2, 3, strides=0)": "strides",
    "layers.Conv2D(2, 0)": "kernel_size",
    "layers.Conv2D(2, 3, dilation_rate=0)": "dilation_rate",
    "layers.Conv2DTranspose(2, 3, strides=0)": "strides",
    "layers.MaxPooling2D(2, strides=0)": "strides",
    "layers.AveragePooling1D(0)": "pool_size",
    "layers.UpSampling2D(0)": "size",
    "layers.ZeroPadding2D(-1)": "padding",
    "sequential(layers.Reshape((5,)))": "(5,)",
    "layers.Dropout(1.5)": "rate",
    "layers.Embedding(0, 3)": "input_dim",
    "sequential(layers.BatchNormalization(axis=7))": "axis",
    "sequential(layers.Flatten())and pyggml.Trainer(sequential(layers.Flatten()), 1)": "trainable",
    # numbers
    "optimizers.SGD(float('nan'))": "learning_rate",
    "optimizers.SGD(-1)": "learning_rate",
    "optimizers.SGD('x')": "learning_rate",
    "trainer.set_lr(float('nan'))": "lr",
    "trainer.set_lr(-1)": "lr",
    "trainer.set_lr('x')": "lr",
    "trainer_by_keyword(weight_decay=float('nan'))": "weight_decay",
    "pyggml.set_num_threads(0)": "n must be from 1 to 512, got 0",
    "pyggml.set_num_threads(-1)": "n must be from 1 to 512, got -1",
    "pyggml.set_num_threads(10**6)": "n must be from 1 to 512, got 1000000",
    "pyggml.set_num_threads(2**70)": "n must be from 1 to 512",
    "pyggml.set_num_threads(1.5)": "n must be an integer",
    # models
    "pyggml.Sequential([]).predict(x)": "has no layers",
    "pyggml.Sequential().compile('sgd', 'mse') or pyggml.Sequential().fit(x, y)": "has no layers",
    "pyggml.Sequential([pyggml.Input((4,))]).predict(x)": "has no layers",
    "loop_in_symbols()": "loop",
    "loop_of_models()": "itself",
    "loop_through_two_models()": "itself",
    "unconnected_input()": "'right'",
    "missing_input()": "'right'",
    "pyggml.Sequential([pyggml.Input((4,)), layers.Dense(1)]).fit(x, y)": "not compiled",
    "pyggml.Sequential([pyggml.Input((4,)), layers.Dense(1)]).evaluate(x, y)": "not compiled",
    "pyggml.Trainer(pyggml.Sequential([pyggml.Input((4,)), layers.Dense(1)]))": "not compiled",
    "pyggml.Sequential([layers.Dense(1)]).predict(x.tolist())": "input shape",
    "pyggml.Sequential([layers.Dense(1)]).summary()": "input shape",
    "layers.Dense(1)(x)": "takes symbols",
    "pyggml.Model(x, y)": "inputs must be symbols",
    "good.fit(x)": "y must be given",
    "good.fit(x, None)": "y must be given",
    "good.evaluate(x)": "y must be given",
    "good.fit(None, y)": "x must be given",
    "good.predict(None)": "x",
    "trainer.step(x)": "y",
    "trainer.step(x, None)": "y",
    "trainer.step(None, y)": "x",
    "good.set_weights([])": "has 4 weights, got 0",
    "good.set_weights([np.ones(3)] * 4)": "shape",
    "good.set_weights([np.ones(3)] * 5)": "has 4 weights, got 5",
    "good.set_weights(None)": "weights",
    "good.layers[0].set_weights([np.ones((4, 3))])": "has 2 weights, got 1",
    "trainer.apply_gradients({})": "gradients",
    "trainer.update_target(pyggml.Trainer(two(), 8))": "other weights",
    "pyggml.load_model('/nonexistent/model.gguf')": "/nonexistent/model.gguf",
    "good.compile('sgd', 'nothing')": "unknown loss",
    "good.compile('sgd', 'categorical_crossentropy', metrics=['nothing'])": "unknown metric",
}

ALLOWED = ("ValueError", "TypeError", "RuntimeError", "MemoryError", "OSError")


def test_r16a_every_mistake_is_an_exception_that_names_the_argument():
    out = run_child(PRELUDE + f"""
mistakes = {MISTAKES!r}
before = [w.tobytes() for m in (good, trained, trainer) for w in m.get_weights()]
for call, words in mistakes.items():
    try:
        eval(call)
    except Exception as error:
        kinds = [c.__name__ for c in type(error).__mro__]
        if not set(kinds) & set({ALLOWED!r}) or words not in str(error):
            print(f"{{call}}: {{type(error).__name__}}: {{error}}")
    else:
        print(f"{{call}}: no error")
assert [w.tobytes() for m in (good, trained, trainer) for w in m.get_weights()] == before
assert trainer.n_steps == 0 and pyggml.get_num_threads() == 1

# b: a model from before still gives the right numbers
history = good.fit(x, y, batch_size=8, shuffle=False, verbose=0).history
w = [a.astype(np.float64) for a in make().get_weights()]
hidden = np.tanh(x @ w[0] + w[1])
out = hidden @ w[2] + w[3]
np.testing.assert_allclose(history["loss"], [((out - y) ** 2).mean()], rtol=1e-5)
d = 2 * (out - y) / 8
dh = (d @ w[2].T) * (1 - hidden ** 2)
rate = optimizers.SGD().learning_rate
w = [a - rate * g for a, g in zip(w, [x.T @ dh, dh.sum(0), hidden.T @ d, d.sum(0)])]
for a, b in zip(good.get_weights(), w):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(good.predict(x), np.tanh(x @ w[0] + w[1]) @ w[2] + w[3],
                           rtol=1e-4, atol=1e-5)
""", timeout=240)
    assert out == "", out


UNMADE = {
    "ops.Tensor()": "Graph.input",
    "ops.Tensor.__new__(ops.Tensor)": "Graph.input",
    "MyTensor(x)": "Graph.input",
    "pyggml.Snapshot()": "Trainer.snapshot()",
    "pyggml.Snapshot.__new__(pyggml.Snapshot)": "Trainer.snapshot()",
    "MySnapshot()": "Trainer.snapshot()",
    "Forgets(good).step(x, y)": "super().__init__()",
    "Forgets(good).predict(x)": "super().__init__()",
    "Forgets(good).n_steps": "super().__init__()",
    "trainer.update_target(Forgets(good))": "super().__init__()",
    "trainer.restore(Forgets(good))": "super().__init__()",
    "pyggml.Trainer(good, 8, share=Forgets(good))": "super().__init__()",
    "pyggml.Trainer.__new__(pyggml.Trainer).step(x, y)": "super().__init__()",
    "Early(good)": "super().__init__()",
    "Failed(good).step(x, y)": "super().__init__()",
    "trainer.__init__(good, 4)": "made already",
    "trainer.__init__(trained, 8)": "made already",
}


def test_r16a_what_was_never_made_says_so():
    """A subclass that forgets ``super().__init__()``, or whose call of it failed."""
    out = run_child(PRELUDE + f"""
from pyggml import ops

class MyTensor(ops.Tensor):
    def __init__(self, value):
        self.value = value

class MySnapshot(pyggml.Snapshot):
    def __init__(self):
        pass

class Forgets(pyggml.Trainer):
    def __init__(self, model):
        self.losses = []

class Early(pyggml.Trainer):
    def __init__(self, model):
        self.step(x, y)

class Failed(pyggml.Trainer):
    def __init__(self, model):
        try:
            super().__init__(model, 0)
        except ValueError:
            pass

class Again(pyggml.Trainer):
    def __init__(self, model):
        try:
            super().__init__(model, 2 ** 30)
        except MemoryError:
            super().__init__(model, 8)

trainer.step(x, y)
before = [w.tobytes() for w in trainer.get_weights()]
for call, words in {UNMADE!r}.items():
    try:
        eval(call)
    except (TypeError, RuntimeError) as error:
        if words not in str(error):
            print(f"{{call}}: {{type(error).__name__}}: {{error}}")
    else:
        print(f"{{call}}: no error")
unmade = Forgets(good)
for name in dir(unmade):
    if name in ("__class__", "__init__"):
        continue
    for arguments in ((), (x,), (x, y), (x, y, [range(8)]), (None,), (1,), ("never.gguf",)):
        try:
            getattr(unmade, name)(*arguments)
        except Exception as error:
            assert str(error) or name == "__setattr__", name
print(repr(Forgets(good)), unmade)
assert [w.tobytes() for w in trainer.get_weights()] == before
assert (trainer.n_steps, trainer.batch_size) == (1, 8)
assert Again(good).step(x, y) == pyggml.Trainer(good, 8).step(x, y)
""", timeout=240)
    assert out == "<Trainer not made> <Trainer freed>\n", out


def test_r16a_the_bound_of_indices_cannot_be_lifted():
    """Indices beyond it would read memory beyond the table."""
    assert run_child(PRELUDE + """
class Lifts(layers.Layer):
    def build(self, input_shape):
        self.inner = layers.Embedding(5, 3)

    def call(self, t):
        found = self.inner(t)
        try:
            t.limit = 10 ** 9
        except AttributeError:
            print("no")
        return found

model = pyggml.Sequential([pyggml.Input((2,), dtype="int32"), Lifts(), layers.Flatten()])
try:
    model.predict([[0, 5]])
except ValueError as error:
    print("[0, 5)" in str(error))
""").splitlines()[-2:] == ["no", "True"]


def test_r16a_five_thousand_layers_are_a_model_like_any_other():
    assert run_child(PRELUDE + """
model = sequential(*[layers.Dense(4, kernel_initializer="zeros", bias_initializer="ones")
                     for _ in range(5000)])
print(model.predict(x).tolist() == np.ones((8, 4)).tolist())
with pyggml.Trainer(model, 8) as trainer:
    print(trainer.step(x, np.full((8, 4), 2.0)))
copied = model.copy()
print(len(copied.layers))
del model, copied
""", timeout=240) == "True\n1.0\n5000\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_r16a_what_does_not_fit_into_memory_is_refused_before_it_is_tried():
    """Where the system hands out more memory than it has, the process would die later."""
    assert run_child(PRELUDE + """
import sys
sys.path.insert(0, "field")
from _process import resident
from pyggml import _memory
total, _ = _memory.available()
wide = int(total / 4 / 4 * 1.1)
before = resident()
for call in (lambda: sequential(layers.Dense(wide)),
             lambda: sequential(layers.Dense(1000)).fit(x, np.ones((8, 1000)), batch_size=2**29),
             lambda: pyggml.Trainer(sequential(layers.Dense(1000)), int(total / 4000)),
             lambda: sequential(layers.Dense(1000)).predict(
                 np.broadcast_to(x[:1], (2**30, 4)), batch_size=2**30)):
    try:
        call()
    except MemoryError as error:
        assert "bytes" in str(error), error
    else:
        print("no error")
assert resident() - before < 64 << 20
good.fit(x, y, verbose=0)
print("done")
""", timeout=240) == "done\n"
