"""Move conditions into updates: what is selected is the part that changes, not the whole tensor.

Needs: static shapes; bodies on scalars. Guarantees: nothing. Both sides of the select are chains of updates of one
tensor, and one of them may be that tensor. The values of each side that matter nowhere else are computed from the
masked updates, so that no older state has to be kept.

    select(p, dynamic_update_slice(x, u, i), x)   ->   dynamic_update_slice(x, select(p, u, dynamic_slice(x, i)), i)
    select(p, x, scatter(x, i, u))                ->   scatter(x, select(p, outside, i), u)

If others have read the updated tensor before, as the energy of a proposal that may be rejected, what differs is
restored:

    y = dynamic_update_slice(x, u, i)
    select(p, y, x)   ->   dynamic_update_slice(y, select(p, dynamic_slice(y, i), dynamic_slice(x, i)), i)

The predicate may be a tensor, as in batched programs, if updates are slices, or if it only varies along dimensions that
number the batches of a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.ir.core import Block, Op, Value, walk
from shlo_jit.ir.types import tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.intervals import varying
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.simplify import eliminate
from shlo_jit.passes.states.updates import SELECT, UPDATE, Uses, is_partial

SWEEPS = 16
"""Maximum depth of nested selects that are rewritten."""
OUTSIDE = -(1 << 31)
"""An index at which every window is outside of a tensor."""


def masked_updates(function: Op, _: Context) -> Op:
    """The function with such selects rewritten, the inner ones first."""
    for _sweep in range(SWEEPS):
        ops = [*walk(function.block())]
        if not any(op.name == SELECT for op in ops) or not any(map(is_partial, ops)):
            return function
        sweep = _Masking(Uses(function.block()), function.block())
        function = rewrite(function, sweep.visit)
        if not sweep.changed:
            return function
        function = eliminate(function)
    return function


class _Side(NamedTuple):
    """One side of a select: the updates that lead to it from the tensor that both sides have in common, and the ops
    that matter only there, in order."""

    value: Value
    updates: tuple[Op, ...]
    ops: tuple[Op, ...]


class _Masking:
    """One sweep over a function."""

    def __init__(self, uses: Uses, outermost: Block) -> None:
        self.uses, self.outermost = uses, outermost
        self.changed = False

    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if op.name != SELECT or op.operands[1] is op.operands[2]:
            return None
        found = self.sides(op)
        if found is None:
            return self.restored(rw, op, operands)
        common, sides = found
        predicate, dims = operands[0], varying(operands[0])
        if not all(_can_mask(u, dims) for side in sides for u in side.updates):
            return None
        if dims:
            if any(map(_reads_between, sides)):
                return None
            sides = [side._replace(ops=side.updates) for side in sides]
        elif predicate.tensor.rank:
            predicate = mk.reshape(rw, _corner(rw, predicate, ()), ())
        self.changed = True
        masks = [predicate, rw.emit1("stablehlo.not", [predicate], predicate.type)]
        state = rw.get(common)
        for side, mask in zip(sides, masks, strict=True):
            state = _masked(rw, side, common, state, mask)
        return [state]

    def restored(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        """Replaces a select between a tensor and small updates of slices of it, which others have read before. Outside
        of loops and branches the select is one pass over a tensor that is copied anyway."""
        block, position = self.uses.place[op]
        if block is self.outermost:
            return None
        sides = op.operands[1:]
        for number, (new, old) in enumerate((sides, sides[::-1])):
            chain = self.chain(op, new)
            made = [] if old not in chain else [v.op for v in chain[: chain.index(old)] if v.op is not None]
            parts = sum(u.operands[1].tensor.size for u in made if u.name == UPDATE)
            is_small = made and all(u.name == UPDATE for u in made) and 2 * parts <= new.tensor.size
            readers = [reader for u in made for reader in self.uses.readers[u.result]]
            are_before = all(self.uses.place[self.uses.enclosing(r, block)][1] <= position for r in readers)
            if not is_small or not are_before or varying(operands[0]):
                continue
            predicate = operands[0]
            if predicate.tensor.rank:
                predicate = mk.reshape(rw, _corner(rw, predicate, ()), ())
            before, state = rw.get(old), rw.get(new)
            for update in made:
                _, part, *starts = (rw.get(v) for v in update.operands)
                kept = [mk.window(rw, x, starts, mk.shape_of(part)) for x in (state, before)]
                chosen = rw.emit1(SELECT, [predicate, *kept[:: 1 - 2 * number]], part.type)
                state = rw.emit1(UPDATE, [state, chosen, *starts], state.type)
            self.changed = True
            return [state]
        return None

    def sides(self, op: Op) -> tuple[Value, list[_Side]] | None:
        """Returns the tensor of which both sides of a select are updates, and the sides."""
        chains = [self.chain(op, v) for v in op.operands[1:]]
        common = next((v for v in chains[0] if v in chains[1]), None)
        if common is None:
            return None
        sides = []
        for value, chain in zip(op.operands[1:], chains, strict=True):
            updates = [v.op for v in chain[: chain.index(common)] if v.op is not None][::-1]
            ops = self.uses.exclusive({op: [value]}) if updates else []
            if not all(u in ops for u in updates):
                return None
            sides.append(_Side(value, tuple(updates), tuple(ops)))
        return (common, sides) if any(side.updates for side in sides) else None

    def chain(self, op: Op, value: Value) -> list[Value]:
        """Returns a value and the tensors that it is an update of, the latest first."""
        found, block = [value], self.uses.place[op][0]
        while (made := value.op) is not None and is_partial(made) and self.uses.place[made][0] is block:
            value = made.operands[0]
            found.append(value)
        return found


def _corner(rw: Rewriter, value: Value, along: Sequence[int]) -> Value:
    """Returns the elements of a value at index 0 of all dimensions except some."""
    shape = mk.shape_of(value)
    limits = [n if d in along else 1 for d, n in enumerate(shape)]
    attributes = {
        "start_indices": mk.dims([0] * len(shape)),
        "limit_indices": mk.dims(limits),
        "strides": mk.dims([1] * len(shape)),
    }
    return rw.emit1("stablehlo.slice", [value], tensor(tuple(limits), value.tensor.dtype), attributes)


def _can_mask(update: Op, dims: frozenset[int]) -> bool:
    """Whether a predicate of a whole tensor, which varies along some dimensions, can decide on an update of a part."""
    if update.name == UPDATE:
        return True
    indices, numbers = update.operands[1].tensor.storage, update.attributes["scatter_dimension_numbers"]
    if indices.kind == "u" or indices.bits < 32 or not dims_of(numbers, "scatter_dims_to_operand_dims"):
        return False  # there is no index that is outside
    batching = dims_of(numbers, "input_batching_dims")
    return dims <= {*batching}


def _mask_per_index(rw: Rewriter, update: Op, mask: Value) -> Value:
    """Returns the elements of a mask of a whole tensor, which only varies from batch to batch, for each index of a
    scatter."""
    numbers, shape = update.attributes["scatter_dimension_numbers"], mk.shape_of(update.operands[1])
    batching = dims_of(numbers, "input_batching_dims")
    others = dims_of(numbers, "scatter_indices_batching_dims")
    along = sorted(batching)
    part = mk.reshape(rw, _corner(rw, mask, along), [mk.shape_of(mask)[d] for d in along])
    return mk.broadcast(rw, part, shape, [others[batching.index(d)] for d in along])


def _reads_between(side: _Side) -> bool:
    """Whether updates of a side depend on one before them, apart from being applied to it. What they read there would
    be the masked elements, which is right only if one predicate holds for all of them."""
    made = {u.result for u in side.updates}
    for op in side.ops:
        read = op.operands[1:] if op in side.updates else op.operands
        if any(v in made for v in read):
            return True
    return False


def _masked(rw: Rewriter, side: _Side, common: Value, state: Value, mask: Value) -> Value:
    """Emits the updates of a side where the mask holds, applied to a state, and the ops of the side that depend on
    them. Returns the last state. If the mask is a scalar, the state equals the common tensor where the side matters."""
    values: dict[Value, Value] = {} if mask.tensor.rank else {common: state}
    for op in side.ops:
        if op not in side.updates and not any(o in values for o in op.operands):
            continue
        operands = [values.get(o, rw.get(o)) for o in op.operands]
        if op in side.updates:
            before = state if op.operands[0] is common else operands[0]
            results = [_update(rw, op, [before, *operands[1:]], mask)]
        else:
            results = rw.keep(op, operands)
        values.update(zip(op.results, results, strict=True))
    return values.get(side.value, state)


def _update(rw: Rewriter, op: Op, operands: list[Value], mask: Value) -> Value:
    """Emits an update that has no effect where the mask does not hold."""
    if op.name == UPDATE:
        x, update, *starts = operands
        old = mk.window(rw, x, starts, mk.shape_of(update))
        here = mask if not mask.tensor.rank else mk.window(rw, mask, starts, mk.shape_of(update))
        chosen = rw.emit1(SELECT, [here, update, old], update.type)
        return rw.emit1(UPDATE, [x, chosen, *starts], x.type)
    x, indices, update = operands
    if mask.tensor.rank:
        mask = _mask_per_index(rw, op, mask)
    outside = mk.splat_like(rw, indices, OUTSIDE)
    moved = rw.emit1(SELECT, [mask, indices, outside], indices.type)
    attributes = {**op.attributes, "indices_are_sorted": False}
    regions = rw.keep(op, [x, moved, update])
    made = regions[0].op
    assert made is not None
    made.attributes = attributes
    return regions[0]
