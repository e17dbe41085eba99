"""Schedules of kernels whose second operand may be packed into panels before they run."""

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
    """The first `nbytes` of one of the program's arrays."""

    array: np.ndarray
    nbytes: int


class Matrices(NamedTuple):
    """The second operand of products: `batch` matrices [k, n]."""

    value: Value
    types: GemmTypes
    batch: int
    n: int
    k: int
    strides: tuple[int, int, int]
    """Strides in elements, along k, n and the batch."""


@dataclass(frozen=True, kw_only=True)
class PanelsSchedule(KernelSchedule):
    """Schedule of a kernel whose second operand may have been packed into panels, when the program was compiled or
    before a loop."""

    prepacked: np.ndarray | None
    """The second operand, a constant, as panels."""
    first_block: int
    """Bytes of those panels that are read first."""
    prefetched: Region | None = None
    """The memory that the kernel prefetches for the steps after it."""
    loop: tuple[ControlStep, Matrices] | None = None
    """The loop before which the second operand is packed, with the matrices (see `loop_panels.py`)."""

    @property
    def has_panels(self) -> bool:
        return self.prepacked is not None or self.loop is not None


@dataclass(frozen=True, kw_only=True)
class LoopSchedule(KernelSchedule):
    """Schedule of a while loop that packs matrices before its first iteration."""

    fields: dict[Matrices, str]
    """For each of the matrices, the field of the loop's scratch memory that holds its panels."""

    @property
    def notes(self) -> list[Note]:
        sizes = ", ".join(f"{m.batch} x {m.k} x {m.n}" if m.batch > 1 else f"{m.k} x {m.n}" for m in self.fields)
        return [Note("packs", sizes, Reason("loop-invariant", "products read these matrices in every iteration"))]
