"""Dimensions of products: their roles, and which of them form one run of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shlo_jit import tuning
from shlo_jit.ir.attributes import StructAttr
from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.sizes import equal


@dataclass(frozen=True)
class Run:
    """Dimensions that are traversed as one: extent and stride in elements. A run of extent 1 has stride 0."""

    extent: int
    stride: int


def run_of(shape: tuple[int, ...], dims: tuple[int, ...]) -> Run | None:
    """Combines dimensions to one run, the first outermost; None if their strides do not nest."""
    strides = strides_of(shape)
    extent, stride = 1, 0
    for d in reversed(dims):
        if equal(shape[d], 1):
            continue
        if equal(extent, 1):
            extent, stride = shape[d], strides[d]
        elif equal(strides[d], stride * extent):
            extent *= shape[d]
        else:
            return None
    return Run(extent, stride)


def outer_of(shape: tuple[int, ...], free: tuple[int, ...]) -> int | None:
    """Returns the number of leading free dimensions of an operand that form the first of two runs.

    There are two runs if a dimension between them is contracted. 0 if all form one run, None if there are more than two
    runs.
    """
    return next(
        (n for n in range(len(free)) if run_of(shape, free[:n]) and run_of(shape, free[n:])), 0 if not free else None
    )


@dataclass(frozen=True)
class Roles:
    """Dimensions of both operands by role."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]


def roles_of(op: Op) -> Roles:
    """Returns the dimensions of a dot_general by their roles; free ones in order."""
    return roles_by(op.attributes["dot_dimension_numbers"], op.operands[0].tensor.rank, op.operands[1].tensor.rank)


def roles_by(d: StructAttr, lhs_rank: int, rhs_rank: int) -> Roles:
    """Returns what `roles_of` does, from the dimension numbers and the ranks of the operands."""
    lb, rb = tuple(d.get("lhs_batching_dimensions", ())), tuple(d.get("rhs_batching_dimensions", ()))
    lc, rc = tuple(d.get("lhs_contracting_dimensions", ())), tuple(d.get("rhs_contracting_dimensions", ()))
    lf = tuple(i for i in range(lhs_rank) if i not in lb and i not in lc)
    rf = tuple(i for i in range(rhs_rank) if i not in rb and i not in rc)
    return Roles(lb, rb, lc, rc, lf, rf)


def extents_of(op: Op) -> tuple[int, int, int, int]:
    """Returns the extents of a dot_general: batch, m, n and k."""
    r = roles_of(op)
    lhs, rhs = (o.tensor.extents for o in op.operands)
    batch, m, k = (math.prod(lhs[d] for d in dims) for dims in (r.lhs_batch, r.lhs_free, r.lhs_contracting))
    return batch, m, math.prod(rhs[d] for d in r.rhs_free), k


def multiplies_bytes(product: Op) -> bool:
    """Whether both operands of a product have elements of 8 bits."""
    return all(o.tensor.storage.name in ("i8", "ui8") for o in product.operands)


def tiles_of(m: int, n: int) -> int:
    """Returns the tasks that the rows and columns of a product of many terms make: tiles of SPLIT_TILE."""
    return -(-m // tuning.SPLIT_TILE) * -(-n // tuning.SPLIT_TILE)


def has_few_tiles(m: int, n: int, work: int) -> bool:
    """Whether the tiles of a product leave most of many threads without a task, and take so long that a task may
    compute a part of the terms. `work`: multiply-adds."""
    tiles = tiles_of(m, n)
    return 0 < tiles <= tuning.MAX_TASKS // 4 and work >= tiles * 8 * tuning.LEAST_TASK_OF_MANY


def is_split(op: Op) -> bool:
    """Whether an operand of a canonical dot_general has free dimensions on both sides of the contracted ones."""
    r = roles_of(op)
    lhs, rhs = (o.tensor.extents for o in op.operands)
    return bool(outer_of(lhs, r.lhs_free) or outer_of(rhs, r.rhs_free))
