"""Our matrix products beside OpenBLAS's: GFLOP/s and their ratio, for the shapes of training.

    python benchmarks/kernels/gemm.py [threads]

OpenBLAS comes from the wheel scipy-openblas32, is called through ctypes (whose cost, measured on
a 1 x 1 product, is taken off) and runs on one thread; with threads > 1 only ours does more. The
minimum of 9 runs counts, ours and theirs by turns; with one thread it is this thread's time that
is counted, so that other processes do little harm. The thresholds in pyggml/kernels/gemm_table.h
were chosen with it.
"""

import ctypes
import glob
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from pyggml import _kernels as K

# name, transpose a, transpose b, m, n, k
SHAPES = [
    ("forward", 0, 1, 32, 64, 4), ("forward", 0, 1, 32, 64, 64), ("forward", 0, 1, 32, 10, 128),
    ("forward", 0, 1, 32, 128, 784), ("forward", 0, 1, 128, 1024, 1024),
    ("forward", 0, 1, 32, 2048, 2048), ("forward", 0, 1, 500, 500, 784),
    ("forward", 0, 1, 256, 256, 17), ("forward", 0, 1, 10000, 128, 784),
    ("one row", 0, 1, 1, 128, 784), ("one row", 0, 1, 1, 2048, 2048),
    ("data gradient", 0, 0, 32, 64, 64), ("data gradient", 0, 0, 32, 128, 10),
    ("data gradient", 0, 0, 32, 784, 128), ("data gradient", 0, 0, 128, 1024, 1024),
    ("data gradient", 0, 0, 32, 2048, 2048), ("data gradient", 0, 0, 500, 784, 500),
    ("weight gradient", 1, 0, 64, 4, 32), ("weight gradient", 1, 0, 64, 64, 32),
    ("weight gradient", 1, 0, 10, 128, 32), ("weight gradient", 1, 0, 128, 784, 32),
    ("weight gradient", 1, 0, 1024, 1024, 128), ("weight gradient", 1, 0, 2048, 2048, 8),
    ("weight gradient", 1, 0, 2048, 2048, 32), ("weight gradient", 1, 0, 500, 784, 500),
    ("square", 0, 0, 256, 256, 256), ("square", 0, 0, 512, 512, 512),
    ("square", 0, 1, 1024, 1024, 1024), ("square", 0, 0, 1024, 1024, 1024),
]


def openblas():
    import scipy_openblas32

    lib = ctypes.CDLL(glob.glob(os.path.join(scipy_openblas32.get_lib_dir(), "*openblas*"))[0])
    lib.scipy_openblas_set_num_threads(1)
    f = lib.scipy_cblas_sgemm
    i, x, p = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    f.argtypes = [i, i, i, i, i, i, x, p, i, p, i, x, p, i]
    f.restype = None
    return f


def seconds(run, reps):
    clock = time.thread_time if K.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    for _ in range(reps):
        run()
    return (clock() - begin) / reps


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    K.set_num_threads(threads)
    sgemm = openblas()
    rng = np.random.default_rng(0)

    def call(ta, tb, m, n, k, a, b, c):
        args = (101, 112 if ta else 111, 112 if tb else 111, m, n, k, 1.0, a.ctypes.data,
                m if ta else k, b.ctypes.data, k if tb else n, 0.0, c.ctypes.data, n)
        return lambda: sgemm(*args)

    one = np.ones((1, 1), np.float32)
    one_by_one = call(0, 0, 1, 1, 1, one, one, one)
    overhead = min(seconds(one_by_one, 2000) for _ in range(9))
    print(f"{K.isa_name()}, {threads} thread(s)")
    print(f"{'':16} {'m':>6} {'n':>5} {'k':>5} {'ours':>8} {'OpenBLAS':>9} {'ratio':>6}")
    for name, ta, tb, m, n, k in SHAPES:
        a = rng.normal(size=(k, m) if ta else (m, k)).astype(np.float32)
        b = rng.normal(size=(n, k) if tb else (k, n)).astype(np.float32)
        c = np.empty((m, n), np.float32)
        flops = 2.0 * m * n * k
        reps = max(1, min(5000, int(3e8 / flops)))
        run = call(ta, tb, m, n, k, a, b, c)
        times = [(K.gemm_seconds(ta, tb, a, b, c, reps), seconds(run, reps)) for _ in range(9)]
        ours, theirs = (min(t) for t in zip(*times, strict=True))
        theirs -= overhead
        print(f"{name:16} {m:6} {n:5} {k:5} {flops / ours / 1e9:8.1f} "
              f"{flops / theirs / 1e9:9.1f} {theirs / ours:6.2f}")


main()
