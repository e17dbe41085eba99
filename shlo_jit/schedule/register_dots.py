"""Decides whether a product that is computed in registers uses instructions that multiply several terms of a sum at a
time.

`vdpbf16ps` multiplies pairs of bf16 numbers, and the elements that are computed are rounded to bf16 by an instruction
too. Both flush subnormal numbers to zero.

Products of bytes: on x86, `vpmaddwd` multiplies pairs of 16 bits, which bytes are widened to. If the computed operand
has few bits, `vpmaddubsw` multiplies pairs of bytes, and sums of some terms fit 16 bits. One of its operands is
unsigned, so the smallest element is subtracted from all; the sum of each vector times that element is added again.
"""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DTYPES, I8, DType
from shlo_jit.kernels.gemm.precision import fast_bf16
from shlo_jit.kernels.target import Target
from shlo_jit.ops.integer_ranges import range_of
from shlo_jit.ops.runs import multiplies_bytes
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note

SHORT_SUM = (1 << 15) - 1
"""Largest sum in 16 bits."""
FACTOR = 128
"""Largest magnitude of a factor."""
LEAST_TERMS, MOST_TERMS = 4, 16
"""Terms whose sums are in 16 bits."""


class RegisterDots(NamedTuple):
    """Instructions that add up the products of adjacent terms."""

    group: int
    """Terms that are adjacent in a register if lanes are outputs."""
    factor: DType
    """The type of the factors of the computed operand."""
    element: DType
    """The type of the computed operand's elements."""
    short: int = 0
    """Terms whose sums are in 16 bits; 0: sums are in 32 bits."""
    offset: int = 0
    """The smallest element, which is subtracted from all if sums are in 16 bits."""
    together: int = 1
    """Pairs of terms whose sums fit 16 bits without the correction for the smallest element."""

    @property
    def is_float(self) -> bool:
        return self.factor.is_float

    @property
    def per_lane(self) -> int:
        """Terms in a lane of a sum if lanes are terms."""
        return 4 if self.short else self.group

    def widths(self, full: int, extent: int, *, are_terms: bool) -> tuple[int, ...]:
        """Numbers of lanes, the best first. `full`: sums in a register; `extent`: iterations along the lanes."""
        if are_terms:
            return (self.per_lane * full,) if extent >= self.per_lane * full else ()
        if self.is_float:
            return tuple(n for n in (2 * full, full) if n <= extent)
        least = 8 if self.short else full  # outputs whose pairs of terms fill 16 bytes
        return tuple(n for n in (4 * full, 2 * full, full) if least <= n <= extent)

    @property
    def narrowest(self) -> int | None:
        """Minimum terms of a vector if lanes are terms: 128 bits of factors. None: there are no
        narrower vectors, as they would change the order of sums of floats."""
        return None if self.is_float else 8 * 16 // self.factor.bits

    @property
    def row_padding(self) -> int:
        """Elements after each of the vectors, which hold its sum, if lanes are terms."""
        return 4 if self.offset else 0

    @property
    def note(self) -> Note:
        text = f"{self.group} terms of {self.factor.name} share a lane of 32 bits"
        if self.short:
            text = f"sums of {self.short} terms fit 16 bits"
        return Note("products", f"{self.group} terms at a time", Reason("dot-products", text))


def register_dots(op: Op, side: int, target: Target) -> RegisterDots | None:
    """Returns the instructions for a product whose operand `side` is computed; None if there are none for its types."""
    types = {v.tensor.storage.name for v in op.operands}
    if types == {"bf16"} and op.result.tensor.storage.name == "f32" and fast_bf16(target):
        return RegisterDots(2, DTYPES["bf16"], DTYPES["bf16"])
    return byte_dots(op, side, target)


def byte_dots(op: Op, side: int, target: Target) -> RegisterDots | None:
    """Returns those for a product of bytes."""
    types = [v.tensor.storage for v in op.operands]
    if not multiplies_bytes(op) or op.result.tensor.storage.name not in ("i32", "ui32"):
        return None
    if target.is_x86:
        short = _short(op, side) if types[1 - side] == I8 and target.has_byte_pairs else None
        return short or RegisterDots(2, DTYPES["i16"], DTYPES["i16"])
    if target.has_byte_dot(types[0] == types[1]):
        return RegisterDots(4, types[1 - side], types[side])
    return None


def _short(op: Op, side: int) -> RegisterDots | None:
    """Products of elements of few bits, some of which fit 16 bits."""
    ends = range_of(op.operands[side], tuning.BYTE_SEARCH)
    if ends is None:
        return None
    low, high = ends
    low = min(low, 0)
    terms = min(MOST_TERMS, SHORT_SUM // (FACTOR * max(-low, high, 1))) // 2 * 2
    together = SHORT_SUM // (2 * FACTOR * max(high - low, 1))
    if terms < LEAST_TERMS or not together:
        return None
    return RegisterDots(2, I8, op.operands[side].tensor.storage, terms, low, together)
