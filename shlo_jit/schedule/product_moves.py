"""Other schedules of a matrix product, as moves: those that a tuner should measure.

An alternative changes one decision: the leaf, where an operand is packed, the parts of a task, threads, or the place of
the epilogue. What depends on it is decided again. Alternatives are legal, because each of them was decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shlo_jit.fuse.plan import OpStep, Step
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.epilogue import places_of_epilogue
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.moves import ComputeAt, IllegalMove, Move, Pack, Parallel, Split, UseLeaf
from shlo_jit.schedule.product_decisions import (
    LEAVES,
    Decisions,
    Product,
    changes_bits,
    check_used,
    decide,
    moves_of,
)
from shlo_jit.schedule.product_layout import layout_of
from shlo_jit.schedule.products import ProductSchedule


def product_alternatives(
    step: Step, scheduled: KernelSchedule, target: Target | None = None, *, any_rounding: bool = False
) -> Iterator[tuple[Move, ...]]:
    """Yields other schedules of a product, the most promising first. Each is complete, and may be given for the step in
    place of `scheduled.moves`. Those that change the order of sums are left out, unless `any_rounding` is set. `target`
    is that of the schedule."""
    assert isinstance(step, OpStep) and isinstance(scheduled, ProductSchedule)
    p, now = scheduled.product, scheduled.decisions
    assert target is None or target == p.target
    placed = tuple(move for move in scheduled.moves if isinstance(move, ComputeAt))
    seen = {scheduled.moves}
    for moves in (*_decided(p, now, placed, any_rounding), *_placed(step, scheduled)):
        if moves not in seen:
            seen.add(moves)
            yield moves


def product_changes_bits(
    step: Step, scheduled: KernelSchedule, moves: Sequence[Move], target: Target | None = None
) -> bool:
    """Whether the moves may give a product with other bits than the schedule: they add up in another order."""
    assert isinstance(scheduled, ProductSchedule)
    return changes_bits(scheduled.product, scheduled.decisions, decide(scheduled.product, moves))


def _decided(p: Product, now: Decisions, placed: tuple[Move, ...], any_rounding: bool) -> Iterator[tuple[Move, ...]]:
    """Legal schedules with another decision about the product itself. `placed`: the place of the epilogue."""
    for changes in _changes(p, now):
        try:
            after = decide(p, changes)
            moves = moves_of(after)
            check_used(changes, moves)
        except IllegalMove:
            continue
        if any_rounding or not changes_bits(p, now, after):
            yield (*moves, *placed)


def _placed(step: OpStep, scheduled: ProductSchedule) -> Iterator[tuple[Move, ...]]:
    """The same decisions with other places of the epilogue."""
    for at in places_of_epilogue(step, scheduled.product.target, layout_of(step.op)):
        yield (*moves_of(scheduled.decisions), ComputeAt("epilogue", at))


def _changes(p: Product, now: Decisions) -> Iterator[list[Move]]:
    """Moves that differ from the decisions in one point, each with what keeps the bits. Some are illegal."""
    c = now.blocking
    unit, parallel = p.plan.k_unit, [Parallel(1)] if now.is_parallel else []
    passes: list[Move] = []
    if p.is_known:
        passes.append(Split("k", -(-p.extents[3] // unit) * unit if c is None else int(c.kc)))
    for name, leaf in LEAVES.items():
        if leaf is not now.leaf:
            yield [UseLeaf(name), *passes, *parallel]
            yield [UseLeaf(name), *parallel]
    yield from _packings(now, passes)
    if c is not None:
        yield from _cuts(p, now)
        yield [move for move in moves_of(now) if not isinstance(move, Parallel)]
        if not now.is_parallel:
            yield [*moves_of(now), Parallel(1)]
        for kc in (2 * c.kc, -(-c.kc // 2 // unit) * unit, -(-p.extents[3] // unit) * unit):
            yield _with_split(now, "k", kc)


def _packings(now: Decisions, passes: Sequence[Move]) -> Iterator[list[Move]]:
    """Other places at which operands are packed."""

    def others(*packs: Move, where: str) -> list[Move]:
        parallel = [Parallel(1 if where == "shared" else int(now.grain))] if now.is_parallel else []
        return [UseLeaf("tiles"), *packs, *passes, *parallel]

    for where in ("ahead", "loop", "in_place", "private", "shared"):
        yield others(Pack("b", where), where=where)
    kept = [move for move in moves_of(now) if isinstance(move, Pack) and move.operand == "b"]
    for where in ("shared", "in_place", "private"):
        yield others(Pack("a", where), *kept, where=where)


def _cuts(p: Product, now: Decisions) -> Iterator[list[Move]]:
    """Tasks of half and of twice the rows, columns and products."""
    c = now.blocking
    assert c is not None
    batch, m, n, _ = p.extents
    for loop, part, unit, whole in (("m", c.mc, p.plan.mr, m), ("n", c.nc, p.plan.nr, n)):
        for size in (-(-part // 2 // unit) * unit, -(-2 * part // unit) * unit):
            yield _with_split(now, loop, min(size, whole))
    for grain in (c.group // 2, min(2 * c.group, batch)):
        yield [Parallel(grain) if isinstance(move, Parallel) else move for move in moves_of(now)]


def _with_split(now: Decisions, loop: str, by: int) -> list[Move]:
    moves = moves_of(now)
    return [Split(loop, by) if isinstance(move, Split) and move.loop == loop else move for move in moves]
