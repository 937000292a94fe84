"""R18: memory is flat in long loops.

Each loop runs in a process of its own with the cyclic collector off. The slow form has the full
number of turns and bounds the time per call too, in processor time, so that other programs on the
machine do not count; the short form has a twentieth of the turns after enough of them to fill
every cache of graphs.
"""

import json
import os
import sys

import pytest
from child import run_child

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

PRELUDE = """
import gc, json, os, sys, tempfile, time
import numpy as np
import pyggml
from pyggml import callbacks, layers
from trainer_nets import batch, dense
sys.path.insert(0, "field")
from _process import open_files, resident, threads
pyggml.set_num_threads({n_threads})
gc.disable()
x, y = batch(64)
sizes = np.random.default_rng(1).integers(1, 65, 1 << 16).tolist()
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "model.gguf")
model = dense()
trainer = pyggml.Trainer(model, 8)
snapshot = trainer.snapshot()


class Counts(callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.seen = logs["loss"]
"""

# The body of each loop, and how often it runs: ``n`` is the batch size of the turn.
LOOPS = {
    "predict": (20_000, """
        i % 2 or model.predict(x[:1])
        i % 2 and trainer.predict(x[:1])"""),
    "predict_sizes": (20_000, "model.predict(x[:n], batch_size=sizes[-i])"),
    "step": (2_000, """
        trainer.step(x[:8], y[:8])
        trainer.eval(x[:8], y[:8])
        trainer.gradients(x[:8], y[:8])"""),
    "fit": (300, """
        history = model.fit(x, y, batch_size=n, verbose=0, validation_data=(x, y), callbacks=[
            Counts(), callbacks.EarlyStopping(restore_best_weights=True),
            callbacks.ReduceLROnPlateau(), callbacks.ModelCheckpoint(path)])"""),
    "fit_generator": (300, """
        model.fit_generator(iter([(x[:n], y[:n])] * 3), batch_size=n, verbose=0, workers=i % 2,
                            validation_generator=[(x[:n], y[:n])])"""),
    "evaluate": (300, """
        model.evaluate(x, y, batch_size=n)
        model.evaluate([(x[:n], y[:n])].__iter__())"""),
    "save_and_load": (300, """
        model.save(path)
        loaded = pyggml.load_model(path)
        loaded.predict(x[:n])
        model.load_weights(path)"""),
    "checkpoint": (300, """
        trainer.save_checkpoint(path)
        pyggml.Trainer.from_checkpoint(path).step(x[:8], y[:8])"""),
    "compile": (300, """
        model.compile("adam", ["mse", "mae", "huber"][i % 3], metrics=["mae"])
        i % 10 or model.fit(x[:n], y[:n], verbose=0)"""),
    "build_compile_step_free": (200, """
        made = dense((4, 3 + i % 5, 2), dropout=0.1)
        with pyggml.Trainer(made, n) as own:
            own.step(x[:n], y[:n])"""),
    "build_and_drop": (200, """
        made = dense((4, 3 + i % 5, 2))
        made.fit(x[:n], y[:n], verbose=0)
        own = pyggml.Trainer(made, n)
        own.step(x[:n], y[:n])
        own.predict(x[:n])
        copies = [own.model(), own.snapshot(), made.copy()]"""),
    "snapshot_and_target": (200, """
        trainer.update_target(snapshot, 0.1)
        other = trainer.snapshot()
        other.predict(x[:n])
        trainer.update_target(model)
        trainer.restore(other)"""),
    "errors": (1_000, """
        for call in (lambda: trainer.step(x[:9], y[:9]), lambda: trainer.predict(x[:n, :3]),
                     lambda: model.fit(x[:n], y[:n, :1], verbose=0),
                     lambda: model.evaluate(x[:n], y[:n - 1]), lambda: model.predict(x[0]),
                     lambda: pyggml.Trainer(model, -n), lambda: layers.Dense(n)(model),
                     lambda: model.set_weights([x]), lambda: dense(loss="output", sizes=(4, n)).fit(
                         x, y, verbose=0)):
            try:
                call()
            except (ValueError, TypeError):
                pass
            else:
                raise AssertionError("no error")"""),
    "errors_in_callbacks": (300, """
        class Raises(callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                raise KeyError(n)
        try:
            model.fit(x, y, batch_size=n, verbose=0, callbacks=[Raises()])
        except KeyError:
            pass
        else:
            raise AssertionError("no error")"""),
}

RUN = """
def turn(i):
    n = sizes[i]
{body}


def measure():
    # Objects in cycles, which only the collector would find, count as used.
    return resident(), threads(), open_files()


times = []
for i in range({times}):
    if i == {first}:
        before = measure()
    start = time.process_time_ns()
    turn(i)
    times.append(time.process_time_ns() - start)
after = measure()
cycles = gc.collect()
tenth = {first}
print(json.dumps([before, after, np.mean(times[tenth:2 * tenth]), np.mean(times[-tenth:]),
                  np.median(times[tenth:2 * tenth]), np.median(times[-tenth:])]))
"""


def run(name, first, times, bound, n_threads=1):
    body = LOOPS[name][1]
    lines = body.strip("\n").split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    body = "\n".join("    " + line[indent:] for line in lines)
    code = PRELUDE.format(n_threads=n_threads) + RUN.format(body=body, first=first, times=times)
    before, after, *took = json.loads(run_child(code, timeout=1200))
    if "PYGGML_SANITIZER" not in os.environ:  # which keeps back what is freed
        assert after[0] - before[0] < bound, f"{(after[0] - before[0]) >> 10} KiB more"
    assert after[1:] == before[1:], "threads and open files"
    return took


@pytest.mark.parametrize("name", LOOPS)
def test_r18a_short_loops_are_flat(name):
    run(name, 40, 40 + max(40, LOOPS[name][0] // 20), 8 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_r18a_long_loops_are_flat_and_do_not_slow_down(name, n_threads):
    times = LOOPS[name][0]
    second, last, median_second, median_last = run(name, times // 10, times, 8 << 20, n_threads)
    assert median_last <= 1.5 * median_second
    if n_threads == 1:  # threads that wait burn processor time as the machine pleases
        assert last <= 1.5 * second


def test_r18a_graphs_of_distinct_batch_sizes_are_bounded():
    """Not one graph kept for every size that was ever used."""
    assert run_child("""
        import gc, sys
        sys.path.insert(0, "field")
        from _process import resident
        import numpy as np, pyggml
        from trainer_nets import batch, dense
        pyggml.set_num_threads(1)
        gc.disable()
        x, y = batch(200)
        model = dense((4, 64, 2))
        trainer = pyggml.Trainer(model, 8)

        def use(sizes):
            for n in sizes:
                model.predict(x[:n], batch_size=n)
                model.evaluate(x[:n], y[:n], batch_size=n)
                model.fit(x[:n], y[:n], batch_size=n, verbose=0)
                trainer.predict(x[:n], batch_size=n)

        use(range(199, 0, -2))  # memory that graphs share out again is touched by and by
        before = resident()
        use(range(200, 0, -2))
        assert resident() - before < 8 << 20, resident() - before
        print("done")
    """) == "done\n"
