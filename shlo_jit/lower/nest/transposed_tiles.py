"""Nests that read across the lanes: square tiles, transposed in registers.

If a load is contiguous along another variable than the lanes (a transpose, above all), each vector of it would gather
one element per cache line. So the nest iterates over tiles of T x T. A tile of the load is read as T vectors along its
own variable, transposed by log2(T) rounds of shuffles, and kept on the stack as T vectors along the lanes. The nest's
body then runs for each of them. Every cache line that is accessed is read or written whole.
"""

from __future__ import annotations

from shlo_jit.fuse.nest import Key
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64, vector
from shlo_jit.lower.elements.registers import from_memory, lanes_left, memory_type
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position
from shlo_jit.lower.nest.rows import RowWriter, Variables
from shlo_jit.schedule.space import linear
from shlo_jit.schedule.transposed_loads import TransposedLoads
from shlo_jit.sizes import Size, equal, surely


class TileWriter:
    """Writes the tiles of a stripe: some tiles wide along `across`, the whole extent long along the lanes."""

    def __init__(self, b: Builder, row: RowWriter, transposed_loads: TransposedLoads):
        self.b = b
        self.row = row
        self.ev: Evaluator = row.ev
        self.space = row.space
        self.transposed_loads = transposed_loads
        side = transposed_loads.side
        self.buffers = {k: b.alloca(memory_type(k[0].tensor.storage), side * side) for k in transposed_loads.loads}

    def stripe(self, variables: Variables, start: V) -> None:
        """Emits all tiles of the stripe that begins at `start` of the variable `across`."""
        b, side, v = self.b, self.transposed_loads.side, self.space.vector
        assert v is not None
        n, across = self.space.extents[v], self.space.extents[self.transposed_loads.across]
        whole_a = across - across % side
        stop = b.min_(b.add(start, self.transposed_loads.width), whole_a)

        def tiles_at(j: V, count: int) -> None:
            with b.loop(start, stop, side, "across") as i:
                self.tile(variables, i, j, side, count)
            if not equal(across, whole_a):
                with b.if_(b.icmp("sgt", b.add(start, self.transposed_loads.width), whole_a)):
                    self.tile(variables, i64(whole_a), j, across % side, count)

        whole = n - n % side
        if not equal(whole, 0):
            with b.loop(0, whole, side, "along") as j:
                tiles_at(j, side)
        if isinstance(n, Size):
            with b.if_(b.icmp("sgt", i64(n), whole)):
                tiles_at(i64(whole), n % side)
        elif n > whole:
            tiles_at(i64(whole), n - whole)

    def tile(self, variables: Variables, i: V, j: V, rows: int, count: int) -> None:
        """Emits a tile: `rows` of the variable `across` from i on, `count` lanes from j on."""
        b, side, v = self.b, self.transposed_loads.side, self.space.vector
        assert v is not None
        for key in self.transposed_loads.loads:
            self.transpose(key, {**variables, self.transposed_loads.across: i, v: j}, rows, count)
        mask = None if equal(count, side) else lanes_left(b, side, count)
        with b.loop(0, rows, 1, "line") as r:
            position = Position({**variables, self.transposed_loads.across: b.add(i, r), v: j}, side, mask)
            for key, buffer in self.buffers.items():
                dtype = key[0].tensor.storage
                kind = vector(memory_type(dtype), side)
                line = b.load(kind, b.element(buffer, kind, b.mul(r, side)))
                position.memo[key] = from_memory(b, dtype, line)
            self.row.row([position])

    def transpose(self, key: Key, place: Variables, rows: int, count: int) -> None:
        """Reads a tile of a load along its own variable and leaves it in its buffer along the lanes."""
        b, side = self.b, self.transposed_loads.side
        t = memory_type(key[0].tensor.storage)
        offset = linear(key)
        step = self.space.collapse(offset).coefficient(self.space.vector or 0)
        base = self.ev.base(Position(place, 1), offset)
        kind, pointer = vector(t, side), self.ev.pointers[key[0]]
        lines: list[V] = []
        for c in range(side):
            if surely(lambda c=c: c >= count):
                lines.append(V(kind, "zeroinitializer"))
                continue
            address = b.element(pointer, t, b.add(base, c * step))
            exists = None if surely(lambda c=c: c < count) else b.icmp("slt", c, count)
            lines.append(self.line(kind, address, rows, exists))
        shown = rows if isinstance(rows, int) else side
        for r, line in enumerate(transposed(b, lines)[:shown]):
            b.store(line, b.element(self.buffers[key], t, r * side))

    def line(self, kind: str, address: V, rows: int, exists: V | None) -> V:
        """Loads `rows` elements of a line, if it exists."""
        b, side = self.b, self.transposed_loads.side
        if exists is None and equal(rows, side):
            return b.load(kind, address)
        mask = lanes_left(b, side, rows)
        return b.masked_load(kind, address, mask if exists is None else b.and_(mask, b.splat(exists, side)))


def transposed(b: Builder, lines: list[V]) -> list[V]:
    """A transposed square of registers: round k swaps blocks of k x k across the diagonal of blocks of 2k x 2k."""
    n, k = len(lines), 1
    while k < n:
        upper = [lane if lane & k == 0 else n + lane - k for lane in range(n)]
        lower = [lane + k if lane & k == 0 else n + lane for lane in range(n)]
        out = list(lines)
        for i in range(n):
            if i & k == 0:
                out[i] = b.shuffle(lines[i], lines[i + k], upper)
                out[i + k] = b.shuffle(lines[i], lines[i + k], lower)
        lines, k = out, 2 * k
    return lines
