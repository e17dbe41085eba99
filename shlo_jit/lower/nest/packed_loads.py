"""Loads of packed constants: elements of 2 or 4 bits in bytes, the first in the low bits.

Consecutive elements are loaded without knowing where in a byte the first one is. With two elements per byte, the even
lanes are in n/2 consecutive bytes, all at the same position within a byte, and so are the odd lanes. So each of them
takes a load, a shift and a mask, and the lanes are interleaved. No byte is loaded that holds none of the elements.
"""

from __future__ import annotations

from shlo_jit.ir.types import DType
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, const, lanes, scalar, vector
from shlo_jit.lower.elements.nibble_tables import has_lookup, has_wide_bytes, wide_bytes
from shlo_jit.lower.elements.registers import from_memory, register_type


def load_at(b: Builder, dtype: DType, pointer: V, index: V) -> V:
    """Loads one element."""
    found = b.load("i8", b.element(pointer, "i8", _byte(b, dtype, index)))
    return from_memory(b, dtype, _element(b, dtype, found, index))


def load_gather(b: Builder, dtype: DType, pointer: V, index: V, mask: V) -> V:
    """Loads the elements at a vector of indices, in the lanes of the mask."""
    n = lanes(index.type)
    found = b.gather(vector("i8", n), b.pointers(pointer, "i8", _byte(b, dtype, index)), mask)
    return from_memory(b, dtype, _element(b, dtype, found, index))


def load_run(b: Builder, dtype: DType, pointer: V, first: V, n: int, mask: V | None) -> V:
    """Loads n consecutive elements, in the lanes of the mask."""
    per = 8 // dtype.bits
    if n < 2 * per:  # hardly more lanes than elements in a byte
        mask = b.splat(V("i1", "true") if mask is None else mask, n)
        return load_gather(b, dtype, pointer, b.add(b.splat(first, n), b.iota("i64", n)), mask)
    parts: list[V] = []
    for k in range(per):
        index, kind = b.add(first, k), vector("i8", n // per)
        address = b.element(pointer, "i8", _byte(b, dtype, index))
        if mask is None:
            found = b.load(kind, address, 1)
        else:
            found = b.masked_load(kind, address, b.shuffle(mask, None, range(k, n, per)))
        parts.append(_element(b, dtype, found, index))
    return from_memory(b, dtype, _interleaved(b, parts))


def load_column(b: Builder, dtype: DType, pointer: V, at: tuple[V, V], n: int, unit: int, mask: V | None) -> V:
    """Loads n elements of consecutive bytes or words, at the same position within each, in the lanes of the mask. `at`:
    the first unit, and the position."""
    found = _load_units(b, pointer, at[0], n, unit, mask)
    bits = b.mul(at[1], dtype.bits)
    if unit == 8 and _widens(b, n):  # once for all elements of a byte
        top = dtype.kind == "i" and has_wide_bytes(b, n)  # signs are extended from the highest bits
        found = wide_bytes(b, found, 3 if top else 0) if has_wide_bytes(b, n) else b.cast("zext", found, "i32")
        bits = b.add(bits, 24 if top else 0)
    element = scalar(found.type)
    place = b.cast("trunc", bits, element) if bits.literal is None else const(element, bits.literal)
    if unit == 8 and place.literal and has_lookup(b, n) and element == "i32":
        place = b.hidden(place, "r")  # LLVM would shift the bytes, and widen them once more
    if dtype.is_integer:
        return b.field(found, place, register_type(dtype))
    shifted = b.lshr(found, b.splat(place, n))
    return b.cast("trunc", b.and_(shifted, const(shifted.type, (1 << dtype.bits) - 1)), "i8")


def load_words(b: Builder, dtype: DType, pointer: V, at: tuple[V, V], n: int, mask: V | None) -> V:
    """Loads n words of which each byte holds an element, in the lanes of the mask, all of the same byte. The elements
    are the lowest bits of the results, the others may be any."""
    found = _load_units(b, pointer, at[0], n, 32, mask)
    return b.lshr(found, b.splat(b.cast("trunc", b.mul(at[1], 8 * dtype.itemsize), "i32"), n))


def _load_units(b: Builder, pointer: V, first: V, n: int, unit: int, mask: V | None) -> V:
    element = f"i{unit}"
    kind, address = vector(element, n), b.element(pointer, element, first)
    return b.load(kind, address, 1) if mask is None else b.masked_load(kind, address, mask)


def _widens(b: Builder, n: int) -> bool:
    """Whether bytes of n lanes are shifted as words."""
    target = b.module.target
    return target is not None and n <= 2 * target.lanes(32)


def _interleaved(b: Builder, parts: list[V]) -> V:
    """Lane 0 of all parts, then lane 1, and so on."""
    while len(parts) > 1:  # those of even and of odd positions, each interleaved before
        half = len(parts) // 2
        parts = [_both(b, x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _both(b: Builder, x: V, y: V) -> V:
    n = lanes(x.type)
    return b.shuffle(x, y, [lane // 2 + (lane % 2) * n for lane in range(2 * n)])


def _byte(b: Builder, dtype: DType, index: V) -> V:
    """The byte that holds an element. The index of one that is masked off may be negative."""
    return b.ashr(index, (8 // dtype.bits).bit_length() - 1)


def _element(b: Builder, dtype: DType, x: V, index: V) -> V:
    """The element at an index, or that at the index of each lane, as the low bits of its byte. The others are zero."""
    place = b.mul(b.and_(index, const(index.type, 8 // dtype.bits - 1)), const(index.type, dtype.bits))
    shift = b.splat(b.cast("trunc", place, "i8"), lanes(x.type))
    return b.and_(b.lshr(x, shift), const(x.type, (1 << dtype.bits) - 1))
