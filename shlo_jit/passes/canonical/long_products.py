"""Split products with few results and many terms along the terms, so that many threads can share them.

Gradients of weights contract a long batch: 64 x 64 results are one or two tasks, whatever the number of terms is. The
terms are cut into parts of equal length. The sums of the parts are products of a batch, whose tasks any threads take,
and they are added in the order of the parts. The number of parts depends on shapes alone, and so do the bits.

Needs: products in the kernel's form. Guarantees: nothing. Products of a batch stay as they are: they have tasks.

    dot_general(a, b) : [m, k] by [k, n]   ->   p = dot_general(reshape(a), reshape(b)) : [m, p, k/p] by [p, k/p, n]
                                                reduce(p, add) along the parts
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops.runs import extents_of, has_few_tiles, is_split, roles_of, tiles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size


def long_products(function: Op, context: Context) -> Op:
    """The function with long products split. Reproducible ones stay: an element is a single chain of additions."""
    if context.reproducible:
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != "stablehlo.dot_general" or (terms := _terms_of(op)) is None:
            return None
        parts = parts_of(op)
        return None if parts < 2 else [_in_parts(rw, op, operands, terms, parts)]

    return rewrite(function, visit)


class _Terms(NamedTuple):
    """The contracting dimensions of both operands, which are adjacent: the first one, and the one after the last."""

    lhs: tuple[int, int]
    rhs: tuple[int, int]
    extent: int
    """Number of terms."""


def _terms_of(op: Op) -> _Terms | None:
    """Returns the contracting dimensions of a product without a batch; None if they cannot be cut in place."""
    if any(isinstance(n, Size) for value in (*op.operands, op.result) for n in value.tensor.extents):
        return None
    r = roles_of(op)
    if r.lhs_batch or is_split(op):
        return None
    sides = r.lhs_contracting, r.rhs_contracting
    if any(not dims or dims != tuple(range(dims[0], dims[0] + len(dims))) for dims in sides):
        return None
    lhs, rhs = ((dims[0], dims[-1] + 1) for dims in sides)
    return _Terms(lhs, rhs, extents_of(op)[3])


def parts_of(op: Op) -> int:
    """Returns the parts of the terms of a product without a batch: as many as make MAX_TASKS tasks together with those
    of its rows and columns, unless parts would be short. Equal parts are read in place. If there are no equal parts,
    an operand may be copied without the terms that are left over, unless this would take long beside the product."""
    _, m, n, k = extents_of(op)
    work = m * n * k
    if not has_few_tiles(m, n, work):
        return 1
    wanted, least = tuning.MAX_TASKS // tiles_of(m, n), tuning.SPLIT_PARTS
    if m > tuning.GEMM_PRIVATE_ROWS:  # fewer products would share a packed B, one after the other
        least = max(tuning.GEMM_BATCH, -(-work // tuning.GEMM_PRIVATE_PRODUCT))
        wanted = max(wanted, least)
    longest = min(k // tuning.SPLIT_TERMS, work // tuning.LEAST_TASK_OF_MANY)
    most = min(wanted, longest)
    if most < least:
        return 1
    found = (*range(most, max(least, most // 4) - 1, -1), *range(most + 1, min(2 * most, longest) + 1))
    equal = next((parts for parts in found if k % parts == 0), 1)
    pays = m * n >= tuning.SPLIT_TILE * (m + n) or _are_in_place(op, m, n)
    return most if equal == 1 and pays else equal


def _are_in_place(op: Op, m: int, n: int) -> bool:
    """Whether a product of parts without the terms that are left over reads both operands where they lie: the terms are
    the outermost dimension of one of them (see `fuse/computed_operands.py`)."""
    terms = _terms_of(op)
    if terms is None or 0 not in (terms.lhs[0], terms.rhs[0]):
        return False
    return min(m, n) > tuning.COMPUTED_OPERAND_ROWS and all(v.tensor.storage.is_float for v in op.operands)


def _in_parts(rw: Rewriter, op: Op, operands: list[Value], terms: _Terms, parts: int) -> Value:
    """Emits the products of all parts, and their sum. Terms that are left over are a product of their own."""
    acc, each = op.result.tensor.storage, terms.extent // parts
    extra = {name: a for name, a in op.attributes.items() if name != "dot_dimension_numbers"}
    ends = terms.lhs, terms.rhs
    flat = [
        mk.reshape(rw, value, (*mk.shape_of(value)[:first], terms.extent, *mk.shape_of(value)[end:]))
        for value, (first, end) in zip(operands, ends, strict=True)
    ]
    at = [first for first, _ in ends]
    whole = parts * each
    cut = []
    for value, d in zip(flat, at, strict=True):
        some = value if whole == terms.extent else mk.slice_dim(rw, value, d, 0, whole)
        cut.append(mk.reshape(rw, some, (*mk.shape_of(some)[:d], parts, each, *mk.shape_of(some)[d + 1 :])))
    roles = [(at[0],), (at[1],), (at[0] + 1,), (at[1] + 1,)]
    total = mk.reduce_sum(rw, mk.dot(rw, (cut[0], cut[1]), roles, acc, extra), (0,))
    if whole != terms.extent:
        lhs, rhs = (mk.slice_dim(rw, value, d, whole, terms.extent) for value, d in zip(flat, at, strict=True))
        rest = mk.dot(rw, (lhs, rhs), [(), (), (at[0],), (at[1],)], acc, extra)
        total = mk.apply(rw, "add", total, rest)
    return mk.reshape(rw, total, op.result.tensor.extents)
