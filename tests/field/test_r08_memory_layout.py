"""R08: memory layout and flags of an array never change the result."""

import numpy as np
import pytest

import pyggml

A = np.arange(24, dtype=np.float32).reshape(4, 6) / 7


def _unaligned(a):
    raw = np.empty(a.nbytes + 1, np.uint8)[1:]
    view = raw.view(a.dtype).reshape(a.shape)
    view[...] = a
    assert not view.flags.aligned
    return view


def _read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


class Subclass(np.ndarray):
    pass


LAYOUTS = {
    "transposed": lambda a, path: a.T.copy().T,
    "reversed": lambda a, path: a[::-1],
    "every second column": lambda a, path: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed both": lambda a, path: a[::-1, ::-1],
    "fortran": lambda a, path: np.asfortranarray(a),
    "big-endian": lambda a, path: a.astype(">f4"),
    "unaligned": lambda a, path: _unaligned(a),
    "broadcast": lambda a, path: np.broadcast_to(a[0], a.shape),
    "subclass": lambda a, path: a.view(Subclass),
    "read-only": lambda a, path: _read_only(a),
    "nested list": lambda a, path: a.tolist(),
    "float64": lambda a, path: a.astype(np.float64),
    "float16": lambda a, path: a.astype(np.float16),
    "int": lambda a, path: (a * 7).astype(np.int64),
    "memory map": lambda a, path: _map(a, path),
}


def _map(a, path):
    name = path / f"{len(list(path.iterdir()))}.npy"
    np.save(name, a)
    return np.load(name, mmap_mode="r")


def results(x, y, w, weights):
    model = pyggml.Sequential([
        pyggml.Input((6,)), pyggml.layers.Dense(6, use_bias=False,
                                                kernel_initializer="zeros")])
    model.compile(pyggml.optimizers.SGD(0.01), "mse")
    model.set_weights([weights])
    found = [model.predict(x).tobytes(), model.evaluate(x, y, sample_weight=w)]
    history = model.fit(x, y, sample_weight=w, batch_size=3, shuffle=False, verbose=0)
    found += [history.history["loss"], model.get_weights()[0].tobytes()]
    with pyggml.Trainer(model, 4, loss_mask=6) as trainer:
        found.append(trainer.step(x, y, w))
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_r08a_every_layout_gives_the_bits_of_a_contiguous_copy(name, tmp_path):
    kernel = np.arange(36, dtype=np.float32).reshape(6, 6) / 50
    given = LAYOUTS[name](A, tmp_path)
    plain = np.ascontiguousarray(np.asarray(given).astype(np.float32))
    layout = LAYOUTS[name](kernel, tmp_path)
    plain_kernel = np.ascontiguousarray(np.asarray(layout).astype(np.float32))
    before = np.array(given)
    assert results(given, given, given, layout) == results(plain, plain, plain, plain_kernel)
    assert np.array_equal(np.asarray(given), before)


def test_r08b_later_changes_do_not_reach_the_model():
    x, y = A.copy(), A.copy()
    model = pyggml.Sequential([pyggml.Input((6,)), pyggml.layers.Dense(6)])
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    before = model.predict(A).tobytes()
    weights = model.get_weights()
    x[...] = y[...] = np.nan
    for w in weights:
        w[...] = np.nan
    assert model.predict(A).tobytes() == before


@pytest.mark.parametrize("bad", [
    A.astype(complex), A.astype(object), A.astype("datetime64[s]"), A.astype(str),
], ids=["complex", "object", "datetime", "str"])
def test_r08b_other_dtypes_are_refused_by_name(bad):
    model = pyggml.Sequential([pyggml.Input((6,)), pyggml.layers.Dense(6)])
    model.compile("sgd", "mse")
    for call in (lambda: model.fit(bad, A, verbose=0), lambda: model.fit(A, bad, verbose=0),
                 lambda: model.predict(bad), lambda: model.evaluate(A, A, sample_weight=bad)):
        with pytest.raises((TypeError, ValueError)):
            call()
