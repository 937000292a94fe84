"""Wrong objects where others are expected: functions that return no tensor, integers that no C
type holds, things of other classes handed to pyggml.opt, models that changed under a trainer."""

import copy
import pickle

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import layers, losses, regularizers

PREPARE = """
import os, tempfile
import numpy as np
import pyggml
from pyggml import callbacks, checkpoints, data, hpc, layers, ops, opt, schedules
pyggml.set_num_threads(1)
x = np.ones((8, 4), np.float32)
y = np.array([0, 1, 2, 0, 1, 2, 0, 1])
path = os.path.join(tempfile.mkdtemp(), "file")

def make(loss="sparse_categorical_crossentropy", optimizer="adam", **compiled):
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(3, name="d")])
    model.compile(optimizer, loss, **compiled)
    return model

def with_layer(call, name="mine"):
    class Mine(layers.Layer):
        def call(self, x):
            return call(x)
    model = pyggml.Sequential([pyggml.Input((4,)), Mine(name=name), layers.Dense(3)])
    model.compile("sgd", "mse")
    return model

def graph(n=2):
    g = opt.Graph(n, training=True)
    t = g.input((n, 3))
    return t, ops.linear(t, opt.Variable((3, 1), "w", axes=(1, 0)))

def context(**given):
    return opt.OptContext(*graph(), **given)

other = opt.Graph(2).input((2, 3))
model = make()
trainer = pyggml.Trainer(model, 8)
trainer.step(x, y)
dataset = opt.Dataset(3, 1, 4)
"""

# What is returned is no tensor.
NO_TENSOR = {
    "pyggml.Trainer(make(lambda t, p: 3.0), 8)":
        ("TypeError", "loss '<lambda>' must return a tensor of the graph, got float"),
    "pyggml.Trainer(make(lambda t, p: None), 8)":
        ("TypeError", "loss '<lambda>' must return a tensor of the graph, got NoneType"),
    "pyggml.Trainer(make(lambda t, p: [p]), 8)":
        ("TypeError", "loss '<lambda>' must return a tensor of the graph, got list"),
    "pyggml.Trainer(make(lambda t, p: np.ones(8)), 8)":
        ("TypeError", "loss '<lambda>' must return a tensor of the graph, got ndarray"),
    "pyggml.Trainer(make(lambda t, p: other), 8)":
        ("TypeError", "loss '<lambda>' must return a tensor of the graph"),
    "pyggml.Trainer(make(lambda t, p: ops.sum(p)), 8)":
        ("ValueError", "must return a tensor whose first axis is the batch of 8, got shape (1,)"),
    "make(lambda t, p: 3.0).fit(x, np.ones((8, 3)), verbose=0)":
        ("TypeError", "must return a tensor of the graph, got float"),
    "make(lambda t, p: 3.0).evaluate(x, np.ones((8, 3)))":
        ("TypeError", "must return a tensor of the graph, got float"),
    "with_layer(lambda t: None)":
        ("TypeError", "layer 'mine' must return a tensor"),
    "with_layer(lambda t: 3.0)": ("TypeError", "layer 'mine' must return a tensor"),
    "with_layer(lambda t: np.ones((8, 4)))": ("TypeError", "layer 'mine' must return a tensor"),
    "with_layer(lambda t: other)": ("", "mine"),
    "with_layer(lambda t: ops.sum(t))": ("ValueError", "layer 'mine' must return the batch"),
    "model.call(x)": ("TypeError", "takes tensors of a graph, got array"),
    "model.call(None)": ("TypeError", "takes tensors of a graph, got None"),
    "model.call([])": ("TypeError", "takes tensors of a graph, got []"),
    "model.call([other, 3])": ("TypeError", "takes tensors of a graph"),
}

