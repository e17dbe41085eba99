"""Decides whether a product of bytes that is computed in registers uses instructions that multiply several terms of a
sum at a time."""

from __future__ import annotations

from typing import NamedTuple

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import DTYPES, DType
from shlo_jit.kernels.target import Target
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note

BYTES = {"i8", "ui8"}


class ByteDots(NamedTuple):
    """Instructions that add up the products of `group` adjacent terms in each lane of 32 bits."""

    group: int
    factor: DType
    """The type of the factors of the computed operand."""
    element: DType
    """The type of the computed operand's elements."""

    @property
    def note(self) -> Note:
        text = f"{self.group} terms of {self.factor.name} share a lane of 32 bits"
        return Note("products", f"{self.group} terms at a time", Reason("byte-dot-products", text))


def byte_dots(op: Op, side: int, target: Target) -> ByteDots | None:
    """Returns the instructions for a product whose operand `side` is computed; None if there are none for its types."""
    types = [v.tensor.storage for v in op.operands]
    if not {t.name for t in types} <= BYTES or op.result.tensor.storage.name not in ("i32", "ui32"):
        return None
    if target.is_x86:
        return ByteDots(2, DTYPES["i16"], DTYPES["i16"])
    if target.has_byte_dot(types[0] == types[1]):
        return ByteDots(4, types[1 - side], types[side])
    return None
