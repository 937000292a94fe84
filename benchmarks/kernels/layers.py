"""Kernels of whole layers, beside PyTorch's where it is installed: microseconds and ratios.

    python benchmarks/kernels/layers.py [threads]

A ratio above 1 means that ours is faster. The minimum of 15 runs counts.
"""

import sys
import time

import numpy as np

from pyggml import _kernels as K

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None


def best(run, rounds=15):
    run()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6


def report(name, ours, theirs=None):
    line = f"{name:44} {ours:10.1f} us"
    if theirs is not None:
        line += f"   PyTorch {theirs:10.1f} us   ratio {theirs / ours:5.2f}"
    print(line, flush=True)


def timed(run):
    return best(run) if torch else None


def f32(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


CONVS = [(32, 1, 28, 8, 3, 1), (32, 8, 14, 16, 3, 1), (32, 1, 28, 32, 3, 1), (32, 32, 14, 64, 3, 1),
         (64, 3, 32, 32, 3, 1), (64, 32, 16, 64, 3, 1), (16, 64, 56, 64, 3, 1),
         (16, 64, 28, 128, 3, 2), (32, 64, 28, 64, 1, 1)]


def convolution(rng, n, ic, size, oc, k, s):
    p = k // 2
    out = (size + 2 * p - k) // s + 1
    x, w, b = f32(rng, n, ic, size, size), f32(rng, oc, ic, k, k), f32(rng, oc)
    dy = f32(rng, n, oc, out, out)
    y, dx, dw = np.empty_like(dy), np.empty_like(x), np.empty_like(w)
    o = {"stride": (s, s), "pad": (p, p)}
    theirs = [None] * 3
    if torch:
        tx, tw, tb, tdy = map(torch.from_numpy, (x, w, b, dy))

        def back(mask, a=(tdy, tx, tw, [oc], [s, s], [p, p], [1, 1], False, [0, 0], 1)):
            return torch.ops.aten.convolution_backward(*a, mask)

        theirs = [best(lambda: torch.relu_(F.conv2d(tx, tw, tb, stride=s, padding=p))),
                  best(lambda: back([True, False, False])),
                  best(lambda: back([False, True, False]))]
    name = f"conv {n}x{ic}x{size}x{size} -> {oc}, {k}x{k}, stride {s}:"
    report(name + " relu", best(lambda: K.conv_forward(x, w, b, y, act="relu", **o)), theirs[0])
    report("    data gradient", best(lambda: K.conv_backward_data(dy, w, dx, **o)), theirs[1])
    report("    weight gradient", best(lambda: K.conv_backward_weight(x, dy, dw, **o)),
           theirs[2])


def convolutions(rng):
    for n, ic, size, oc, k, s in CONVS:
        convolution(rng, n, ic, size, oc, k, s)


def recurrent_layer(rng, kind, g):
    n, t, i, h = 32, 64, 32, 128
    x, w, u = f32(rng, n * t, i), f32(rng, g * h, i) / 10, f32(rng, g * h, h) / 10
    b, rb = f32(rng, g * h), f32(rng, h)
    xw, hseq = np.empty((n, t, g * h), np.float32), np.empty((n, t, h), np.float32)
    ws = np.empty(K.rnn_workspace(kind, hseq.shape), np.float32)
    dh, dxw, du = f32(rng, n, t, h), np.empty_like(xw), np.empty_like(u)
    dw, dx, db, drb = np.empty_like(w), np.empty_like(x), np.empty_like(b), np.empty_like(rb)
    flat, dflat = xw.reshape(n * t, g * h), dxw.reshape(n * t, g * h)
    rbias = rb if kind == "gru" else None

    def forward():
        K.gemm(0, 1, 1.0, x, w, 0.0, flat, bias=b)
        K.rnn_forward(kind, xw, u, rbias, None, None, hseq, None, ws)

    def step():
        forward()
        K.rnn_backward(kind, u, None, None, hseq, ws, dh, None, None, dxw, du,
                       drb if kind == "gru" else None, None, None)
        K.gemm(1, 0, 1.0, dflat, x, 0.0, dw)
        K.gemm(0, 0, 1.0, dflat, w, 0.0, dx)
        K.sum_rows(dflat, 0.0, db)

    theirs = [None, None]
    if torch:
        layer = getattr(torch.nn, kind.upper())(i, h, batch_first=True)
        tx, tdh = torch.from_numpy(x.reshape(n, t, i)).requires_grad_(), torch.from_numpy(dh)

        def torch_step():
            layer.zero_grad()
            layer(tx)[0].backward(tdh)

        with torch.no_grad():
            theirs[0] = best(lambda: layer(tx))
        theirs[1] = best(torch_step)
    report(f"{kind} {n} x {t} steps, {i} -> {h}: forward", best(forward), theirs[0])
    report("    forward and backward", best(step), theirs[1])


def recurrent(rng):
    for kind, g in (("lstm", 4), ("gru", 3)):
        recurrent_layer(rng, kind, g)


def elementwise(rng):
    x, dy = f32(rng, 256, 1024), f32(rng, 256, 1024)
    y, dx = np.empty_like(x), np.empty_like(x)
    if torch:
        tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    for act, f in (("relu", "relu"), ("tanh", "tanh"), ("sigmoid", "sigmoid"), ("gelu", "gelu"),
                   ("silu", "silu")):
        report(f"{act} of 256 x 1024", best(lambda a=act: K.act_forward(a, 0.0, x, y)),
               timed(lambda f=f: getattr(F, f)(tx)) if torch else None)
        report("    gradient", best(lambda a=act: K.act_backward(a, 0.0, dy, x, None, dx)))
    report("softmax of 256 x 1024", best(lambda: K.softmax(0, x, y)),
           timed(lambda: torch.softmax(tx, 1)) if torch else None)
    mean, rstd, g, b = (np.empty(256, np.float32), np.empty(256, np.float32), f32(rng, 1024),
                        f32(rng, 1024))
    report("layer norm of 256 x 1024",
           best(lambda: K.layer_norm(0, 1e-3, x, g, b, y, mean, rstd)),
           timed(lambda: F.layer_norm(tx, (1024,), torch.from_numpy(g), torch.from_numpy(b), 1e-3))
           if torch else None)
    report("dropout of 256 x 1024", best(lambda: K.dropout(1, 2, 3, 0.5, x, y)),
           timed(lambda: F.dropout(tx, 0.5)) if torch else None)
    del ty


def gradient_and_step(rng, m, n, k):
    a, b, w = f32(rng, k, m), f32(rng, k, n), f32(rng, m, n)
    s1, s2, g = np.zeros_like(w), np.zeros_like(w), np.empty_like(w)

    def apart():
        K.gemm(1, 0, 1.0, a, b, 0.0, g)
        K.step("adam", w, g, s1, s2)

    theirs = None
    if torch:
        p = torch.nn.Parameter(torch.from_numpy(w.copy()))
        optimizer = torch.optim.AdamW([p], fused=True)
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)

        def torch_step():
            p.grad = ta.T @ tb
            optimizer.step()

        theirs = best(torch_step)
    report(f"gradient {m} x {n} x {k} and AdamW, apart", best(apart), theirs)
    report("    in one", best(lambda: K.gemm_step("adam", 1, 0, a, b, w, s1, s2)), theirs)


def steps(rng):
    for m, n, k in ((128, 784, 32), (1024, 1024, 128), (2048, 2048, 32)):
        gradient_and_step(rng, m, n, k)


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    K.set_num_threads(threads)
    if torch:
        torch.set_num_threads(threads)
    print(f"{K.isa_name()}, {threads} thread(s)")
    rng = np.random.default_rng(0)
    for part in (steps, elementwise, recurrent, convolutions):
        part(rng)


main()