# Integers that are no integers, or that C cannot hold.
LARGE = {
    "trainer.step(x, np.full(8, 2**63, np.uint64))": ("ValueError", "y holds 9223372036854775808"),
    "trainer.step(x, [2**63] * 8)": ("ValueError", "y holds 9223372036854775808"),
    "trainer.step(x, [2**70] * 8)": ("TypeError", "y must hold real numbers"),
    "trainer.step_many(x, y, np.full((1, 8), 2**63, np.uint64))": ("IndexError", "idx"),
    "pyggml.Trainer(make(), 2**63)": ("ValueError", "batch_size"),
    "pyggml.Trainer(make(), 8, nbatch_logical=2**63)": ("ValueError", "nbatch_logical"),
    "pyggml.Trainer(make(), 8, loss_mask=2**63)": ("ValueError", "loss_mask"),
    "model.fit(x, y, epochs=2**63, verbose=0)": ("ValueError", "epochs must be below 2**62"),
    "model.fit(x, y, epochs=0, initial_epoch=2**63)": ("ValueError", "initial_epoch"),
    "model.fit(x, y, seed=2**63, verbose=0)": ("ValueError", "seed"),
    "model.fit(x, y, workers=2**63, verbose=0)": ("ValueError", "workers"),
    "model.fit(x, y, steps_per_epoch=2**63, verbose=0)": ("ValueError", "steps_per_epoch"),
    "model.evaluate(x, y, steps=2**63)": ("ValueError", "steps"),
    "model.predict(x, batch_size=2**63)": ("ValueError", "batch_size"),
    "layers.Dense(2**63)(pyggml.Input((4,)))": ("", "units"),
    "layers.Embedding(2**63, 2)(pyggml.Input((4,), dtype='int32'))": ("", "input_dim"),
    "pyggml.Input((2**63,))": ("ValueError", "shape"),
    "pyggml.Variable((2**63,), 'v')": ("ValueError", "shape of 'v' must be below 2**62"),
    "pyggml.Variable((2**61,), 'v')": ("MemoryError", "'v' of shape (2305843009213693952,)"),
    "pyggml.Variable((2.5,), 'v')": ("TypeError", "shape of 'v' must be an integer, got 2.5"),
    "pyggml.Variable(('3',), 'v')": ("TypeError", "shape of 'v' must be an integer, got '3'"),
    "pyggml.set_num_threads(2**63)": ("ValueError", "n must be from 1 to 512"),
    "opt.Graph(2**63)": ("ValueError", "batch_size must be below 2**62"),
    "opt.Graph(0)": ("ValueError", "batch_size must be from 1 to 1073741824, got 0"),
    "opt.Graph(2.0)": ("TypeError", "batch_size must be an integer, got 2.0"),
    "opt.Graph(2, capacity=2**40)": ("ValueError", "capacity must be from 1 to 16777216"),
    "opt.Graph(2).input((2, 2**63))": ("ValueError", "shape must be below 2**62"),
    "opt.Graph(2).input((2, 1.5))": ("TypeError", "shape must be an integer, got 1.5"),
    "opt.Graph(2).input({2: 3})": ("TypeError", "shape must be a sequence of integers"),
    "opt.Graph(2).input((2, 3), 'float64')": ("ValueError", "dtype must be 'float32' or 'int32'"),
    "opt.Dataset(2**63, 1, 4)": ("ValueError", "ne_datapoint must be below 2**62"),
    "opt.Dataset(1, 1, 2**61)": ("MemoryError", "rows of"),
    "dataset.shuffle(context(), 2**63)": ("ValueError", "idata must be below 2**62"),
    "dataset.shuffle(context(), -2**70)": ("ValueError", "idata must be below 2**62"),
    "dataset.get_batch(2**63, 0)": ("ValueError", "n_rows"),
    "dataset.get_batch(2, 2**63)": ("ValueError", "ibatch"),
    "context(opt_period=2**63)": ("ValueError", "opt_period"),
    "ops.reshape(other, (2**63, -1))": ("ValueError", "shape must be below 2**62"),
    "ops.reshape(other, (1.5, -1))": ("TypeError", "shape must be an integer, got 1.5"),
    "ops.transpose(other, (1, 2**63))": ("ValueError", "axes must be below 2**62"),
    "ops.sum(other, 2**63)": ("ValueError", "axis must be below 2**62"),
    "ops.sum(other, 0.5)": ("TypeError", ""),
    "ops.broadcast_to(other, (2**63, 3))": ("ValueError", "shape must be below 2**62"),
    "ops.slice(other, (0, 2**63), (1, 1))": ("ValueError", "starts must be below 2**62"),
    "ops.slice(other, (0, 0), (1.0, 1))": ("TypeError", "shape must be an integer, got 1.0"),
    "ops.split(other, 2**63)": ("ValueError", "parts must be below 2**62"),
    "ops.split(other, (1.5, 1.5))": ("TypeError", "parts must be an integer, got 1.5"),
    "ops.pad(other, ((0, 2**63), (0, 0)))": ("ValueError", "pad_width must be below 2**62"),
    "ops.pad(other, ((0, 0.5), (0, 0)))": ("TypeError", "pad_width must be an integer, got 0.5"),
    "ops.repeat(other, 2**63, 0)": ("ValueError", "repeats must be below 2**62"),
    "ops.flip(other, None)": ("TypeError", "axis must be an integer, got None"),
}
for name, given in (("conv2d", "image, image"), ("depthwise_conv2d", "image, image")):
    LARGE |= {
        f"ops.{name}({given}, (2**63, 1))": ("ValueError", "strides must be below 2**62"),
        f"ops.{name}({given}, {{}})": ("TypeError", "strides must be a sequence of integers"),
        f"ops.{name}({given}, (1, 1), ((0, 0), (0, 2**63)))": ("ValueError", "padding must be"),
        f"ops.{name}({given}, (1, 1), ((0, 0), (0, 0)), (1, 1.5))":
            ("TypeError", "dilation must be an integer, got 1.5"),
    }
