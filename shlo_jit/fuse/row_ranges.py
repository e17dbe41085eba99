"""Ranges of keys in row blocks: attention whose mask leaves a range of the keys to each row.

The product of weights and values says which terms it needs (`ops/ranged.py`). The row program that computes the weights
may leave out the others if they are neutral for its reductions, and then nothing reads the scores of these keys.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from shlo_jit import tuning
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import KeyRange, NestStep, OpStep, PlanBlock, RowRanges, SegmentsStep, Step, ViewStep
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.row_places import in_row_order, rows_of
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, variables
from shlo_jit.ops.runs import extents_of
from shlo_jit.passes.masked_weights import Mask, is_neutral, weights_of


def ranges_of(
    stages: Sequence[NestStep | OpStep],
    inside: Sequence[Value],
    source: Callable[[Value], Value],
    readers: Mapping[Value, Sequence[Step]],
) -> RowRanges | None:
    """Returns the ranges of keys that the stages need; None if they need all keys. `inside`: the values that only
    stages read; `source` maps a view to the value whose memory it is."""
    found = [(s, keys) for s in stages if isinstance(s, OpStep) and (keys := _terms(s)) is not None]
    written = {v for s in stages for v in s.writes}
    if len(found) != 1 or any(v in written for v in found[0][1].bounds):
        return None
    ((terms, keys),) = found
    weights = terms.op.operands[0]
    whole = RowRanges(*keys.bounds, weights.tensor.extents[-1], terms, None, ())
    masked, value = weights_of(weights), source(weights)
    program = next((s for s in stages if isinstance(s, NestStep) and value in s.writes), None)
    if masked is None or program is None or not _only_reads(terms, weights, value, inside, readers):
        return whole
    if not _may_leave_out(program.nest, value, whole.keys, masked.masks):
        return whole
    scores = [
        s
        for s in stages
        if isinstance(s, OpStep) and s.op.result in inside and _read_by(s.op.result, source, stages) == [program]
    ]
    return whole._replace(weights=program, scores=tuple(scores))


def _terms(step: OpStep) -> KeyRange | None:
    """The range of a product's terms, if it has one and reads whole operands."""
    found = step.key_range
    return found if found is not None and found.are_terms and not isinstance(step, SegmentsStep) else None


def mark_scores(
    steps: Sequence[Step],
    readers: Mapping[Value, Sequence[Step]],
    returned: Container[Value],
    here: Mapping[int, int],
) -> None:
    """Finds the products whose columns are keys, some of which a row program discards for the product in a range that
    reads its weights. They need not compute these columns, also if all three are separate steps. `here`: the numbers of
    the block's ops, by id()."""
    writers: dict[Value, list[Step]] = {}
    for step in steps:
        for value in step.writes:
            writers.setdefault(value, []).append(step)
    for terms in steps:
        if not isinstance(terms, OpStep) or _terms(terms) is None:
            continue
        weights, masked = terms.op.operands[0], weights_of(terms.op.operands[0])
        programs = writers.get(weights, [])
        if masked is None or not masked.discards or len(programs) != 1 or not isinstance(programs[0], NestStep):
            continue
        program, keys = programs[0], weights.tensor.extents[-1]
        if not _may_leave_out(program.nest, weights, keys, masked.masks, discards=True):
            continue
        for value in program.reads:
            scores = writers.get(value, [])
            if len(scores) == 1 and value not in returned and [*readers.get(value, ())] == [program]:
                _mark(scores[0], program, terms, value, here)


def drop_ranges(block: PlanBlock) -> None:
    """Drops the ranges of products that add zeros and are no stages of row blocks, which is what those are for, and the
    loops that compute these ranges alone."""
    products = [s for s in block.steps if isinstance(s, OpStep)]
    left = [s.key_range.bounds for s in products if s.key_range is not None and s.key_range.adds_zeros]
    for step in products:
        if step.key_range is not None and step.key_range.bounds in left:
            bounds = step.key_range.bounds
            step.reads = [v for v in step.reads if v not in bounds or v in step.op.operands]
            step.key_range = None
    dropped = [v for bounds in left for v in bounds]
    if not dropped:
        return
    for step in [s for s in reversed(block.steps) if isinstance(s, NestStep | ViewStep)]:
        wanted = {*block.results, *(v for s in block.steps for v in s.reads)}
        if step.writes and all(v in dropped and v not in wanted for v in step.writes):
            block.steps.remove(step)
            dropped += step.reads
            for other in block.steps:
                other.after = [s for s in other.after if s is not step]


def _mark(scores: Step, program: NestStep, terms: OpStep, value: Value, here: Mapping[int, int]) -> None:
    """Gives a product that computes scores the ranges of its columns, if its rows are those of the weights."""
    found = _terms(terms)
    assert found is not None
    if not isinstance(scores, OpStep) or scores.kind != terms.kind:
        return
    batch, m, n, _ = extents_of(scores.op)
    weights = terms.op.operands[0]
    keys = weights.tensor.extents[-1]
    if (batch, m) != extents_of(terms.op)[:2] or n != keys or not in_row_order(terms.op):
        return
    rows = rows_of(program.nest, {value: keys, weights: keys}, batch * m)
    if not isinstance(rows, Refusal) and not _depends(found.bounds, scores.op, here) and scores.key_range is None:
        scores.key_range = KeyRange(*found.bounds, are_terms=False)


def _depends(values: Sequence[Value], on: Op, here: Mapping[int, int]) -> bool:
    """Whether values are computed from the results of an op; True if the search would be long. Ops before it in the
    block, which may be as many as the program has, do not depend on it."""
    first = here.get(id(on.results[0].op), 0)
    todo, seen = [v.op for v in values], set[Op]()
    while todo:
        op = todo.pop()
        if op is None or op in seen or here.get(id(op), -1) < first:
            continue
        if op.results[0] is on.results[0] or len(seen) > tuning.ORDER_SEARCH:
            return True
        seen.add(op)
        todo += [v.op for v in op.operands]
    return False


def _only_reads(
    terms: OpStep, weights: Value, value: Value, inside: Sequence[Value], readers: Mapping[Value, Sequence[Step]]
) -> bool:
    """Whether only one product reads the weights, directly or as a view."""
    if value not in inside:
        return False
    return all(s is terms or isinstance(s, ViewStep) for v in {value, weights} for s in readers.get(v, ()))


def _read_by(value: Value, source: Callable[[Value], Value], stages: Sequence[Step]) -> list[Step]:
    return [s for s in stages if any(source(v) is value for v in s.reads)]


def _may_leave_out(nest: Nest, weights: Value, keys: int, masks: tuple[Mask, ...], *, discards: bool = False) -> bool:
    """Whether a row program may leave out masked elements: they are neutral for its reductions, and only the weights
    are stored for each key."""
    if len(nest.reduce_vars) != 1 or nest.extents[nest.reduce_vars[0]] != keys:
        return False
    (key,) = nest.reduce_vars
    if any(key in variables(At(s.index)) and s.target is not weights for s in nest.stores):
        return False
    reduces = [n.op for n in nest.nodes.values() if n.op.name == "stablehlo.reduce"]
    return all(is_neutral(op, masks, discards=discards) for op in reduces)
