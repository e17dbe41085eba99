"""Decide whether an op is recomputed in each of its readers' loops, or computed once and materialized."""

from __future__ import annotations

import math

from shlo_jit import tuning
from shlo_jit.fuse.choices import NEAR
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.grouping import Grouping, is_inline_constant
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import variables
from shlo_jit.ops import OPS
from shlo_jit.sizes import hint_of


def too_expensive_to_recompute(g: Grouping, op: Op, nests: list[Nest]) -> Refusal | None:
    """Returns why recomputing an op in its readers costs more than materializing it, or None."""
    if _unpacks_constant(op):
        return None
    price = cost(op)
    places = max(len(n.pending[op.result]) for n in nests)
    if any(len(n.nodes) > tuning.NEST_OPS for n in nests) and not _is_leaf(g, op):
        return Refusal("loop-full", f"the loop that reads it already has more than {tuning.NEST_OPS} ops")
    visits, size = hint_of(_visits(op.result, nests)), hint_of(op.result.tensor.size)
    if _repeats_in_lanes(op) and visits >= tuning.GROUP_REPEATS * size:
        return Refusal(
            "repeated-in-lanes",
            f"a loop reads it {visits // size} times, and has lanes across its last dimensions if the equal elements "
            "of the last one are in memory",
        )
    if op.name == "stablehlo.gather" and (gathered := sum(_computed(op.result, n) for n in nests)) > 2 * size:
        return Refusal(
            "gather-repeated",
            f"its readers need {gathered:,} gathered elements and it has {size:,}: gathering once is cheaper",
        )
    near = op.name in NEAR and _moves_memory(g, op)
    if price == 0 and (op.name != "stablehlo.pad" or near):
        most = tuning.NEAR_PLACES if near else tuning.FREE_PLACES
        return (
            None
            if places <= most or not op.operands
            else Refusal("read-at-several-indices", f"a loop reads it at {places} different indices")
        )
    if len(nests) > 1 and visits <= size:  # each nest reads a separate part, so nothing is recomputed
        return (
            None
            if places == 1
            else Refusal("read-at-several-indices", f"a loop reads it at {places} different indices")
        )
    if places > 1 and price > 1:
        return Refusal(
            "expensive-to-recompute",
            f"read at {places} different indices, and recomputing costs {price} additions per element",
        )
    if price >= tuning.EXPENSIVE_COST and (times := max(_repeats(op.result, n) for n in nests)) > 1:
        return Refusal(
            "recomputed-in-inner-loop",
            f"its reader would compute each element {times} times, for {price} additions each",
        )
    if places > 2:
        return Refusal("read-at-several-indices", f"a loop reads it at {places} different indices")
    if places > 1 and any(len(n.nodes) > tuning.NEST_TWICE_OPS for n in nests):
        return Refusal(
            "reader-too-large-to-duplicate",
            f"a loop of more than {tuning.NEST_TWICE_OPS} ops reads it at {places} different indices",
        )
    if len(nests) > 1 and (price > 1 or len(op.operands) > 1) and not _has_small_sources(g, op):
        return Refusal(
            "several-readers", f"{len(nests)} loops read it, and recomputing costs {price} additions per element"
        )
    return None


def _repeats_in_lanes(op: Op) -> bool:
    """Whether an op repeats each element a few times in adjacent places."""
    if op.name != "stablehlo.broadcast_in_dim":
        return False
    places, shape = op.ints("broadcast_dimensions"), op.result.tensor.extents
    is_inner = bool(places) and len(shape) - 1 not in places and len(shape) - 2 in places
    return is_inner and 1 < hint_of(shape[-1]) < tuning.GROUP_LANES and hint_of(shape[-2]) > 1


def _unpacks_constant(op: Op) -> bool:
    """Whether an op unpacks a constant: its readers load the packed elements instead, wherever they are."""
    return op.name == "stablehlo.convert" and op.operands[0].tensor.is_packed


def _repeats(value: Value, nest: Nest) -> int:
    """Returns how many times a nest would compute each element of the value."""
    return max(_iterations(value, nest)) // max(1, hint_of(value.tensor.size))


def _computed(value: Value, nest: Nest) -> int:
    """Returns the number of elements of the value that a nest would compute."""
    return sum(_iterations(value, nest))


def _iterations(value: Value, nest: Nest) -> list[int]:
    """Returns how many times a nest would compute the value at each place: in the loops that the place depends on and
    those around them."""
    order, found = nest.order() if nest.stores else [], []
    for at in nest.pending[value]:
        inner = max((k for k, v in enumerate(order) if v in variables(at)), default=-1)
        found.append(math.prod(hint_of(nest.extents[v]) for v in order[: inner + 1]))
    return found


def _has_small_sources(g: Grouping, op: Op) -> bool:
    """Whether recomputing a cheap op in each of its readers costs less than materializing it: its inputs, before
    broadcasts, are small."""
    read = 0
    for o in op.operands:
        while o.op is not None and id(o.op) in g.here and OPS[o.op.name].index_map is not None and o.op.operands:
            o = o.op.operands[0]
        read += hint_of(o.tensor.size) if o.op is None or o.op.operands else 0  # iotas and constants are free
    return cost(op) < tuning.EXPENSIVE_COST and read * tuning.SMALL_SOURCE_RATIO <= hint_of(op.result.tensor.size)


def _is_leaf(g: Grouping, op: Op) -> bool:
    """Whether the op reads only values that are in memory anyway: inlining it into a full nest adds no further ops."""
    return all(_is_there(g, o) for o in op.operands)


def _moves_memory(g: Grouping, op: Op) -> bool:
    """Whether the op only rearranges, possibly through other such ops, values that are in memory anyway."""
    return all(_is_there(g, g.choices.source_of(o)) for o in op.operands)


def _is_there(g: Grouping, value: Value) -> bool:
    """Whether a value is in memory when the block begins, or needs no memory."""
    return value.op is None or id(value.op) not in g.here or is_inline_constant(value)


def _visits(value: Value, nests: list[Nest]) -> int:
    """Returns the number of elements that all readers together would compute."""
    return sum(n.rows * n.reduced * len(n.pending[value]) for n in nests)
