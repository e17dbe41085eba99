"""Ranges of keys in row blocks: attention whose mask leaves a range of the keys to each row.

The product of weights and values says which terms it needs (`ops/ranged.py`). The row program that computes the weights
may leave out the others if they are neutral for its reductions, and then nothing reads the scores of these keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import NestStep, OpStep, RowRanges, Step, ViewStep
from shlo_jit.ir.core import Value
from shlo_jit.ir.index import At, variables
from shlo_jit.passes.masked_weights import Mask, is_neutral, weights_of


def ranges_of(
    stages: Sequence[NestStep | OpStep],
    inside: Sequence[Value],
    source: Callable[[Value], Value],
    readers: Mapping[Value, Sequence[Step]],
) -> RowRanges | None:
    """Returns the ranges of keys that the stages need; None if they need all keys. `inside`: the values that only
    stages read; `source` maps a view to the value whose memory it is."""
    found = [s for s in stages if isinstance(s, OpStep) and s.ranges is not None and s.pieces is None]
    written = {v for s in stages for v in s.writes}
    if len(found) != 1 or found[0].ranges is None or any(v in written for v in found[0].ranges):
        return None
    (terms,) = found
    weights = terms.op.operands[0]
    starts, ends = found[0].ranges
    whole = RowRanges(starts, ends, weights.tensor.extents[-1], terms, None, ())
    masked, value = weights_of(weights), source(weights)
    program = next((s for s in stages if isinstance(s, NestStep) and value in s.writes), None)
    if masked is None or program is None or not _only_reads(terms, weights, value, inside, readers):
        return whole
    if not _leaves_out(program.nest, value, whole.keys, masked.masks):
        return whole
    scores = [
        s
        for s in stages
        if isinstance(s, OpStep) and s.op.result in inside and _read_by(s.op.result, source, stages) == [program]
    ]
    return whole._replace(weights=program, scores=tuple(scores))


def _only_reads(
    terms: OpStep, weights: Value, value: Value, inside: Sequence[Value], readers: Mapping[Value, Sequence[Step]]
) -> bool:
    """Whether only one product reads the weights, directly or as a view."""
    if value not in inside:
        return False
    return all(s is terms or isinstance(s, ViewStep) for v in {value, weights} for s in readers.get(v, ()))


def _read_by(value: Value, source: Callable[[Value], Value], stages: Sequence[Step]) -> list[Step]:
    return [s for s in stages if any(source(v) is value for v in s.reads)]


def _leaves_out(nest: Nest, weights: Value, keys: int, masks: tuple[Mask, ...]) -> bool:
    """Whether a row program may leave out masked elements: they are neutral for its reductions, and only the weights
    are stored for each key."""
    if len(nest.reduce_vars) != 1 or nest.extents[nest.reduce_vars[0]] != keys:
        return False
    (key,) = nest.reduce_vars
    if any(key in variables(At(s.index)) and s.target is not weights for s in nest.stores):
        return False
    return all(is_neutral(n.op, masks) for n in nest.nodes.values() if n.op.name == "stablehlo.reduce")
