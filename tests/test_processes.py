"""Forks, processes, threads, signals, the end of the interpreter, copies: what stays alive."""

import multiprocessing
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
from child import run_child

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PREPARE = """
import gc, os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
import pyggml
from pyggml import layers
pyggml.set_num_threads(2)
pyggml.set_seed(3)

def make(units=64):
    model = pyggml.Sequential([pyggml.Input((64,)), layers.Dense(units, "tanh"),
                               layers.Dense(64)])
    model.compile("sgd", "mse")
    return model

def child(action, seconds=60):
    '''Run in a forked child; returns its exit status, a signal if it hung.'''
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(seconds)
        try:
            action()
        except RuntimeError as error:
            print(error, flush=True)
            os._exit(7)
        except BaseException as error:
            print(type(error), error, flush=True)
            os._exit(8)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

x = np.ones((64, 64), np.float32)
model = make()
trainer = pyggml.Trainer(model, 64)
trainer.step(x, x)
"""


@needs_fork
@pytest.mark.parametrize("lowering", ["0", "1"])
def test_a_forked_child_trains_predicts_and_ends_as_its_parent_does(lowering):
    assert run_child(PREPARE + """
snapshot = trainer.snapshot()
gathered = pyggml.Trainer(model, 32, nbatch_logical=64)
gathered.step(x[:32], x[:32])

def work():
    want = model.predict(x)
    trainer.step(x, x)
    assert gathered.step(x[:32], x[:32]) > 0 and gathered.n_updates == 1
    snapshot.predict(x)
    model.fit(x, x, verbose=0)
    pyggml.set_num_threads(3)
    make().fit(x, x, verbose=0)
    assert (want == make().predict(x)).shape == (64, 64)
    trainer.free()
    gc.collect()

print(child(work))
losses = [trainer.step(x, x) for _ in range(3)]
print(losses == sorted(losses, reverse=True))
""", env={"PYGGML_LOWERING": lowering}) == "0\nTrue\n"


@needs_fork
def test_the_end_of_a_forked_child_runs_its_exit_handlers():
    assert run_child(PREPARE + """
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    trainer.step(x, x)
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""") == "0\n"


@needs_fork
def test_an_object_that_a_thread_used_during_the_fork_says_so_in_the_child():
    code = PREPARE + """
order = np.zeros((200, 64), np.int64)
stop = False

def run():
    while not stop:
        trainer.step_many(x, x, order)

thread = threading.Thread(target=run)
thread.start()
time.sleep(0.2)
statuses = set()
for _ in range(20):
    statuses.add(child(lambda: trainer.step(x, x), 20))
    assert child(lambda: make().fit(x, x, verbose=0), 60) == 0
    time.sleep(0.003)
stop = True
thread.join()
assert statuses <= {0, 7}, statuses
assert 7 in statuses, "the thread never held the trainer"
trainer.step(x, x)
"""
    said = set(run_child(code, timeout=300).splitlines())
    assert said == {"another thread was using this object when the process was forked; make it "
                    "anew in the child"}


@needs_fork
def test_a_context_of_the_low_level_interface_says_what_to_do_after_a_fork():
    assert run_child(PREPARE + """
from pyggml import opt, ops
graph = opt.Graph(64, training=True)
a = graph.input((64, 64))
w = pyggml.Variable((64, 64), "w", axes=(1, 0))
context = opt.OptContext(a, ops.linear(a, w), "mse", "sgd")
context.step(x, x)
print(child(lambda: context.step(x, x)))
context.step(x, x)
""").splitlines() == [
        "this was computed on several threads before the process was forked; make it anew in the "
        "child", "7"]


@needs_fork
def test_batches_prepared_by_threads_end_with_an_error_in_a_forked_child():
    assert run_child("""
        import os, signal, warnings
        from pyggml._prefetch import Prefetcher
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12 advises so
        made = Prefetcher(iter([lambda i=i: i for i in range(100)]), 2)
        assert next(made) == 0
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            made.close()
            try:
                next(made)
            except RuntimeError as error:
                os._exit(7 if "forked child" in str(error) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), next(made))
        made.close()
    """) == "7 1\n"


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def method(request):
    """A way to start processes that this system has."""
    if request.param not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {request.param}")
    return request.param


