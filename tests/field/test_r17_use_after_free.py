"""R17: use after free is an exception."""

import sys

import pytest
from child import run_child

PRELUDE = """
import gc, sys, threading
import numpy as np
import pyggml
from trainer_nets import batch, dense, same
sys.path.insert(0, "field")
from _process import resident
pyggml.set_num_threads(1)
x, y = batch()

def raises_freed(call):
    try:
        call()
    except RuntimeError as error:
        assert "freed" in str(error), error
    else:
        raise AssertionError("no error")
"""


def child(code, **arguments):
    assert run_child(PRELUDE + code + "\nprint('done')\n", **arguments) == "done\n"


# ---- a: after free() -------------------------------------------------------------------------

def test_r17a_free_is_idempotent_and_what_was_returned_stays():
    child("""
trainer = pyggml.Trainer(dense(), 8)
losses = trainer.step_many(x, y, [range(8)] * 3)
outputs, snapshot, weights = trainer.predict(x), trainer.snapshot(), trainer.get_weights()
views, gradients = trainer.get_weights(copy=False), trainer.gradients(x, y)
found = [losses, outputs, *weights, *views, *gradients.values()]
kept = [array.copy() for array in found]
trainer.free()
trainer.free()
trainer.close()
gc.collect()
fill = [np.full_like(array, 7) for array in found]  # whatever was freed is written over
assert same(found, kept)
assert outputs.flags.owndata and repr(trainer) == "<Trainer freed>"
assert np.array_equal(snapshot.predict(x), outputs)
snapshot.free()
snapshot.free()
assert repr(snapshot) == "<Snapshot freed>"
""")


def test_r17a_every_method_of_a_freed_trainer_raises():
    child("""
trainer = pyggml.Trainer(dense(), 8)
trainer.step(x, y)
gradients, target = trainer.gradients(x, y), trainer.snapshot()
trainer.free()
calls = {
    "step": (x, y), "step_many": (x, y, [range(8)]), "eval": (x, y), "predict": (x,),
    "gradients": (x, y), "apply_gradients": (gradients,), "model": (), "snapshot": (),
    "update_target": (target,), "restore": (target,), "calibrate_bn": (x,), "get_weights": (),
    "set_lr": (0.1,), "save_checkpoint": ("never.gguf",), "__enter__": (),
}
properties = {"n_steps", "n_updates", "lr"}
others = {"free", "close", "from_checkpoint", "batch_size", "nbatch_logical", "weight_decay",
          "compiled", "program", "criterion", "freed"}
public = {name for name in dir(trainer) if not name.startswith("_")} | {"__enter__"}
assert public == set(calls) | properties | others, public ^ (set(calls) | properties | others)
for name, arguments in calls.items():
    raises_freed(lambda: getattr(trainer, name)(*arguments))
for name in properties:
    raises_freed(lambda: getattr(trainer, name))
raises_freed(lambda: setattr(trainer, "lr", 0.1))
other = pyggml.Trainer(dense(), 8)
raises_freed(lambda: other.update_target(trainer))
raises_freed(lambda: other.restore(trainer))
raises_freed(lambda: pyggml.Trainer(dense(), 8, share=trainer))
""")


def test_r17a_every_method_of_a_freed_snapshot_raises():
    child("""
trainer = pyggml.Trainer(dense(), 8)
snapshot = trainer.snapshot()
pyggml.snapshot_free(snapshot)
calls = {"predict": (x,), "get_weights": (), "__enter__": ()}
public = {name for name in dir(snapshot) if not name.startswith("_")} | {"__enter__"}
assert public == set(calls) | {"free", "close", "batch_size"}, public
for name, arguments in calls.items():
    raises_freed(lambda: getattr(snapshot, name)(*arguments))
raises_freed(lambda: trainer.update_target(snapshot))
raises_freed(lambda: trainer.restore(snapshot))
trainer.step(x, y)
""")


def test_r17a_a_with_block_frees_whatever_is_raised_inside():
    child("""
try:
    with pyggml.Trainer(dense(), 8) as trainer:
        with trainer.snapshot() as snapshot:
            raise KeyError("inside")
except KeyError as error:
    assert error.args == ("inside",)
raises_freed(lambda: trainer.step(x, y))
raises_freed(lambda: snapshot.predict(x))
""")


def test_r17a_the_low_level_owners_raise_too():
    child("""
from pyggml import opt
data = opt.Dataset(3, 2, 8)
view = data.data
data.free()
data.free()
for call in (lambda: data.data, lambda: data.labels, lambda: data.get_batch(4, 0),
             lambda: data.get_batch_head(4, 0, 0, 1)):
    raises_freed(call)
view[...] = 1
""")


# ---- b: others that are there ------------------------------------------------------------------