for name in ("max_pool2d", "average_pool2d"):
    LARGE |= {
        f"ops.{name}(image, {{}}, (1, 1))": ("TypeError", "size must be a sequence of integers"),
        f"ops.{name}(image, (1, 2**63), (1, 1))": ("ValueError", "size must be below 2**62"),
        f"ops.{name}(image, (1, 1), (1, 1.5))": ("TypeError", "strides must be an integer"),
        f"ops.{name}(image, (1, 1), (1, 1), None)": ("ValueError", "padding must be two pairs"),
    }

# Objects of other classes.
WRONG = {
    "opt.OptContext(x, graph()[1])": ("TypeError", "inputs must be tensors of a graph, got ndarr"),
    "opt.OptContext(graph()[0], None)": ("TypeError", "outputs must be tensors of a graph"),
    "opt.OptContext(graph()[0], graph()[1])": ("ValueError", "inputs and outputs must be of one"),
    "opt.OptContext([], [])": ("ValueError", "inputs must not be empty"),
    "opt.OptContext(model, model)": ("TypeError", "inputs must be tensors of a graph, got Seq"),
    "opt.epoch(None, dataset)": ("TypeError", "opt must be an OptContext, got NoneType"),
    "opt.epoch(trainer, dataset)": ("TypeError", "opt must be an OptContext, got Trainer"),
    "opt.epoch(context(), x)": ("TypeError", "dataset must be a Dataset, got ndarray"),
    "opt.epoch(context(), None)": ("TypeError", "dataset must be a Dataset, got NoneType"),
    "opt.epoch(context(), dataset, 3)": ("TypeError", "result_train must be a Result"),
    "opt.epoch(context(), dataset, opt.Result(), 3)": ("TypeError", "result_eval must be a Res"),
    "opt.epoch(context(), dataset, callback_train=3)": ("TypeError", "callback_train"),
    "opt.fit_opt(x, y, dataset)": ("TypeError", "inputs must be tensors of a graph, got ndarray"),
    "opt.fit_opt(*graph(), None)": ("TypeError", "dataset must be a Dataset, got NoneType"),
    "opt.fit_opt(*graph(), dataset, callbacks=[3], silent=True)":
        ("TypeError", "callbacks must be Callback objects, got int"),
    "opt.fit(model, model, dataset)": ("TypeError", "inputs must be tensors of a graph"),
    "opt.fit_opt_gen(*graph(), 3, silent=True)": ("TypeError", "generator must be a callable"),
    "opt.fit_opt_gen(*graph(), None, silent=True)": ("TypeError", "generator must be a callable"),
    "opt.fit_opt_gen(*graph(), [3], silent=True)": ("ValueError", "generator"),
    "dataset.shuffle(trainer)": ("TypeError", "'opt' has incorrect type"),
    "dataset.shuffle(None)": ("TypeError", "'opt'"),
    "dataset.shuffle(context(), 'all')": ("TypeError", "idata must be an integer, got 'all'"),
    "context().step(None, None)": ("", "inputs"),
    "context().step(np.ones((2, 3)), np.ones((2, 1)), result=3)":
        ("TypeError", "result must be a Result, got int"),
    "context().eval(3)": ("TypeError", "result must be a Result, got int"),
    "context().grad_acc(None)": ("TypeError", "variable"),
    "context().grad_acc(x)": ("TypeError", "variable"),
    "opt.Graph(2).weight(None)": ("TypeError", "variable must be a Variable, got None"),
    "opt.Graph(2).keep(None)": ("ValueError", "t must be a tensor of this graph, got None"),
    "opt.Graph(2).keep(other)": ("ValueError", "t must be a tensor of this graph"),
    "opt.Graph(2).update(None, other)": ("TypeError", "variable"),
    "opt.Graph(2).current(None)": ("TypeError", "variable"),
    "ops.dropout(other, 1.0)": ("ValueError", "rate must be in [0, 1), got 1.0"),
    "ops.dropout(other, float('nan'))": ("ValueError", "rate must be in [0, 1), got nan"),
    "trainer.update_target(dataset)": ("TypeError", "target must be a Snapshot, a Trainer or a"),
    "trainer.restore(None)": ("TypeError", "target must be a Snapshot, a Trainer or a Model"),
    "trainer.save_checkpoint(path, objects=3)": ("TypeError", "objects must be a dict, got int"),
    "trainer.save_checkpoint(path, objects={'a': 3})": ("TypeError", "objects['a']"),
    "trainer.save_checkpoint(path, extra=object())": ("TypeError", "extra"),
    "checkpoints.save(path, model)": ("TypeError", "trainer must be a Trainer, got Sequential"),
    "checkpoints.save(path, None)": ("TypeError", "trainer must be a Trainer, got NoneType"),
    "checkpoints.load(3)": ("", ""),
    "checkpoints.load(path + 'none')": ("FileNotFoundError", "file"),
    "make(metrics=['rmse'])": ("ValueError", "metric 'rmse' does not fit loss 'sparse_categ"),
    "make(metrics=['precision'])": ("ValueError", "metric 'precision' does not fit loss"),
    "make('mse', metrics=['sparse_categorical_accuracy'])":
        ("ValueError", "metric 'sparse_categorical_accuracy' does not fit loss"),
}

