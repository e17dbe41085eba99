"""Plan of a one-dimensional transform of any length and kind: a list of passes (see `fft.py`).

- Few or long sequences of the last axis are transformed one at a time, and so are blocks of columns of other axes. A
  transform of 2h real numbers is then one of h complex numbers and a pass over the result.
- Many short sequences of the last axis are transposed into blocks that fill a register (`blocks.py`), real ones for
  passes of real numbers (`real.py`).
- Lengths with a large prime factor use Bluestein's algorithm. With c[k] = exp(-i pi k^2 / n) and jk = (j^2 + k^2 -
  (k-j)^2) / 2, a transform is c[k] times the convolution of x[j] c[j] with conj c, which is a product of transforms of
  any length >= 2n - 1.

Modules of passes that a transform does not need are not imported: imports take time in a process that has one
transform.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from shlo_jit import tuning
from shlo_jit.kernels.fft.fft import (
    WRITTEN_OUT,
    PassCode,
    Roots,
    Step,
    dtype_of,
    forget_twiddles,
    interleaved,
    radix_roots,
    roots,
    twiddles,
)


@dataclass(frozen=True)
class Transform:
    """Description of a transform. `kind` is c2c, r2c or c2r; n is the length of the complex or real sequence. The rows
    of a block are `stride` elements apart, and `columns` of them are transformed together. With `block`, a block is
    `lanes` consecutive sequences of contiguous elements. The result is multiplied by `scale`. With `is_fixed`, the
    algorithm depends on kind and length alone, so that a result has the same bits whatever lanes and columns are."""

    kind: str
    part: str
    n: int
    columns: int
    stride: int
    inverse: bool
    lanes: int
    scale: float
    block: bool = False
    is_fixed: bool = False


@dataclass(frozen=True)
class End:
    """Layout of a pass's source or target: rows of `stride` elements, as pairs, real, or split in planes of `plane`
    elements."""

    kind: str
    stride: int
    plane: int = 0


def radices(n: int) -> list[int] | None:
    """Returns n as a product of radices in the order of the passes; None if Bluestein's algorithm is used."""
    out, rest = [], n
    for radix in (8, 4):
        while rest % radix == 0:
            out, rest = [*out, radix], rest // radix
    if rest % 2 == 0:
        out, rest = [2, *out[1:], *out[:1]], rest // 2
    for prime in range(3, tuning.FFT_LARGEST_PRIME + 1, 2):
        while rest % prime == 0:
            out, rest = [*out, prime], rest // prime
    return out if rest == 1 and not _bluestein_pays(n, max(out, default=1)) else None


def _bluestein_pays(n: int, largest: int) -> bool:
    """Whether two transforms of a convenient length and some products take fewer operations."""
    return largest > 13 and n >= 50 and largest**2 > n and 3 * _cost(_convenient(2 * n - 1)) < _cost(n)


def _cost(n: int) -> float:
    """Returns the number of operations, up to a factor."""
    total, rest, k = 0.0, n, 2
    while rest > 1:
        while rest % k == 0:
            total, rest = total + (k if k < 6 else 1.1 * k), rest // k
        k += 1
    return total * n


def _convenient(least: int) -> int:
    """Returns the smallest of 2^a, 3 2^a, 5 2^a, 9 2^a with a >= 4 that is at least `least`."""
    found = []
    for odd in (1, 3, 5, 9):
        size = 16 * odd
        while size < least:
            size *= 2
        found.append(size)
    return min(found)


