"""Transposition between the program's sequences and a block of an FFT, which has as many as fill a register.

The sequences of the last axis follow each other in memory. `lanes` of them are transposed into rows of `lanes` numbers,
so that passes of any radix work on whole registers; afterwards the results are transposed back. The real part of
element k is stored in row `start + step k`, the imaginary part `plane` rows further. Blocks have room for whole square
tiles. Half transforms of real numbers are stored as in `real.py`. Meanwhile their first element gets a separate row
before the block, so that all elements are pairs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.fft.access import zip_lanes
from shlo_jit.kernels.fft.fft import Code, Sizes
from shlo_jit.kernels.llvm_values import Index, V, const, i64, vector, vector_literal


@dataclass(frozen=True)
class BlockCode(Code):
    """Transposes into a block or out of it; the units are its sequences, which may be fewer than the lanes."""

    part: str
    lanes: int
    kind: str
    """Layout of the tensor: pairs, real, or half (pairs that are the half transforms of real numbers)."""
    inward: bool

    FIELDS: ClassVar = ("count", "stride", "start", "step", "plane", "end")
    """Elements of a sequence, distance between sequences; rows; the row after those of `real.py`."""

    @property
    def name(self) -> str:
        direction = "in" if self.inward else "out"
        return f"{'f32' if self.part == 'float' else 'f64'}x{self.lanes}_block_{self.kind}_{direction}"

    def row(self, b: Builder, k: V) -> V:
        return b.element(b.params[0 if not self.inward else 1], self.part, b.mul(k, self.lanes))

    @property
    def _columns(self) -> int:
        """Elements of a tile that fill a register."""
        return self.lanes if self.kind == "real" else self.lanes // 2

    def write(self, b: Builder, sizes: Sizes) -> None:
        t = vector(self.part, self.lanes)
        if self.kind == "half" and not self.inward:
            b.store(b.load(t, self.row(b, i64(0))), self.row(b, i64(-1)))
            b.store(const(t, 0.0), self.row(b, i64(0)))
            b.store(const(t, 0.0), self.row(b, sizes.end))
        with b.loop(0, sizes.count, self._columns, "tile") as k:
            left = b.mul(b.sub(sizes.count, k), self.lanes // self._columns)
            mask = b.icmp("slt", vector_literal("i64", range(self.lanes)), b.splat(left, self.lanes))
            (self._in if self.inward else self._out)(b, sizes, k, mask)
        if self.kind == "half" and self.inward:
            b.store(b.load(t, self.row(b, i64(-1))), self.row(b, i64(0)))

    def _element(self, b: Builder, tensor: V, sequence: Index, sizes: Sizes, k: V) -> V:
        at = b.add(b.mul(sequence, sizes.stride), k)
        return b.element(tensor, self.part, b.mul(at, self.lanes // self._columns))

    def _places(self, b: Builder, sizes: Sizes, k: V) -> tuple[V, V]:
        row = b.add(sizes.start, b.mul(k, sizes.step))
        return self.row(b, row), self.row(b, b.add(row, sizes.plane))

    def _in(self, b: Builder, sizes: Sizes, k: V, mask: V) -> None:
        n, columns = self.lanes, self._columns
        x = []
        for j in range(n):  # lanes without a sequence repeat the last one
            sequence = b.min_(j, b.sub(b.params[5], 1)) if j else 0
            x.append(b.masked_load(vector(self.part, n), self._element(b, b.params[0], sequence, sizes, k), mask))
        groups = [zip_lanes(b, x[g : g + columns], n // columns) for g in range(0, n, columns)]
        for t in range(columns):
            re, im = self._places(b, sizes, b.add(k, t))
            if columns == n:
                b.store(groups[0][t], re)
                continue
            for which, place in enumerate((re, im)):
                b.store(b.shuffle(groups[0][t], groups[1][t], range(which, 2 * n, 2)), place)

    def _out(self, b: Builder, sizes: Sizes, k: V, mask: V) -> None:
        n, columns, t = self.lanes, self._columns, vector(self.part, self.lanes)
        groups: list[list[V]] = [[] for _ in range(n // columns)]
        for i in range(columns):
            re, im = self._places(b, sizes, b.add(k, i))
            if columns == n:
                groups[0].append(b.fmul(b.load(t, re), b.splat(b.load(self.part, b.params[2]), n)))
                continue
            x, y = b.load(t, re), b.load(t, im)
            for g in (0, 1):
                groups[g].append(b.shuffle(x, y, [g * columns + i // 2 + n * (i % 2) for i in range(n)]))
        sequences = [v for group in groups for v in zip_lanes(b, group, n // columns)]
        for j, v in enumerate(sequences):
            there = b.and_(mask, b.splat(b.icmp("slt", i64(j), b.params[5]), n))
            b.masked_store(v, self._element(b, b.params[1], j, sizes, k), there)
