"""Element types, register tile and blocking of a matrix product, chosen per target.

The scheme is that of Goto and van de Geijn (2008) and BLIS. A tile of C of `mr` rows and `nr` columns stays in
registers while k runs; B comes in panels of `nr` columns, A in panels of `mr` rows. We keep the A panel (mr x kc) in
the first level cache and stream the B chunk (kc x nc) from the second level. So the epilogue gets finished stripes of
mr x nc elements of C, with long rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from shlo_jit import tuning
from shlo_jit.caches import PLAIN, Caches, Share
from shlo_jit.kernels.llvm_values import bits
from shlo_jit.kernels.target import Target

STORAGE = {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "i1": "i8"}
"""LLVM type of a stored element. Integers are `iN` for either sign; a complex number is stored as two of its parts."""


def storage(dtype: str) -> str:
    """Returns the LLVM type of one stored element (of one part of a complex one)."""
    dtype = part(dtype)
    return STORAGE.get(dtype) or dtype.removeprefix("u")


def part(dtype: str) -> str:
    """Returns the part of a complex type, `complex<f32>` -> `f32`; another type is its own part."""
    return dtype[8:-1] if dtype.startswith("complex<") else dtype


def itemsize(dtype: str) -> int:
    """Returns the bytes of an element in memory."""
    return bits(storage(dtype)) // 8 * (2 if dtype.startswith("complex") else 1)


@dataclass(frozen=True, slots=True)
class GemmTypes:
    """Element types by their StableHLO names: f16 bf16 f32 f64, [u]i8 .. [u]i64, i1, complex<f32>, complex<f64>.

    `acc` is the type of the sums and of C: f32 for half precision operands, i32 for bytes, ...
    """

    a: str
    b: str
    acc: str

    @property
    def name(self) -> str:
        """Part of symbol names: `f32_f32_f32`."""
        return re.sub(r"\W", "", f"{self.a}_{self.b}_{self.acc}")


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """Tile and blocking that the emitters share. A *unit* is what one lane of the micro-kernel takes of an operand in
    one step: one element, or `group` consecutive k packed into 32 bits for the dot-product instructions."""

    types: GemmTypes
    kind: str
    """`plain`, `complex`, `bf16` (vdpbf16ps), `vnni` (vpdpbusd), `dot` (sdot), `pairs` (vpmaddwd) or `amx` (tile
    registers)."""
    unit: str
    """LLVM type of a unit."""
    group: int
    acc: str
    """LLVM type of the lanes that hold sums; wider than C's for narrow integers."""
    out: str
    """LLVM type in which C is stored (one part of a complex number)."""
    lanes: int
    mr: int
    nv: int
    """Vectors in a row of the tile."""
    kc: int
    """Maximum elements of k per pass over C; a multiple of `k_unit`."""
    masks: bool
    caches: Caches = PLAIN
    in_order: bool = False
    """Whether an element is one chain of multiply-adds in the order of k, whatever passes and strategy: reproducible
    sums of floats. Passes start from C then instead of adding to it."""

    def bytes_of(self, size: Share | int) -> int:
        """Returns the bytes that a threshold is on the plan's CPU (`Caches.bytes_of`)."""
        return self.caches.bytes_of(size)

    @property
    def sums_in_blocks(self) -> bool:
        """Whether a tile adds up blocks of terms: sums of floats, unless their order is given."""
        return self.acc in ("float", "double") and not self.in_order

    @property
    def widest(self) -> int:
        """Approximate columns of C in a task, in whole panels."""
        return self.bytes_of(tuning.GEMM_CHUNK_BYTES) // (tuning.GEMM_PASS_K * 4 * self.nr) * self.nr

    @property
    def prepacked_kc(self) -> int:
        """`kc` for a prepacked B. A is read in place or packed for all tasks, so long passes cost nothing, and in most
        products C is read and written once."""
        return self.kc if self.kind == "amx" else tuning.GEMM_PREPACKED_K * self.group

    @property
    def k_unit(self) -> int:
        """The elements of k per pass are a multiple of this, except in the last pass."""
        return self.group * max(self.whole, 4)

    @property
    def nr(self) -> int:
        return self.nv * self.lanes

    @property
    def parts(self) -> int:
        """2 for complex numbers, whose panels hold all real parts of a step, then all imaginary ones; else 1."""
        return 2 if self.kind == "complex" else 1

    @property
    def unit_bytes(self) -> int:
        return bits(self.unit) // 8

    @property
    def out_bytes(self) -> int:
        """Bytes of an element of C."""
        return bits(self.out) // 8 * self.parts

    @property
    def b_step(self) -> int:
        """Bytes of one step of a packed B panel."""
        return self.nr * self.unit_bytes * self.parts

    @property
    def header(self) -> int:
        """Bytes before a packed B panel: if A is flipped, the correction for that, one i32 per column."""
        return self.nr * 4 if self.flips_a else 0

    @property
    def symbol(self) -> str:
        return f"shlo_gemm_{self.types.name}"

    @property
    def convert(self) -> tuple[bool, bool]:
        """Whether A and B must be packed because their units are not their elements."""
        if self.kind != "plain":
            return True, True
        return storage(self.types.a) != self.unit, storage(self.types.b) != self.unit

    @property
    def word(self) -> str:
        """LLVM type of an element in a unit of several: bytes are widened for `pairs`, since the sum of two products of
        bytes saturates in 16 bits."""
        return f"i{bits(self.unit) // self.group}"

    @property
    def joins_a(self) -> bool:
        """Whether a unit of A consists of several elements, without conversion."""
        return self.kind in ("bf16", "vnni", "dot")

    @property
    def flips_a(self) -> bool:
        """Whether 128 is added to each byte of A in the tile, since one operand of `vpdpbusd` is unsigned and the other
        signed. The value of a byte then changes by 128 (by -128 if it was unsigned). Adding `unflip` times the sums of
        B's columns corrects that."""
        return self.kind == "vnni" and self.types.a == self.types.b

    @property
    def unflip(self) -> int:
        return 128 if self.types.a == "ui8" else -128

    @property
    def whole(self) -> int:
        """The number of steps of a packed panel is a multiple of this."""
        return 16 if self.kind == "amx" else 1

    def panel_bytes(self, k: int) -> int:
        """Bytes of a packed B panel of k elements."""
        block = self.group * self.whole
        return self.header + -(-k // block) * self.whole * self.b_step


def _register_tile(target: Target, kind: str, lane_bits: int) -> tuple[int, int]:
    """Returns rows and vectors of the tile: accumulators, one row of B and a broadcast must fit the registers.

    If stores cannot be masked, the rows are at most the lanes of a vector or a multiple of them (see `pack.py`).
    """
    if kind == "amx":
        return (32, 2)
    if kind == "complex":
        return (5, 2) if target.vector_registers == 32 else (2, 2)
    if target.vector_bits == 512:
        return (14, 2)
    if target.vector_bits == 256:
        return (6, 2) if lane_bits == 32 else (4, 3)
    return (8, 2) if target.vector_registers == 32 else (4, 2)


def _fits_amx(types: GemmTypes, target: Target) -> bool:
    """Whether tile registers multiply these types: bf16 into f32, and bytes of any sign into i32."""
    if not {"+amx-int8", "+amx-bf16"} <= set(target.features.split(",")) or "linux" not in target.triple:
        return False
    operands = {types.a, types.b}
    if operands == {"bf16"}:  # they round otherwise than multiply-adds of f32
        return types.acc == "f32" and not target.reproducible
    return operands <= {"i8", "ui8"} and types.acc in ("i32", "ui32")


def fast_bf16(target: Target) -> bool:
    """Whether vdpbf16ps is faster than f32 multiply-adds on converted operands. It is twice as fast on Zen 4 and 5, but
    on Sapphire Rapids it is several micro-operations and reaches 99 instead of 148 GF/s. It rounds otherwise than
    multiply-adds of f32, so reproducible sums do without it."""
    return target.has_bf16_dot and target.cpu.startswith("znver") and not target.reproducible


@cache
def gemm_plan(types: GemmTypes, target: Target) -> GemmPlan:
    """Returns the tile and blocking for these types on this target."""
    out = storage(types.acc)
    acc = "i32" if out in ("i8", "i16") else out
    kind, unit, group = "plain", acc, 1
    bytes_ = {"i8", "ui8"}
    if types.acc.startswith("complex"):
        kind = "complex"
    elif _fits_amx(types, target):
        kind, unit, group = "amx", "i32", 2 if types.a == "bf16" else 4
    elif (types.a, types.b, types.acc) == ("bf16", "bf16", "f32") and fast_bf16(target):
        kind, unit, group = "bf16", "i32", 2
    elif {types.a, types.b} <= bytes_ and out == "i32" and target.has_vnni:
        kind, unit, group = "vnni", "i32", 4
    elif {types.a, types.b} <= bytes_ and out == "i32" and target.has_byte_dot(types.a == types.b):
        kind, unit, group = "dot", "i32", 4
    elif {types.a, types.b} <= bytes_ and out == "i32" and target.is_x86:
        kind, unit, group = "pairs", "i32", 2
    lanes = target.lanes(bits(acc))
    mr, nv = _register_tile(target, kind, bits(acc))
    # A panel of mr x kc units takes about half of the first level cache, a chunk of GEMM_CHUNK_BYTES most of the
    # second. kc orders the sums, so it is the same whatever the sizes of caches are.
    if kind == "amx":
        kc = tuning.GEMM_PASS_K * group
        return GemmPlan(types, kind, unit, group, acc, out, lanes, mr, nv, kc, True, target.caches)
    kc = max(16, tuning.GEMM_PANEL_BYTES // (mr * bits(unit) // 8 * (2 if kind == "complex" else 1)) // 16 * 16) * group
    kc = min(kc, tuning.GEMM_PASS_K * group)
    in_order = target.reproducible and acc in ("float", "double")
    return GemmPlan(types, kind, unit, group, acc, out, lanes, mr, nv, kc, target.has_masks, target.caches, in_order)