def in_blocks(kind: str, n: int, outer: int, lanes: int) -> bool:
    """Whether `outer` sequences of the last axis, of length n, should be transposed into blocks. Above some length they
    are not, if powers of two fill the registers soon: single sequences take less memory."""
    if n < 2 or n * lanes > tuning.FFT_BLOCK_ELEMENTS or radices(n) is None:
        return False
    points = n if kind == "c2c" or n % 2 else n // 2
    if points & -points >= lanes and points >= 128:
        return False
    return outer >= (lanes // 4 if kind != "c2c" and n % 2 else lanes // 2)


@lru_cache(maxsize=16)
def plan(t: Transform) -> list[Step]:
    """Returns the passes, in order; the first reads the program's tensor, the last writes it."""
    try:
        return _plan(t)
    finally:
        forget_twiddles()


def _plan(t: Transform) -> list[Step]:
    if t.block:
        return _block(t)
    pairs = End("pairs", t.stride)
    if t.kind == "c2c":
        return _complex(t, t.n, pairs, pairs)
    from shlo_jit.kernels.fft.convert import HermitianCode, RealCode

    between, real = _split(t.n, 1), End("real", t.stride)
    if t.n % 2:
        plain, half = replace(t, scale=1.0), t.n // 2 + 1
        if t.kind == "r2c":
            start, end = _rows(plain, t.n, t.n, real, between), _rows(plain, half, half, between, pairs)
        else:
            start = HermitianCode(t.part).step(1, _one(t.part), 2 * t.n, n=t.n, plane=t.n)
            end = _rows(plain, t.n, t.n, between, real)
        return [start, *_complex(t, t.n, between, between), end]
    h = t.n // 2
    between, code = _split(h, 1), RealCode(t.part, t.lanes, t.kind == "r2c")
    if t.kind == "r2c":
        return [*_complex(t, h, pairs, between), code.step(1, code.table(h), h=h, plane=h)]
    step = code.step(1, code.table(h), 2 * h, h=h, plane=h)
    return [step, *_complex(replace(t, scale=2 * t.scale), h, between, pairs)]


def _one(part: str, value: float = 1.0) -> np.ndarray:
    return np.full(1, value, dtype_of(part))


def _split(n: int, columns: int) -> End:
    """Returns the layout between passes."""
    return End("split", columns, n * columns)


def _rows(
    t: Transform, count: int, out: int, source: End, target: End, factors: np.ndarray | None = None
) -> Step:  # fmt: skip
    """Returns a pass that multiplies rows by factors, or by t.scale."""
    from shlo_jit.kernels.fft.convert import RowsCode, planes

    code = RowsCode(t.part, t.lanes, source.kind, target.kind, factors is not None, t.columns == 1)
    table = _one(t.part, t.scale) if factors is None else planes(factors, t.part)
    return code.step(
        1 if t.columns == 1 else out, table, 2 * target.plane, rows=count, rows_out=out, span=t.columns,
        in_stride=source.stride, in_plane=source.plane, out_stride=target.stride, out_plane=target.plane,
    )  # fmt: skip


# ---------------------------------------------------------------------------- complex passes
def _complex(t: Transform, n: int, source: End, target: End) -> list[Step]:
    """Returns the passes of a transform of length n, whose source and target are pairs or split."""
    factors = radices(n)
    leaves_lanes_idle = t.is_fixed or t.columns * (n & -n) < t.lanes
    if factors is None or (max(factors, default=1) > tuning.FFT_LARGEST_ALONE and leaves_lanes_idle):
        return _bluestein(t, n, source, target)
    if not factors:
        return [_rows(t, 1, 1, source, target)]
    out, done = [], 1
    between = _split(n, t.columns)
    for k, r in enumerate(factors):
        last = k == len(factors) - 1
        out.append(_pass(t, n, done, r, source if k == 0 else between, target if last else between, last))
        done *= r
    return out


def _pass(t: Transform, n: int, done: int, radix: int, source: End, target: End, last: bool) -> Step:
    s, m = done * t.columns, n // (done * radix)
    run = _run(t, n, done, radix, source, target)
    row_in = source.stride if done == 1 else s
    in_step, in_p, out_step, out_p = m * row_in, row_in, s, s * radix
    slices = s // tuning.FFT_SLICE if s % tuning.FFT_SLICE == 0 else 1
    span, units = s // slices, m * slices
    if last and target.stride != t.columns:  # a unit is a row of the result
        slices, span, units = 1, t.columns, done
        in_p, out_step, out_p = t.columns, done * target.stride, target.stride
    lanes = t.lanes
    if run:
        lanes, units, in_step, span = run, -(-s * m // run), s * m, s * m
    else:
        while lanes > 1 and lanes >= 2 * span:
            lanes //= 2
    if last:
        table = _one(t.part, t.scale)
    else:
        w = twiddles(n, done, radix, m, t.inverse)
        table = _by_lanes(w, s, run, t.part) if run else interleaved(w.reshape(-1), t.part)
    runs = s if run else 0
    rows = _registers(slices, span, lanes, alone=last and done == 1, run=run)
    if radix in WRITTEN_OUT:
        code = PassCode(t.part, radix, lanes, source.kind, target.kind, last, rows, runs)
    else:
        from shlo_jit.kernels.fft.generic import GenericPassCode

        code = GenericPassCode(t.part, 0, lanes, source.kind, target.kind, last, rows)
        table = np.concatenate([interleaved(radix_roots(n, radix), t.part), table])
    first, step = ((radix - 1) * in_step, -in_step) if t.inverse else (in_step, in_step)
    return code.step(
        units, table, 2 * target.plane, slices=slices, span=span, in_p=in_p, in_first=first, in_step=step,
        in_plane=source.plane, out_p=out_p, out_step=out_step, out_plane=target.plane, radix=radix,
    )  # fmt: skip


def _registers(slices: int, span: int, lanes: int, alone: bool, run: int) -> str:
    """Returns the kind of `rows` of a pass. If it is the only pass, it may work in place, so it must not read an
    element twice."""
    if run or (slices == 1 and span == lanes):
        return "one"
    if span % lanes == 0:
        return "several"
    if span < lanes:
        return "partial"
    return "masked" if alone else "overlapping"


def _run(t: Transform, n: int, done: int, radix: int, source: End, target: End) -> int:
    """Returns the lanes of registers whose results are interleaved; 0 if they are in place already."""
    s, m = done * t.columns, n // (done * radix)
    contiguous = all(x.kind == "split" or x.stride == t.columns for x in (source, target))
    width = t.lanes
    if s >= width or radix & (radix - 1) or s & (s - 1) or not contiguous:
        return 0
    while width > s * m:
        width //= 2
    return width if width > s else 0


def _by_lanes(w: np.ndarray, s: int, lanes: int, part: str) -> np.ndarray:
    """Returns the factors for registers of t = q + s p: for each register and each i, the real parts, then the
    imaginary ones."""
    w = np.repeat(w, s, axis=0)
    first = np.minimum(np.arange(0, len(w), lanes), len(w) - lanes)
    registers = w[first[:, None] + np.arange(lanes)].swapaxes(1, 2)
    parts = np.stack([np.real(registers), np.imag(registers)], axis=2).astype(dtype_of(part))
    return np.ascontiguousarray(parts).reshape(-1)


def _bluestein(t: Transform, n: int, source: End, target: End) -> list[Step]:
    m = _convenient(2 * n - 1)
    k = np.arange(n, dtype=np.int64)
    chirp = Roots(2 * n)[k * k] if t.part == "float" else roots(k * k, 2 * n)
    kernel = np.zeros(m, chirp.dtype)
    kernel[:n] = np.conj(chirp)
    kernel[m - n + 1 :] = np.conj(chirp[:0:-1])
    spectrum = np.fft.fft(kernel) / m
    if t.inverse:  # conj kernel is even
        chirp, spectrum = np.conj(chirp), np.conj(spectrum)
    between = _split(m, t.columns)
    forward = replace(t, inverse=False, scale=1.0)
    scale = np.real(chirp).dtype.type(t.scale)
    return [
        _rows(t, n, m, source, between, chirp),
        *_complex(forward, m, between, between),
        _rows(t, m, m, between, between, spectrum),
        *_complex(replace(forward, inverse=True), m, between, between),
        _rows(t, n, n, between, target, chirp * scale),
    ]


# ---------------------------------------------------------------------------- blocks
def _block(t: Transform) -> list[Step]:
    """Returns the passes of a block of `lanes` sequences of contiguous elements."""
    from shlo_jit.kernels.fft.blocks import BlockCode

    c, half = t.lanes, t.n // 2 + 1
    if t.kind == "c2c":
        rows = -(-t.n // c) * c
        between = End("split", c, rows * c)
        inside = [replace(s, written=2 * rows * c) for s in _complex(replace(t, columns=c), t.n, between, between)]
        kinds = "pairs", "pairs"
    else:
        rows = -(-half // c) * c + c
        inside = _real_passes(t, 2 * rows * c)
        kinds = ("real", "half") if t.kind == "r2c" else ("half", "real")

    def move(kind: str, inward: bool) -> Step:
        count = half if kind == "half" else t.n
        start, step, plane = {"pairs": (0, 1, rows), "real": (0, 1, 0), "half": (-1, 2, 1)}[kind]
        sizes = {"count": count, "stride": count, "start": start, "step": step, "plane": plane, "end": t.n}
        code = BlockCode(t.part, c, kind, inward)
        return replace(code.step(0, _one(t.part, t.scale), 2 * rows * c, **sizes), sequences=True)

    return [move(kinds[0], True), *inside, move(kinds[1], False)]


def _real_passes(t: Transform, numbers: int) -> list[Step]:
    from shlo_jit.kernels.fft.real import REAL_WRITTEN_OUT, RealPassCode, pass_table, real_radices

    forward = t.kind == "r2c"
    factors = real_radices(t.n)
    out, l1 = [], 1
    for r in factors:
        ido = t.n // (l1 * r)
        code = RealPassCode(t.part, r if r in REAL_WRITTEN_OUT else 0, t.lanes, forward)
        out.append(code.step(1, pass_table(t.part, t.n, l1, r, forward), numbers, l1=l1, ido=ido, radix=r))
        l1 *= r
    return out[::-1] if forward else out


def scratch_numbers(passes: list[Step]) -> int:
    """Returns the real numbers of the larger buffer between passes; two such buffers are needed."""
    return max((p.written for p in passes[:-1]), default=0)
