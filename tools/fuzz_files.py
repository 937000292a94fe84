"""Damage files of pyggml in thousands of ways and load them.

    python tools/fuzz_files.py --count 20000 --seed 1

Whatever the damage, loading has to end soon with FileFormatError, or, where the checksums were
made to fit again, with success; what is refused may have changed nothing, and the process may not
grow by more than the file and a fixed bound. Some files are whole, but their JSON says something
else. The work is done in a child process with a limit on its address space, so that a crash, a
hang or a large allocation is noticed and named by the seed of its case.
"""

import argparse
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import warnings

BOUND = 96 << 20  # bytes beside the file: interpreter growth, graphs, the largest header
SECONDS = 10  # for one case


def samples(folder):
    """Write files of every kind; return their paths."""
    import numpy as np

    import pyggml
    from pyggml import layers

    pyggml.set_seed(1)
    model = pyggml.Sequential([pyggml.Input((6,)), layers.Dense(32, "relu"),
                               layers.Dropout(0.3), layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)
    y = np.arange(8) % 3
    model.fit(x, y, batch_size=4, verbose=0)
    paths = {name: os.path.join(folder, name)
             for name in ("model", "small", "weights", "checkpoint", "functional")}
    model.save(paths["model"])
    model.save(paths["small"], quantize="q8_0")
    model.save_weights(paths["weights"])
    with pyggml.Trainer(model, 4, 12) as trainer:
        trainer.step(x[:4], y[:4])
        trainer.save_checkpoint(paths["checkpoint"], objects={"rng": np.random.default_rng(1)},
                                extra={"order": np.arange(5), "best": float("inf")})
    a = pyggml.Input((6,))
    h = layers.Dense(6, name="shared")
    two = pyggml.Model(a, {"p": layers.Dense(2)(h(h(a))), "q": layers.Dense(1)(h(a))})
    two.save(paths["functional"])
    return list(paths.values())


def repair(data, start):
    """Make the checksums fit, if their keys are still there."""
    from pyggml._gguf import Checksum

    def place(key):
        at = data.find(key)
        at += len(key) + 12
        return at if at - len(key) - 12 > 0 and at + 16 <= len(data) else None

    inner, outer = place(b"pyggml.checksum.data"), place(b"pyggml.checksum.header")
    if inner is None or outer is None or not 0 < start <= len(data):
        return data
    checksum = Checksum()
    checksum.update(bytes(data[start:]))
    data[inner:inner + 16] = checksum.hexdigest().encode()
    data[outer:outer + 16] = b"0" * 16
    checksum = Checksum()
    checksum.update(bytes(data[:start]))
    data[outer:outer + 16] = checksum.hexdigest().encode()
    return data


_words = [b"\0" * 4, b"\xff" * 4, b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f",
          b"\0\0\0\0\1\0\0\0", b"9", b"-", b"e9", b"null", b"[", b"{", b'"', b"NaN", b"0"]


def damage(rng, data, start):
    """Return a damaged copy and where its data start now."""
    data = bytearray(data)
    before = bytes(data)
    while bytes(data) == before:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            top = start if rng.random() < 0.7 else len(data)
            at = rng.randrange(max(1, min(top, len(data))))
            kind = rng.randrange(7)
            n = rng.choice((1, 2, 4, 8, 31, 32, 200))
            size = len(data)
            if kind <= 1 and data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            elif kind == 2:
                del data[rng.randrange(len(data) + 1):]
            elif kind == 3:
                data += rng.randbytes(n)
            elif kind == 4:
                del data[at:at + n]
            elif kind == 5:
                word = rng.choice(_words)
                data[at:at + (len(word) if rng.random() < 0.7 else 0)] = word
            else:
                other = rng.randrange(max(1, len(data)))
                data[at:at + n] = data[other:other + n]
            if at < start:
                start += len(data) - size
    return data, start


_values = [None, True, -1, 0, 1, 3, 1 << 40, 1 << 70, 1.5, "x", "", [], {}, [[]], {"a": 1},
           {"class_name": "function", "config": "relu"}]


def _places(value, path=()):
    """Return the paths to all parts of a value of JSON."""
    items = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ())
    return [path] + [found for key, item in items for found in _places(item, (*path, key))]


def _at(value, path):
    for key in path:
        value = value[key]
    return value


def forge(rng, text):
    """Return other JSON: a part is left out, doubled, or says something else."""
    value = json.loads(text)
    path = rng.choice(_places(value))
    put = rng.choice(_values)
    if not path:
        return json.dumps(put)
    place, key = _at(value, path[:-1]), path[-1]
    kind = rng.randrange(5)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, list):
        place.append(place[key])
    elif kind == 2:
        place[key] = json.loads(json.dumps(_at(value, rng.choice(_places(value)))))
    else:
        place[key] = put
    return json.dumps(value)


