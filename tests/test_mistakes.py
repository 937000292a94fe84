"""No mistake of a user ends the process: each is an exception that names the argument."""

import pytest
from child import run_child

PREPARE = """
import numpy as np
import pyggml
from pyggml import layers, losses, optimizers, ops
pyggml.set_num_threads(1)
x = np.ones((8, 4), np.float32)
y = np.array([0, 1, 2, 0, 1, 2, 0, 1])

def make(loss="sparse_categorical_crossentropy", optimizer="adam"):
    model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(5, "relu"),
                               layers.Dense(3, "softmax")])
    model.compile(optimizer, loss)
    return model

model = make()
trainer = pyggml.Trainer(model, 8)
trainer.step(x, y)
"""

MISTAKES = {
    "trainer.step(np.ones((8, 5)), y)": ("ValueError", "x must have shape (n, 4), got (8, 5)"),
    "trainer.step(np.ones((7, 4)), y)": ("ValueError", "x has 7 rows, but the batch size is 8"),
    "trainer.step(x, y[:7])": ("ValueError", "y has 7 rows"),
    "trainer.step(np.ones((8, 4, 1)), y)": ("ValueError", "x must have shape"),
    "trainer.step(np.ones(8), y)": ("ValueError", "x must have shape"),
    "trainer.step(3.0, y)": ("ValueError", "scalar"),
    "trainer.step(x.astype(complex), y)": ("TypeError", "x must hold real numbers"),
    "trainer.step(x.astype(object), y)": ("TypeError", "x must hold real numbers"),
    "trainer.step('abc', y)": ("ValueError", "scalar"),
    "trainer.step(None, y)": ("ValueError", "scalar"),
    "trainer.step(x, np.array([0, 1, 3, 0, 1, 2, 0, 1]))": ("ValueError", "y holds 3 in row 2"),
    "trainer.step(x, np.array([0, -1, 2, 0, 1, 2, 0, 1]))": ("ValueError", "[0, 3)"),
    "trainer.step(x, y + 0.5)": ("ValueError", "y holds 0.5 in row 0"),
    "trainer.step(x, np.where(y == 2, np.nan, y))": ("ValueError", "y holds nan"),
    "trainer.step(x, np.full(8, 2**31))": ("ValueError", "y holds 2147483648"),
    "trainer.step(x, np.array(list('abcdefgh')))": ("TypeError", "y must hold real numbers"),
    "trainer.step(x, np.eye(3)[y])": ("ValueError", "'categorical_crossentropy'"),
    "pyggml.Trainer(make('categorical_crossentropy'), 8).step(x, y)":
        ("ValueError", "'sparse_categorical_crossentropy'"),
    "trainer.step(x, y, np.ones(8))": ("ValueError", "loss_mask"),
    "pyggml.Trainer(model, 8, loss_mask=2)": ("ValueError", "loss_mask must be"),
    "pyggml.Trainer(model, 8, loss_mask=0)": ("ValueError", "loss_mask must be positive"),
    "pyggml.Trainer(model, 8, loss_mask=1).step(x, y, -np.ones(8))":
        ("ValueError", "sample_weight must be finite and not negative"),
    "pyggml.Trainer(model, 8, loss_mask=1).step(x, y, np.full(8, np.nan))":
        ("ValueError", "sample_weight"),
    "pyggml.Trainer(model, 0)": ("ValueError", "batch_size must be positive, got 0"),
    "pyggml.Trainer(model, -1)": ("ValueError", "batch_size"),
    "pyggml.Trainer(model, 2.5)": ("TypeError", "batch_size must be an integer"),
    "pyggml.Trainer(model, 2**40)": ("ValueError", "batch_size"),
    "pyggml.Trainer(model, 8, nbatch_logical=12)": ("ValueError", "nbatch_logical"),
    "pyggml.Trainer(model, 8, weight_decay=2)": ("ValueError", "weight_decay"),
    "pyggml.Trainer('model')": ("TypeError", "model must be"),
    "pyggml.Trainer(pyggml.Sequential([pyggml.Input((4,)), layers.Dense(1)]))":
        ("ValueError", "not compiled"),
    "trainer.set_lr(float('nan'))": ("ValueError", "lr must be finite"),
    "trainer.set_lr(-1)": ("ValueError", "lr must be finite and not negative, got -1.0"),
    "trainer.set_lr('x')": ("TypeError", "lr must be a number"),
    "optimizers.Adam(float('inf'))": ("ValueError", "learning_rate"),
    "optimizers.Adam(beta_1=1.0)": ("ValueError", "beta_1 must be in [0, 1)"),
    "optimizers.SGD(weight_decay=-0.1)": ("ValueError", "weight_decay"),
    "trainer.predict(np.ones((3, 5)))": ("ValueError", "x must have shape (n, 4), got (3, 5)"),
    "trainer.predict(x, batch_size=0)": ("ValueError", "batch_size"),
    "trainer.predict(x, matmul_precision='f16')": ("ValueError", "matmul_precision"),
    "layers.Dense(0)": ("ValueError", "units must be positive, got 0"),
    "layers.Dense(-3)": ("ValueError", "units"),
    "layers.Dense('3')": ("TypeError", "units must be an integer"),
    "pyggml.Sequential([pyggml.Input((4,)), layers.Dense(2**40)])": ("MemoryError", "kernel"),
    "layers.Dense(3, activation='rely')": ("ValueError", "known are elu, exp"),
    "layers.Dropout(1.0)": ("ValueError", "rate must be in [0, 1)"),
    "pyggml.Input(4)": ("TypeError", "shape must be a tuple"),
    "pyggml.Input((0,))": ("ValueError", "must be positive, got 0"),
    "pyggml.Input((1, 2, 3, 4))": ("ValueError", "at most 3 axes"),
    "pyggml.Sequential([]).predict(x)": ("ValueError", "no layers"),
    "pyggml.Sequential([layers.Dense(1)]).get_weights and "
    "pyggml.Sequential([layers.Dense(1)]).summary()": ("ValueError", "input shape"),
    "pyggml.Sequential([layers.Dense(1)]).fit(x, y)": ("ValueError", "not compiled"),
    "model.fit(x, None)": ("ValueError", "y must be given"),
    "model.fit(x[:0], y[:0])": ("ValueError", "no rows"),
    "model.fit(x, y[:5])": ("ValueError", "x has 8 rows (shape (8, 4)), but y has 5"),
    "model.fit(x, y, epochs=-1)": ("ValueError", "epochs must not be negative"),
    "model.fit(x, y, batch_size=0)": ("ValueError", "batch_size"),
    "model.fit(x, y, initial_epoch=-1)": ("ValueError", "initial_epoch"),
    "model.fit(x, y, validation_split=1.0)": ("ValueError", "validation_split"),
    "model.fit(x, np.array([0, 1, 2, 0, 1, 2, 0, 5]))": ("ValueError", "y holds 5 in row 7"),
    "model.evaluate(x, y[:3])": ("ValueError", "x has 8 rows (shape (8, 4)), but y has 3"),
    "model.set_weights([])": ("ValueError", "has 4 weights, got 0"),
    "model.compile('adamm', 'mse')": ("ValueError", "unknown optimizer 'adamm'; known are adagrad"),
    "model.compile('adam', 'msee')": ("ValueError", "unknown loss 'msee'; known are"),
    "model.compile('adam', 'mse', ['acuracy'])": ("ValueError", "unknown metric 'acuracy'"),
    "model.compile('adam')": ("ValueError", "loss must be given"),
    "trainer.__reduce__()": ("TypeError", "cannot be pickled"),
}


