"""What computing leaves alone in the caller's thread and process: denormals, NumPy's threads."""

import sys

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import _lowering, layers

TINY = np.float32(1e-39)  # a denormal


def denormals_count():
    """Whether this thread computes with denormals."""
    return bool((np.full(7, TINY) * np.float32(0.5) > 0).all()
                and (np.full(7, TINY) + TINY > 0).all())


@pytest.fixture(params=[1, 2, 3])
def number_of_threads(request):
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(request.param)
    yield request.param
    pyggml.set_num_threads(before)


def tiny_network(features=512, units=512):
    model = pyggml.Sequential([pyggml.Input((features,)), layers.Dense(units, use_bias=False)])
    model.set_weights([np.full((features, units), TINY)])
    model.compile(pyggml.optimizers.Adam(0.0), "mse")
    return model


@pytest.mark.skipif(not _lowering.enabled(), reason="ggml's own threads do as they like")
@pytest.mark.parametrize("rows", [1, 257])
def test_all_threads_flush_denormals(number_of_threads, rows):
    # 512 denormals add up to a normal number, unless each counts as 0
    y = tiny_network().predict(np.ones((rows, 512), np.float32), batch_size=rows)
    assert (y == 0).all()


def test_denormals_count_again_in_the_callers_thread(number_of_threads):
    assert denormals_count()
    model = tiny_network(5, 3)
    x, y = np.ones((4, 5), np.float32), np.ones((4, 3), np.float32)
    with pyggml.Trainer(model, batch_size=2, nbatch_logical=4) as trainer:
        trainer.step(x[:2], y[:2])
        assert denormals_count()
        trainer.step(x[:2], y[:2])  # the end of a window
        assert denormals_count()
        trainer.step_many(x, y, np.arange(4).reshape(2, 2))
        assert denormals_count()
        trainer.apply_gradients(trainer.gradients(x[:2], y[:2]))
        assert denormals_count()
        trainer.predict(x)
        trainer.eval(x[:2], y[:2])
        assert denormals_count()
        with pytest.raises(ValueError):
            trainer.step(x, y)
        assert denormals_count()
    model.fit(x, y, batch_size=2, epochs=1, verbose=0)
    model.evaluate(x, y, verbose=0)
    assert denormals_count()


@pytest.mark.skipif(not _lowering.enabled(), reason="ggml's step writes weights at rate 0, too")
def test_a_weight_that_is_denormal_stays_so_where_nothing_moves_it():
    model = tiny_network(5, 3)
    with pyggml.Trainer(model, batch_size=4) as trainer:
        trainer.step(np.ones((4, 5), np.float32), np.ones((4, 3), np.float32))
        assert (trainer.get_weights()[0] == TINY).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_numpys_blas_keeps_its_threads():
    found = run_child("""
        import ctypes
        import numpy as np

        a = np.ones((300, 300))
        a @ a
        with open("/proc/self/maps") as f:
            paths = {line.split()[-1] for line in f if "openblas" in line and "numpy" in line}

        def threads():
            for path in paths:
                library = ctypes.CDLL(path)
                for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_",
                             "openblas_get_num_threads"):
                    if hasattr(library, name):
                        return getattr(library, name)()

        before = threads()
        import pyggml
        from pyggml import layers

        after_import = threads()
        pyggml.set_num_threads(1)
        model = pyggml.Sequential([pyggml.Input((700,)), layers.Dense(800), layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(np.ones((2048, 700)), np.ones((2048, 1)), batch_size=1024, verbose=0)
        print(before, after_import, threads())
    """, env={"OPENBLAS_NUM_THREADS": "2"})
    before, after_import, after = found.split()
    if before == "None":
        pytest.skip("NumPy has another BLAS here")
    assert before == "2"
    assert (after_import, after) == ("2", "2")
