"""The moves of a matrix product: its schedule as data, and other schedules that may be faster.

`product_moves` writes decisions as moves. `product_alternatives` lists other moves for the same product, for a tuner
that measures them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.gemm.policy import PREPACKED
from shlo_jit.kernels.gemm.strategy import GemmStrategy
from shlo_jit.reasons import Reason
from shlo_jit.schedule.epilogue import places_of_epilogue
from shlo_jit.schedule.moves import ComputeAt, IllegalMove, Move, Pack, Parallel, Split, UseLeaf
from shlo_jit.schedule.product_decisions import AT_CALL, LEAVES, MODES, Decisions, Product, changes_bits, decide
from shlo_jit.schedule.product_layout import layout_of

if TYPE_CHECKING:
    from shlo_jit.schedule.products import ProductSchedule

_LEAF_NAMES = {leaf: name for name, leaf in LEAVES.items()}
_MODE_NAMES = {mode: name for name, mode in MODES.items()}


def product_moves(d: Decisions) -> tuple[Move, ...]:
    """The moves that lead to these decisions, in the order in which they are made."""
    moves: list[Move] = [UseLeaf(_LEAF_NAMES[d.leaf], why=d.why_leaf)]
    c = d.blocking
    if c is not None:
        moves.append(Pack("a", _MODE_NAMES[c.mode_a], why=c.mode_a.why))
        if c.mode_b != PREPACKED:
            moves.append(Pack("b", _MODE_NAMES[c.mode_b], why=c.mode_b.why))
    if d.panels:
        moves.append(Pack("b", d.panels, why=_PANELS[d.panels]))
    if c is not None:
        moves += [Split(loop, int(part), why=part.why) for loop, part in (("m", c.mc), ("n", c.nc), ("k", c.kc))]
    if d.is_parallel:
        at_call = AT_CALL if d.leaf is not GemmStrategy.VECTORS else _OUTPUTS
        moves.append(Parallel(int(d.grain), why=at_call if c is None else c.group.why))
    return tuple(moves)


_OUTPUTS = Reason("tasks-by-outputs", "a task computes some of the outputs, about as many as fit in a cache")
_PANELS = {
    "ahead": Reason("constant-operand", "it is a constant"),
    "loop": Reason("loop-invariant", "products read it in every iteration"),
}
"""The reasons for panels that are packed before the product."""


def check_used(given: Sequence[Move], made: Sequence[Move]) -> None:
    """Raises IllegalMove for the first move that the schedule does not have."""
    for move in given:
        if move not in made:
            raise IllegalMove(move, Reason("move-without-use", "the product has no such loop, operand or choice"))


# ---------------------------------------------------------------------- alternatives
def product_alternatives(
    step: OpStep, schedule: ProductSchedule, *, may_change_bits: bool = False
) -> list[tuple[Move, ...]]:
    """Other schedules of a product, in the order in which a tuner should try them. Each is complete and legal, and may
    be given for the step in place of `schedule.moves`. Without `may_change_bits`, all of them have the same bits."""
    p, now = schedule.product, schedule.decisions
    placed = tuple(move for move in schedule.moves if isinstance(move, ComputeAt))
    found: dict[tuple[Move, ...], None] = {}
    for changes in _changes(p, now, may_change_bits):
        try:
            after = decide(p, changes)
            moves = product_moves(after)
            check_used(changes, moves)
        except IllegalMove:
            continue
        if may_change_bits or not changes_bits(p, now, after):
            found[(*moves, *placed)] = None
    base = product_moves(now)
    places = places_of_epilogue(step, p.target, layout_of(step.op))
    others = [at for at in places if ComputeAt("epilogue", at) not in placed]
    found |= {(*base, ComputeAt("epilogue", at)): None for at in others}
    return [moves for moves in found if moves != schedule.moves]


def _changes(p: Product, now: Decisions, may_change_bits: bool) -> Iterator[list[Move]]:
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
        yield [move for move in product_moves(now) if not isinstance(move, Parallel)]
        if not now.is_parallel:
            yield [*product_moves(now), Parallel(1)]
    if may_change_bits and c is not None:
        for kc in (2 * c.kc, -(-c.kc // 2 // unit) * unit, -(-p.extents[3] // unit) * unit):
            yield _with_split(now, "k", kc)


def _packings(now: Decisions, passes: Sequence[Move]) -> Iterator[list[Move]]:
    """Other places at which operands are packed."""

    def others(*packs: Move, where: str) -> list[Move]:
        parallel = [Parallel(1 if where == "shared" else int(now.grain))] if now.is_parallel else []
        return [UseLeaf("tiles"), *packs, *passes, *parallel]

    for where in ("ahead", "loop", "in_place", "private", "shared"):
        yield others(Pack("b", where), where=where)
    kept = [move for move in product_moves(now) if isinstance(move, Pack) and move.operand == "b"]
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
        yield [Parallel(grain) if isinstance(move, Parallel) else move for move in product_moves(now)]


def _with_split(now: Decisions, loop: str, by: int) -> list[Move]:
    moves = product_moves(now)
    return [Split(loop, by) if isinstance(move, Split) and move.loop == loop else move for move in moves]