def test_r17b_models_from_before_the_free_still_predict():
    child("""
original = dense()
trainer = pyggml.Trainer(original, 8)
trainer.step(x, y)
model, wanted, start = trainer.model(), trainer.predict(x), original.predict(x)
trainer.free()
gc.collect()
assert np.array_equal(model.predict(x), wanted)
assert np.array_equal(original.predict(x), start)
model.fit(x, y, verbose=0)
original.fit(x, y, verbose=0)
raises_freed(lambda: trainer.model())
""")


def test_r17b_a_free_during_a_step_waits():
    child("""
rng = np.random.default_rng(0)
x, y = rng.normal(size=(64, 64)), rng.normal(size=(64, 2))

def works(trainer):
    return {"step": lambda: trainer.step(x, y),
            "step_many": lambda: trainer.step_many(x, y, np.tile(np.arange(64), (20, 1))),
            "eval": lambda: trainer.eval(x, y), "predict": lambda: trainer.predict(x),
            "gradients": lambda: trainer.gradients(x, y), "snapshot": lambda: trainer.snapshot(),
            "model": lambda: trainer.model(), "n_steps": lambda: trainer.n_steps}

for n_threads in (1, 2):
    pyggml.set_num_threads(n_threads)
    for name in works(None):
        trainer = pyggml.Trainer(dense((64, 128, 128, 2)), 64)
        call = works(trainer)[name]
        started, ended = threading.Event(), []

        def work():
            try:
                while True:
                    started.set()
                    call()
            except RuntimeError as error:
                ended.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        trainer.free()
        thread.join()
        assert ended == ["this trainer was freed"], (name, ended)
""", timeout=120)


def test_r17b_a_free_while_an_array_is_read_ends_in_an_error_or_a_whole_step():
    """``__array__`` of an input runs in the middle of a call, on the same thread."""
    child("""
class Frees:
    def __init__(self, owner, array):
        self.owner, self.array = owner, array

    def __array__(self, dtype=None, copy=None):
        self.owner.free()
        return self.array

for name in ("step", "eval", "predict", "gradients", "step_many", "calibrate_bn"):
    for which in ("x", "y"):
        trainer = pyggml.Trainer(dense(), 8)
        given = {"x": x, "y": y}
        given[which] = Frees(trainer, given[which])
        arguments = [given["x"], given["y"], [range(8)]][:{"step_many": 3, "predict": 1,
                                                           "calibrate_bn": 1}.get(name, 2)]
        if which == "y" and len(arguments) == 1:
            continue
        try:
            getattr(trainer, name)(*arguments)
        except RuntimeError as error:
            assert "freed" in str(error), (name, error)
        gc.collect()
        raises_freed(lambda: trainer.step(x, y))
snapshot = pyggml.Trainer(dense(), 8).snapshot()
try:
    snapshot.predict(Frees(snapshot, x))
except RuntimeError as error:
    assert "freed" in str(error)
raises_freed(lambda: snapshot.predict(x))
""")


def test_r17b_a_free_inside_a_callback():
    child("""
class Frees(pyggml.callbacks.Callback):
    def __init__(self, mine):
        super().__init__()
        self.mine = mine

    def on_train_batch_end(self, batch, logs=None):
        (self.mine or self.model.compiled.trainer).free()

model = dense()
trainer = pyggml.Trainer(model, 8)
history = model.fit(x, y, batch_size=4, verbose=0, callbacks=[Frees(trainer)])
assert np.isfinite(history.history["loss"]).all()
raises_freed(lambda: trainer.step(x, y))
raises_freed(lambda: model.fit(x, y, batch_size=4, verbose=0, callbacks=[Frees(None)]))
assert np.isfinite(model.predict(x)).all() and model.compiled.trainer is None
history = model.fit(x, y, batch_size=4, epochs=2, verbose=0)  # begins with a new trainer
assert len(history.history["loss"]) == 2 and model.compiled.trainer.n_steps == 4
""")


def test_r17b_two_trainers_on_one_model_one_freed():
    child("""
model = dense()
a, b = pyggml.Trainer(model, 8), pyggml.Trainer(model, 8)
shared = pyggml.Trainer(model, 8, share=b)
wanted = pyggml.Trainer(model, 8).step(x, y)
a.free()
assert b.step(x, y) == wanted
b.free()
assert shared.step(x, y) < wanted  # the weights live as long as anyone uses them
shared.free()
model.fit(x, y, verbose=0)
""")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_r17b_a_thousand_trainers_leave_no_memory_behind():
    child("""
gc.disable()
model = dense()

def make_and_free(n):
    for i in range(n):
        trainer = pyggml.Trainer(model, 8, nbatch_logical=16 if i % 3 else None)
        trainer.step(x, y)
        trainer.step_many(x, y, [range(8)])
        trainer.predict(x)
        snapshot = trainer.snapshot()
        trainer.update_target(snapshot, 0.5)
        if i % 2:  # else by dropping the last reference
            snapshot.free()
            trainer.free()

make_and_free(50)
start = resident()
make_and_free(1000)
grown = resident() - start
assert grown < 1 << 20, grown
""", timeout=240)
