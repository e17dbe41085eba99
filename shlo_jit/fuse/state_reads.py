"""Values that are read from a tensor before a part of it is overwritten, and must be in memory of their own.

A value is usually computed in the loop that reads it. If that loop runs after an update of the tensor that the value is
read from, or is the update and reads elements that it overwrites, the whole tensor would have to be copied. These
values are small beside the tensor: writing them before the update costs no more than the update.

    a = x[i]; x = x.at[i].set(x[j]); x = x.at[j].set(a)     a is written before the first update
    x = x.at[1:9].set(x[0:8] * 2)                           x[0:8] * 2 is written before the update
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shlo_jit import tuning
from shlo_jit.fuse.choices import Choices, starts_of
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.ops.bodies import CONTROL
from shlo_jit.sizes import Size, equal

UPDATE, SCATTER = "stablehlo.dynamic_update_slice", "stablehlo.scatter"
VISITS = 200_000
"""Maximum ops that are visited in the search of a block, so that compile time grows in proportion to the program.
Chosen: a tenth of a second."""


class EarlyValues(NamedTuple):
    """The values that have to be written before updates."""

    why: dict[Value, Refusal]
    sources: dict[Value, set[Value]]
    """For the result of each such update, the values that they are computed from: no loop that runs after the update
    may compute them."""
    shared: set[Value]
    """Results of updates of tensors of which other loops may read parts: these have to run first, so an update does not
    compute values for them."""


def values_before_updates(block: Block, choices: Choices) -> EarlyValues:
    """Returns the values that have to be written before an update, and why."""
    if not any(op.name in (UPDATE, SCATTER) or op.name in CONTROL for op in block.ops):
        return EarlyValues({}, {}, set())
    return _Search(block, choices).run()


class _Search:
    def __init__(self, block: Block, choices: Choices) -> None:
        self.block = block
        self.choices = choices
        self.here = {id(op) for op in block.ops}
        self.readers: dict[Value, list[Op]] = {}
        for op in block.ops:
            for v in dict.fromkeys([*op.operands, *_captured(op)]):
                self.readers.setdefault(v, []).append(op)
        self.found = EarlyValues({}, {}, set())
        self.left = VISITS
        """Ops that the search may still visit."""

    def run(self) -> EarlyValues:
        reading: dict[Op, set[Op]] = {}
        """For each update, other updates that read parts of its tensor."""
        crossing: list[tuple[Value, Op, set[Op]]] = []
        updates = [(op, x) for op in self.block.ops for x in self.updated(op)]
        others = {op for op, _ in updates}
        for update, x in updates:
            if self.left < 0:
                break  # what is not found is copied
            parts = [*self.parts(x, update)]
            if not parts:
                continue
            self.found.shared.update(update.results)
            after = self.descendants(update.results, None)
            for v in parts:
                if self.left < 0:
                    break
                readers = self.descendants([v], update)
                refusal = self.needed_after(readers, after) or self.overlaps(v, update)
                if refusal is not None:
                    self.note(v, update, refusal)
                elif readers & others:
                    reading.setdefault(update, set()).update(readers & others)
                    crossing.append((v, update, readers & others))
        for v, update, readers in crossing:
            if any(_leads(reading, reader, update) for reader in readers):
                self.note(v, update, Refusal("read-before-update", "updates read each other's tensors"))
        return self.found

    def note(self, value: Value, update: Op, refusal: Refusal) -> None:
        """Records a value that has to be written before an update."""
        self.found.why.setdefault(value, refusal)
        for result in update.results:
            self.found.sources.setdefault(result, set()).update(self.sources(value))

    def sources(self, value: Value) -> set[Value]:
        """Returns the values that another one is computed from by loops."""
        found, todo = set[Value](), [value]
        while todo and len(found) < tuning.ORDER_SEARCH:
            op = todo.pop().op
            if op is not None and not op.regions and id(op) in self.here:
                todo += [o for o in op.operands if o not in found]
                found.update(op.operands)
        return found

    def updated(self, op: Op) -> list[Value]:
        """The tensors whose memory the results of an op may take over."""
        if op.name == UPDATE:
            return [] if self.choices.chooses(op) else op.operands[:1]
        if op.name == SCATTER:
            return op.operands[: len(op.results)]
        if op.name == "stablehlo.while":
            return list(dict.fromkeys(op.operands))
        if op.name in CONTROL:
            types = [r.type for r in op.results]
            return [v for v in _captured(op) if v.type in types]
        return []

    def parts(self, x: Value, update: Op) -> Iterator[Value]:
        """Yields small values that loops would read from a tensor, directly or through values of its size."""
        todo, seen = [x], {x}
        while todo and len(seen) < tuning.ORDER_SEARCH:
            self.left -= 1
            for op in self.readers.get(todo.pop(), ()):
                if op is update or op.regions or len(op.results) != 1 or op.result in seen:
                    continue
                if not is_elementwise(op) and OPS[op.name].index_map is None:
                    continue
                seen.add(op.result)
                if _is_small(op.result, x):
                    yield op.result
                else:
                    todo.append(op.result)

    def descendants(self, values: list[Value], stop: Op | None) -> set[Op]:
        """Returns the ops that depend on values, except through `stop`."""
        found: set[Op] = set()
        todo = list(values)
        while todo:
            for op in self.readers.get(todo.pop(), ()):
                if op not in found and op is not stop:
                    found.add(op)
                    todo += op.results
        self.left -= len(found)
        return found

    def needed_after(self, readers: set[Op], after: set[Op]) -> Refusal | None:
        """Returns why a value must be in memory: something that depends on the update needs it."""
        if all(op.name in ("stablehlo.return", "func.return") for op in readers & after):
            return None
        return Refusal("read-before-update", "it is read from a tensor that is updated before it is needed")

    def overlaps(self, value: Value, update: Op) -> Refusal | None:
        """Returns why a value must be in memory: the update reads it from elements that it may overwrite before."""
        if update.name != UPDATE or equal(update.operands[1].tensor.size, 1):
            return None
        if _is_apart(value, update):
            return None
        place = self.place_of(value, update)
        todo, seen = [value], {value}
        while todo:
            v = todo.pop()
            for op in self.readers.get(v, ()):
                if op is update:
                    if not place or v is not update.operands[1]:
                        return Refusal("update-overlaps", "the update reads it from elements that it overwrites")
                    continue
                same = place and (is_elementwise(op) or _keeps_order(op))
                for r in op.results if not op.regions else ():
                    same = same and equal(r.tensor.size, value.tensor.size)
                    if not same and self.reaches(r, update):
                        return Refusal("update-overlaps", "the update reads it from elements that it overwrites")
                    if same and r not in seen:
                        seen.add(r)
                        todo.append(r)
        return None

    def reaches(self, value: Value, update: Op) -> bool:
        """Whether loops may compute operands of an update from a value."""
        todo, seen = [value], {value}
        while todo:
            self.left -= 1
            for op in self.readers.get(todo.pop(), ()):
                if op is update:
                    return True
                for r in op.results if not op.regions else ():
                    if r not in seen:
                        seen.add(r)
                        todo.append(r)
        return False

    def place_of(self, value: Value, update: Op) -> bool:
        """Whether a value is the part of the tensor that the update overwrites."""
        op, (x, part, *starts) = value.op, update.operands
        if op is None or op.operands[0] is not x or not equal(value.tensor.extents, part.tensor.extents):
            return False
        if op.name == "stablehlo.dynamic_slice":
            return all(a is b or _same_constant(a, b) for a, b in zip(op.operands[1:], starts, strict=True))
        if op.name != "stablehlo.slice" or any(n != 1 for n in op.ints("strides")):
            return False
        return all(_constant(s) == n for s, n in zip(starts, op.ints("start_indices"), strict=True))


def _keeps_order(op: Op) -> bool:
    """Whether an op keeps the order of elements, if it keeps their number."""
    if op.name == "stablehlo.broadcast_in_dim":
        dims = op.ints("broadcast_dimensions")
        return list(dims) == sorted(dims)
    return op.name == "stablehlo.reshape"


def _leads(edges: dict[Op, set[Op]], start: Op, end: Op) -> bool:
    """Whether a path of edges leads from one op to another."""
    todo, seen = [start], {start}
    while todo:
        op = todo.pop()
        if op is end:
            return True
        new = edges.get(op, set()) - seen
        seen |= new
        todo += new
    return False


def _is_apart(value: Value, update: Op) -> bool:
    """Whether a value is a known part of the updated tensor, and the update is a known part beside it."""
    op, (x, part, *_), starts = value.op, update.operands, starts_of(update)
    if op is None or op.name != "stablehlo.slice" or op.operands[0] is not x or starts is None:
        return False
    ranges = zip(op.ints("start_indices"), op.ints("limit_indices"), starts, part.tensor.extents, strict=True)
    return any(limit <= start or start + n <= first for first, limit, start, n in ranges)


def _is_small(value: Value, x: Value) -> bool:
    if any(isinstance(n, Size) for v in (value, x) for n in v.tensor.extents):
        return False
    return value.tensor.size * tuning.UPDATE_SHARE <= x.tensor.size


def _constant(value: Value) -> int | None:
    op = value.op
    if op is None or op.name != "stablehlo.constant":
        return None
    return int(op.constant.array.reshape(-1)[0])


def _same_constant(a: Value, b: Value) -> bool:
    return _constant(a) is not None and _constant(a) == _constant(b)


def _captured(op: Op) -> list[Value]:
    """The values that the regions of control flow read from outside of them."""
    if op.name not in CONTROL:
        return []
    found: dict[Value, None] = {}
    todo = [b for region in op.regions for b in region.blocks]
    inside: set[Value] = set()
    while todo:
        block = todo.pop()
        inside.update(block.arguments)
        for inner in block.ops:
            inside.update(inner.results)
            found.update(dict.fromkeys(inner.operands))
            todo += [b for region in inner.regions for b in region.blocks]
    return [v for v in found if v not in inside]
