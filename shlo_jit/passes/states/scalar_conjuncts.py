"""Separate the scalar part of a predicate of a select from the part that differs between elements, in bodies of loops.

Needs: static shapes. Guarantees: nothing. Only where `uniform_conditions` makes a branch of the scalar part: for large
states of the loop that are kept if it does not hold. The rest of the predicate is then computed in the branch.

    select(broadcast(p) & m, x, s)   ->   select(p, select(m, x, s), s)
    select(broadcast(p) | m, s, x)   ->   select(p, s, select(m, s, x))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.updates import SELECT, Uses, is_large, keeps_state, runs_by_tiles

KEPT_SIDE = {"stablehlo.and": 2, "stablehlo.or": 1}
"""The operand of a select that the scalar alone can decide for, for each op that combines a predicate."""


def scalar_conjuncts(function: Op, _: Context) -> Op:
    """The function with such predicates separated."""
    bodies = [op.block(1) for op in walk(function.block()) if op.name == "stablehlo.while"]
    candidates = [(body, op) for body in bodies for op in body.ops if op.name == SELECT and _has_scalar(op)]
    if not candidates:
        return function
    uses = Uses(function.block())
    found = {
        op
        for body, op in candidates
        if is_large(op.result)
        and op.operands[KEPT_SIDE[_combiner(op)]] in body.arguments
        and keeps_state(uses, body, op)
        and not runs_by_tiles(body)
    }
    if not found:
        return function
    # The old predicate must not count as a reader of its parts.
    return eliminate(rewrite(function, lambda rw, op, given: _separated(rw, op, given) if op in found else None))


def _combiner(select: Op) -> str:
    """Returns the name of the op that computes the predicate of a select."""
    op = select.operands[0].op
    return "" if op is None else op.name


def _has_scalar(select: Op) -> bool:
    """Whether a predicate combines a scalar and a part that differs between elements."""
    if not select.operands[0].tensor.rank or _combiner(select) not in KEPT_SIDE:
        return False
    scalars = [_scalar_of(leaf) is not None for leaf in _leaves(select.operands[0], _combiner(select))]
    return any(scalars) and not all(scalars)


def _leaves(predicate: Value, combiner: str) -> list[Value]:
    """Returns the predicates that one is the conjunction or disjunction of, each once."""
    todo, found = [predicate], {}
    while todo:
        value = todo.pop()
        if value.op is not None and value.op.name == combiner:
            todo += reversed(value.op.operands)
        else:
            found[value] = None
    return [*found]


def _scalar_of(value: Value) -> Value | None:
    """Returns the tensor of one element that a value is a broadcast of."""
    if value.op is None or value.op.name != "stablehlo.broadcast_in_dim" or value.op.operands[0].tensor.size != 1:
        return None
    return value.op.operands[0]


def _separated(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
    """Emits a select by the scalar part around one by the rest."""
    combiner = _combiner(op)
    scalars, rest = [], []
    for leaf in _leaves(op.operands[0], combiner):
        scalar = _scalar_of(leaf)
        if scalar is None:
            rest.append(rw.get(leaf))
        else:
            scalars.append(mk.reshape(rw, rw.get(scalar), ()))
    p, m = [reduce(lambda a, b: rw.emit1(combiner, [a, b], a.type), part) for part in (scalars, rest)]
    inner = rw.emit1(SELECT, [m, *operands[1:]], op.result.type)
    sides = [inner, operands[2]] if KEPT_SIDE[combiner] == 2 else [operands[1], inner]
    return [rw.emit1(SELECT, [p, *sides], op.result.type)]
