"""Threads, versions, log and configuration."""

import os

import pytest
from child import run_child

import pyggml
from pyggml import _library, _threads


@pytest.fixture
def threads():
    before = pyggml.get_num_threads()
    yield
    pyggml.set_num_threads(before)


def test_threads_can_be_set_and_asked_for(threads):
    pyggml.set_num_threads(3)
    assert pyggml.get_num_threads() == 3


@pytest.mark.parametrize("n", [0, -1, 513, 10**6])
def test_a_number_of_threads_out_of_range_is_refused(threads, n):
    before = pyggml.get_num_threads()
    with pytest.raises(ValueError, match=rf"n must be from 1 to 512, got {n}"):
        pyggml.set_num_threads(n)
    assert pyggml.get_num_threads() == before


@pytest.mark.parametrize("n", ["2", 2.0, None])
def test_threads_that_are_no_integer_are_refused(threads, n):
    with pytest.raises(TypeError, match="n must be an integer"):
        pyggml.set_num_threads(n)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"])
def test_the_environment_bounds_the_default(monkeypatch, name):
    for other in ("PYGGML_NUM_THREADS", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(other, raising=False)
    free = _threads.default_num_threads()
    monkeypatch.setenv(name, "1")
    assert _threads.default_num_threads() == 1
    monkeypatch.setenv(name, "100000")
    assert _threads.default_num_threads() == free
    monkeypatch.setenv(name, "nonsense")
    assert _threads.default_num_threads() == free


def test_pyggml_num_threads_stands_above_all_bounds(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYGGML_NUM_THREADS", "300")
    assert _threads.default_num_threads() == 300
    monkeypatch.setenv("PYGGML_NUM_THREADS", "0")
    assert _threads.default_num_threads() == 1
    assert run_child("""
        import numpy as np
        import pyggml
        model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(1)])
        print(pyggml.get_num_threads(), model.predict(np.ones((3, 4))).shape)
    """, env={"PYGGML_NUM_THREADS": "4"}) == "4 (3, 1)\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_ggml_gets_no_more_threads_than_there_are_processors():
    """Its barriers spin: threads that share a processor would wait out each other's time slice."""
    assert run_child("""
        import os
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        import numpy as np
        import pyggml
        pyggml.set_num_threads(8)
        model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2)])
        model.predict(np.ones((3, 4)))
        print(pyggml.get_num_threads(), len(os.listdir("/proc/self/task")))
    """, env={"PYGGML_LOWERING": "0"}) == "8 1\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_the_affinity_bounds_the_default():
    assert run_child("""
        import os
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ.pop("PYGGML_NUM_THREADS", None)
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        import pyggml
        print(pyggml.get_num_threads())
    """) == "1\n"


def test_the_control_group_bounds_the_default(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert _threads._cgroup_quota(str(tmp_path)) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert _threads._cgroup_quota(str(tmp_path)) is None
    assert _threads._cgroup_quota(str(tmp_path / "none")) is None


def test_a_ggml_of_another_minor_version_is_an_import_error():
    with pytest.raises(ImportError, match=r"libggml-python==0\.20\.\*"):
        _library.check_ggml_version(found="0.21.0", compiled="0.20.2")
    _library.check_ggml_version(found="0.20.9", compiled="0.20.2")


def test_the_loaded_ggml_is_the_one_compiled_against():
    assert _library.ggml_version().split(".")[:2] == _library.ggml_version_compiled().split(".")[:2]


def test_messages_of_ggml_go_to_logging_and_not_to_stderr():
    assert run_child("""
        import logging
        import os
        os.environ["GGML_SCHED_DEBUG"] = "2"  # ggml tells of every graph it plans
        import numpy as np
        import pyggml
        seen = []
        class Handler(logging.Handler):
            def emit(self, record):
                seen.append((record.name, record.levelno, record.getMessage()))
        logger = logging.getLogger("pyggml.ggml")
        logger.addHandler(Handler())
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        model = pyggml.Sequential([pyggml.Input((4,)), pyggml.layers.Dense(2)])
        model.predict(np.zeros((1, 4)))
        print({name for name, _, _ in seen}, {level for _, level, _ in seen},
              any("SPLIT" in text for _, _, text in seen))
        logger.handlers.clear()
    """) == "{'pyggml.ggml'} {10} True\n"


def test_show_config_names_versions_sources_devices_and_threads(capsys):
    pyggml.show_config()
    text = capsys.readouterr().out
    for word in ("pyggml", "numpy", "compiled against", "blas", "CPU", "used by ggml", "threads"):
        assert word in text


def test_training_in_a_forked_child_works():
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    assert run_child("""
        import os, signal, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import numpy as np
        import pyggml
        pyggml.set_num_threads(2)
        model = pyggml.Sequential([pyggml.Input((64,)), pyggml.layers.Dense(64)])
        model.compile("sgd", "mse")
        x = np.ones((64, 64), np.float32)
        trainer = pyggml.Trainer(model, 64)
        trainer.step(x, x)
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            trainer.step(x, x)
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        trainer.step(x, x)
    """) == "0\n"
