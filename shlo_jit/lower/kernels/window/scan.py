"""Cumulative reduce_window (cumsum, cummax, ...): one fold along a dimension that writes every prefix, in O(n).

The window has the dimension's extent and padding on one side only, so output i folds elements 0 to i, or i to the last.
Along a strided dimension the lanes are neighbouring columns and each is folded serially. Along the contiguous one a
vector of elements is scanned in registers, in log2(lanes) steps that combine each lane with the one 1, 2, 4, ... away.
The result is then combined with the total so far. Left and right operands keep their sides, so the order is that of a
binary tree over the elements, as the specification allows. Several rows run side by side.

A chain over all elements would round as often as there are steps. So where a fold rounds, the steps are cut into
blocks, and these into smaller ones: a block is folded from its own beginning, and its prefixes are joined with the
total of all blocks before it. That takes one more operation a step, which no other waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_jit.ir.core import Op
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64, vector_literal
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.registers import Reg
from shlo_jit.lower.kernels.access import lanes_loop
from shlo_jit.lower.kernels.window.fold import Fold
from shlo_jit.schedule.window import Scan
from shlo_jit.sizes import equal, hint_of

Flat = Sequence[V]
"""The registers of accumulators, of one or several vectors or rows one after the other."""

Step = Callable[[V, Flat | None, Flat], Flat]
"""Scans the i-th vectors: (i, the fold of the blocks before or None, the fold so far of the block) -> its new fold."""


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

    def after(self, base: Flat | None, values: list[Reg]) -> list[Reg]:
        """Combines the total of all blocks before this one, if there are any, with prefixes within it."""
        return values if base is None else self.join(self.fold.like(list(base)), values)

    def fold_blocks(self, first: V, last: V, base: Flat | None, begin: Flat, step: Step, level: int) -> Flat:
        """Runs the steps from `first` to `last` in blocks of `level` levels; returns their fold, without `base`.

        `base` is the fold of all steps before `first`, None if there are none; `begin` are initial values.
        """
        b, size = self.b, self.scan.radix**level
        with b.loop_carry(first, last, begin, size, "scan") as carry:
            total = carry.values
            if level == 0:
                carry.next(*step(carry.index, base, total))
            else:
                stop = b.min_(b.add(carry.index, size), last)
                before = self.join_all(base, total)
                block = self.fold_blocks(carry.index, stop, before, begin, step, level - 1)
                carry.next(*self.join_all(total, block))
        return carry.values

    def join_all(self, before: Flat | None, following: Flat) -> Flat:
        """Combines accumulators of several vectors or rows."""
        if before is None:
            return following
        size = len(self.fold.flat(self.fold.init))
        joined: list[V] = []
        for k in range(0, len(following), size):
            left, right = (self.fold.like(list(x[k : k + size])) for x in (before, following))
            joined += self.fold.flat(self.join(left, right))
        return joined

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

            def step(i: V, base: Flat | None, chain: Flat) -> Flat:
                line = b.add(origin, b.mul(self.scan_index(i), self.columns))
                after: list[V] = []
                for k, x in enumerate(at):
                    place, mine = b.add(line, x), slice(k * size, (k + 1) * size)
                    values = self.join(fold.like(list(chain[mine])), fold.load(place, n, mask))
                    fold.store(place, self.after(base and base[mine], values), n, mask)
                    after += fold.flat(values)
                return after

            self.fold_blocks(i64(0), i64(self.n), None, begin, step, self.scan.levels)

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

        def scan_vectors(at: V, base: Flat | None, chain: Flat, n: int, mask: V | None = None, valid: int = 0) -> Flat:
            """Scans one vector of each row. `chain` is in all lanes. So iterations depend on each other by only one
            join: with the fold of all lanes, which is the last lane's result to the bit."""
            after: list[V] = []
            for k, row in enumerate(rows):
                place, mine = b.add(row, at), slice(k * size, (k + 1) * size)
                before = fold.like(list(chain[mine]))
                values = self.in_register(fold.load(place, n, mask), n, valid or n)
                fold.store(place, self.after(base and base[mine], self.join(before, values)), n, mask)
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
                return narrow(scan_vectors(i64(whole), None, wide(carried), w, mask, left))
            with b.loop_carry(0, left, list(carried), 1, "scan") as carry:
                at = b.sub(self.n - 1, carry.index) if self.reverse else b.add(carry.index, whole)
                carry.next(*scan_vectors(at, None, carry.values, 1))
            return carry.values

        if self.reverse and self.n > whole:
            carried = tail(carried)
        if whole:

            def step(i: V, base: Flat | None, chain: Flat) -> Flat:
                at = b.mul(i, w)
                return scan_vectors(b.sub(whole - w, at) if self.reverse else at, base, chain, w)

            begin = wide([x for _ in rows for x in fold.flat(fold.init)])
            base = wide(carried) if self.reverse and self.n > whole else None
            folded = self.fold_blocks(i64(0), i64(whole // w), base, begin, step, self.scan.levels)
            carried = narrow(self.join_all(base, folded))
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