def test_every_mistake_is_an_exception_and_changes_nothing():
    code = PREPARE + f"""
mistakes = {MISTAKES!r}
before = [w.tobytes() for w in trainer.get_weights()]
for call, (kind, words) in mistakes.items():
    try:
        eval(call)
    except Exception as error:
        names = [c.__name__ for c in type(error).__mro__]
        if kind not in names or words not in str(error):
            print(f"{{call}}: {{type(error).__name__}}: {{error}}")
    else:
        print(f"{{call}}: no error")
assert [w.tobytes() for w in trainer.get_weights()] == before
assert trainer.n_steps == 1
first = trainer.step(x, y)
assert trainer.step(x, y) < first
make().fit(x, y, epochs=2, verbose=0)
"""
    assert run_child(code) == ""


def test_a_model_without_trainable_weights_is_refused():
    assert run_child("""
        import numpy as np, pyggml
        from pyggml import layers
        for stack in ([layers.Flatten()], [layers.Dense(4, trainable=False)]):
            model = pyggml.Sequential([pyggml.Input((4,)), *stack])
            model.compile("adam", "mse")
            try:
                pyggml.Trainer(model, 8)
            except ValueError as error:
                print("no trainable weights" in str(error))
    """) == "True\nTrue\n"


def test_use_after_free_is_an_exception():
    assert run_child(PREPARE + """
kept = trainer.predict(x)
views = trainer.get_weights(copy=False)
values = [v.copy() for v in views]
trainer.free()
trainer.free()
trainer.close()
for name, arguments in [("step", (x, y)), ("eval", (x, y)), ("predict", (x,)), ("model", ()),
                        ("set_lr", (0.1,)), ("gradients", (x, y)), ("get_weights", ()),
                        ("__enter__", ())]:
    try:
        getattr(trainer, name)(*arguments)
    except RuntimeError as error:
        assert "freed" in str(error)
    else:
        print(name)
for name in ("n_steps", "n_updates", "lr"):
    try:
        getattr(trainer, name)
    except RuntimeError:
        pass
    else:
        print(name)
assert all((a == b).all() for a, b in zip(views, values))
assert kept.shape == (8, 3) and repr(trainer) == "<Trainer freed>"
""") == ""


def test_nothing_is_printed_to_stderr_in_normal_use():
    assert run_child(PREPARE + """
model.fit(x, y, epochs=3, verbose=0)
model.evaluate(x, y)
model.predict(x)
pyggml.set_num_threads(2)
trainer.step(x, y)
trainer.model().predict(x)
trainer.free()
""") == ""


@pytest.mark.parametrize("order", ["model trainer other", "other trainer model",
                                   "trainer model other", "trainer other model"])
def test_objects_may_be_dropped_in_any_order(order):
    assert run_child(PREPARE + f"""
import gc
other = trainer.model()
other.fit(x, y, verbose=0)
for name in {order.split()!r}:
    del globals()[name]
    gc.collect()
    for left in ("model", "trainer", "other"):
        if left in globals():
            globals()[left].predict(x)
""") == ""
