"""Sorting unsigned integers on vectors: partition by a pivot, and sorting networks for short parts.

Equal integers have equal bits, so stability does not matter: callers pass keys that contain the whole element, or
records that are all different. A partition reads a vector, packs the lanes below the pivot to the front and the others
to the back of a second array; so the two arrays swap roles at every level. AVX-512 packs lanes by
`llvm.experimental.vector.compress`. AVX2 permutes them by a table with an entry for each mask of eight lanes: the lanes
of the mask come first, then the others, so a vector is written to both ends. Pivots are medians of samples. If no
element is below the pivot, the elements that equal it are split off. A part that was partitioned badly too often is
sorted by digits (`sort.py`), so the time is O(n log n) at most.

The networks are Batcher's bitonic ones ("Sorting networks and their applications", 1968) over several registers: lanes
are compared with lanes of the same register through a shuffle, or with those of another register directly.
"""

from __future__ import annotations

from functools import cache

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i64, vector, vector_literal
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.sort import Records, radix_records
from shlo_jit.kernels.target import Target

NETWORK = (1, 2, 4, 8)
"""Registers of each network."""
PERMUTED = 8
"""Lanes of AVX2 that are permuted by a table."""
TABLE = V("ptr", "@pack_lanes")


def has_quicksort(target: Target, bits: int) -> bool:
    """Whether the target can pack lanes of `bits` by a mask."""
    has_compress = target.has_masks and bits in (32, 64) and target.lanes(bits) >= 4
    return target.is_x86 and (has_compress or has_permutation(target, bits))


def has_permutation(target: Target, bits: int) -> bool:
    """Whether the target permutes lanes of `bits` by a table instead of compressing them."""
    has_avx2 = "+avx2" in target.features.split(",")
    return not target.has_masks and has_avx2 and (bits, target.lanes(bits)) == (32, PERMUTED)


@cache
def quicksort_routine(bits: int, target: Target) -> Routine:
    """Returns the routine with two functions for integers of 32 or 64 bits:

    - `void quicksort{bits}(ptr array, ptr other, i64 n)` sorts the array; `other` is as large. SLACK bytes after each
      (`sort.py`) may be read.
    - `i64 split{bits}(ptr from, ptr to, i64 n)` writes the array's small elements, then the large ones, and returns the
      number of small ones.
    """
    names = (f"quicksort{bits}", f"split{bits}")

    def build(module: ModuleText, target: Target) -> None:
        kind = _Kind(module, bits, target.lanes(bits), has_permutation(target, bits))
        for registers in NETWORK:
            kind.network(registers)
        kind.partition()
        kind.split()
        kind.sort_part()
        kind.entry()

    return Routine(f"quicksort{bits}", names, build)


def _packed_order(mask: int) -> list[int]:
    """Returns the lanes of a mask, then the others."""
    return sorted(range(PERMUTED), key=lambda k: not mask >> k & 1)


