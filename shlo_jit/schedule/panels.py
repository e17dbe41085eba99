"""Kernels whose second operand may be panels, which were packed before they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shlo_jit.fuse.plan import ControlStep
from shlo_jit.ir.core import Value
from shlo_jit.kernels.gemm.precision import GemmTypes
from shlo_jit.reasons import Reason
from shlo_jit.schedule.choice import Note
from shlo_jit.schedule.kernel import KernelSchedule


class Region(NamedTuple):
    """The first `nbytes` of an array of the program's."""

    array: np.ndarray
    nbytes: int


class Matrices(NamedTuple):
    """`batch` matrices [k, n], the second operand of products."""

    value: Value
    types: GemmTypes
    batch: int
    n: int
    k: int
    strides: tuple[int, int, int]
    """In elements, along k, n and the batch."""


@dataclass(frozen=True, kw_only=True)
class PanelsSchedule(KernelSchedule):
    """Of a kernel whose second operand may have been packed into panels, when the program was compiled or before a
    loop."""

    prepacked: np.ndarray | None
    """The second operand, a constant, as panels."""
    first_block: int
    """Bytes of those panels that are read first."""
    following: Region | None = None
    """What the kernel fetches for the steps after it."""
    loop: tuple[ControlStep, Matrices] | None = None
    """The loop before which the second operand is packed (see `loop_panels.py`)."""

    @property
    def has_panels(self) -> bool:
        return self.prepacked is not None or self.loop is not None


@dataclass(frozen=True, kw_only=True)
class LoopSchedule(KernelSchedule):
    """Of a while that packs matrices before its first turn."""

    fields: dict[Matrices, str]
    """The fields of the loop's scratch memory that their panels are in."""

    @property
    def notes(self) -> list[Note]:
        sizes = ", ".join(f"{m.batch} x {m.k} x {m.n}" if m.batch > 1 else f"{m.k} x {m.n}" for m in self.fields)
        return [Note("packs", sizes, Reason("loop-invariant", "products read these matrices in every iteration"))]
