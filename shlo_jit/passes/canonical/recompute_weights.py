"""Recompute the weights of attention for its gradient, which comes much later. They need not be in memory until then,
and need not be materialized at all (see `fuse/row_sums.py`).

Needs: canonical products, no common subexpressions (which would be merged again). Guarantees: nothing; the first
product and the elementwise ops on it are recomputed bit for bit. Sums along rows are kept, as they are small. The
exponentials of the whole function are kept, too, if they fit into a cache.

    e = exponential(dot_general(q, k)); y = dot_general(divide(e, sum(e)), v); gradient(e, y)
      ->   ...; e' = exponential(dot_general(q, k)); gradient(e', y)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Value, blocks_in, walk
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.ops.row_tasks import has_too_few_tasks
from shlo_jit.ops.runs import extents_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size, equal

PRODUCT, REDUCE = "stablehlo.dot_general", "stablehlo.reduce"


def recompute_weights(function: Op, _: Context) -> Op:
    """The function in which late ops, which wait for a product, read recomputed weights."""
    if sum(op.name == PRODUCT for op in walk(function.block())) < 6:  # two, and gradients of weights, q, k, v
        return function
    found = [late for block in blocks_in(function.block()) for late in _late_weights(block)]
    if not found:
        return function
    kept = [from_expensive(late) for late in found]
    if all(kept) and sum(nbytes for _, nbytes in filter(None, kept)) <= tuning.KEPT_WEIGHTS_BYTES:
        found = [late for late, _ in filter(None, kept)]
    late: dict[Op, set[Value]] = {}
    for one in found:
        for op in one.readers:
            late.setdefault(op, set()).update(one.values)
    again: dict[Value, Value] = {}
    inside: set[Value] = set().union(*late.values())
    unread = set().union(*(_unread(one) for one in found))

    def compute(rw: Rewriter, value: Value) -> Value:
        op = value.op
        if value not in inside or op is None:
            return rw.get(value)
        if value not in again:
            operands = [compute(rw, o) for o in op.operands]
            again[value] = rw.emit1(op.name, operands, value.type, op.attributes)
        return again[value]

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op in unread:
            return operands[:1]  # a placeholder that nothing reads
        if op not in late:
            return None
        return rw.keep(op, [compute(rw, o) if o in late[op] else x for o, x in zip(op.operands, operands, strict=True)])

    return rewrite(function, visit)


class Late(NamedTuple):
    """The late readers of a product's weights. They need the product's result, and read its weights, values that the
    weights are computed from, or values computed from the weights."""

    readers: set[Op]
    values: list[Value]
    """Values to be recomputed for these readers, in order."""
    others: dict[Value, set[Op]]
    """Values -> their other readers, which read them in any case."""


def _unread(late: Late) -> set[Op]:
    """Returns the ops that become dead when their late readers use recomputed values."""
    found: set[Op] = set()
    for value in reversed(late.values):
        if value.op is not None and late.others[value] <= found:
            found.add(value.op)
    return found


def from_expensive(late: Late) -> tuple[Late, int] | None:
    """Returns the same readers with only the values after expensive ones recomputed, and the bytes of the expensive
    values that are kept. None if the readers need other values, too."""
    expensive = {v for v in late.values if v.op is not None and OPS[v.op.name].cost >= tuning.EXPENSIVE_COST}
    after: list[Value] = []
    for value in late.values:
        if (
            value not in expensive
            and value.op is not None
            and any(o in expensive or o in after for o in value.op.operands)
        ):
            after.append(value)
    reads = {o for op in (*late.readers, *(v.op for v in after)) if op is not None for o in op.operands}
    if not reads & set(late.values) <= expensive | set(after):
        return None
    others = {v: late.others[v] for v in after}
    return Late(late.readers, after, others), sum(v.tensor.nbytes for v in reads & expensive)


def _late_weights(block: Block) -> list[Late]:
    """Returns the late readers of the products of a block. A product whose weights other ops read as well is left out:
    they are in memory in any case."""
    place = {op: i for i, op in enumerate(block.ops)}
    weights = [(op, found) for op in block.ops if op.name == PRODUCT and (found := _matrices(op, place))]
    if not weights:
        return []
    readers: dict[Value, list[Op]] = {}
    for op in block.ops:
        for value in dict.fromkeys([*op.operands, *_read_inside(op)]):
            readers.setdefault(value, []).append(op)
    waits = _waiting(block, [op for op, _ in weights])
    late: list[Late] = []
    for i, (product, matrices) in enumerate(weights):
        todo = [*matrices]
        while todo:  # values computed from them that do not wait
            for op in readers.get(todo.pop(), []):
                if _is_computed(op) and not waits[op] >> i & 1 and op.result not in matrices:
                    matrices.add(op.result)
                    todo.append(op.result)
        values = sorted(matrices, key=lambda v: place[v.op] if v.op is not None else 0)
        own = {v.op for v in values}
        waiting = {op for v in values for op in readers.get(v, []) if op not in own and waits[op] >> i & 1}
        others = {v: {op for op in readers.get(v, []) if op not in waiting} for v in values}
        are_known = all(_is_computed(op) or op.name in (PRODUCT, REDUCE) for op in waiting)
        if waiting and are_known and all(op is product or op.name == REDUCE for x in others.values() for op in x - own):
            late.append(Late(waiting, values, others))
    return late


def _read_inside(op: Op) -> list[Value]:
    """Returns the values that the regions of an op read."""
    return [v for region in op.regions for block in region.blocks for o in walk(block) for v in o.operands]


def _is_computed(op: Op) -> bool:
    """Whether an op computes each element separately."""
    return is_elementwise(op) or OPS[op.name].index_map is not None


def _waiting(block: Block, products: list[Op]) -> dict[Op, int]:
    """Returns, for each op of the block, the set of products whose results it needs, as a bit mask."""
    waits: dict[Op, int] = {}
    bits = {op: 1 << i for i, op in enumerate(products)}
    for op in block.ops if products else []:
        mask = 0
        for value in (*op.operands, *_read_inside(op)):
            if value.op is not None:
                mask |= waits.get(value.op, 0) | bits.get(value.op, 0)
        waits[op] = mask
    return waits


def _matrices(second: Op, place: dict[Op, int]) -> set[Value]:
    """Returns the values between two products of the block: computed element by element from the first product, which
    is included, for the left operand of the second. Empty if there is no such product, if it does not pay off, or if
    the search is long. `place` numbers the block's ops."""
    size = second.operands[0].tensor.size
    seen: set[Value] = set()
    todo, first = [second.operands[0]], None
    while todo:
        value = todo.pop()
        op = value.op
        if value in seen or op not in place or not equal(value.tensor.size, size):
            continue
        seen.add(value)
        if op.name == PRODUCT and first is None:
            first = op
        elif op.name == PRODUCT or len(seen) > tuning.NEST_OPS:
            return set()
        elif _is_computed(op):
            todo += op.operands
    if first is None or not _pays(first, second):
        return set()
    found = {first.result}
    for op in sorted((v.op for v in seen if v.op is not None), key=lambda op: place[op]):
        if _is_computed(op) and any(o in found for o in op.operands):
            found.add(op.result)  # values that do not depend on the scores, such as a mask, are not recomputed
    return found


def _pays(first: Op, second: Op) -> bool:
    """Whether the gradient would be computed in blocks of rows: it has enough tasks."""
    batch, m, n, k = extents_of(first)
    other = extents_of(second)
    if any(isinstance(x, Size) for x in (batch, m, n, k, *other)) or n < tuning.ATTENTION_LEAST_COLUMNS:
        return False
    if (batch, m, n) != (other[0], other[1], other[3]):
        return False
    return not has_too_few_tasks(batch, m, n, k, k + other[2]) and batch * m * n >= tuning.RECOMPUTED_ELEMENTS
