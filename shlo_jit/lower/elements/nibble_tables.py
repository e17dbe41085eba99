"""Numbers looked up by an index of four bits in a register that holds all 16 of them: floats with AVX-512, signed bytes
with SSSE3 and NEON. With AVX2, unsigned ones as words. Small arrays are looked up in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, bits, i64, lanes, scalar, vector, vector_literal

ENTRIES = 16


def has_lookup(b: Builder, n: int) -> bool:
    """Whether n lanes are looked up by instructions on whole registers."""
    target = b.module.target
    return target is not None and target.looks_up_words and n % ENTRIES == 0


def look_up(b: Builder, index: V, floats: Sequence[float]) -> V:
    """The f32 with the number in the lowest four bits of each lane, in lanes for which there is a lookup."""
    return look_up_in(b, index, vector_literal("float", floats))


def look_up_in(b: Builder, index: V, table: V) -> V:
    """Likewise from a register."""
    n, kind = lanes(index.type), vector("float", ENTRIES)
    field = b.field_of(index)
    if field is not None and scalar(field[0].type) in ("i8", "i32"):  # without a mask: other bits do not matter
        bits = b.cast("zext", field[0], "i32")
        index = b.lshr(bits, b.splat(b.cast("zext", field[1], "i32"), n))
    index = b.cast("zext", index, "i32")
    return _each_register(b, index, kind, "llvm.x86.avx512.permvar.sf.512", table)


def has_small_table(b: Builder, n: int, size: int, bits: int) -> bool:
    """Whether n lanes of an array with so many elements are looked up in registers that hold all of it."""
    return isinstance(size, int) and 0 < size <= 2 * ENTRIES and bits in (16, 32) and has_lookup(b, n)


def look_up_in_memory(b: Builder, kind: str, address: V, size: int, index: V) -> V:
    """The elements of an array at indices of 32 bits, for which there is a small table. An index outside reads another
    element. `kind`: their type in memory."""
    n, width, table = lanes(index.type), bits(kind), list[V]()
    for first in range(0, size, ENTRIES):
        count, at = min(ENTRIES, size - first), b.element(address, kind, i64(first))
        some = vector(f"i{width}", ENTRIES)
        mask = vector_literal("i1", [i < count for i in range(ENTRIES)])
        x = b.load(some, at, align=width // 8) if count == ENTRIES else b.masked_load(some, at, mask)
        table.append(b.bitcast(b.cast("zext", x, "i32") if width < 32 else x, vector("float", ENTRIES)))
    if len(table) == 1:
        found = _each_register(b, index, vector("float", ENTRIES), "llvm.x86.avx512.permvar.sf.512", table[0])
    else:
        parts = [b.shuffle(index, None, range(i, i + ENTRIES)) for i in range(0, n, ENTRIES)]
        name = "llvm.x86.avx512.vpermi2var.ps.512"
        found = joined(b, [b.call(vector("float", ENTRIES), name, [table[0], some, table[1]]) for some in parts])
    words = b.bitcast(found, vector("i32", n))
    return b.bitcast(b.cast("trunc", words, f"i{width}") if width < 32 else words, vector(kind, n))


_BYTES = {"x86_64": "llvm.x86.ssse3.pshuf.b.128", "aarch64": "llvm.aarch64.neon.tbl1.v16i8"}
"""Instructions that look bytes up, by architecture."""
SIGNED = [i - 16 if i > 7 else i for i in range(ENTRIES)]


def has_signed_bytes(b: Builder, n: int) -> bool:
    """Whether signs of n numbers of four bits are extended by instructions on whole registers."""
    target = b.module.target
    if target is None or n % ENTRIES:
        return False
    return target.has_byte_pairs if target.is_x86 else target.arch in _BYTES


def signed_bytes(b: Builder, nibbles: V) -> V:
    """Signed numbers of four bits as bytes, for lanes for which `has_signed_bytes` holds. LLVM shifts each of them up
    and down in a word of its own, which takes more than twice as many instructions."""
    target = b.module.target
    assert target is not None
    kind = vector("i8", ENTRIES)
    return _each_register(b, b.cast("zext", nibbles, "i8"), kind, _BYTES[target.arch], vector_literal("i8", SIGNED))


def has_wide_bytes(b: Builder, n: int) -> bool:
    """Whether `wide_bytes` takes fewer instructions on n lanes than LLVM's own."""
    target = b.module.target
    return target is not None and target.is_x86 and target.vector_bits == 256 and n % ENTRIES == 0


def wide_bytes(b: Builder, x: V, place: int = 0) -> V:
    """Unsigned numbers of up to 8 bits as words, for lanes for which `has_wide_bytes` holds, or as byte `place` of
    words that are zero elsewhere. AVX2 widens 8 bytes of a
    register in two steps, one of which crosses the halves of a register; a shuffle of bytes takes one if both halves
    have the bytes, and memory is read into both for nothing."""
    n, found = lanes(x.type), list[V]()
    for first in range(0, n, ENTRIES):
        both = b.cast("zext", b.shuffle(x, None, [first + i % ENTRIES for i in range(2 * ENTRIES)]), "i8")
        for half in range(0, ENTRIES, 8):
            order = [half + i // 4 if i % 4 == place else -1 for i in range(32)]
            places = b.hidden(vector_literal("i8", order), "x")  # LLVM would choose the two steps
            words = b.call(vector("i8", 32), "llvm.x86.avx2.pshuf.b", [both, places])
            found.append(b.bitcast(words, vector("i32", 8)))
    return joined(b, found)


def joined(b: Builder, parts: Sequence[V]) -> V:
    """The lanes of all parts, in their order."""
    found = list(parts)
    while len(found) > 1:
        width = lanes(found[0].type)
        found = [b.shuffle(x, y, range(2 * width)) for x, y in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def _each_register(b: Builder, index: V, kind: str, instruction: str, table: V) -> V:
    """Looks all lanes up, ENTRIES of them at a time, with an instruction whose result is a `kind`."""
    n, found = lanes(index.type), list[V]()
    for first in range(0, n, ENTRIES):
        some = index if n == ENTRIES else b.shuffle(index, None, range(first, first + ENTRIES))
        found.append(b.call(kind, instruction, [table, some]))
    return joined(b, found)
