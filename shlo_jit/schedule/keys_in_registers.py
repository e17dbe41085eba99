"""Schedule of a product of a few rows that computes a range of its terms or columns: as the rows of a cache of keys or
values are read in registers elsewhere (`operand_in_registers.py`), each once for all rows.

The bounds of the range are known at the call. If keys are columns, they bound the outputs; if they are terms, the loop
along k, and lanes are outputs. Sums may begin with the products of zeros and the values that are left out: these are 0,
or NaN where a value is not finite.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from shlo_jit.fuse.nest import Nest, Store, is_wide, space_of
from shlo_jit.fuse.plan import ComputedOperand
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At
from shlo_jit.ir.types import tensor
from shlo_jit.kernels.gemm.known_sizes import Layout
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.operand_in_registers import InRegistersSchedule, of_matrix
from shlo_jit.schedule.product_layout import Placed, ProductLayout
from shlo_jit.sizes import Size


class KeysInRegisters(NamedTuple):
    """A product of one batch that computes a range of its terms or columns."""

    units: InRegistersSchedule
    """The product with all keys, of which a call computes a range."""
    is_terms: bool
    """Whether the keys are terms; else they are columns."""
    adds_zeros: bool
    """Whether the terms that are left out are values times 0 (`ops/ranged.py`)."""

    @property
    def key(self) -> int:
        """The variable that numbers the keys."""
        return next(iter(self.units.along if self.is_terms else self.units.free))

    @property
    def left_out(self) -> InRegistersSchedule:
        """The sums of values that are left out, times 0: the same for all rows."""
        return replace(self.units, rows=1, count=1)

    @property
    def lanes(self) -> str:
        return f"{self.units.space.width} {'outputs' if self.units.are_outputs else 'terms'}"


def keys_in_registers(
    op: Op, k: int, placed: Placed, strides: Layout, target: Target, *, is_terms: bool, adds_zeros: bool
) -> KeysInRegisters | None:
    """Returns the schedule; None if the right operand is not read so. `placed` and `strides` are those of one product
    with k terms: batches do not count."""
    nest = _reading(op.operands[1], (k, placed.n), (strides.b_rs, strides.b_cs))
    if nest is None:
        return None
    layout = ProductLayout(0, k, strides, placed, (False, False))
    found = of_matrix(op, nest, ComputedOperand(1, ({}, {0: 1}, {1: 1})), layout, target, is_whole=True, copies=False)
    if found is None or found.vectors.is_copied or found.dots is not None:
        return None
    return None if is_terms and not found.are_outputs else KeysInRegisters(found, is_terms, adds_zeros)


def _reading(matrix: Value, extents: tuple[int, int], strides: tuple[int, int]) -> Nest | None:
    """The loop that reads a matrix by terms and columns, of which one is contiguous; None if that is not known."""
    if 1 not in strides or any(isinstance(x, Size) or not is_wide(x) for x in extents):
        return None
    inner = strides.index(1)
    outer = 1 - inner
    if isinstance(strides[outer], Size) or strides[outer] < extents[inner]:
        return None
    nest = Nest([])
    terms, columns = space_of(nest, extents).index
    array = Value(tensor((extents[outer], strides[outer]), matrix.tensor.dtype), None, 0, matrix.name)
    at = At((columns, terms) if outer else (terms, columns))
    nest.loads[array, at] = None
    nest.stores.append(Store(array, at, array, at.index))
    return nest
