import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from pyggml import _kernels as K


@pytest.mark.parametrize("parts", [1, 2, 3, 17, 256, 1000])
def test_each_part_runs_once(threads, parts):
    for _ in range(50):
        assert (K.count_parts(parts) == 1).all()


@pytest.mark.parametrize("parts", [1, 2, 17, 1000])
def test_each_part_of_a_brief_region_runs_once_close_together_or_not(threads, parts):
    for pause in [0] * 200 + [1e-3, 0] * 20:
        time.sleep(pause)
        assert (K.count_parts(parts, brief=True) == 1).all()


def test_regions_from_two_python_threads():
    K.set_num_threads(2)
    wrong = []

    def run():
        for _ in range(300):
            if (K.count_parts(5) != 1).any():
                wrong.append(1)

    workers = [threading.Thread(target=run) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_resize_and_stop():
    for n in (3, 1, 4, 2):
        K.set_num_threads(n)
        assert K.get_num_threads() == n
        assert (K.count_parts(9) == 1).all()
        K.pool_stop()
        assert (K.count_parts(9) == 1).all()
    with pytest.raises(ValueError):
        K.set_num_threads(0)


def test_limit_of_a_thread():
    K.set_num_threads(3)
    K.set_thread_limit(1)
    assert K.get_num_threads() == 1
    K.set_thread_limit(0)
    assert K.get_num_threads() == 3


def test_same_result_while_the_pool_is_busy(rng):
    K.set_num_threads(2)
    a, b = rng.normal(size=(2, 150, 150)).astype(np.float32)
    want = np.empty((150, 150), np.float32)
    K.gemm(0, 0, 1.0, a, b, 0.0, want)
    different = []

    def run():
        c = np.empty_like(want)
        for _ in range(200):
            K.gemm(0, 0, 1.0, a, b, 0.0, c)
            if (c != want).any():
                different.append(1)

    workers = [threading.Thread(target=run) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not different


def test_denormals_only_flushed_inside():
    tiny = np.float32(1e-30)
    assert K.ftz_product(tiny, np.float32(1e-10)) == 0.0
    assert tiny * np.float32(1e-10) != 0.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_has_a_pool():
    K.set_num_threads(3)
    K.count_parts(8)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (K.count_parts(8) == 1).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (K.count_parts(8) == 1).all()


def test_process_ends_with_workers_and_a_daemon_thread_in_a_region():
    code = """
import threading, time
from pyggml import _kernels as K
K.set_num_threads(3)
threading.Thread(target=lambda: K.region_seconds(3, 10**9, 100), daemon=True).start()
time.sleep(0.2)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_workers_sleep_when_idle():
    code = """
import time
from pyggml import _kernels as K
K.set_num_threads(3)
K.region_seconds(3, 100)
time.sleep(0.05)
begin = time.process_time()
time.sleep(0.5)
print(time.process_time() - begin)
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)
    assert float(out.stdout) < 0.1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_two_processes_on_one_core():
    """They share it: each takes about twice as long, not thirty times."""
    code = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
from pyggml import _kernels as K
K.set_num_threads(2)
K.region_seconds(2, 50, 20000)
print(K.region_seconds(2, 3000, 20000))
"""
    core = str(min(os.sched_getaffinity(0)))

    def start():
        return subprocess.Popen([sys.executable, "-c", code, core], stdout=subprocess.PIPE)

    def seconds(p):
        return float(p.communicate(timeout=120)[0])

    alone = min(seconds(start()) for _ in range(2))
    for _ in range(3):  # others may use the machine meanwhile
        pair = [start(), start()]
        both = max(seconds(p) for p in pair)
        if both < 6 * alone:
            return
        time.sleep(1)
    pytest.fail(f"alone {alone:.2f} s, two at a time {both:.2f} s")
