"""What a matrix product computes with: element types, the register tile and the blocking, chosen per target.

Goto and van de Geijn (2008) and BLIS give the scheme. A tile of C of `mr` rows and `nr` columns stays in registers
while k runs; B comes in panels of `nr` columns, A in panels of `mr` rows. We keep the A panel (mr x kc) in the first
level cache and stream the B chunk (kc x nc) from the second level, because a finished stripe of mr x nc elements of C
is then what the epilogue gets, with long rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from shlo_jit import tuning
from shlo_jit.kernels.llvm_values import bits
from shlo_jit.kernels.target import Target

STORAGE = {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "i1": "i8"}
"""LLVM type an element is stored as; integers are `iN` whatever their sign, a complex number is a pair of its part."""


def storage(dtype: str) -> str:
    """LLVM type of one stored element (of one part of a complex one)."""
    dtype = part(dtype)
    return STORAGE.get(dtype) or dtype.removeprefix("u")


def part(dtype: str) -> str:
    """`complex<f32>` -> `f32`; another type is its own part."""
    return dtype[8:-1] if dtype.startswith("complex<") else dtype


def itemsize(dtype: str) -> int:
    """Bytes of an element in memory."""
    return bits(storage(dtype)) // 8 * (2 if dtype.startswith("complex") else 1)


@dataclass(frozen=True, slots=True)
class GemmTypes:
    """Element types by their StableHLO names: f16 bf16 f32 f64, [u]i8 .. [u]i64, i1, complex<f32>, complex<f64>.

    `acc` is the type sums are kept in and C has: f32 for half precision operands, i32 for bytes, ...
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
    """Everything the emitters share. A *unit* is what one lane of the micro-kernel takes of an operand in one step:
    one element, or `group` consecutive k packed into 32 bits for the dot-product instructions."""

    types: GemmTypes
    kind: str
    """`plain`, `complex`, `bf16` (vdpbf16ps), `vnni` (vpdpbusd) or `amx` (tile registers)."""
    unit: str
    """LLVM type of a unit."""
    group: int
    acc: str
    """LLVM type of the lanes sums are kept in; wider than C's for narrow integers."""
    out: str
    """LLVM type C is stored as (one part of a complex number)."""
    lanes: int
    mr: int
    nv: int
    """Vectors in a row of the tile."""
    kc: int
    """k elements a pass over C takes at most; a multiple of `k_unit`."""
    masks: bool

    @property
    def prepacked_kc(self) -> int:
        """The same where B was packed before: A is read where it lies or packed for all, so that long passes cost
        nothing, and C is read and written once in most products."""
        return self.kc if self.kind == "amx" else tuning.GEMM_PREPACKED_K * self.group

    @property
    def k_unit(self) -> int:
        """k elements that passes come in, but for the last."""
        return self.group * max(self.whole, 4)

    @property
    def nr(self) -> int:
        return self.nv * self.lanes

    @property
    def parts(self) -> int:
        """2 for complex numbers: panels hold all real parts of a step, then all imaginary ones."""
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
        """Bytes before a packed B panel: where A is flipped, the correction for that, one i32 a column."""
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
    def joins_a(self) -> bool:
        """Whether the unit of A is nothing but several elements."""
        return self.kind in ("bf16", "vnni")

    @property
    def flips_a(self) -> bool:
        """Whether 128 is added to each byte of A in the tile: one operand of `vpdpbusd` is unsigned, the other signed.
        What a byte stands for then changes by 128 (by -128 where it was unsigned); `unflip` times the sums of B's
        columns undo that."""
        return self.kind == "vnni" and self.types.a == self.types.b

    @property
    def unflip(self) -> int:
        return 128 if self.types.a == "ui8" else -128

    @property
    def whole(self) -> int:
        """Steps of a packed panel come in multiples of this."""
        return 16 if self.kind == "amx" else 1

    def panel_bytes(self, k: int) -> int:
        """Bytes of a packed B panel of k elements."""
        block = self.group * self.whole
        return self.header + -(-k // block) * self.whole * self.b_step


def _register_tile(target: Target, kind: str, lane_bits: int) -> tuple[int, int]:
    """Rows and vectors of the tile: accumulators, one row of B and a broadcast must fit the registers.

    The rows are at most the lanes of a vector or a multiple of them where stores cannot be masked (see `pack`).
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
    """Tile registers multiply bf16 into f32 and bytes of any sign into i32."""
    if not {"+amx-int8", "+amx-bf16"} <= set(target.features.split(",")) or "linux" not in target.triple:
        return False
    operands = {types.a, types.b}
    return (operands == {"bf16"} and types.acc == "f32") or (operands <= {"i8", "ui8"} and types.acc in ("i32", "ui32"))


def _fast_bf16(target: Target) -> bool:
    """Whether vdpbf16ps beats f32 multiply-adds on converted operands: twice as fast on Zen 4 and 5, but 99 against
    148 GF/s on Sapphire Rapids, where it is several micro-operations."""
    return target.has_bf16_dot and target.cpu.startswith("znver")


@cache
def gemm_plan(types: GemmTypes, target: Target) -> GemmPlan:
    """The tile and blocking for these types on this target."""
    out = storage(types.acc)
    acc = "i32" if out in ("i8", "i16") else out
    kind, unit, group = "plain", acc, 1
    bytes_ = {"i8", "ui8"}
    if types.acc.startswith("complex"):
        kind = "complex"
    elif _fits_amx(types, target):
        kind, unit, group = "amx", "i32", 2 if types.a == "bf16" else 4
    elif (types.a, types.b, types.acc) == ("bf16", "bf16", "f32") and _fast_bf16(target):
        kind, unit, group = "bf16", "i32", 2
    elif {types.a, types.b} <= bytes_ and out == "i32" and target.has_vnni:
        kind, unit, group = "vnni", "i32", 4
    lanes = target.lanes(bits(acc))
    mr, nv = _register_tile(target, kind, bits(acc))
    # A panel of mr x kc units takes about half of the first level cache, a chunk of 512 columns half of the second.
    if kind == "amx":
        return GemmPlan(types, kind, unit, group, acc, out, lanes, mr, nv, 320 * group, True)
    kc = max(16, (28 << 10) // (mr * bits(unit) // 8 * (2 if kind == "complex" else 1)) // 16 * 16) * group
    return GemmPlan(types, kind, unit, group, acc, out, lanes, mr, nv, min(kc, 320 * group), target.has_masks)
