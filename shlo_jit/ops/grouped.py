"""Grouped products: each group multiplies a range of rows, or sums over one. Ranges are known only at run time.

    custom_call @shlo_jit.grouped_product(lhs, rhs, starts, ends)

Passes emit such calls for `chlo.ragged_dot`, and for products with operands that are zero outside of a range of rows
for each group (`passes/canonical/masked_products.py`). Elements outside of a group's range are not part of its product:
they are neither read nor multiplied by zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_jit.ir.attributes import OpaqueAttr
from shlo_jit.ir.core import Op

GROUPED = "shlo_jit.grouped_product"
"""Target of the calls. They have the attribute `grouped`, a `Grouped`."""


@dataclass(frozen=True)
class Grouped(OpaqueAttr):
    """The dimensions of a grouped product.

    `starts` and `ends` have the last dimension of `rhs` that is `group` (`sums` is false), or the first one of the
    result, and before it the `prefix` dimensions of lhs that ranges depend on. Ranges are clamped to the extent of the
    dimension `ragged` of lhs. Without `sums`, `ragged` is a free dimension, and the products of all groups are added
    up. With `sums`, it is the only contracting dimension, and each group has a result of its own."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_sum: tuple[int, ...]
    rhs_sum: tuple[int, ...]
    ragged: int
    group: int | None
    """The dimension of rhs that has a matrix for each group; None with `sums`."""
    prefix: tuple[int, ...]

    @classmethod
    def of(
        cls,
        batch: tuple[tuple[int, ...], tuple[int, ...]],
        summed: tuple[tuple[int, ...], tuple[int, ...]],
        ragged: int,
        group: int | None,
        prefix: tuple[int, ...],
    ) -> Grouped:
        """Creates the attribute. `batch` and `summed`: dimensions of lhs and rhs."""
        return cls("#shlo_jit.grouped", *batch, *summed, ragged, group, prefix)

    @property
    def sums(self) -> bool:
        """Whether groups are ranges of the contracting dimension."""
        return self.group is None

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        """The dimensions of lhs that the result has, besides batch dimensions."""
        return tuple(d for d in range(rank) if d not in self.lhs_batch + self.lhs_sum)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        """The dimensions of rhs that the result has, besides batch dimensions."""
        return tuple(d for d in range(rank) if d not in self.rhs_batch + self.rhs_sum and d != self.group)

    def result_shape(self, lhs: tuple[int, ...], rhs: tuple[int, ...], groups: int) -> tuple[int, ...]:
        """The groups if each has a result, batch dimensions, free dimensions of lhs and of rhs."""
        batch = tuple(lhs[d] for d in self.lhs_batch)
        rows, columns = (lhs[d] for d in self.lhs_free(len(lhs))), (rhs[d] for d in self.rhs_free(len(rhs)))
        return (*((groups,) if self.sums else ()), *batch, *rows, *columns)


def grouped_of(op: Op) -> Grouped | None:
    """Returns the dimensions of a grouped product; None for other ops."""
    found = op.attributes.get("grouped") if op.name == "stablehlo.custom_call" else None
    return found if isinstance(found, Grouped) else None
