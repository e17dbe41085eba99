"""Keep constant weights in the narrowest numbers that hold them exactly, where products of few rows read them: such a
product takes as long as its weights are read from memory.

Needs: static shapes. Guarantees: nothing; the values of the weights do not change. The product reads widened weights,
which are computed in registers (`fuse/computed_operands.py`):

    dot_general(x, w : 64x32xf32)   ->   dot_general(x, convert(w' : 64x32xbf16))
                                    or   dot_general(x, multiply(convert(q : 64x32xi4), broadcast(s : 32xf32)))

Constants stay as they are if anything else reads them, or if all of these together are not larger than a cache. With
the option `round_activations`, the number of rows does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import F32, tensor
from shlo_jit.ops.runs import extents_of, roles_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.exact_narrowing import Narrowed, narrowed
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

PRODUCT, CONSTANT = "stablehlo.dot_general", "stablehlo.constant"


class _Kept(NamedTuple):
    """Narrow constants that have been emitted, and stand for a wide one."""

    numbers: Value
    scales: Value | None
    terms: int
    """The dimension of the wide constant that is split into groups."""


def narrow_constants(function: Op, context: Context) -> Op:
    """The function with narrow weights of products."""
    weights = _weights(function, any_rows=context.round_activations is not None)
    if sum(op.result.tensor.constant_nbytes for op in weights) < tuning.NARROWED_BYTES:
        return function
    found = {op: x for op, terms in weights.items() if (x := narrowed(op.constant.array, terms)) is not None}
    if not found:
        return function
    kept: dict[Value, _Kept] = {}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op in found:
            value = Value(op.result.type)  # is in no block: every reader widens the numbers for itself
            kept[value] = _emit(rw, found[op], weights[op])
            return [value]
        if not any(o in kept for o in operands):
            return None
        return rw.keep(op, [_widened(rw, o, kept[o]) if o in kept else o for o in operands])

    return rewrite(function, visit)


def _weights(function: Op, *, any_rows: bool) -> dict[Op, int | None]:
    """The constants that only suitable products read, with the dimension of the terms, or None if these are several."""
    found: dict[Op, int | None] = {}
    others = set[Op]()
    for op in walk(function.block()):
        for side, value in enumerate(op.operands):
            constant = value.op
            if constant is None or constant.name != CONSTANT or value.tensor.dtype != F32:
                continue
            if not _is_read_narrow(op, side, any_rows=any_rows) or constant.constant.is_splat:
                others.add(constant)
                continue
            r = roles_of(op)
            over = r.rhs_contracting if side else r.lhs_contracting
            terms = over[0] if len(over) == 1 else None
            if found.setdefault(constant, terms) != terms:
                others.add(constant)
    return {op: terms for op, terms in found.items() if op not in others}


def _is_read_narrow(op: Op, side: int, *, any_rows: bool) -> bool:
    """Whether a product's operand would be computed in registers, and takes longer to read than to compute."""
    if op.name != PRODUCT or op.result.tensor.dtype != F32 or not all(map(mk.is_static, (*op.operands, op.result))):
        return False
    _, m, n, k = extents_of(op)
    rows, outputs = (m, n) if side else (n, m)
    return k >= tuning.FLOATS_READ_TERMS and rows < outputs and (any_rows or rows <= tuning.NARROWED_ROWS)


def _emit(rw: Rewriter, found: Narrowed, terms: int | None) -> _Kept:
    numbers = mk.constant(rw, tensor(found.numbers.shape, found.dtype), found.numbers)
    if found.scales is None:
        return _Kept(numbers, None, -1)
    assert terms is not None
    return _Kept(numbers, mk.constant(rw, tensor(found.scales.shape, F32), found.scales), terms)


def _widened(rw: Rewriter, wide: Value, kept: _Kept) -> Value:
    """The numbers of a wide constant, computed from narrow ones."""
    x = mk.convert(rw, kept.numbers, F32)
    if kept.scales is not None:
        where = [d for d in range(x.tensor.rank) if d != kept.terms + 1]
        x = mk.apply(rw, "multiply", x, mk.broadcast(rw, kept.scales, mk.shape_of(x), where))
    return mk.reshape(rw, x, mk.shape_of(wide))
