"""Sorting records: unsigned integers whose low 32 bits are the element's index and whose upper bits are its key.

All records differ, and their order is the stable order of the keys; so every algorithm gives the same result. The
algorithms are functions of a module, once per record type:

- `rank_records`: counts the smaller records for each record, a vector at a time. O(n^2 / lanes), no branches; for short
  lines.
- `radix_records`: least significant digit first; one pass counts all digits, then each digit moves the records once. A
  digit that all records share is skipped. O(n * passes).
- `radix_chunk_*`: the same for one long line, in several chunks in parallel. For each digit the chunks count, offsets
  are summed in order of (digit, chunk), and the chunks move their records, which keeps them in order.
- `merge_indices`: indices by a comparator that is given as a callback; bottom-up merge sort, stable, O(n log n).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, const, i64, vector
from shlo_jit.sizes import Size, hint_of, upper_bound_of

INDEX_BITS = 32
SLACK = 64
"""Bytes after an array of records that may be read, or (by `rank_records`) written."""


@dataclass(frozen=True)
class Records:
    """Layout of records, and how they are cut into digits."""

    bits: int
    """64, 128 or 256; 32 or 64 for keys alone."""
    key_bits: int
    digit_bits: int
    index_bits: int = INDEX_BITS
    """0 for keys alone."""

    @property
    def type(self) -> str:
        return f"i{self.bits}"

    @property
    def nbytes(self) -> int:
        return self.bits // 8

    @property
    def passes(self) -> int:
        return -(-self.key_bits // self.digit_bits)

    @property
    def buckets(self) -> int:
        return 1 << self.digit_bits

    @property
    def counts_bytes(self) -> int:
        """Bytes of scratch of `radix_records` for its counters."""
        return 4 * self.buckets * self.passes

    def chunk_counts_bytes(self, chunks: int) -> int:
        """Returns the bytes of scratch of `radix_chunk_*` for the counters of so many chunks."""
        return 4 * self.buckets * chunks

    @property
    def suffix(self) -> str:
        return f"{self.bits}.{self.key_bits}.{self.digit_bits}.{self.index_bits}"


def records_for(key_bits: int, n: int) -> Records | None:
    """Returns the records for lines of n elements with keys of `key_bits`; None if no record type is wide enough."""
    if key_bits + INDEX_BITS > 256 or upper_bound_of(n) >= 1 << INDEX_BITS:
        return None
    bits = next(w for w in (64, 128, 256) if key_bits + INDEX_BITS <= w)
    widest = 11 if hint_of(n) >= 1 << 13 else 8
    passes = -(-key_bits // widest)
    return Records(bits, key_bits, -(-key_bits // passes))


def rank_limit(records: Records) -> int:
    """Returns the length of a line up to which `rank_records` is faster."""
    return 128 if records.bits == 64 else 32


def load_record(b: Builder, records: Records, array: V, i: V | int) -> V:
    return b.load(records.type, b.element(array, records.type, i), align=8)


def store_record(b: Builder, records: Records, array: V, i: V | int, x: V) -> None:
    b.store(x, b.element(array, records.type, i), align=8)


def _digit(b: Builder, records: Records, array: V, i: V, shift: V) -> V:
    """Returns the digit of record i that begins at bit `shift`, as i64; from four bytes at its byte (little-endian)."""
    place = b.offset(b.element(array, records.type, i), b.lshr(shift, 3))
    word = b.lshr(b.load("i32", place, align=1), b.cast("trunc", b.and_(shift, i64(7)), "i32"))
    return b.cast("zext", b.and_(word, const("i32", records.buckets - 1)), "i64")


def digit_shift(b: Builder, records: Records, number: V) -> V:
    """Returns the bit at which a pass's digit begins. The last digit ends with the key, even if it overlaps the digit
    before; otherwise it would reach into the next record."""
    last = records.index_bits + records.key_bits - records.digit_bits
    return b.min_(b.add(b.mul(number, records.digit_bits), records.index_bits), last)


# ---------------------------------------------------------------------------- short lines
def rank_records(module: ModuleText, records: Records, lanes: int) -> str:
    """Emits `ptr (ptr records, ptr other, i64 n, ptr counts)`, which sorts into `other` and returns it. Returns the
    function's name."""
    name = f"rank_records.{records.suffix}"
    if name in module.functions:
        return name
    b = module.function(name, _PARAMS, "ptr", attributes="nounwind")
    source, target, n, _ = b.params
    w = lanes if records.bits == 64 else 1
    kind = vector(records.type, w)
    for k in range(w - 1):  # the padding of the last vector is larger than all records
        store_record(b, records, source, b.add(n, k), const(records.type, -1))
    with b.loop(0, n, 1, "rank") as i:
        x = load_record(b, records, source, i)
        wide = b.splat(x, w)
        with b.loop_carry(0, n, [const(vector("i64", w), 0)], w, "count") as carry:
            other = b.load(kind, b.element(source, records.type, carry.index), align=8)
            less = b.cast("zext", b.icmp("ult", other, wide), "i64")
            carry.next(b.add(carry.values[0], less))
        store_record(b, records, target, b.reduce("add", carry.values[0]), x)
    b.ret(target)
    return name