def test_multiprocessing_gives_the_same_numbers_as_one_process(method, tmp_path):
    path = tmp_path / "job.py"
    path.write_text(textwrap.dedent(f"""
        import multiprocessing, pickle, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import numpy as np
        import pyggml
        from pyggml import layers

        def work(pickled, seed):
            model = pickle.loads(pickled)
            x = np.random.default_rng(seed).normal(size=(32, 4))
            model.fit(x, x[:, :1], verbose=0, batch_size=8, shuffle=False)
            return model.predict(x).tobytes()

        if __name__ == "__main__":
            pyggml.set_num_threads(2)
            model = pyggml.Sequential([pyggml.Input((4,)), layers.Dense(8, "relu"),
                                       layers.Dense(1)])
            model.compile("adam", "mse")
            pickled = pickle.dumps(model)
            want = [work(pickled, seed) for seed in range(3)]
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                found = pool.starmap(work, [(pickled, seed) for seed in range(3)])
            print(found == want)
    """))
    # The number of threads of spawned children is the default; results depend on it.
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYGGML_NUM_THREADS": "2"}, check=False,
                          cwd=Path(__file__).parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@needs_fork
@pytest.mark.parametrize("lowering", ["0", "1"])
def test_a_callback_that_forks_leaves_two_runs_of_fit_that_are_the_same(lowering):
    assert run_child(PREPARE + """
class Forks(pyggml.callbacks.Callback):
    def __init__(self, hook):
        super().__init__()
        self.pid, self.hook = None, hook

    def fork(self, *arguments):
        if self.pid is None:
            sys.stdout.flush()
            self.pid = os.fork()
            if self.pid == 0:
                signal.alarm(200)

def fit(model, callbacks=()):
    history = model.fit(x, x, batch_size=24, epochs=2, verbose=0, callbacks=callbacks,
                        validation_data=(x, x)).history
    return history, [w.tobytes() for w in model.get_weights()]

pyggml.set_seed(3)
want = fit(make())
for hook in ("on_train_batch_begin", "on_train_batch_end", "on_epoch_end", "on_test_batch_end"):
    pyggml.set_seed(3)
    forks = Forks(hook)
    setattr(forks, hook, forks.fork)
    found = fit(make(), [forks])
    if forks.pid == 0:
        os._exit(0 if found == want else 9)
    print(found == want, os.waitstatus_to_exitcode(os.waitpid(forks.pid, 0)[1]))
""", timeout=400, env={"PYGGML_LOWERING": lowering}) == "True 0\n" * 4


@needs_fork
def test_a_callback_that_forks_beside_threads_that_prepare_batches_says_so_in_the_child():
    assert run_child(PREPARE + """
class Forks(pyggml.callbacks.Callback):
    pid = None

    def on_train_batch_end(self, batch, logs=None):
        if self.pid is None:
            sys.stdout.flush()
            self.pid = os.fork()
            if self.pid == 0:
                signal.alarm(60)

forks = Forks()
try:
    model.fit_generator([(x, x)] * 6, batch_size=64, verbose=0, workers=2, callbacks=[forks])
except RuntimeError as error:
    assert forks.pid == 0 and "not in a forked child" in str(error), error
    model.fit(x, x, verbose=0)
    os._exit(7)
assert forks.pid != 0
print(os.waitstatus_to_exitcode(os.waitpid(forks.pid, 0)[1]))
""") == "7\n"


def test_models_are_arguments_results_and_methods_of_other_processes(method, tmp_path):
    path = tmp_path / "job.py"
    path.write_text(textwrap.dedent(f"""
        import multiprocessing, warnings
        from concurrent.futures import ProcessPoolExecutor
        warnings.simplefilter("ignore", DeprecationWarning)
        import numpy as np
        import pyggml
        from pyggml import layers

        x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)

        def train(model):
            loss = model.fit(x, x[:, :1], verbose=0, shuffle=False, epochs=2).history["loss"]
            return loss, model

        def same(model):
            return model

        if __name__ == "__main__":
            pyggml.set_num_threads(2)
            a = pyggml.Input((4,))
            twice = layers.Dense(4, "relu")
            inner = pyggml.Sequential([layers.Dense(3, "tanh"), layers.Dense(1)])
            model = pyggml.Model(a, inner(layers.Add()([twice(a), twice(twice(a))])))
            model.compile(pyggml.optimizers.Adam(0.01, clipnorm=1.0), "huber", metrics=["mae"])
            before = [w.tobytes() for w in model.get_weights()]
            loss, trained = train(model.copy())
            with ProcessPoolExecutor(1, multiprocessing.get_context({method!r})) as pool:
                found = pool.submit(train, model).result()
                assert found[0] == loss
                assert (found[1].predict(x) == trained.predict(x)).all()
                assert (pool.submit(model.predict, x).result() == model.predict(x)).all()
                for call, arguments, kind in ((model.predict, (x[:, :3],), ValueError),
                                              (same, (pyggml.Trainer(model, 8),), TypeError)):
                    try:
                        pool.submit(call, *arguments).result()
                    except kind as error:
                        print(error)
            assert [w.tobytes() for w in model.get_weights()] == before
    """))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYGGML_NUM_THREADS": "2"}, check=False,
                          cwd=Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines() == [
        "x must have shape (n, 4), got (32, 3)",
        "a trainer cannot be pickled; take its model() or its get_weights()"]