RUN = """
image = opt.Graph(2, training=True).input((2, 2, 4, 4))
before = [w.tobytes() for w in trainer.get_weights()], trainer.n_steps
wrong = []
for code, (kind, text) in {mistakes!r}.items():
    try:
        eval(code)
    except (ValueError, TypeError, IndexError, MemoryError, RuntimeError, OSError) as error:
        names = [each.__name__ for each in type(error).__mro__]
        if kind not in names + [""] or text not in str(error):
            wrong.append((code, type(error).__name__, str(error)))
    except BaseException as error:
        wrong.append((code, "undocumented", type(error).__name__, str(error)))
    else:
        wrong.append((code, "nothing raised"))
assert ([w.tobytes() for w in trainer.get_weights()], trainer.n_steps) == before
trainer.step(x, y)
model.fit(x, y, verbose=0)
print("\\n".join(map(str, wrong)), end="")
"""


@pytest.mark.parametrize("mistakes", [NO_TENSOR, LARGE, WRONG],
                         ids=["no tensor", "large integers", "wrong objects"])
def test_a_wrong_object_is_an_exception_that_names_it(mistakes):
    assert run_child(PREPARE + RUN.format(mistakes=mistakes)) == ""


@pytest.mark.parametrize("change", [
    "model.add(layers.Dense(2))", "model.pop()", "model.add(layers.Dropout(0.5))",
    "model.add(layers.Activation('tanh'))",
    "model.layers[1]._own.append((pyggml.Variable((2,), 'more'), True))"])
def test_a_checkpoint_of_a_model_that_was_changed_is_refused(change):
    """The file that was there stays, and the trainer goes on."""
    assert run_child(PREPARE + f"""
        model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(5), layers.Dense(3)])
        model.compile("adam", "sparse_categorical_crossentropy")
        trainer = pyggml.Trainer(model, 8)
        trainer.step(x, y)
        trainer.save_checkpoint(path)
        kept = open(path, "rb").read()
        {change}
        trainer.step(x, y)
        for call in (lambda: trainer.save_checkpoint(path), trainer.model):
            try:
                call()
            except RuntimeError as error:
                assert str(error) == "the model was changed after this trainer was made of it"
            else:
                print("nothing raised")
        assert open(path, "rb").read() == kept and os.listdir(os.path.dirname(path)) == ["file"]
        trainer.step(x, y)
        trainer.predict(x)
        assert trainer.snapshot().get_weights()[0].shape == (4, 5)
        """.replace("\n        ", "\n")) == ""


def test_a_model_that_is_compiled_anew_leaves_its_trainers_as_they_were():
    """They go on with loss and optimizer of their own; so do their checkpoints and models."""
    assert run_child(PREPARE + """
pyggml.set_seed(1)
model = make()
trainer = pyggml.Trainer(model, 8)
pyggml.set_seed(1)
plain = pyggml.Trainer(make(), 8)
plain.restore(trainer)
model.compile("sgd", "mse")
assert trainer.step(x, y) == plain.step(x, y)
trainer.save_checkpoint(path)
again, copied = pyggml.Trainer.from_checkpoint(path), trainer.model()
for made in (again.compiled, copied):
    assert type(made.optimizer).__name__ == "Adam"
    assert made.compiled.loss.name == "sparse_categorical_crossentropy"
assert copied.evaluate(x, y) == trainer.eval(x, y)
assert type(model.optimizer).__name__ == "SGD"
for _ in range(3):
    assert again.step(x, y) == trainer.step(x, y) == plain.step(x, y)
""") == ""


