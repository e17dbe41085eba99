"""Several iterations of a loop on a tile: its states stay in registers from the first iteration to the last.

Scalars are the same for all vectors of the tile, and are computed once per iteration. Loop-invariant values are
computed
before the first iteration. Each tile writes the scalars, and all write the same values.
"""

from __future__ import annotations

from functools import reduce

from shlo_jit.fuse.nest import Key, Nest, Store
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import ORIGIN, At, Expr
from shlo_jit.kernels.builder import Builder
from shlo_jit.kernels.llvm_values import V, i64
from shlo_jit.lower.elements.registers import Reg, flatten, regroup, widen
from shlo_jit.lower.nest.evaluate import Evaluator
from shlo_jit.lower.nest.position import Position

State = tuple[Value, Store]


def write_interchanged(b: Builder, ev: Evaluator, positions: list[Position], most: int) -> None:
    """Emits at least one and at most `most` iterations on the vectors at `positions`."""
    interchange = ev.nest.interchange
    assert interchange is not None
    states: list[State] = list(zip(interchange.states, ev.nest.stores, strict=True))
    wide = [s for s in states if s[1].index]
    numbers = [s for s in states if not s[1].index]
    fixed = unchanged(ev.nest)
    common = Position({}, 1)
    of_numbers = not interchange.again[1].index
    hoist(ev, common, [(s.value, s.at) for _, s in numbers] + [interchange.again] * of_numbers, fixed)
    for p in positions:
        hoist(ev, p, [(s.value, s.at) for _, s in wide], fixed)
    starts = [[ev.value(common, (v, ORIGIN)) for v, _ in numbers]]
    starts += [[widen(b, ev.value(p, (v, s.at)), p.width) for v, s in wide] for p in positions]
    with b.repeat([i64(0), *flatten([r for group in starts for r in group])], "iteration") as loop:
        done, *old = loop.values
        first, *rest = regroup(old, starts)
        now, following = common.child(), common.child()
        for (v, _), x in zip(numbers, first, strict=True):
            now.memo[v, ORIGIN] = x
        new = [[ev.value(now, (s.value, s.at)) for _, s in numbers]]
        for (v, _), x in zip(numbers, new[0], strict=True):
            following.memo[v, ORIGIN] = x
        changed: list[V] = []
        for p, group in zip(positions, rest, strict=True):
            here = iterate(p, now, wide, group)
            new.append([widen(b, ev.value(here, (s.value, s.at)), p.width) for _, s in wide])
            if not of_numbers:
                changed.append(any_of(b, widen(b, ev.value(here, interchange.again), p.width), p))
        done = b.add(done, 1)
        again = ev.value(following, interchange.again) if of_numbers else reduce(b.or_, changed)
        assert not isinstance(again, tuple) or len(again) == 2
        loop.again = b.and_(again, b.icmp("slt", done, most))  # type: ignore[arg-type]
        loop.next(done, *flatten([r for group in new for r in group]))
    first, *rest = regroup(loop.values[1:], starts)
    for p, group in zip(positions, rest, strict=True):
        store(ev, p, wide, group)
    store(ev, common, numbers, first)


def iterate(p: Position, now: Position, wide: list[State], old: list[Reg]) -> Position:
    """The position of a vector with its states in an iteration; `now` has the scalars of the iteration."""
    here = Position(p.variables, p.width, p.mask, now)
    here.memo |= p.memo
    for (v, s), x in zip(wide, old, strict=True):
        here.memo[v, s.at] = x
    return here


def any_of(b: Builder, predicate: Reg, p: Position) -> V:
    """Whether a predicate is true for any element of a vector."""
    assert isinstance(predicate, V)
    return b.reduce("or", predicate if p.mask is None else b.and_(predicate, p.mask))


def store(ev: Evaluator, p: Position, states: list[State], values: list[Reg]) -> None:
    """Writes the states of a vector, or the scalars."""
    for (_, s), x in zip(states, values, strict=True):
        here = Position(p.variables, p.width, p.mask)
        here.memo[s.value, s.at] = x
        ev.store(here, s)


def hoist(ev: Evaluator, position: Position, roots: list[Key], fixed: set[Key]) -> None:
    """Computes the loop-invariant values."""
    seen, todo = set[Key](), list(roots)
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        if key in fixed:
            ev.value(position, key)
        elif key in ev.nest.nodes:
            todo += ev.nest.nodes[key].operands


def unchanged(nest: Nest) -> set[Key]:
    """The values of a nest that do not depend on any state, excluding constants."""
    assert nest.interchange is not None
    states, fixed = set(nest.interchange.states), set[Key]()

    def place_is_fixed(at: At) -> bool:
        exprs: list[Expr] = [*at.index, *(c.expr for c in at.conditions)]
        return all((s.value, s.at) in fixed for e in exprs for s in e.syms)

    def settle(key: Key) -> None:
        if key[0] not in states and place_is_fixed(key[1]):
            fixed.add(key)

    # loads at places that depend on no value, then values (producers first), and the loads between them
    constants = {k for k, n in nest.nodes.items() if n.op.name == "stablehlo.constant"}
    for key in nest.loads:
        settle(key)
    for key, node in reversed(nest.nodes.items()):
        for operand in node.operands:
            if operand in nest.loads:
                settle(operand)
        if all(o in fixed or o in constants for o in node.operands):
            settle(key)
    return fixed - constants