def test_many_threads_train_models_of_their_own():
    assert run_child(PREPARE + """
want = []
def work(out):
    m = make(16)
    m.set_weights([np.full_like(w, 0.01) for w in m.get_weights()])
    with pyggml.Trainer(m, 64) as t:
        out.append([t.step(x, x) for _ in range(30)])
work(want)
found = []
threads = [threading.Thread(target=work, args=(found,)) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(len(found), np.allclose(found, want[0], rtol=1e-5))
""") == "6 True\n"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_an_interrupt_ends_a_long_fit_soon_and_leaves_everything_usable():
    assert run_child(PREPARE + """
big = make(1024)
many = np.ones((20000, 64), np.float32)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    big.fit(many, many, epochs=1000, verbose=0)
except KeyboardInterrupt:
    print("interrupted")
assert all(np.isfinite(w).all() for w in big.get_weights())
big.fit(many[:64], many[:64], verbose=0)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        trainer.step_many(x, x, np.zeros((1000, 64), np.int64))
except KeyboardInterrupt:
    print("interrupted")
trainer.step(x, x)
""") == "interrupted\ninterrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_signal_handler_may_use_what_it_interrupts():
    assert run_child(PREPARE + """
seen = []
def handler(number, frame):
    seen.append(trainer.n_steps)
    trainer.predict(x)
    if len(seen) == 3:
        trainer.free()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
try:
    while True:
        trainer.step_many(x, x, np.zeros((2000, 64), np.int64))
except RuntimeError as error:
    print("freed" in str(error))
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(seen) >= 3)
""") == "True\nTrue\n"


