"""Loads and stores of complex numbers in the passes of an FFT.

Between passes complex numbers are *split*: the real parts of all elements, then the imaginary ones, so that a vector
register holds the same part of adjacent elements. A program's tensors have *pairs* (or are *real*), which are split and
joined in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.butterfly import Point
from shlo_jit.kernels.llvm_values import Index, V, const, lanes, vector, vector_literal


@dataclass(frozen=True)
class Side:
    """Layout of the source or the target of a pass."""

    kind: str
    """split, pairs or real."""
    imaginary: V | None = None
    """Address of the imaginary parts if the layout is split."""


def side(b: Builder, kind: str, base: V, part: str, plane: Index) -> Side:
    """Returns the layout at `base`. If it is split, `plane` elements lie between a real part and its imaginary part."""
    return Side(kind, b.element(base, part, plane) if kind == "split" else None)


def load(b: Builder, side: Side, base: V, part: str, at: V, n: int, mask: Mask | None = None) -> Point:
    """Loads n elements from element `at` on."""
    t = vector(part, n)
    if side.kind == "pairs":
        x = _load(b, vector(part, 2 * n), b.element(base, part, b.mul(at, 2)), mask and mask.pairs)
        if n == 1:
            re, im = b.extract(x, 0), b.extract(x, 1)
        else:
            re, im = (b.shuffle(x, None, range(k, 2 * n, 2)) for k in (0, 1))
    else:
        re = _load(b, t, b.element(base, part, at), mask and mask.single)
        im = const(t, 0.0)
        if side.imaginary is not None:
            im = _load(b, t, b.element(side.imaginary, part, at), mask and mask.single)
    return re, im


def store(b: Builder, side: Side, base: V, part: str, at: V, x: Point, mask: Mask | None = None) -> None:
    re, im = x
    n = lanes(re.type)
    if side.kind == "pairs":
        to = b.element(base, part, b.mul(at, 2))
        if n == 1:
            b.store(re, to)
            b.store(im, b.element(to, part, 1))
            return
        both = b.shuffle(re, im, [k // 2 + n * (k % 2) for k in range(2 * n)])
        _store(b, both, to, mask and mask.pairs)
        return
    _store(b, re, b.element(base, part, at), mask and mask.single)
    if side.imaginary is not None:
        _store(b, im, b.element(side.imaginary, part, at), mask and mask.single)


@dataclass(frozen=True)
class Mask:
    """Masks of the first few lanes, of registers with one part and with pairs."""

    single: V
    pairs: V


def _load(b: Builder, t: str, p: V, mask: V | None) -> V:
    return b.load(t, p) if mask is None else b.masked_load(t, p, mask)


def _store(b: Builder, x: V, p: V, mask: V | None) -> None:
    if mask is None:
        b.store(x, p)
    else:
        b.masked_store(x, p, mask)


def first_lanes(b: Builder, n: int, count: V) -> Mask:
    def below(lanes: int, limit: V) -> V:
        return b.icmp("slt", vector_literal("i64", range(lanes)), b.splat(limit, lanes))

    return Mask(below(n, count), below(2 * n, b.mul(count, 2)))


def span_loop(b: Builder, span: V, width: int, body: Callable[[V, int, Mask | None], None]) -> None:
    """Emits `body(offset, lanes, mask)` over `span` adjacent elements: whole registers, then the rest under a mask."""
    whole = b.mul(b.udiv(span, width), width)
    with b.loop(0, whole, width, "q") as q:
        body(q, width, None)
    if width > 1:
        with b.if_(b.icmp("slt", whole, span)):
            body(whole, width, first_lanes(b, width, b.sub(span, whole)))


def zip_lanes(b: Builder, xs: Sequence[V], run: int) -> list[V]:
    """Interleaves registers x0 x1 ..., a power of two of them: `run` lanes of x0, of x1, ..., the next of x0 ..."""
    if len(xs) == 1:
        return list(xs)
    even, odd = zip_lanes(b, xs[0::2], run), zip_lanes(b, xs[1::2], run)
    n = lanes(xs[0].type)
    order = [(k // (2 * run)) * run + k % run + n * (k // run % 2) for k in range(2 * n)]
    out = []
    for e, o in zip(even, odd, strict=True):
        out += [b.shuffle(e, o, order[:n]), b.shuffle(e, o, order[n:])]
    return out