_PARAMS = [("ptr", "records"), ("ptr", "other"), ("i64", "n"), ("ptr", "counts")]


# ---------------------------------------------------------------------------- radix
def radix_records(module: ModuleText, records: Records) -> str:
    """Emits `ptr (ptr records, ptr other, i64 n, ptr counts)`, which sorts in one of the two arrays and returns it.
    Returns the function's name."""
    name = f"radix_records.{records.suffix}"
    if name in module.functions:
        return name
    b = module.function(name, _PARAMS, "ptr", attributes="nounwind")
    source, target, n, counts = b.params
    b.memset(counts, 0, records.counts_bytes)
    with b.loop(0, n, 1, "count") as i:
        for p in range(records.passes):
            digit = _digit(b, records, source, i, digit_shift(b, records, i64(p)))
            _bump(b, b.element(counts, "i32", b.add(digit, p * records.buckets)))
    with b.loop_carry(0, records.passes, [source, target], 1, "pass") as carry:
        here, there = carry.values
        shift = digit_shift(b, records, carry.index)
        table = b.element(counts, "i32", b.mul(carry.index, records.buckets))
        first = b.load("i32", b.element(table, "i32", _digit(b, records, here, i64(0), shift)))

        def move() -> list[V]:
            with b.loop_carry(0, records.buckets, [const("i32", 0)], 1, "offset") as total:
                at = b.element(table, "i32", total.index)
                count = b.load("i32", at)
                b.store(total.values[0], at)
                total.next(b.add(total.values[0], count))
            _move(b, records, here, there, i64(0), n, shift, table)
            return [there, here]

        same = b.icmp("eq", b.cast("zext", first, "i64"), n)
        carry.next(*b.if_else(same, lambda: [here, there], move))
    b.ret(carry.values[0])
    return name


def _bump(b: Builder, counter: V) -> V:
    """Adds one to an i32 counter. Returns its old value."""
    old = b.load("i32", counter)
    b.store(b.add(old, const("i32", 1)), counter)
    return old


def _move(b: Builder, records: Records, here: V, there: V, first: V, last: V, shift: V, table: V) -> None:
    """Moves records [first, last) to the places that the table of next places gives for their digits."""
    with b.loop(first, last, 1, "move") as i:
        place = _bump(b, b.element(table, "i32", _digit(b, records, here, i, shift)))
        store_record(b, records, there, b.cast("zext", place, "i64"), load_record(b, records, here, i))


# ---------------------------------------------------------------------------- radix, one long line in chunks
_TASK = [("ptr", "frame"), ("i64", "index"), ("i64", "worker")]


def chunk_of(b: Builder, index: V, chunk: int, n: int) -> tuple[V, V]:
    first = b.mul(index, chunk)
    return first, b.min_(b.add(first, chunk), n)


def radix_chunk_count(module: ModuleText, records: Records, n: int, chunk: int) -> str:
    """Emits a task with frame (counts, shift, records), which counts a chunk's digits. Returns its name."""
    name = f"radix_count.{records.suffix}.{n}"
    if name in module.functions:
        return name
    b = module.function(name, _TASK, attributes="nounwind")
    frame, index, _ = b.params
    counts, shift, here = (b.load("ptr", b.element(frame, "ptr", k)) for k in range(3))
    shift = b.cast("ptrtoint", shift, "i64")
    table = b.element(counts, "i32", b.mul(index, records.buckets))
    b.memset(table, 0, 4 * records.buckets)
    with b.loop(*chunk_of(b, index, chunk, n), 1, "count") as i:
        _bump(b, b.element(table, "i32", _digit(b, records, here, i, shift)))
    b.ret()
    return name