ENDINGS = {
    "objects of the module": "",
    "a cycle": "class Box: pass\nbox = Box(); box.me = box; box.all = [trainer, model]; "
               "del trainer, model",
    "what runs at exit": "import atexit\natexit.register(lambda: (trainer.step(x, x), "
                         "model.predict(x), trainer.free()))",
    "what runs last at exit":
                              "class Late:\n    def __del__(self, t=trainer): t.free()\n"
                              "late = Late()",
    "views of weights": "views = trainer.get_weights(copy=False) + model.get_weights(copy=False)\n"
                        "del trainer, model",
    "a daemon thread that computes": """
thread = threading.Thread(target=lambda: [trainer.step(x, x) for _ in iter(int, 1)], daemon=True)
thread.start()
other = threading.Thread(target=lambda: [model.predict(x) for _ in iter(int, 1)], daemon=True)
other.start()
time.sleep(0.3)""",
    "a generator half used": """
def batches():
    for _ in range(10):
        yield x, x
running = iter(batches())
next(running)
model.fit_generator(batches, steps_per_epoch=2, batch_size=64, verbose=0)""",
    "an exception with everything in its frames": """
def deep(n, t):
    if n == 0:
        try:
            t.step(x[:3], x)
        except ValueError as error:
            return error
    return deep(n - 1, t)
error = deep(5, trainer)""",
    "sys.exit in a callback": """
class Stop(pyggml.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        sys.exit(0)
model.fit(x, x, epochs=3, verbose=0, callbacks=[Stop()])""",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("lowering", ["0", "1"])
def test_the_interpreter_ends_well_with(ending, lowering):
    assert run_child(PREPARE + """
snapshot = trainer.snapshot()
snapshot.predict(x)
model.fit(x, x, verbose=0)
""" + ENDINGS[ending], env={"PYGGML_LOWERING": lowering}) == ""


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
{first}
code = '''
try:
    import pyggml
except ImportError as error:
    print(error, flush=True)
else:
    print("imported", flush=True)
'''
number = interpreters.create()
interpreters.run_string(number, code)
interpreters.destroy(number)
"""


editable = any("editable_loader" in type(finder).__module__ for finder in sys.meta_path)


@pytest.mark.skipif(editable, reason="an editable install starts processes at import")
@pytest.mark.parametrize("first", ["", "import pyggml"])
def test_a_sub_interpreter_is_refused_with_a_reason(first):
    said = run_child(SUBINTERPRETER.format(first=first))
    assert said == ("pyggml cannot be imported into a sub-interpreter: its threads and ggml's log "
                    "belong to the whole process; use threads or processes\n")


def test_the_configuration_tells_whether_the_global_lock_is_there():
    import pyggml

    said = pyggml.config()["versions"]["free threading"]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert said.startswith("not supported")
    else:
        assert said == "not in this Python"


def test_copies_and_pickles_of_models_share_nothing():
    assert run_child(PREPARE + """
import copy, pickle
want = model.predict(x)
for other in (copy.deepcopy(model), copy.copy(model).copy(),
              *[pickle.loads(pickle.dumps(model, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)]):
    assert (other.predict(x) == want).all()
    other.fit(x, x, verbose=0)
    assert (other.predict(x) != want).any() and (model.predict(x) == want).all()
v = pyggml.Variable((3, 2), "v", axes=(1, 0))
v.assign(np.arange(6).reshape(3, 2))
for w in (copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
    assert (w.numpy() == v.numpy()).all()
    w.assign(np.zeros((3, 2)))
    assert v.numpy()[2, 1] == 5
for thing in (trainer, trainer.snapshot()):
    for call in (pickle.dumps, copy.deepcopy):
        try:
            call(thing)
        except TypeError as error:
            assert "pickled" in str(error)
        else:
            print(call)
""") == ""


LOOPS = {
    "step": "trainer.step(x, x)",
    "step_many": "trainer.step_many(x, x, order)",
    "predict": "model.predict(x[:n % 7 + 1])",
    "snapshot": "trainer.snapshot().predict(x[:2])",
    "update_target": "trainer.update_target(target, 0.5)",
    "evaluate": "model.evaluate(x, x, verbose=0)",
    "fit": "model.fit(x, x, verbose=0, batch_size=48)",
    "trainers": "pyggml.Trainer(model, 8).free()",
    "models": "model.copy()",
    "errors": "refused()",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_no_memory_of_python_stays_behind_in(loop):
    """With tracemalloc, which sees Python's and NumPy's memory to the byte."""
    grown = int(run_child(PREPARE + f"""
import tracemalloc
order = np.zeros((2, 64), np.int64)
target = trainer.snapshot()
def refused():
    for call in (lambda: trainer.step(x[:3], x), lambda: model.predict(x[:, :3])):
        try:
            call()
        except ValueError:
            pass
def run(times):
    for n in range(times):
        {LOOPS[loop]}
run(24)
gc.collect()
tracemalloc.start()
run(8)
gc.collect()
before = tracemalloc.get_traced_memory()[0]
run(40)
gc.collect()
print(tracemalloc.get_traced_memory()[0] - before)
"""))
    assert grown < 40 * 200, f"{grown} bytes stayed behind in 40 rounds"


def test_signals_stay_with_the_threads_that_python_knows():
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    masks = run_child("""
        import os
        import numpy as np
        import pyggml
        before = set(os.listdir("/proc/self/task"))  # NumPy has threads of its own
        pyggml.set_num_threads(4)
        model = pyggml.Sequential([pyggml.Input((64,)), pyggml.layers.Dense(2048, "tanh"),
                                   pyggml.layers.Dense(64)])
        model.compile("sgd", "mse")
        model.fit(np.ones((256, 64)), np.ones((256, 64)), verbose=0)
        for task in set(os.listdir("/proc/self/task")) - before:
            with open(f"/proc/self/task/{task}/status") as file:
                print([int(line.split()[1], 16) for line in file if line.startswith("SigBlk")][0])
    """, env={"PYGGML_LOWERING": "1"}).split()
    assert masks, "no worker was started"
    for mask in masks:
        assert int(mask) >> (signal.SIGINT - 1) & 1
