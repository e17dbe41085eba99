"""Cumulative reduce_window (cumsum, cummax, ...): one fold along a dimension that writes every prefix, in O(n).

The window has the dimension's extent and padding on one side only, so output i folds elements 0 to i, or i to the last.
Along a strided dimension the lanes are neighbouring columns and each is folded serially. Along the contiguous one a
vector of elements is scanned in registers, in log2(lanes) steps that combine each lane with the one 1, 2, 4, ... away.
The result is then combined with the total so far. Left and right operands keep their sides, so the order is that of a
binary tree over the elements, as the specification allows. A sum is as accurate as the serial one. Several rows run
side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64, vector_literal
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.kernels.access import lanes_loop
from shlo_jit.lower.kernels.window.fold import Fold
from shlo_jit.schedule.window import Scan
from shlo_jit.sizes import equal, hint_of


class ScanWriter:
    """Writes the kernel of a cumulative reduce_window whose initial value may be folded twice without effect."""

    def __init__(self, op: Op, target: Target, scan: Scan):
        self.op = op
        self.target = target
        self.scan = scan
        self.n, self.columns, self.reverse = scan.n, scan.columns, scan.reverse

    def write(self, b: Builder, pointers: list[V], first: V, last: V) -> None:
        self.b = b
        self.fold = Fold(self.op, b, pointers)
        if self.columns > 1:
            with b.loop(first, last, 1, "unit") as unit:
                self.column_block(b.udiv(unit, self.scan.blocks), b.urem(unit, self.scan.blocks))
            return
        bulk = b.add(first, b.mul(b.udiv(b.sub(last, first), self.scan.side), self.scan.side))
        with b.loop(first, bulk, self.scan.side, "rows") as row:
            self.scan_rows([b.mul(b.add(row, k), self.n) for k in range(self.scan.side)])
        if self.scan.side > 1:
            with b.loop(bulk, last, 1, "row") as row:
                self.scan_rows([b.mul(row, self.n)])

    def join(self, before: list[Reg], values: list[Reg]) -> list[Reg]:
        """Combines the previous total with the next elements, in the order of the elements."""
        return self.fold.combine(values, before) if self.reverse else self.fold.combine(before, values)

    def scan_index(self, i: V) -> V:
        """The i-th index of the scan."""
        return self.b.sub(i64(self.n - 1), i) if self.reverse else i

    # ------------------------------------------------------------------ a strided dimension: lanes are columns
    def column_block(self, row: V, block: V) -> None:
        b, fold = self.b, self.fold
        start = b.mul(block, self.scan.block)
        stop = b.min_(b.add(start, self.scan.block), self.columns)
        origin = b.mul(row, self.n * self.columns)

        def columns(at: Sequence[V], n: int, mask: V | None) -> None:
            """Scans several vectors of columns side by side."""
            begin = [x for _ in at for x in fold.flat(fold.start(n))]
            size = len(begin) // len(at)
            with b.loop_carry(0, self.n, begin, 1, "scan") as carry:
                line = b.add(origin, b.mul(self.scan_index(carry.index), self.columns))
                after: list[V] = []
                for k, x in enumerate(at):
                    place = b.add(line, x)
                    before = fold.like(carry.values[k * size : (k + 1) * size])
                    values = self.join(before, fold.load(place, n, mask))
                    fold.store(place, values, n, mask)
                    after += fold.flat(values)
                carry.next(*after)

        whole = hint_of(self.columns) >= self.scan.block and self.scan.block > self.scan.width
        if not whole:
            lanes_loop(b, self.target, start, stop, self.scan.width, lambda i, n, mask: columns([i], n, mask))
            return

        def side_by_side() -> list[V]:
            columns(
                [b.add(start, k * self.scan.width) for k in range(self.scan.block // self.scan.width)],
                self.scan.width,
                None,
            )
            return []

        def rest() -> list[V]:
            lanes_loop(b, self.target, start, stop, self.scan.width, lambda i, n, mask: columns([i], n, mask))
            return []

        if equal(self.columns % self.scan.block, 0):
            side_by_side()
        else:
            b.if_else(b.icmp("eq", b.sub(stop, start), self.scan.block), side_by_side, rest)

    # ------------------------------------------------------------------ the contiguous dimension: lanes are elements
    def scan_rows(self, rows: list[V]) -> None:
        """Scans the rows that begin at the given places side by side."""
        b, fold, w = self.b, self.fold, self.scan.width
        whole = self.n // w * w if w > 1 else 0
        carried = [x for _ in rows for x in fold.flat(fold.init)]
        size = len(carried) // len(rows)

        def scan_vectors(at: V, carried: Sequence[V], n: int, mask: V | None = None, valid: int = 0) -> list[V]:
            """Scans one vector of each row. `carried` is in all lanes. So iterations depend on each other by only one
            join: with the fold of all lanes, which is the last lane's result to the bit."""
            after: list[V] = []
            for k, row in enumerate(rows):
                place = b.add(row, at)
                before = fold.like(list(carried[k * size : (k + 1) * size]))
                values = self.in_register(fold.load(place, n, mask), n, valid or n)
                fold.store(place, self.join(before, values), n, mask)
                lanes = [0 if self.reverse else n - 1] * n
                total = [b.shuffle(x, None, lanes) if n > 1 else x for x in fold.flat(values)]
                after += fold.flat(self.join(before, fold.like(total)))
            return after

        def wide(carried: Sequence[V]) -> list[V]:
            return [b.splat(x, w) for x in carried]

        def narrow(carried: Sequence[V]) -> list[V]:
            return [b.extract(x, 0) for x in carried]

        def tail(carried: Sequence[V]) -> Sequence[V]:
            left = self.n - whole
            if left and w > 1 and self.target.has_masks:
                mask = vector_literal("i1", [k < left for k in range(w)])
                return narrow(scan_vectors(i64(whole), wide(carried), w, mask, left))
            with b.loop_carry(0, left, list(carried), 1, "scan") as carry:
                at = b.sub(self.n - 1, carry.index) if self.reverse else b.add(carry.index, whole)
                carry.next(*scan_vectors(at, carry.values, 1))
            return carry.values

        if self.reverse and self.n > whole:
            carried = tail(carried)
        if whole:
            with b.loop_carry(0, whole, wide(carried), w, "scan") as carry:
                at = b.sub(whole - w, carry.index) if self.reverse else carry.index
                carry.next(*scan_vectors(at, carry.values, w))
            carried = narrow(carry.values)
        if not self.reverse and self.n > whole:
            tail(carried)

    def in_register(self, values: list[Reg], n: int, valid: int) -> list[Reg]:
        """Computes every prefix (or suffix) of the lanes; only the first `valid` lanes exist."""
        b, fold, step = self.b, self.fold, 1
        while step < n:
            if self.reverse:
                order = [min(i + step, n - 1) for i in range(n)]
                has_partner = [i + step < valid for i in range(n)]
            else:
                order = [max(i - step, 0) for i in range(n)]
                has_partner = [i >= step for i in range(n)]
            away = fold.like([b.shuffle(x, None, order) for x in fold.flat(values)])
            values = fold.select(vector_literal("i1", has_partner), self.join(away, values), values)
            step *= 2
        return values
