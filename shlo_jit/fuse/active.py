"""Loops that end when all elements are done: the predicate that says which elements are still active.

    while any(p(x)) { x = select(p(x), f(x), x) }

An element that is done does not change, and p depends only on that element. So a tile may end when all of its elements
are done. Batching a loop over a single element gives such loops.
"""

from __future__ import annotations

from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.equality import equal_attributes
from shlo_jit.ops import is_elementwise


def active_predicate(op: Op) -> Value | None:
    """Returns the value p(x) in the body of such a while, or None for other loops."""
    cond, body = op.block(0), op.block(1)
    asked = _any_of(cond.terminator.operands[0])
    changed = [(a, r) for a, r in zip(body.arguments, body.terminator.operands, strict=True) if a is not r]
    if asked is None or not changed:
        return None
    selects = [r.op for _, r in changed if r.op is not None and r.op.name == "stablehlo.select"]
    if len(selects) != len(changed) or any(s.operands[2] is not a for s, (a, _) in zip(selects, changed, strict=True)):
        return None
    predicates = {s.operands[0] for s in selects}
    found = predicates.pop()
    same = dict(zip(cond.arguments, body.arguments, strict=True))
    return found if not predicates and _are_alike(asked, found, same) else None


def _any_of(value: Value) -> Value | None:
    """Returns the predicate whose elements are reduced with `or` to this scalar, or None."""
    op = value.op
    if op is None or op.name != "stablehlo.reduce" or len(op.operands) != 2:
        return None
    predicate, initial = op.operands
    start, inner = initial.op, op.block().ops
    is_or = len(inner) == 2 and inner[0].name == "stablehlo.or" and inner[1].operands[0] is inner[0].result
    is_or = is_or and set(inner[0].operands) == set(op.block().arguments)
    if not is_or or value.tensor.rank or predicate.tensor.storage.kind != "b":
        return None
    if start is None or start.name != "stablehlo.constant" or start.attributes["value"].array.any():
        return None
    return predicate


def _are_alike(a: Value, b: Value, same: dict[Value, Value]) -> bool:
    """Whether two values are computed by the same elementwise ops from values that are the same."""
    todo = [(a, b)]
    while todo:
        a, b = todo.pop()
        if same.get(a, a) is b:
            continue
        x, y = a.op, b.op
        if x is None or y is None or x.name != y.name or x.attributes.keys() != y.attributes.keys() or a.type != b.type:
            return False
        if x.regions or not (is_elementwise(x) or not x.operands or x.name == "stablehlo.broadcast_in_dim"):
            return False
        if not all(equal_attributes(v, y.attributes[k]) for k, v in x.attributes.items()):
            return False
        same[a] = b
        todo += zip(x.operands, y.operands, strict=True)
    return True
