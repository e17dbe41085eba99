"""Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.torch.aten.registry import Call, aten
from shlo_jit.torch.aten.values import cast, complex_of, dimension, number, sizes


def _along_last(x: Value, d: int, kind: str, length: int) -> Value:
    """A transform along one dimension."""
    order = [*(i for i in range(x.ndim) if i != d), d]
    found = b.fft(b.transpose(x, order), kind, (length,))  # type: ignore[arg-type]  one of the words
    return b.transpose(found, [order.index(i) for i in range(x.ndim)])


def _scaled(x: Value, lengths: Sequence[int], normalization: int) -> Value:
    """Scales by 1 (0), by the root of the count (1), or by the count (2)."""
    count = math.prod(lengths)
    if normalization == 0 or count == 0:
        return x
    return x * number(1 / math.sqrt(count) if normalization == 1 else 1 / count, x.element_type)


@aten("_fft_c2c")
def fft_c2c(call: Call, x: Value, dims: Sequence[int], normalization: int, forward: bool) -> Value:
    """The transform of complex numbers, or the inverse one."""
    where = [dimension(d, x.ndim) for d in dims]
    lengths = [sizes(x)[d] for d in where]
    for d, n in zip(where, lengths, strict=True):
        x = _along_last(x, d, "FFT" if forward else "IFFT", n)
    if not forward:
        x = x * number(math.prod(lengths), x.element_type)
    return _scaled(x, lengths, normalization)


@aten("_fft_r2c")
def fft_r2c(call: Call, x: Value, dims: Sequence[int], normalization: int, onesided: bool) -> Value:
    """The transform of real numbers."""
    if not onesided:
        return fft_c2c(call, cast(x, complex_of(x.element_type)), dims, normalization, True)
    where = [dimension(d, x.ndim) for d in dims]
    lengths = [sizes(x)[d] for d in where]
    found = _along_last(x, where[-1], "RFFT", lengths[-1])
    for d, n in zip(where[:-1], lengths[:-1], strict=True):
        found = _along_last(found, d, "FFT", n)
    return _scaled(found, lengths, normalization)


@aten("_fft_c2r")
def fft_c2r(call: Call, x: Value, dims: Sequence[int], normalization: int, last: int) -> Value:
    """The inverse transform to real numbers."""
    where = [dimension(d, x.ndim) for d in dims]
    lengths = [*(sizes(x)[d] for d in where[:-1]), last]
    for d, n in zip(where[:-1], lengths[:-1], strict=True):
        x = _along_last(x, d, "IFFT", n)
    found = _along_last(x, where[-1], "IRFFT", last)
    return _scaled(found * number(math.prod(lengths), found.element_type), lengths, normalization)
