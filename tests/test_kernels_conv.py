import numpy as np
import pytest

from pyggml import _kernels as K

# n, ic, h, w, oc, kh, kw, stride, pad, dilation, groups
CASES = [
    (1, 1, 1, 1, 1, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (2, 1, 7, 9, 3, 3, 3, (1, 1), (1, 1), (1, 1), 1),
    (3, 3, 8, 7, 17, 3, 3, (1, 1), (0, 0), (1, 1), 1),
    (5, 4, 28, 28, 8, 3, 3, (1, 1), (1, 1), (1, 1), 1),
    (1, 17, 14, 33, 33, 3, 2, (1, 1), (1, 0), (1, 1), 1),
    (2, 3, 11, 13, 5, 5, 3, (2, 2), (2, 1), (1, 1), 1),
    (4, 2, 10, 10, 7, 2, 2, (3, 1), (0, 1), (1, 1), 1),
    (2, 3, 12, 12, 4, 3, 3, (1, 1), (2, 2), (2, 2), 1),
    (2, 3, 15, 12, 4, 3, 3, (2, 3), (3, 2), (2, 3), 1),
    (3, 8, 9, 9, 16, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (2, 6, 9, 9, 4, 3, 3, (1, 1), (1, 1), (1, 1), 2),
    (3, 7, 17, 19, 7, 3, 3, (1, 1), (1, 1), (1, 1), 7),
    (2, 5, 17, 19, 10, 3, 3, (2, 2), (1, 1), (1, 1), 5),
    (3, 4, 1, 50, 6, 1, 5, (1, 1), (0, 2), (1, 1), 1),
    (3, 4, 1, 50, 6, 1, 5, (1, 1), (0, 4), (1, 2), 1),
    (2, 2, 4, 4, 3, 3, 3, (1, 1), (3, 4), (1, 1), 1),
    (1, 5, 13, 11, 7, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (5, 33, 9, 17, 18, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (3, 6, 5, 7, 9, 1, 1, (1, 1), (0, 0), (1, 1), 3),
    (4, 3, 1, 1, 5, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (2, 40, 28, 28, 24, 1, 1, (1, 1), (0, 0), (1, 1), 1),
]


def sizes(case):
    n, ic, h, w, oc, kh, kw, s, p, d, groups = case
    oh = K.conv_out(h, kh, s[0], p[0], p[0], d[0])
    ow = K.conv_out(w, kw, s[1], p[1], p[1], d[1])
    return (n, ic, h, w), (oc, ic // groups, kh, kw), (n, oc, oh, ow)


def taps(case, padded, y_shape):
    """For each tap of the kernel the view of the padded images that it meets."""
    kh, kw, s, d = case[5], case[6], case[7], case[9]
    for a in range(kh):
        for b in range(kw):
            yield a, b, (slice(None), slice(None),
                         slice(a * d[0], a * d[0] + (y_shape[2] - 1) * s[0] + 1, s[0]),
                         slice(b * d[1], b * d[1] + (y_shape[3] - 1) * s[1] + 1, s[1]))


def reference(case, x, w, dy):
    p, groups = case[8], case[10]
    width = ((0, 0), (0, 0), (p[0], p[0]), (p[1], p[1]))
    padded = np.pad(x.astype(np.float64), width)
    y, dpad, dw = np.zeros(dy.shape), np.zeros_like(padded), np.zeros(w.shape)
    ic, oc = w.shape[1], w.shape[0] // groups
    for a, b, view in taps(case, padded, dy.shape):
        for g in range(groups):
            i, o = slice(g * ic, (g + 1) * ic), slice(g * oc, (g + 1) * oc)
            xs = padded[view][:, i]
            y[:, o] += np.einsum("nihw,oi->nohw", xs, w[o, :, a, b].astype(np.float64))
            dw[o, :, a, b] = np.einsum("nihw,nohw->oi", xs, dy[:, o].astype(np.float64))
            dpad[view][:, i] += np.einsum("nohw,oi->nihw", dy[:, o].astype(np.float64),
                                          w[o, :, a, b])
    dx = dpad[:, :, p[0]:p[0] + x.shape[2], p[1]:p[1] + x.shape[3]]
    return y, dx, dw


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_conv(rng, close, threads, case):
    xs, ws, ys = sizes(case)
    x, w, dy = (rng.normal(size=s).astype(np.float32) for s in (xs, ws, ys))
    bias = rng.normal(size=ws[0]).astype(np.float32)
    options = {"stride": case[7], "pad": case[8], "dilation": case[9], "groups": case[10]}
    want_y, want_dx, want_dw = reference(case, x, w, dy)
    y, dx, dw = np.empty(ys, np.float32), np.empty(xs, np.float32), np.empty(ws, np.float32)
    K.conv_forward(x, w, None, y, **options)
    close(y, want_y)
    K.conv_forward(x, w, bias, y, act="relu", **options)
    close(y, np.maximum(want_y + bias[:, None, None], 0))
    K.conv_forward(x, w, bias, y, act="tanh", **options)
    close(y, np.tanh(want_y + bias[:, None, None]), rtol=2e-5)
    K.conv_backward_data(dy, w, dx, **options)
    close(dx, want_dx, rtol=1e-4)
    K.conv_backward_weight(x, dy, dw, **options)
    close(dw, want_dw, rtol=1e-4)
    again = np.empty_like(dw)
    K.conv_backward_weight(x, dy, again, **options)
    assert (again == dw).all()


def test_padding_after_differs(rng, close):
    """The output's size says how much padding follows: stride 2, 'same', even input."""
    case = (2, 3, 8, 8, 4, 3, 3, (2, 2), (0, 0), (1, 1), 1)
    x = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    w = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    dy = rng.normal(size=(2, 4, 4, 4)).astype(np.float32)
    wide = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)))
    want_y, want_dx, want_dw = reference(case, wide, w, dy)
    y, dx, dw = np.empty_like(dy), np.empty_like(x), np.empty_like(w)
    K.conv_forward(x, w, None, y, stride=(2, 2))
    K.conv_backward_data(dy, w, dx, stride=(2, 2))
    K.conv_backward_weight(x, dy, dw, stride=(2, 2))
    close(y, want_y)
    close(dx, want_dx[:, :, :8, :8], rtol=1e-4)
    close(dw, want_dw, rtol=1e-4)


def test_nan_stays_where_it_is(rng):
    x = rng.normal(size=(2, 3, 9, 9)).astype(np.float32)
    x[1, 2, 4, 4] = np.nan
    w = rng.normal(size=(5, 3, 3, 3)).astype(np.float32)
    y = np.empty((2, 5, 9, 9), np.float32)
    K.conv_forward(x, w, None, y, pad=(1, 1))
    want = np.zeros(y.shape, bool)
    want[1, :, 3:6, 3:6] = True
    np.testing.assert_array_equal(np.isnan(y), want)


POOLS = [((2, 3, 8, 8), (2, 2), (2, 2), (0, 0)), ((1, 2, 9, 7), (2, 2), (2, 2), (0, 0)),
         ((3, 17, 28, 28), (2, 2), (2, 2), (0, 0)), ((2, 1, 10, 11), (3, 2), (2, 1), (1, 0)),
         ((1, 1, 5, 5), (5, 5), (1, 1), (2, 2)), ((2, 3, 1, 33), (1, 3), (1, 3), (0, 1))]


@pytest.mark.parametrize("kind, count", [("max", 0), ("avg", 0), ("avg", 1)])
@pytest.mark.parametrize("shape, kernel, stride, pad", POOLS)
def test_pooling(rng, close, threads, kind, count, shape, kernel, stride, pad):
    x = rng.permutation(np.prod(shape)).reshape(shape).astype(np.float32) / 7
    oh = (shape[2] + 2 * pad[0] - kernel[0]) // stride[0] + 1
    ow = (shape[3] + 2 * pad[1] - kernel[1]) // stride[1] + 1
    dy = rng.normal(size=(*shape[:2], oh, ow)).astype(np.float32)
    want, want_dx = np.zeros(dy.shape), np.zeros(shape)
    for r in range(oh):
        for c in range(ow):
            r0, c0 = r * stride[0] - pad[0], c * stride[1] - pad[1]
            rows, cols = slice(max(r0, 0), r0 + kernel[0]), slice(max(c0, 0), c0 + kernel[1])
            window = x[:, :, rows, cols].astype(np.float64)
            if kind == "max":
                want[:, :, r, c] = window.max((2, 3))
                share = window == want[:, :, r, c][..., None, None]
            else:
                cells = kernel[0] * kernel[1] if count else window[0, 0].size
                want[:, :, r, c] = window.sum((2, 3)) / cells
                share = np.full(window.shape, 1 / cells)
            want_dx[:, :, rows, cols] += share * dy[:, :, r, c][..., None, None]
    y, dx = np.empty_like(dy), np.empty_like(x)
    K.pool_forward(kind, x, y, kernel, stride, pad, count)
    close(y, want)
    K.pool_backward(kind, x, dy, dx, kernel, stride, pad, count)
    close(dx, want_dx, rtol=1e-4)


def test_max_pool_of_nan_and_ties():
    x = np.array([[[[1, 1, np.nan, 3], [1, 1, 4, 2]]]], np.float32)
    y, dx = np.empty((1, 1, 1, 2), np.float32), np.empty_like(x)
    K.pool_forward("max", x, y, (2, 2), (2, 2))
    assert y[0, 0, 0, 0] == 1 and np.isnan(y[0, 0, 0, 1])
    K.pool_backward("max", x, np.ones_like(y), dx, (2, 2), (2, 2))
    np.testing.assert_array_equal(dx[0, 0], [[1, 0, 1, 0], [0, 0, 0, 0]])


def pool_cell_by_cell(kind, x, dy, kernel, stride, pad, count):
    """Outputs and gradient of one image after another, every window a loop over its cells."""
    y, dx = np.full(dy.shape, -np.inf), np.zeros(x.shape)
    for n, r, c in np.ndindex(dy.shape):
        at, cells = None, []
        for i in range(r * stride[0] - pad[0], r * stride[0] - pad[0] + kernel[0]):
            for k in range(c * stride[1] - pad[1], c * stride[1] - pad[1] + kernel[1]):
                if not (0 <= i < x.shape[1] and 0 <= k < x.shape[2]):
                    continue
                cells.append((n, i, k))
                v = x[n, i, k]
                if at is None or v > x[at] or (np.isnan(v) and not np.isnan(x[at])):
                    at = (n, i, k)
        if kind == "max":
            if at is not None:
                y[n, r, c] = x[at]
                dx[at] += dy[n, r, c]
            continue
        total = kernel[0] * kernel[1] if count else max(len(cells), 1)
        y[n, r, c] = sum(float(x[cell]) for cell in cells) / total
        for cell in cells:
            dx[cell] += dy[n, r, c] / total
    return y, dx


# Height, width, kernel, stride, padding in front, outputs: what a window lacks at the end, or all
# of it, lies outside.
WINDOWS = [
    (28, 28, (2, 2), (2, 2), (0, 0), (14, 14)), (5, 9, (2, 2), (2, 2), (0, 0), (2, 4)),
    (3, 75, (2, 2), (2, 2), (0, 0), (1, 37)), (4, 2, (2, 2), (2, 2), (0, 0), (2, 1)),
    (4, 9, (2, 2), (2, 2), (0, 0), (2, 5)), (12, 11, (3, 3), (2, 2), (0, 0), (6, 6)),
    (12, 43, (3, 3), (2, 2), (1, 1), (6, 22)), (9, 40, (3, 3), (1, 1), (1, 1), (9, 40)),
    (7, 7, (7, 7), (7, 7), (0, 0), (1, 1)), (6, 50, (6, 50), (6, 50), (0, 0), (1, 1)),
    (5, 60, (2, 17), (1, 3), (1, 8), (5, 20)), (7, 33, (2, 3), (3, 3), (0, 0), (2, 11)),
    (7, 38, (2, 3), (3, 5), (1, 1), (3, 8)), (1, 100, (1, 4), (1, 4), (0, 0), (1, 25)),
    (1, 37, (1, 5), (1, 2), (0, 2), (1, 19)), (5, 70, (4, 1), (2, 1), (3, 0), (4, 70)),
    (4, 10, (2, 3), (2, 4), (3, 5), (6, 6)), (6, 8, (2, 2), (2, 2), (1, 0), (4, 4)),
]


@pytest.mark.parametrize("kind, count", [("max", 0), ("avg", 0), ("avg", 1)])
@pytest.mark.parametrize("h, w, kernel, stride, pad, out", WINDOWS)
def test_windows_with_ties_at_the_edges_and_outside(rng, close, kind, count, h, w, kernel, stride,
                                                    pad, out):
    x = rng.integers(-2, 3, size=(3, h, w)).astype(np.float32)
    dy = rng.normal(size=(3, *out)).astype(np.float32)
    want, want_dx = pool_cell_by_cell(kind, x, dy, kernel, stride, pad, count)
    y, dx = np.full((1, *dy.shape), 7, np.float32), np.full((1, *x.shape), 7, np.float32)
    K.pool_forward(kind, x[None], y, kernel, stride, pad, count)
    np.testing.assert_allclose(y[0], want, rtol=1e-6, atol=1e-6)
    K.pool_backward(kind, x[None], dy[None], dx, kernel, stride, pad, count)
    close(dx[0], want_dx)


@pytest.mark.parametrize("h, w, kernel, stride, pad, out", WINDOWS)
def test_nan_and_infinite_maxima(rng, h, w, kernel, stride, pad, out):
    x = rng.choice(np.array([np.nan, -np.inf, -np.inf, -np.inf, np.inf, 1], np.float32), (4, h, w))
    x[1] = -np.inf
    x[2, h // 2] = np.nan
    dy = rng.integers(-8, 8, size=(4, *out)).astype(np.float32)
    want, want_dx = pool_cell_by_cell("max", x, dy, kernel, stride, pad, 0)
    y, dx = np.empty((1, *dy.shape), np.float32), np.empty((1, *x.shape), np.float32)
    K.pool_forward("max", x[None], y, kernel, stride, pad)
    np.testing.assert_array_equal(y[0], want)
    K.pool_backward("max", x[None], dy[None], dx, kernel, stride, pad)
    np.testing.assert_array_equal(dx[0], want_dx)


def test_mean_of_windows_keeps_nan_and_infinity_to_their_windows():
    x = np.ones((1, 1, 6, 40), np.float32)
    x[0, 0, 1, 1], x[0, 0, 4, 33] = np.nan, np.inf
    y = np.empty((1, 1, 3, 20), np.float32)
    K.pool_forward("avg", x, y, (2, 2), (2, 2))
    want = np.ones((3, 20))
    want[0, 0], want[2, 16] = np.nan, np.inf
    np.testing.assert_array_equal(y[0, 0], want)
