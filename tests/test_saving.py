"""Models in GGUF files: what goes in comes out, other programs read it, other files are refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from interrupts import interrupt_everywhere

import pyggml
from pyggml import layers, ops, saving

X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
Y = np.arange(40) % 3


@pytest.fixture(autouse=True)
def _one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def sequential():
    model = pyggml.Sequential([
        pyggml.Input((6,)), layers.Dense(32, "relu"), layers.Dropout(0.2),
        layers.Dense(5, use_bias=False), layers.Activation("tanh"), layers.Flatten(),
        layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def functional():
    a, b = pyggml.Input((6,), name="first"), pyggml.Input((6,), name="second")
    shared = layers.Dense(6, "tanh")
    inner = pyggml.Sequential([pyggml.Input((6,)), layers.Dense(4), layers.Dense(2)])
    model = pyggml.Model([b, a], {"p": layers.Dense(2)(shared(shared(a))), "q": inner(shared(b))})
    model.compile(pyggml.optimizers.SGD(0.1), {"p": "mse", "q": "mse"}, loss_weights={"p": 2.0,
                                                                                     "q": 1.0})
    return model


def _same_predictions(model, again, x):
    for a, b in zip(np.atleast_1d(model.predict(x)), np.atleast_1d(again.predict(x)), strict=True):
        assert (a == b).all()


# ---- round trips ----------------------------------------------------------------------------

def test_a_sequential_comes_back_with_its_compile_arguments(tmp_path):
    model = sequential()
    model.fit(X, Y, epochs=2, verbose=0)
    model.save(tmp_path / "model.gguf")
    again = pyggml.load_model(tmp_path / "model.gguf")
    assert type(again) is pyggml.Sequential and again.name == model.name
    assert [layer.name for layer in again.layers] == [layer.name for layer in model.layers]
    assert (model.predict(X) == again.predict(X)).all()
    assert again.evaluate(X, Y) == model.evaluate(X, Y)
    assert repr(again.optimizer) == repr(model.optimizer)


def test_a_functional_model_with_shared_and_nested_layers_comes_back(tmp_path):
    model = functional()
    model.save(tmp_path / "model.gguf")
    again = pyggml.load_model(tmp_path / "model.gguf")
    assert again.output_names == ["p", "q"]
    assert [s.node.layer.name for s in again.program.inputs] == ["second", "first"]
    assert len(again.weights) == len(model.weights) == 8
    for a, b in zip(model.predict([X, -X]), again.predict([X, -X]), strict=True):
        assert (a == b).all()
    y = {"p": X[:, :2], "q": X[:, 2:4]}
    assert again.evaluate([X, X], y) == model.evaluate([X, X], y)


def test_an_unbuilt_and_an_uncompiled_model_come_back(tmp_path):
    model = pyggml.Sequential([layers.Dense(3, name="a")], name="later")
    model.save(tmp_path / "model.gguf")
    again = pyggml.load_model(tmp_path / "model.gguf")
    assert again.compiled is None and again.name == "later"
    assert again.predict(X).shape == (40, 3)


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path):
    model = sequential()
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    model.save(tmp_path / "a")
    pyggml.load_model(tmp_path / "a").save(tmp_path / "b")  # unused state is saved on
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = pyggml.load_model(tmp_path / "b")
    wanted = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    found = again.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    assert found.history == wanted.history
    assert again.compiled.trainer.n_updates == 20


def test_frozen_weights_stay_frozen(tmp_path):
    model = sequential()
    model.layers[0].trainable = False
    model.weights[-1].trainable = False
    model.save(tmp_path / "model")
    again = pyggml.load_model(tmp_path / "model")
    wanted = [v.trainable for v in model.weights]
    assert [v.trainable for v in again.weights] == wanted == [False, False, True, True, False]


def test_compile_false_leaves_the_training_out(tmp_path):
    model = sequential()
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model")
    again = pyggml.load_model(tmp_path / "model", compile=False)
    assert again.compiled is None
    assert (model.predict(X) == again.predict(X)).all()


def test_loading_draws_nothing_random(tmp_path):
    sequential().save(tmp_path / "model")
    before = pyggml._random.generator().bit_generator.state
    pyggml.load_model(tmp_path / "model")
    assert pyggml._random.generator().bit_generator.state == before


def test_a_loaded_model_works_in_another_process(tmp_path):
    model = sequential()
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", X)
    code = ("import sys, numpy as np, pyggml; m = pyggml.load_model(sys.argv[1]); "
            "sys.stdout.buffer.write(m.predict(np.load(sys.argv[2])).tobytes())")
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model", tmp_path / "x.npy"],
                          check=True, capture_output=True)
    assert done.stdout == model.predict(X).tobytes()


def test_keep_rotates(tmp_path):
    model = sequential()
    values = []
    for i in range(5):
        model.set_weights([w + i for w in model.get_weights()])
        values.append(model.predict(X))
        model.save(tmp_path / "m", keep=3)
    assert sorted(os.listdir(tmp_path)) == ["m", "m.1", "m.2"]
    for name, wanted in zip(("m", "m.1", "m.2"), values[::-1], strict=False):
        assert (pyggml.load_model(tmp_path / name).predict(X) == wanted).all()
    for wrong, error in ((0, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="keep"):
            model.save(tmp_path / "m", keep=wrong)


# ---- objects of the user --------------------------------------------------------------------

class Scale(layers.Layer):
    def __init__(self, start=2.0, **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, input_shape):
        self.factor = self.add_weight("factor", (input_shape[-1],), "ones")

    def call(self, x):
        return ops.multiply(ops.multiply(x, self.factor), self.start)

    def get_config(self):
        return super().get_config() | {"start": self.start}


def cube(x):
    return ops.multiply(x, ops.square(x))


def distance(y_true, y_pred):
    return ops.square(ops.subtract(y_pred, y_true))


def test_custom_layers_activations_and_losses_need_their_names(tmp_path):
    model = pyggml.Sequential([pyggml.Input((6,)), Scale(3.0), layers.Dense(2, cube)])
    model.compile("sgd", distance)
    model.save(tmp_path / "model")
    everything = {"Scale": Scale, "cube": cube, "distance": distance}
    again = pyggml.load_model(tmp_path / "model", custom_objects=everything)
    assert (again.predict(X) == model.predict(X)).all()
    assert again.evaluate(X, X[:, :2]) == model.evaluate(X, X[:, :2])
    for name in everything:
        fewer = {k: v for k, v in everything.items() if k != name}
        with pytest.raises(pyggml.FileFormatError, match=f"'{name}' is not known.*custom_objects"):
            pyggml.load_model(tmp_path / "model", custom_objects=fewer)
    fewer.pop("distance", None)
    pyggml.load_model(tmp_path / "model", {"Scale": Scale, "cube": cube}, compile=False)
    with pytest.raises(TypeError, match="custom_objects"):
        pyggml.load_model(tmp_path / "model", custom_objects=[Scale])


def test_registered_objects_need_nothing(tmp_path):
    @saving.register
    class Registered(Scale):
        pass

    model = pyggml.Sequential([pyggml.Input((6,)), Registered(3.0)])
    model.save(tmp_path / "model")
    assert (pyggml.load_model(tmp_path / "model").predict(X) == model.predict(X)).all()
    with pytest.raises(ValueError, match="registered"):
        saving.register(type("Registered", (), {"__module__": "elsewhere"}))


def test_what_cannot_be_described_is_refused_before_anything_is_written(tmp_path):
    model = pyggml.Sequential([pyggml.Input((6,)), layers.Dense(2, lambda x: x)])
    with pytest.raises(TypeError, match="lambda"):
        model.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


# ---- weights --------------------------------------------------------------------------------

def test_weights_by_order_do_not_need_names(tmp_path):
    model, other = sequential(), sequential()
    assert [layer.name for layer in model.layers] != [layer.name for layer in other.layers]
    model.save_weights(tmp_path / "w")
    assert other.load_weights(tmp_path / "w") == []
    assert (other.predict(X) == model.predict(X)).all()


@pytest.mark.parametrize("change, message", [
    (lambda: [layers.Dense(31, "relu"), layers.Dense(3)], r"shape \(6, 31\).*shape \(6, 32\)"),
    (lambda: [layers.Dense(32, "relu")], "has 2 weights, the file 4"),
    (lambda: [layers.Dense(32, use_bias=False), layers.Dense(3)], "is the bias of a Dense"),
    (lambda: [layers.Dense(32), Scale(), layers.Dense(3)], "Scale"),
])
def test_another_architecture_is_refused_by_name_and_shape(change, message, tmp_path):
    model = pyggml.Sequential([pyggml.Input((6,)), layers.Dense(32, "relu"), layers.Dense(3)])
    model.save_weights(tmp_path / "w")
    other = pyggml.Sequential([pyggml.Input((6,)), *change()])
    before = other.get_weights()
    with pytest.raises(pyggml.FileFormatError, match=message) as caught:
        other.load_weights(tmp_path / "w")
    assert str(tmp_path / "w") in str(caught.value)
    assert all((a == b).all() for a, b in zip(before, other.get_weights(), strict=True))


def test_weights_by_name_list_what_does_not_match(tmp_path):
    def make(*names):
        return pyggml.Sequential([pyggml.Input((6,)), layers.Dense(6, name=names[0]),
                                  layers.Dense(6, name=names[1]),
                                  layers.Dense(4 if len(names) > 2 else 3, name="head")])

    model, swapped = make("a", "b"), make("b", "a")
    model.save(tmp_path / "m")
    assert swapped.load_weights(tmp_path / "m", by_name=True) == []
    assert (swapped.layers[0].get_weights()[0] == model.layers[1].get_weights()[0]).all()
    other = make("a", "c", "wider")
    before = other.get_weights()
    with pytest.raises(ValueError) as caught:
        other.load_weights(tmp_path / "m", by_name=True)
    for part in ("'c/kernel' of shape (6, 6) is not in the file", "'head/kernel' has shape (6, 4), "
                 "in the file (6, 3)", "the file has 'b/kernel' of shape (6, 6)"):
        assert part in str(caught.value)
    assert all((a == b).all() for a, b in zip(before, other.get_weights(), strict=True))
    left = other.load_weights(tmp_path / "m", by_name=True, skip_mismatch=True)
    assert left == ["c/kernel", "c/bias", "head/kernel", "head/bias"]
    assert (other.layers[0].get_weights()[0] == model.layers[0].get_weights()[0]).all()
    with pytest.raises(ValueError, match="by_name"):
        other.load_weights(tmp_path / "m", skip_mismatch=True)


def test_a_weights_only_file_is_refused_as_a_model(tmp_path):
    sequential().save_weights(tmp_path / "w")
    with pytest.raises(pyggml.FileFormatError, match=r"weights.*load_weights"):
        pyggml.load_model(tmp_path / "w")
    with pytest.raises(pyggml.FileFormatError, match="checkpoint"):
        pyggml.checkpoints.load(tmp_path / "w")


# ---- other programs -------------------------------------------------------------------------

def test_the_gguf_package_reads_every_tensor_and_key(tmp_path):
    gguf = pytest.importorskip("gguf")
    model = pyggml.Sequential([pyggml.Input((6,)), layers.Dense(4, name="a"),
                               layers.Dense(3, name="n" * 70)], name="named")
    model.save(tmp_path / "m")
    reader = gguf.GGUFReader(tmp_path / "m")
    tensors = {t.name: t for t in reader.tensors}
    assert reader.fields["general.architecture"].contents() == "pyggml"
    assert reader.fields["general.name"].contents() == "named"
    kernel = tensors["a/kernel"]
    assert kernel.tensor_type == gguf.GGMLQuantizationType.F32
    assert kernel.shape.tolist() == [6, 4]  # ggml's order: what ggml_mul_mat multiplies with
    assert (kernel.data == model.layers[0].get_weights()[0].T).all()
    records = json.loads(reader.fields["pyggml.weights"].contents())
    assert [r["name"] for r in records] == list(model.weight_names.values())
    for r, w in zip(records, model.get_weights(), strict=True):
        assert len(r["tensor"]) <= 63
        found = tensors[r["tensor"]].data.reshape([r["shape"][a] for a in r["axes"]])
        assert (found.transpose(np.argsort(r["axes"])) == w).all()


def test_checksums_are_xxh64_as_documented(tmp_path):
    xxhash = pytest.importorskip("xxhash")
    sequential().save(tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    from pyggml._container import Container

    with Container(tmp_path / "m") as c:
        start = c.start
        header, body = c.get("pyggml.checksum.header"), c.get("pyggml.checksum.data")
    assert xxhash.xxh64(data[start:]).hexdigest() == body
    assert xxhash.xxh64(data[:start].replace(header.encode(), b"0" * 16)).hexdigest() == header


# ---- quantisation ---------------------------------------------------------------------------

@pytest.mark.parametrize("kind, error, bits", [
    ("f16", 1e-3, 16), ("bf16", 1e-2, 16), ("q8_0", 1e-2, 8.5), ("q4_K", 0.12, 4.5)])
def test_quantised_files_are_smaller_and_predict_nearly_the_same(kind, error, bits, tmp_path):
    pyggml.set_seed(0)
    model = pyggml.Sequential([pyggml.Input((256,)), layers.Dense(512, "relu"),
                               layers.Dense(256, "tanh"), layers.Dense(10)])
    x = np.random.default_rng(1).normal(size=(50, 256)).astype(np.float32)
    model.save(tmp_path / "full")
    model.save(tmp_path / "small", quantize=kind)
    again = pyggml.load_model(tmp_path / "small")
    wanted, found = model.predict(x), again.predict(x)
    assert 0 < np.abs(found - wanted).max() / np.abs(wanted).max() < error
    matrices = sum(w.size for w in model.get_weights() if w.ndim == 2)
    saved = os.path.getsize(tmp_path / "full") - os.path.getsize(tmp_path / "small")
    assert saved == pytest.approx(matrices * (32 - bits) / 8, rel=0.02)
    for v, w in zip(again.get_weights(), model.get_weights(), strict=True):
        assert (v == w).all() or w.ndim == 2


def test_rows_and_numbers_that_do_not_fit_are_kept_better(tmp_path):
    from pyggml._container import Container

    model = pyggml.Sequential([
        pyggml.Input((64,)), layers.Dense(20, name="blocks"), layers.Dense(7, name="odd"),
        layers.Dense(7, name="large"), layers.Dense(7, name="infinite")])
    weights = model.get_weights()
    weights[4] *= 1e6
    weights[6][0, 0] = np.inf
    model.set_weights(weights)
    model.save(tmp_path / "m", quantize="q8_0")
    with Container(tmp_path / "m") as c:
        types = {name: e.type for name, e in c.entries.items()}
    assert types == {"blocks/kernel": "q8_0", "odd/kernel": "f16", "large/kernel": "f32",
                     "infinite/kernel": "f32", **{f"{n}/bias": "f32" for n in
                                                  ("blocks", "odd", "large", "infinite")}}
    assert (pyggml.load_model(tmp_path / "m").get_weights()[6] == weights[6]).all()
    with pytest.raises(ValueError, match=r"quantize.*q4_K"):
        model.save(tmp_path / "m", quantize="q5")


def test_accuracy_on_the_digits_survives_quantisation(tmp_path):
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target
    pyggml.set_seed(2)
    model = pyggml.Sequential([pyggml.Input((64,)), layers.Dense(256, "relu"),
                               layers.Dense(256, "relu"), layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x[:1200], y[:1200], epochs=12, verbose=0)

    def accuracy(m):
        return (m.predict(x[1200:]).argmax(axis=1) == y[1200:]).mean()

    full = accuracy(model)
    assert full > 0.9
    for kind, loss in (("f16", 0.002), ("bf16", 0.004), ("q8_0", 0.004), ("q4_K", 0.02)):
        model.save(tmp_path / kind, quantize=kind)
        assert accuracy(pyggml.load_model(tmp_path / kind)) >= full - loss, kind


# Between open() and "with" nobody closes a file but the end of its last reference.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("quantize", [None, "q8_0"])
@pytest.mark.parametrize("by_name", [False, True])
def test_an_exception_between_any_two_lines_loads_all_weights_or_none(by_name, quantize, tmp_path):
    model = pyggml.Sequential([pyggml.Input((32,)), layers.Dense(32), layers.Dense(3)])
    model.save(tmp_path / "new", quantize=quantize)
    model.load_weights(tmp_path / "new")  # rounded, where they are quantised
    new = [w.tobytes() for w in model.get_weights()]
    old = [w - 1 for w in model.get_weights()]
    model.set_weights(old)
    found = []

    def check(line):
        weights = [w.tobytes() for w in model.get_weights()]
        assert weights in (new, [w.tobytes() for w in old]), line
        found.append(weights == new)
        model.set_weights(old)

    interrupt_everywhere(lambda: model.load_weights(tmp_path / "new", by_name), check)
    assert set(found) == {False, True}