def parts(path):
    """Return metadata and tensors of a file, as they are written."""
    from pyggml._container import Container

    with Container(path) as container, open(path, "rb") as file:
        tensors = []
        for e in container.entries.values():
            file.seek(container.start + e.offset)
            data = file.read(e.nbytes)
            tensors.append((e.name, e.shape, e.type, lambda data=data: data))
        return {key: container.get(key) for key in container.metadata_keys()
                if "checksum" not in key}, tensors


def write_forged(rng, path, metadata, tensors):
    """Write a whole file whose JSON differs in one place."""
    from pyggml._container import write

    texts = [key for key, text in metadata.items() if str(text)[:1] in "[{"]
    key = rng.choice(texts)
    write(path, metadata | {key: forge(rng, metadata[key])}, tensors)


def load_all(path, model, trainer):
    """Load a file in every way; return how many succeeded."""
    import pyggml

    def resume(path):
        with pyggml.checkpoints.load(path) as saved:
            saved.resume(trainer)

    done = 0
    for load in (pyggml.load_model, model.load_weights,
                 lambda p: model.load_weights(p, by_name=True, skip_mismatch=True), _train_on,
                 lambda p: pyggml.Trainer.from_checkpoint(p).free(), resume):
        before = _state(model, trainer)
        try:
            load(path)
        except pyggml.FileFormatError as error:
            assert str(path) in str(error), error
            if _state(model, trainer) != before:
                raise AssertionError("something was changed by a file that was refused") from error
        else:
            done += 1
    return done


def _state(model, trainer):
    """Return all that a file could change."""
    state = trainer._get_state()
    variables = [*state["weights"].values(), *state["gradients"].values(),
                 *(v for slots in state["slots"].values() for v in slots)]
    return ([w.tobytes() for w in model.get_weights()], [v.numpy().tobytes() for v in variables],
            state["steps"], state["updates"], state["window_rows"], trainer.lr)


def _train_on(path):
    import numpy as np

    import pyggml

    with pyggml.checkpoints.load(path) as saved:
        saved.restore({name: np.random.default_rng() for name in saved.objects})
        saved.trainer().free()


def child(count, seed, folder):
    """Run the cases; print the number of each before it, so that its parent knows where it was."""
    import numpy as np

    import pyggml
    from pyggml._container import Container

    warnings.simplefilter("ignore")
    pyggml.set_num_threads(1)
    paths = samples(folder)
    files = []
    for path in paths:
        with Container(path) as container, open(path, "rb") as file:
            files.append((file.read(), container.start))
    whole = [parts(path) for path in paths]
    model = pyggml.load_model(paths[0])
    trainer = pyggml.Trainer.from_checkpoint(paths[3])
    for path in paths:
        load_all(path, model, trainer)
    held = [np.copy(w) for w in model.get_weights()]
    limit_memory(BOUND + max(len(data) for data, _ in files))
    path = os.path.join(folder, "case.gguf")
    accepted = 0
    for case in range(seed, seed + count):
        rng = random.Random(case)
        repaired = rng.random() < 0.5
        if repaired and rng.random() < 0.5:
            write_forged(rng, path, *rng.choice(whole))
        else:
            data, start = damage(rng, *rng.choice(files))
            with open(path, "wb") as file:
                file.write(repair(data, start) if repaired else data)
        os.write(1, f"{case}\n".encode())
        if hasattr(signal, "alarm"):
            signal.alarm(SECONDS)
        done = load_all(path, model, trainer)
        if hasattr(signal, "alarm"):
            signal.alarm(0)
        accepted += done
        if case % 25 == 0:  # models and graphs refer to each other in cycles
            gc.collect()
        if done and not repaired:
            raise AssertionError("a damaged file was accepted")
        model.set_weights(held)
    os.write(1, f"ok {accepted}\n".encode())


def limit_memory(more):
    """Allow the address space to grow by so many bytes, where the system tells its size."""
    if "PYGGML_SANITIZER" in os.environ:  # which keeps what is freed
        return
    try:
        import resource

        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
    except (ImportError, FileNotFoundError):
        return
    size = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


def run(count, seed=1):
    """Fuzz in a child process.

    Returns
    -------
    str
        The child's last line.

    Raises
    ------
    RuntimeError
        A case failed; the message names it.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, os.path.abspath(__file__), "--child", folder, "--count", str(count),
             "--seed", str(seed)], capture_output=True, text=True, check=False)
    last = done.stdout.split("\n")[-2] if done.stdout else "none"
    if done.returncode or not last.startswith("ok"):
        raise RuntimeError(f"case {last} ended with status {done.returncode}:\n"
                           f"{done.stderr[-4000:]}")
    return last


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.count, given.seed, given.child)
    else:
        print(f"{given.count} damaged files, {run(given.count, given.seed)} loads succeeded")