@pytest.mark.parametrize(("make", "name", "value"), [
    (lambda: layers.Dense(3, "relu"), "activation", "tanh"),
    (lambda: layers.Dense(3), "kernel_regularizer", "l2"),
    (lambda: layers.Dropout(0.5), "rate", 0.1),
    (lambda: layers.BatchNormalization(), "momentum", 0.5),
    (lambda: layers.LayerNormalization(), "epsilon", 0.1),
    (lambda: layers.Activation("relu"), "activation", "tanh"),
])
def test_settings_of_a_built_layer_cannot_change_behind_the_back_of_its_graphs(make, name, value):
    layer = make()
    before = getattr(layer, name)
    setattr(layer, name, before)  # not built yet
    model = pyggml.Sequential([pyggml.Input((3,)), layer])
    with pytest.raises(AttributeError, match=f"{name} of layer '{layer.name}' cannot be changed"):
        setattr(layer, name, value)
    assert getattr(layer, name) is before
    layer.trainable, layer.name = False, "other"
    assert model.predict(np.ones((2, 3))).shape == (2, 3)


def test_settings_of_losses_and_regularizers_in_use_cannot_change():
    loss, penalty = losses.Huber(1.0), regularizers.L2(0.1)
    loss.delta, penalty.l2 = 2.0, 0.2
    model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(1, kernel_regularizer=penalty)])
    model.compile("sgd", loss)
    with pytest.raises(AttributeError, match=r"delta of Huber\(.*cannot be changed from 2.0 to 3"):
        loss.delta = 3.0
    with pytest.raises(AttributeError, match="l2 of L2"):
        penalty.l2 = 0.3
    assert (loss.get_config(), penalty.get_config()) == ({"delta": 2.0}, {"l2": 0.2})
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.copy()):
        kept = again.layers[0].kernel_regularizer
        assert kept == penalty
        with pytest.raises(AttributeError):
            kept.l2 = 0.5
        with pytest.raises(AttributeError):
            again.layers[0].activation = "relu"


def test_a_custom_layer_may_keep_notes_beside_its_settings():
    class Noting(layers.Layer):
        def __init__(self, factor, **kwargs):
            super().__init__(**kwargs)
            self.factor, self.seen = factor, None

        def call(self, x):
            self.seen = x.shape
            return x * self.factor

    layer = Noting(2.0)
    model = pyggml.Sequential([pyggml.Input((3,)), layer])
    assert np.all(model.predict(np.ones((2, 3))) == 2)
    assert layer.seen == (2, 3)
    with pytest.raises(AttributeError, match="factor"):
        layer.factor = 3.0


@pytest.mark.parametrize("change", [lambda m: m.add(layers.Activation("tanh")),
                                    lambda m: m.add(layers.Dense(3)), lambda m: m.pop()])
def test_a_model_that_is_a_layer_cannot_change_behind_the_back_of_the_other(change):
    inner = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3), layers.Dense(3)])
    inner.add(layers.Dense(3))
    outer = pyggml.Sequential([pyggml.Input((3,)), inner, layers.Dense(2)])
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    wanted = outer.predict(x)
    with pytest.raises(RuntimeError, match="is a layer of another model"):
        change(inner)
    assert len(inner.layers) == 3
    np.testing.assert_allclose(outer.predict(x[:40]), wanted[:40], rtol=1e-5, atol=1e-6)
    outer.add(layers.Dense(1))  # it is no layer of any
    assert outer.predict(x).shape == (64, 1)


def test_an_axis_too_long_for_ggml_is_an_error_before_it_is_tried():
    assert run_child("""
        from pyggml import ops, opt
        import numpy as np
        graph = opt.Graph(1, training=True)
        x = graph.input((1, 1, 3, 2))
        for make in (lambda: ops.max_last(ops.repeat(x, 2**31, 3)),
                     lambda: ops.repeat(x, 2**30, 3)):
            try:
                make()
            except MemoryError as error:
                print("an axis has at most 2147483647 elements" in str(error))
        # Counted in single precision, 2**24 + 1 would be 2**24.
        wide = np.zeros((1, 1, 1, 2**24 + 1), np.float32)
        wide[..., -1] = 5
        try:
            y = ops.evaluate(lambda t: ops.max_pool2d(t, (1, 1), (1, 1), ((0, 0), (0, 0))), wide)
            print(y.shape == wide.shape and y[..., -1] == 5)
        except ValueError as error:
            print("too long" in str(error))
    """).replace("[[[ True]]]", "True").splitlines() == ["True"] * 3