def radix_chunk_offsets(module: ModuleText, records: Records, chunks: int) -> str:
    """Emits `i64 (ptr counts)`, which replaces counts by first places, in order of (digit, chunk), and returns the
    largest count of a digit. Returns the function's name."""
    name = f"radix_offsets.{records.suffix}.{chunks}"
    if name in module.functions:
        return name
    b = module.function(name, [("ptr", "counts")], "i64", attributes="nounwind")
    (counts,) = b.params
    zero = const("i32", 0)
    with b.loop_carry(0, records.buckets, [zero, zero], 1, "digit") as digit:
        with b.loop_carry(0, chunks, [digit.values[0]], 1, "chunk") as carry:
            at = b.element(counts, "i32", b.add(b.mul(carry.index, records.buckets), digit.index))
            count = b.load("i32", at)
            b.store(carry.values[0], at)
            carry.next(b.add(carry.values[0], count))
        whole = b.sub(carry.values[0], digit.values[0])
        digit.next(carry.values[0], b.intrinsic("umax", "i32", [digit.values[1], whole]))
    b.ret(b.cast("zext", digit.values[1], "i64"))
    return name


def radix_chunk_move(module: ModuleText, records: Records, n: int, chunk: int) -> str:
    """Emits a task with frame (counts, shift, records, other), which moves a chunk's records. Returns its name."""
    name = f"radix_move.{records.suffix}.{n}"
    if name in module.functions:
        return name
    b = module.function(name, _TASK, attributes="nounwind")
    frame, index, _ = b.params
    counts, shift, here, there = (b.load("ptr", b.element(frame, "ptr", k)) for k in range(4))
    table = b.element(counts, "i32", b.mul(index, records.buckets))
    _move(b, records, here, there, *chunk_of(b, index, chunk, n), b.cast("ptrtoint", shift, "i64"), table)
    b.ret()
    return name


# ---------------------------------------------------------------------------- comparators
def _bit_length(b: Builder, number: int) -> V | int:
    """Returns the number of bits of a number, which is not negative."""
    if not isinstance(number, Size):
        return number.bit_length()
    return b.sub(i64(64), b.intrinsic_with_flag("ctlz", i64(number), False))


def merge_indices(b: Builder, here: V, there: V, n: int, less: Callable[[V, V], V], *, is_expensive: bool = False) -> V:
    """Sorts 0 to n-1 by `less(i, j)`, an i1, stably. `here` and `there` are arrays of n i64; returns the one with the
    result. `is_expensive`: comparisons are expensive or have effects, and are made only if both runs have elements."""
    with b.loop(0, n, 1, "index") as i:
        b.store(i, b.element(here, "i64", i))
    passes = _bit_length(b, n - 1)
    with b.loop_carry(0, passes, [here, there, i64(1)], 1, "width") as outer:
        source, target, width = outer.values
        with b.loop(0, n, b.mul(width, 2), "runs") as low:
            middle = b.min_(b.add(low, width), n)
            high = b.min_(b.add(middle, width), n)
            with b.loop_carry(low, high, [low, middle], 1, "merge") as carry:
                i, j = carry.values
                left = b.load("i64", b.element(source, "i64", b.min_(i, n - 1)))
                right = b.load("i64", b.element(source, "i64", b.min_(j, n - 1)))
                if is_expensive:
                    take = _right_first(b, b.icmp("slt", i, middle), b.icmp("slt", j, high), less, (right, left))
                else:
                    right_first = b.or_(b.icmp("sge", i, middle), less(right, left))
                    take = b.and_(b.icmp("slt", j, high), right_first)
                b.store(b.select(take, right, left), b.element(target, "i64", carry.index))
                step = b.cast("zext", take, "i64")
                carry.next(b.add(i, b.sub(i64(1), step)), b.add(j, step))
        outer.next(target, source, b.mul(width, 2))
    return outer.values[0]


def _right_first(b: Builder, has_left: V, has_right: V, less: Callable[[V, V], V], pair: tuple[V, V]) -> V:
    """Returns whether the next element comes from the right run."""

    def compared() -> list[V]:
        return [less(*pair)]

    (found,) = b.if_else(b.and_(has_left, has_right), compared, lambda: [has_right])
    return found
