"""Sorts integers by partition (see `kernels/quicksort.py`): records, or keys that determine all of an element.

A sort of one operand moves the keys alone, and converts them back to elements at the end. That is correct if no two
elements have the same key but different bits. Counterexamples are -0.0, which equals 0.0, and different NaNs. While
keys are computed, every element is compared with the element that its key determines. If one differs, records are
sorted.
"""

from __future__ import annotations

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, const, i64, lanes, vector
from shlo_jit.kernels.target import Target
from shlo_jit.lower.elements.registers import register_type
from shlo_jit.lower.kernels.access import Buffer, lanes_loop
from shlo_jit.lower.kernels.sort.keys import emit_key, invert_order
from shlo_jit.lower.services import Services
from shlo_jit.schedule.sort import RecordSort


def quicksort(b: Builder, width: int, array: V, other: V, n: int) -> V:
    """Sorts n integers of `width` bits. Returns the address of the sorted ones."""
    b.call("void", f"quicksort{width}", [array, other, i64(n)])
    return array


class KeyWriter:
    """Converts elements to keys, and keys to elements."""

    def __init__(self, how: RecordSort, target: Target):
        self.how, self.target, self.key = how, target, how.keys[0]
        self.element, self.stride = f"i{how.key_sort_bits}", how.lines.stride
        self.width = target.lanes(how.key_sort_bits) if how.key_sort_bits and self.stride == 1 else 1

    def fill(self, b: Builder, source: Buffer, line: V, keys: V, bounds: tuple[V, V]) -> V:
        """Writes the keys [bounds) of the line that begins at `line`. Returns whether each key determines its
        element."""
        others = b.alloca("i32")
        b.store(const("i32", 0), others)

        def body(i: V, n: int, mask: V | None) -> None:
            x = source.load(b.add(line, b.mul(i, self.stride)), n, mask)
            assert isinstance(x, V)
            key = emit_key(b, self.key, [x])
            whole = b.bitcast(x, vector(f"i{bits(x.type)}", n))
            is_other = b.icmp("ne", invert_order(b, self.key, key), whole)
            at, wide = b.element(keys, self.element, i), b.cast("zext", key, self.element)
            if mask is None:
                b.store(wide, at, align=self.how.key_sort_bits // 8)
            else:
                is_other = b.and_(is_other, mask)
                b.masked_store(wide, at, mask)
            if n > 1:
                is_other = b.reduce("or", is_other)
            b.store(b.or_(b.load("i32", others), b.cast("zext", is_other, "i32")), others)

        lanes_loop(b, self.target, *bounds, self.width, body)
        return b.icmp("eq", b.load("i32", others), const("i32", 0))

    def place(self, b: Builder, result: Buffer, line: V, keys: V, bounds: tuple[V, V]) -> None:
        """Writes places [bounds) of the result's line from sorted keys."""
        key_type, t = f"i{self.key.bits}", register_type(self.key.dtype)

        def body(i: V, n: int, mask: V | None) -> None:
            kind, at = vector(self.element, n), b.element(keys, self.element, i)
            x = b.load(kind, at, align=self.how.key_sort_bits // 8) if mask is None else b.masked_load(kind, at, mask)
            x = invert_order(b, self.key, b.cast("trunc", x, key_type))
            result.store(b.add(line, b.mul(i, self.stride)), b.bitcast(x, vector(t, lanes(x.type))), n, mask)

        lanes_loop(b, self.target, *bounds, self.width, body)


def quicksort_chunks(low: Services, width: int, memory: tuple[V, V, V], how: RecordSort) -> V:
    """Sorts an array by several tasks. Partitions cut the array in two, then each part, until there are as many parts
    as chunks. These are then sorted concurrently. `memory`: the array, another one, and the bounds of the parts.
    Returns the array that has the result."""
    b, (array, other, bounds), n, parts = low.b, memory, how.lines.n, how.chunks
    b.store(i64(0), bounds)
    b.store(i64(n), b.element(bounds, "i64", parts))
    here, there, step = array, other, parts
    while step > 1:
        low.parallel(_cut_task(low, width, step), [here, there, bounds], parts // step)
        here, there, step = there, here, step // 2
    low.parallel(_part_task(low, width), [here, there, bounds], parts)
    return here


def _part(b: Builder, width: int, step: int) -> tuple[V, V, V, V, V]:
    """A task's part: its addresses in both arrays, its length, its first place, and its entry in the table of
    bounds."""
    frame, index, _ = b.params
    here, there, bounds = (b.load("ptr", b.element(frame, "ptr", k)) for k in range(3))
    at = b.element(bounds, "i64", b.mul(index, step))
    first, last = b.load("i64", at), b.load("i64", b.element(at, "i64", step))
    here, there = (b.element(x, f"i{width}", first) for x in (here, there))
    return here, there, b.sub(last, first), first, at


def _cut_task(low: Services, width: int, step: int) -> str:
    """A task that cuts a part of `step` final parts in two, from one array into the other."""
    name = f"sort_cut{width}.{step}"
    if name not in low.module.functions:
        b = low.task(name, 3)
        here, there, n, first, at = _part(b, width, step)
        few = b.call("i64", f"split{width}", [here, there, n])
        b.store(b.add(first, few), b.element(at, "i64", step // 2))
        b.ret()
    return name


def _part_task(low: Services, width: int) -> str:
    """A task that sorts a part in place."""
    name = f"sort_part{width}"
    if name not in low.module.functions:
        b = low.task(name, 3)
        here, there, n, _, _ = _part(b, width, 1)
        b.call("void", f"quicksort{width}", [here, there, n])
        b.ret()
    return name
