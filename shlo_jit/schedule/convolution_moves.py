"""Other schedules of a convolution, as moves: those that a tuner should measure.

An alternative changes one decision; what depends on it is decided again. Alternatives are legal, because each of them
was decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shlo_jit.fuse.plan import OpStep, Step
from shlo_jit.kernels.convolution.description import Description
from shlo_jit.kernels.convolution.table import kernel_blocks
from shlo_jit.kernels.gemm.micro import row_counts
from shlo_jit.kernels.llvm_values import is_float
from shlo_jit.kernels.target import Target
from shlo_jit.schedule.convolution import ConvolutionSchedule, result_of
from shlo_jit.schedule.convolution_decisions import Decisions, Problem, decide
from shlo_jit.schedule.epilogue import place_epilogue
from shlo_jit.schedule.kernel import KernelSchedule
from shlo_jit.schedule.moves import ComputeAt, EdgeTiles, IllegalMove, Move, Pack, Parallel, Split, Unroll, UseLeaf
from shlo_jit.schedule.product_decisions import check_used


def convolution_alternatives(step: Step, scheduled: KernelSchedule, target: Target) -> Iterator[tuple[Move, ...]]:
    """Yields other schedules of a convolution, the most promising first. Each is complete, and may be given for the
    step in place of `scheduled.moves`."""
    assert isinstance(step, OpStep) and isinstance(scheduled, ConvolutionSchedule)
    p, d, seen = scheduled.problem, scheduled.decisions, {scheduled.moves}
    placed = tuple(move for move in scheduled.moves if isinstance(move, ComputeAt))
    for changes in _changes(p, d):
        try:
            moves = decide(p, changes).moves
            check_used(changes, moves)
        except IllegalMove:
            continue
        if (*moves, *placed) not in seen:
            seen.add((*moves, *placed))
            yield (*moves, *placed)
    for at in ("tile", "after") if placed else ():
        place = ComputeAt("epilogue", at)
        try:
            place_epilogue(step, target, result_of(p.geometry.shape), place)
        except IllegalMove:
            continue
        if (*d.moves, place) not in seen:
            yield (*d.moves, place)


def convolution_changes_bits(
    step: Step, scheduled: KernelSchedule, moves: Sequence[Move], target: Target | None = None
) -> bool:
    """Whether the moves may give a convolution with other bits than the schedule: they add up in another order."""
    assert isinstance(scheduled, ConvolutionSchedule)
    p = scheduled.problem
    return order_of_sums(p, scheduled.decisions) != order_of_sums(p, decide(p, moves))


def order_of_sums(p: Problem, decisions: Decisions) -> tuple[object, ...]:
    """Returns what the order of additions depends on. Decisions for which it is equal give the same bits."""
    d, g = decisions.description, p.geometry
    if not is_float(g.plan.acc):
        return ()
    if d.variant.leaf == "direct":
        return d.variant
    if d.variant.rows == "images":
        return ("images",)
    run = g.runs(d.image).run if d.variant.leaf == "dot" else 0
    edges = (d.edge, d.tile) if d.edge else ()
    return (d.variant.leaf, run, *kernel_blocks(decisions.table), *edges)


def _changes(p: Problem, now: Decisions) -> Iterator[list[Move]]:
    """Yields moves that differ from the decisions in one point. Some are illegal."""
    d, moves, plan = now.description, [*now.moves], p.geometry.plan
    parallel: list[Move] = [move for move in moves if isinstance(move, Parallel)]
    terms: list[Move] = [move for move in moves if isinstance(move, Split) and move.loop == "k"]
    for leaf in ("direct", "dot", "tiles"):
        if leaf != d.variant.leaf:
            shared = _shared(p, leaf)
            yield [UseLeaf(leaf), *terms, *shared]
            yield [UseLeaf(leaf), *shared]
    yield [Unroll("images", plan.mr), *parallel]
    yield [Unroll("window", 1), *parallel]
    for where in ("private", "in_place"):
        yield [Pack("pixels", where), *terms, *parallel]
    for operand, places in (("image", ("margins", "shared", "in_place")), ("kernel", ("shared", "ahead"))):
        for where in places:
            yield [Pack(operand, where) if _is_about(move, Pack, operand) else move for move in moves]
    for rows in _heights(p, d):
        yield [Unroll("pixels", rows) if _is_about(move, Unroll, "pixels") else move for move in moves]
    for height in (0, 1):
        yield [EdgeTiles(height) if isinstance(move, EdgeTiles) else move for move in moves]
    for move in moves:
        if isinstance(move, Split):
            for by in _sizes(p, d, move):
                yield [Split(move.loop, by) if other is move else other for other in moves]
    yield [move for move in moves if not isinstance(move, Parallel)]
    if not parallel:
        yield [*moves, Parallel(1)]


def _shared(p: Problem, leaf: str) -> list[Move]:
    """Returns the move that threads share the work; none if a leaf does so much work on one thread."""
    try:
        decide(p, [UseLeaf(leaf), Parallel(1)])
    except IllegalMove as refused:
        return [] if isinstance(refused.move, Parallel) else [Parallel(1)]
    return [Parallel(1)]


def _is_about(move: Move, kind: type[Move], what: str) -> bool:
    return isinstance(move, kind) and next(iter(move.arguments.values())) == what


def _heights(p: Problem, d: Description) -> list[int]:
    """Returns heights of register tiles: those that are compiled anyhow, and the one that fits lines."""
    plan, width = p.geometry.plan, max(1, d.part or p.geometry.output[2])
    own = -(-width // -(-width // plan.mr)) if isinstance(width, int) else plan.mr
    return [*(rows for rows in row_counts(plan) if rows >= 4), own]


def _sizes(p: Problem, d: Description, move: Split) -> Iterator[int]:
    """Yields half and twice the size of a loop's parts, in whole units."""
    g = p.geometry
    features, pixels = (g.plan.mr, g.plan.nr) if d.variant.rows == "features" else (g.plan.nr, g.plan.mr)
    units = {"features": features, "pixels": pixels, "k": g.runs(d.image, d.variant.lanes).run}
    unit = units.get(str(move.loop), 1)
    for size in (move.by / 2, 2 * move.by):
        yield max(1, round(size / max(1, unit))) * max(1, unit)
