"""Loop peeling of a row whose borders differ: the interior without conditions, then the remaining vectors.

The emitted code:

    if the row is in the interior:
        for i in the interior: vectors whose sources are known
        for i at both ends: the same, under conditions and masked
    else:
        for all i: under conditions and masked
"""

from __future__ import annotations

from shlo_jit.ir.index import Condition
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.rows import RowWriter, Variables
from shlo_jit.schedule.interior import Interior
from shlo_jit.schedule.nest import NestSchedule


def write_interior_first(
    b: Builder, schedule: NestSchedule, row: RowWriter, interior: Interior, start: V, stop: V, variables: Variables
) -> None:
    """Emits the vector variable over [start, stop) of a row. `start` and `stop` are multiples of the vector width, or
    the row's end."""
    _InteriorWriter(b, schedule, row, interior, variables).write(start, stop)


class _InteriorWriter:
    def __init__(self, b: Builder, schedule: NestSchedule, row: RowWriter, interior: Interior, variables: Variables):
        self.b = b
        self.row = row
        self.interior = interior
        self.variables = variables
        self.width = schedule.space.width
        self.unroll = schedule.unroll.value
        self.masks = schedule.target.has_masks
        assert schedule.space.vector is not None
        self.vector = schedule.space.vector
        self.extent = n = schedule.space.extents[self.vector]
        low, high = interior.box.get(self.vector, (0, n))
        step = self.width * self.unroll
        self.low = -(-low // step) * step
        self.high = n if high == n else high - high % self.width

    def write(self, start: V, stop: V) -> None:
        is_interior = self.is_interior()
        if is_interior is None:
            self.interior_row(start, stop)
            return

        def inside() -> list[V]:
            self.interior_row(start, stop)
            return []

        def outside() -> list[V]:
            self.border(start, stop, {}, skips=False)
            return []

        self.b.if_else(is_interior, inside, outside)

    def interior_row(self, start: V, stop: V) -> None:
        """Emits a row that is in the interior except at its ends."""
        self.interior_vectors(start, stop)
        if self.vector in self.interior.box:
            self.border(start, stop, self.interior.of_row, skips=True)

    def border(self, start: V, stop: V, truth: dict[Condition, bool], skips: bool) -> None:
        """Emits vectors under conditions, except for those that `truth` decides. `skips`: excludes the interior."""
        b, w = self.b, self.width
        whole = self.extent - self.extent % w
        end = stop if self.masks else b.min_(stop, whole)

        def left(i: V) -> V:
            """The next vector, from `i` on."""
            if not skips:
                return i
            within = b.and_(b.icmp("sge", i, i64(self.low)), b.icmp("slt", i, i64(self.high)))
            return b.select(within, i64(self.high), i)

        first = left(start)
        begin, done, before = b.label("border"), b.label("end"), b.block
        b.branch_if(b.icmp("slt", first, end), begin, done)
        b.start(begin)
        at, i = b.position(), b.reserve("i64")
        self.row.row([self.position(i, w, self.lanes(i), truth)])
        following = left(b.add(i, w))
        last = b.block
        b.fill_phi(at, i, [(first, before), (following, last)])
        b.branch_if(b.icmp("slt", following, end), begin, done)
        b.start(done)
        if not self.masks and whole != self.extent:
            i = b.phi("i64", [(first, before), (following, last)])
            with b.loop(i, stop, 1, "tail") as k:
                self.row.row([self.position(k, 1, None, truth)])

    def is_interior(self) -> V | None:
        """Whether the row is in the interior, as i1; None if all rows are."""
        b, total = self.b, None
        for v, (low, high) in self.interior.box.items():
            if v != self.vector:
                hit = b.icmp("ult", b.sub(self.variables[v], low), i64(high - low))
                total = hit if total is None else b.and_(total, hit)
        return total

    def interior_vectors(self, start: V, stop: V) -> None:
        """Emits vectors whose sources are known: several per iteration, then single ones, then the tail."""
        b, w, step = self.b, self.width, self.width * self.unroll
        truth, whole = self.interior.truth, self.high - self.high % w
        bulk = self.low + max(0, whole - self.low) // step * step
        first = b.max_(start, self.low)
        if bulk > self.low:
            with b.loop(first, b.min_(stop, bulk), step, "inside") as i:
                self.row.row([self.position(b.add(i, k * w), w, None, truth) for k in range(self.unroll)])
        if whole > bulk:
            with b.loop(b.max_(first, bulk), b.min_(stop, whole), w, "inside") as i:
                self.row.row([self.position(i, w, None, truth)])
        if whole == self.high:
            return
        if self.masks:
            with b.loop(b.max_(first, whole), stop, w, "inside") as i:
                self.row.row([self.position(i, w, self.lanes(i), truth)])
        else:
            with b.loop(b.max_(first, whole), stop, 1, "inside") as i:
                self.row.row([self.position(i, 1, None, truth)])

    def position(self, i: V, width: int, mask: V | None, truth: dict[Condition, bool]) -> Position:
        position = Position({**self.variables, self.vector: i}, width, mask)
        position.truth = truth
        return position

    def lanes(self, i: V) -> V | None:
        """Mask of the lanes that exist in a vector at `i`; None if all do."""
        b, w = self.b, self.width
        if not self.extent % w:
            return None
        left = b.splat(b.cast("trunc", b.sub(self.extent, i), "i32"), w)
        return b.icmp("slt", b.iota("i32", w), left)
