"""Replace selects of whole arrays by a scalar condition with `if`, in bodies of loops.

Needs: static shapes; bodies on scalars. Guarantees: nothing. Only in bodies of loops, for arrays that are not small: if
one side is a state of the loop that nothing reads as a whole afterwards, since that state then keeps its memory, or if
what is selected is expensive to compute. A copy of another state, as of the best one so far, is one such select.
Selects by the same condition become results of one `if`.

    while { ... x = select(p, f(x), x) }   ->   while { ... x = if (p) { f(x) } else { x } }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Region, Value, walk
from shlo_jit.ops import OPS
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.updates import SELECT, Uses, is_large, is_partial, keeps_state, runs_by_tiles
from shlo_jit.sizes import Size

CALLS = ("stablehlo.custom_call", "func.call")


def uniform_conditions(function: Op, _: Context) -> Op:
    """The function with such selects replaced by branches."""
    loops = [op for op in walk(function.block()) if op.name == "stablehlo.while"]
    if not any(op.name == SELECT for loop in loops for op in loop.block(1).ops):
        return function
    uses = Uses(function.block())
    groups = [group for loop in loops for group in _groups(uses, loop.block(1))]
    if not groups:
        return function
    last = {group.selects[-1]: group for group in groups}
    others = {select for group in groups for select in group.selects[:-1]}

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op in others:
            return operands[1:2]  # nothing reads it before the branch
        group = last.get(op)
        if group is None:
            return None
        results = _branch(rw, group)
        rw.values.update(zip((s.result for s in group.selects), results, strict=True))
        return results[-1:]

    return eliminate(rewrite(function, visit))


class _Group(NamedTuple):
    """Selects by one condition, and the ops that only matter for each of their sides, in order."""

    selects: tuple[Op, ...]
    sides: tuple[tuple[Op, ...], tuple[Op, ...]]


def _groups(uses: Uses, body: Block) -> list[_Group]:
    """Returns the groups of selects of a body that become branches."""
    if runs_by_tiles(body):
        return []
    by_condition: dict[Value, list[list[Op]]] = {}
    for op in body.ops:
        if op.name != SELECT or op.operands[0].tensor.rank or op.operands[1] is op.operands[2]:
            continue
        found = by_condition.setdefault(op.operands[0], [[]])
        # One select may also be an operand of the next one by the same condition.
        if any(uses.place[r][1] <= uses.place[op][1] for s in found[-1] for r in _readers_here(uses, body, s)):
            found.append([])
        found[-1].append(op)
    candidates = [s for found in by_condition.values() for s in found if any(is_large(x.result) for x in s)]
    groups = [_group(uses, selects) for selects in candidates]
    return _without_partial_overlaps([group for group in groups if group is not None and _pays(uses, body, group)])


def _without_partial_overlaps(groups: list[_Group]) -> list[_Group]:
    """Leaves out groups of which another group's branches would contain some selects, but not all."""
    moved = [set(ops) for group in groups for ops in group.sides]
    whole = [{*group.selects} for group in groups]
    return [g for g, w in zip(groups, whole, strict=True) if all(w <= ops or not w & ops for ops in moved)]


def _readers_here(uses: Uses, body: Block, select: Op) -> list[Op]:
    """The readers of a select, or the ops of its block in whose regions they are."""
    return [uses.enclosing(reader, body) for reader in uses.readers.get(select.result, ())]


def _group(uses: Uses, selects: list[Op]) -> _Group | None:
    sides = []
    for side in (1, 2):
        ops = uses.exclusive({s: [s.operands[side]] for s in selects}, with_regions=True)
        sides.append(tuple(ops))
    if any(op.name in CALLS for ops in sides for op in ops):
        return None
    return _Group(tuple(selects), (sides[0], sides[1]))


def _pays(uses: Uses, body: Block, group: _Group) -> bool:
    """Whether a branch costs less than computing both sides."""
    large = [s for s in group.selects if is_large(s.result)]
    if not large:
        return False
    cost = max(sum(_cost(op) for op in ops) for ops in group.sides)
    if cost >= tuning.EXPENSIVE_COST * max(s.result.tensor.size for s in large):
        return True
    return (cost > 0 or all(_copies(body, s) for s in large)) and all(keeps_state(uses, body, s) for s in large)


def _copies(body: Block, select: Op) -> bool:
    """Whether a select leaves its state as it is or copies an array that is in memory anyway: another state, or an
    update of one."""
    sides = select.operands[1:]
    states = zip(body.terminator.operands, body.arguments, strict=True)
    is_kept = any(new is select.result and old in sides for new, old in states)
    return is_kept and all(v in body.arguments or is_partial(v.op) for v in sides)


def _cost(op: Op) -> int:
    """The cost of an op that is computed for each element of its results."""
    if op.regions or any(isinstance(n, Size) for r in op.results for n in r.tensor.extents):
        sizes = [o.tensor.size for o in op.operands if not any(isinstance(n, Size) for n in o.tensor.extents)]
        return max(sizes, default=0)
    return OPS[op.name].cost * op.result.tensor.size


def _branch(rw: Rewriter, group: _Group) -> list[Value]:
    """Emits the `if` whose results are those of the selects."""
    regions = []
    for side, ops in zip((1, 2), group.sides, strict=True):
        block = Block([])
        rw.blocks.append(block)
        rw.run(ops)
        rw.emit("stablehlo.return", [rw.get(s.operands[side]) for s in group.selects], [])
        rw.blocks.pop()
        regions.append(Region([block]))
    types = [s.result.type for s in group.selects]
    return rw.emit("stablehlo.if", [rw.get(group.selects[0].operands[0])], types, {}, regions)
