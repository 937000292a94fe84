"""Convolutions on [N, C, L] and [N, C, H, W], as sums over the taps of the kernel.

"same" is Keras' rule: ceil(size / stride) outputs, and of an odd number of padded places the
larger half goes behind.
"""

import math

import numpy as np

from .common import drop_none, float64


def same_padding(size, kernel, stride, dilation=1):
    """Places padded (before, behind) by "same"."""
    outputs = math.ceil(size / stride)
    total = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def spatial_padding(sizes, kernels, strides, dilations, padding):
    """(before, behind) for each spatial axis."""
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    if padding == "causal":
        return [((k - 1) * d, 0) for k, d in zip(kernels, dilations, strict=True)]
    if padding == "same":
        return [same_padding(*row) for row in zip(sizes, kernels, strides, dilations, strict=True)]
    raise ValueError(f"unknown padding {padding!r}")


def as_tuple(value, rank):
    return (value,) * rank if isinstance(value, int) else tuple(value)


def tap_windows(sizes, kernels, strides, dilations):
    """For padded ``sizes``: yield (tap, index of the inputs that this tap sees)."""
    outputs = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(sizes, kernels, strides, dilations, strict=True)
    ]
    for tap in np.ndindex(*kernels):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, o, s, d in zip(tap, outputs, strides, dilations, strict=True)
        )
        yield tap, (slice(None), slice(None), *window)


def _convolve(x, kernel, bias, strides, dilation_rate, padding, forward, to_input, to_kernel):
    """The loop over taps; the three einsum strings say what one tap does with the channels."""
    x, kernel = float64(x), float64(kernel)
    rank = x.ndim - 2
    kernels = kernel.shape[:rank]
    strides, dilations = as_tuple(strides, rank), as_tuple(dilation_rate, rank)
    pads = spatial_padding(x.shape[2:], kernels, strides, dilations, padding)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    taps = list(tap_windows(padded.shape[2:], kernels, strides, dilations))

    summed = sum(np.einsum(forward, padded[window], kernel[tap]) for tap, window in taps)
    spatial = summed.shape[-rank:]
    out = summed.reshape(len(x), -1, *spatial)
    if bias is not None:
        out = out + float64(bias).reshape(-1, *(1,) * rank)

    def backward(dout):
        dsummed = dout.reshape(summed.shape)
        flat = dsummed.reshape(*summed.shape[:-rank], -1)
        dpadded, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
        for tap, window in taps:
            dpadded[window] += np.einsum(to_input, dsummed, kernel[tap])
            seen = padded[window].reshape(*x.shape[:2], -1)
            dkernel[tap] = np.einsum(to_kernel, seen, flat)
        inner = tuple(
            slice(before, before + n) for (before, _), n in zip(pads, x.shape[2:], strict=True)
        )
        axes = (0, *range(2, 2 + rank))
        return drop_none(
            {
                "x": dpadded[(slice(None), slice(None), *inner)],
                "kernel": dkernel,
                "bias": None if bias is None else dout.sum(axis=axes),
            }
        )

    return out, backward


def conv(x, kernel, bias=None, strides=1, dilation_rate=1, padding="valid"):
    """Conv1D on [N, C, L] with kernel (k, in, out); Conv2D on [N, C, H, W] with (kh, kw, in, out).

    "causal" pads in front only, and is meant for Conv1D.
    """
    return _convolve(
        x, kernel, bias, strides, dilation_rate, padding,
        "nc...,cf->nf...", "nf...,cf->nc...", "ncp,nfp->cf",
    )  # fmt: skip


def depthwise_conv2d(x, depthwise_kernel, bias=None, strides=1, dilation_rate=1, padding="valid"):
    """Kernel (kh, kw, in, mult); output channel c * mult + m. Gradient key "depthwise_kernel"."""
    out, inner = _convolve(
        x, depthwise_kernel, bias, strides, dilation_rate, padding,
        "nc...,cm->ncm...", "ncm...,cm->nc...", "ncp,ncmp->cm",
    )  # fmt: skip

    def backward(dout):
        grads = inner(dout)
        grads["depthwise_kernel"] = grads.pop("kernel")
        return grads

    return out, backward


def transpose_output(size, kernel, stride, dilation, padding, output_padding=None):
    """(outputs, places cut off in front) of a transposed convolution along one axis (Keras)."""
    extent = (kernel - 1) * dilation + 1
    if output_padding is not None:
        cut = 2 * (extent // 2) if padding == "same" else 0
        outputs = (size - 1) * stride + extent - cut + output_padding
    elif padding == "same":
        outputs = size * stride
    else:
        outputs = size * stride + max(extent - stride, 0)
    surplus = max((size - 1) * stride + extent - outputs, 0)
    return outputs, surplus // 2 if padding == "same" else 0


def conv2d_transpose(
    x, kernel, bias=None, strides=1, dilation_rate=1, padding="valid", output_padding=None
):
    """Kernel (kh, kw, out, in): each input pixel adds a scaled kernel to the output."""
    x, kernel = float64(x), float64(kernel)
    kernels = kernel.shape[:2]
    strides, dilations = as_tuple(strides, 2), as_tuple(dilation_rate, 2)
    extra = as_tuple(output_padding, 2) if output_padding is not None else (None, None)
    sizes, cuts = zip(
        *(
            transpose_output(n, k, s, d, padding, e)
            for n, k, s, d, e in zip(x.shape[2:], kernels, strides, dilations, extra, strict=True)
        ),
        strict=True,
    )
    axes = list(zip(x.shape[2:], kernels, strides, dilations, strict=True))
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in axes]
    taps = list(tap_windows(reach, kernels, strides, dilations))
    inside = [slice(c, c + o) for c, o in zip(cuts, sizes, strict=True)]
    kept = (slice(None), slice(None), *inside)
    # long enough for every tap and for the part that is kept
    spatial = [max(r, s.stop) for r, s in zip(reach, inside, strict=True)]
    canvas = (len(x), kernel.shape[2], *spatial)

    full = np.zeros(canvas)
    for tap, window in taps:
        full[window] += np.einsum("nchw,fc->nfhw", x, kernel[tap])
    out = full[kept]
    if bias is not None:
        out = out + float64(bias).reshape(-1, 1, 1)

    def backward(dout):
        dfull = np.zeros(canvas)
        dfull[kept] = dout
        dx, dkernel = np.zeros_like(x), np.zeros_like(kernel)
        for tap, window in taps:
            dx += np.einsum("nfhw,fc->nchw", dfull[window], kernel[tap])
            dkernel[tap] = np.einsum("nchw,nfhw->fc", x, dfull[window])
        return drop_none(
            {
                "x": dx,
                "kernel": dkernel,
                "bias": None if bias is None else dout.sum(axis=(0, 2, 3)),
            }
        )

    return out, backward