class _Kind:
    """Emits the functions for integers of `bits` in vectors of `lanes`."""

    def __init__(self, module: ModuleText, bits: int, lanes: int, permutes: bool = False):
        """`permutes`: lanes are packed by a table."""
        self.module = module
        self.bits, self.lanes, self.permutes = bits, lanes, permutes
        if permutes:
            rows = (", ".join(f"i8 {k}" for k in _packed_order(mask)) for mask in range(1 << lanes))
            row_type = f"[{lanes} x i8]"
            text = ", ".join(f"{row_type} [{row}]" for row in rows)
            module.define_global(TABLE.text[1:], f"internal constant [{1 << lanes} x {row_type}] [{text}], align 64")
        self.element, self.type = f"i{bits}", vector(f"i{bits}", lanes)
        self.most = const(self.type, -1)
        self.short = NETWORK[-1] * lanes
        """Number of elements that the largest network sorts."""

    def at(self, b: Builder, array: V, i: V | int) -> V:
        return b.element(array, self.element, i)

    def below(self, b: Builder, count: V) -> V:
        """Returns the mask of the lanes below a count."""
        count = b.cast("trunc", count, self.element) if self.bits < 64 else count
        return b.icmp("slt", b.iota(self.element, self.lanes), b.splat(count, self.lanes))

    # ------------------------------------------------------------------ networks
    def network(self, registers: int) -> None:
        """Emits `void network{n}(ptr from, ptr to, i64 n)`, which sorts up to `registers` registers of elements."""
        params = [("ptr", "from"), ("ptr", "to"), ("i64", "n")]
        b = self.module.function(f"network{registers}", params, linkage="internal", attributes="nounwind")
        source, target, n = b.params
        masks = [self.below(b, b.sub(n, k * self.lanes)) for k in range(registers)]
        places = [k * self.lanes for k in range(registers)]
        x = [
            b.masked_load(self.type, self.at(b, source, at), mask, self.most)
            for at, mask in zip(places, masks, strict=True)
        ]
        x = self.sorted(b, x)
        for at, mask, y in zip(places, masks, x, strict=True):
            b.masked_store(y, self.at(b, target, at), mask)
        b.ret()

    def sorted(self, b: Builder, x: list[V]) -> list[V]:
        """Returns all elements of some registers in order."""
        x = list(x)
        run = 2
        while run <= len(x) * self.lanes:
            apart = run // 2
            while apart:
                self.exchange(b, x, run, apart)
                apart //= 2
            run *= 2
        return x

    def exchange(self, b: Builder, x: list[V], run: int, apart: int) -> None:
        """Orders elements that are `apart`, upwards and downwards in alternate runs."""
        w = self.lanes
        if apart >= w:
            for r in range(len(x)):
                other = r | (apart // w)
                if other != r:
                    low, high = self.ordered(b, x[r], x[other])
                    x[r], x[other] = (low, high) if (r * w) & run == 0 else (high, low)
            return
        for r in range(len(x)):
            low, high = self.ordered(b, x[r], b.shuffle(x[r], None, [k ^ apart for k in range(w)]))
            takes_low = [(k & apart == 0) == ((r * w + k) & run == 0) for k in range(w)]
            x[r] = b.select(vector_literal("i1", takes_low), low, high)

    def ordered(self, b: Builder, x: V, y: V) -> tuple[V, V]:
        return b.intrinsic("umin", self.type, [x, y]), b.intrinsic("umax", self.type, [x, y])

    # ------------------------------------------------------------------ partitions
    def pivot(self, b: Builder, array: V, n: V) -> V:
        """Returns the median of evenly spaced samples, as many as there are lanes."""
        apart = b.udiv(n, i64(self.lanes))
        places = b.mul(b.iota("i64", self.lanes), b.splat(apart, self.lanes))
        everywhere = b.splat(V("i1", "true"), self.lanes)
        samples = b.gather(self.type, b.pointers(array, self.element, places), everywhere)
        return b.extract(self.sorted(b, [samples])[0], self.lanes // 2)

    def partition(self) -> None:
        """Emits `i64 partition(ptr from, ptr to, i64 n, i{bits} pivot)`, which writes the elements below the pivot,
        then the others, and returns the number below."""
        params = [("ptr", "from"), ("ptr", "to"), ("i64", "n"), (self.element, "pivot")]
        b = self.module.function("partition", params, "i64", linkage="internal", attributes="nounwind", noalias=True)
        source, target, n, pivot = b.params
        wide = b.splat(pivot, self.lanes)
        whole = b.and_(n, i64(-self.lanes))

        def place(x: V, valid: V | None, first: V, last: V) -> tuple[V, V]:
            low = self.bits_of(b, b.icmp("ult", x, wide))
            high = b.xor(low, const(low.type, -1))
            if valid is not None:
                low, high = (b.and_(side, self.bits_of(b, valid)) for side in (low, high))
            few, many = self.count(b, low), self.count(b, high)
            packed = self.packed(b, x, low)
            if valid is None:  # at least a vector of elements is still to be written, so the lanes after it are, too
                b.store(packed, self.at(b, target, first), align=self.bits // 8)
            else:
                b.masked_store(packed, self.at(b, target, first), self.first_lanes(b, few))
            last = b.sub(last, many)
            b.masked_store(self.packed(b, x, high), self.at(b, target, last), self.first_lanes(b, many))
            return b.add(first, few), last

        def place_whole(x: V, first: V, last: V) -> tuple[V, V]:
            if not self.permutes:
                return place(x, None, first, last)
            low = self.bits_of(b, b.icmp("ult", x, wide))
            packed, few = self.packed(b, x, low), self.count(b, low)
            behind = b.sub(last, self.lanes)
            for at in (first, behind):
                b.store(packed, self.at(b, target, at), align=self.bits // 8)
            return b.add(first, few), b.add(behind, few)

        # A vector that is written to both ends must not reach from one end to the elements at the other.
        tails = 2 if self.permutes else 1
        stop = b.max_(b.sub(whole, (tails - 1) * self.lanes), 0)
        with b.loop_carry(0, stop, [i64(0), n], self.lanes, "vector") as carry:
            x = b.load(self.type, self.at(b, source, carry.index), align=self.bits // 8)
            carry.next(*place_whole(x, *carry.values))
        first, last = carry.values
        for k in range(tails):
            at = b.add(stop, k * self.lanes)
            valid = self.below(b, b.sub(n, at))
            x = b.masked_load(self.type, self.at(b, source, at), valid)
            first, last = place(x, valid, first, last)
        b.ret(first)

    def bits_of(self, b: Builder, mask: V) -> V:
        """Returns a mask as an integer: integer arithmetic does not use the port that packs lanes."""
        return b.emit(f"i{self.lanes}", f"bitcast {mask.type} {mask.text} to i{self.lanes}")

    def mask_of(self, b: Builder, number: V) -> V:
        return b.emit(f"<{self.lanes} x i1>", f"bitcast {number.type} {number.text} to <{self.lanes} x i1>")

    def first_lanes(self, b: Builder, count: V) -> V:
        if self.permutes:
            return self.below(b, count)
        below = b.sub(b.shl(const("i32", 1), b.cast("trunc", count, "i32")), const("i32", 1))
        return self.mask_of(b, b.cast("trunc", below, f"i{self.lanes}"))

    def count(self, b: Builder, number: V) -> V:
        return b.cast("zext", b.intrinsic("ctpop", number.type, [number]), "i64")

    def packed(self, b: Builder, x: V, number: V) -> V:
        """Returns the lanes of a mask, packed to the front; those after them are undefined, or the other lanes."""
        if self.permutes:
            row = b.element(TABLE, "i64", b.cast("zext", number, "i64"))
            order = b.cast("zext", b.load(vector("i8", self.lanes), row, align=8), self.type)
            return b.call(self.type, "llvm.x86.avx2.permd", [x, order])
        mask = self.mask_of(b, number)
        name, suffix = "llvm.experimental.vector.compress", f"v{self.lanes}i{self.bits}"
        return b.call(self.type, f"{name}.{suffix}", [x, mask, V(self.type, "poison")])

    def split(self) -> None:
        """Emits `i64 split{bits}(ptr from, ptr to, i64 n)` for any n: a partition that chooses its pivot. If no element
        is below the pivot, the elements that equal it come first."""
        params = [("ptr", "from"), ("ptr", "to"), ("i64", "n")]
        b = self.module.function(f"split{self.bits}", params, "i64", linkage="", attributes="nounwind")
        source, target, n = b.params
        with b.if_(b.icmp("eq", n, 0), "empty"):
            b.ret_early(i64(0))
        pivot = self.pivot(b, source, n)
        few = b.call("i64", "partition", [source, target, n, pivot], declare=False)
        nothing = b.and_(b.icmp("eq", few, 0), b.icmp("ne", pivot, const(self.element, -1)))

        def again() -> list[V]:
            above = b.add(pivot, const(self.element, 1))
            return [b.call("i64", "partition", [source, target, n, above], declare=False)]

        (few,) = b.if_else(nothing, again, lambda: [few])
        b.ret(few)

    # ------------------------------------------------------------------ the recursion
    def sort_part(self) -> None:
        """Emits `void sort_part(ptr here, ptr there, i64 n, i1 stays, i64 left)`, which sorts the elements of `here`,
        into `here` if `stays`, else into `there`. `left`: the number of levels that are left."""
        params = [("ptr", "here"), ("ptr", "there"), ("i64", "n"), ("i1", "stays"), ("i64", "left")]
        b = self.module.function("sort_part", params, linkage="internal", attributes="nounwind")
        here, there, n, stays, left = b.params
        goal = b.select(stays, here, there)
        for registers in NETWORK:
            fits = b.icmp("ule", n, registers * self.lanes)
            with b.if_(fits, "network"):
                b.call("void", f"network{registers}", [here, goal, n], declare=False)
                b.ret_early()
        with b.if_(b.icmp("eq", left, 0), "digits"):
            self.by_digits(b, here, there, goal, n)
            b.ret_early()
        few = b.call("i64", f"split{self.bits}", [here, there, n], declare=False)
        # All elements are equal if none is above the pivot, or above those that equal the smallest.
        with b.if_(b.or_(b.icmp("eq", few, 0), b.icmp("eq", few, n)), "equal"):
            b.memcpy(goal, here, b.mul(n, self.bits // 8))
            b.ret_early()
        goes = b.xor(stays, V("i1", "true"))
        less = b.sub(left, 1)
        for first, count in ((i64(0), few), (few, b.sub(n, few))):
            parts = [self.at(b, there, first), self.at(b, here, first)]
            b.call("void", "sort_part", [*parts, count, goes, less], declare=False)
        b.ret()

    def by_digits(self, b: Builder, here: V, there: V, goal: V, n: V) -> None:
        records = Records(self.bits, self.bits, 8, 0)
        function = radix_records(self.module, records)
        counts = b.alloca("i8", records.counts_bytes)
        done = b.call("ptr", function, [here, there, n, counts], declare=False)
        with b.if_(b.icmp("ne", done, goal), "copy"):
            b.memcpy(goal, done, b.mul(n, self.bits // 8))

    def entry(self) -> None:
        params = [("ptr", "array"), ("ptr", "other"), ("i64", "n")]
        b = self.module.function(f"quicksort{self.bits}", params, linkage="", attributes="nounwind")
        array, other, n = b.params
        b.call("void", "sort_part", [array, other, n, V("i1", "true"), self.levels(b, n)], declare=False)
        b.ret()

    def levels(self, b: Builder, n: V) -> V:
        """Returns the maximum depth: twice that of partitions into halves."""
        return b.mul(b.sub(i64(64), b.intrinsic_with_flag("ctlz", n, False)), 2)
