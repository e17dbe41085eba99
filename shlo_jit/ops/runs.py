"""Dimensions of products: which do what, and which are walked as one run of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shlo_jit.ir.core import Op
from shlo_jit.ir.index import strides_of
from shlo_jit.sizes import equal


@dataclass(frozen=True)
class Run:
    """Dimensions walked as one: extent and stride in elements; extent 1 has stride 0."""

    extent: int
    stride: int


def run_of(shape: tuple[int, ...], dims: tuple[int, ...]) -> Run | None:
    """The dimensions as one run, the first outermost; None when their strides do not nest."""
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
    """How many of an operand's leading free dimensions lie before others, as where a dimension in the middle is summed
    over: 0 where all are one run. None where there are more than two runs."""
    return next(
        (n for n in range(len(free)) if run_of(shape, free[:n]) and run_of(shape, free[n:])), 0 if not free else None
    )


@dataclass(frozen=True)
class Roles:
    """Dimensions of both operands by what they do."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]


def roles_of(op: Op) -> Roles:
    d = op.attributes["dot_dimension_numbers"]
    lb, rb = tuple(d.get("lhs_batching_dimensions", ())), tuple(d.get("rhs_batching_dimensions", ()))
    lc, rc = tuple(d.get("lhs_contracting_dimensions", ())), tuple(d.get("rhs_contracting_dimensions", ()))
    lf = tuple(i for i in range(op.operands[0].tensor.rank) if i not in lb and i not in lc)
    rf = tuple(i for i in range(op.operands[1].tensor.rank) if i not in rb and i not in rc)
    return Roles(lb, rb, lc, rc, lf, rf)


def extents_of(op: Op) -> tuple[int, int, int, int]:
    """Of a dot_general: products, rows, columns and terms."""
    r = roles_of(op)
    lhs, rhs = (o.tensor.extents for o in op.operands)
    batch, m, k = (math.prod(lhs[d] for d in dims) for dims in (r.lhs_batch, r.lhs_free, r.lhs_contracting))
    return batch, m, math.prod(rhs[d] for d in r.rhs_free), k


def is_split(op: Op) -> bool:
    """Whether free dimensions of an operand of a canonical dot_general lie on both sides of what is summed over."""
    r = roles_of(op)
    lhs, rhs = (o.tensor.extents for o in op.operands)
    return bool(outer_of(lhs, r.lhs_free) or outer_of(rhs, r.rhs_free))
