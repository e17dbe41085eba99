"""Ops that update a part of a tensor or keep a state of a loop, as the passes on states recognize them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.ops.effects import acting
from shlo_jit.sizes import Size

UPDATE, SCATTER, SELECT = "stablehlo.dynamic_update_slice", "stablehlo.scatter", "stablehlo.select"
SLICE = "stablehlo.dynamic_slice"
SAME_ELEMENT = ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.slice")
MAPS = ("stablehlo.constant", "stablehlo.iota", "stablehlo.broadcast_in_dim", "stablehlo.return")


def is_partial(op: Op | None) -> bool:
    """Whether an op updates a small part of its first operand: a dynamic_update_slice, or a scatter of one tensor."""
    if op is None or op.name not in (UPDATE, SCATTER) or len(op.results) != 1:
        return False
    update = op.operands[1] if op.name == UPDATE else op.operands[2]
    return is_small_part(update, op.result)


def is_small_part(part: Value, whole: Value) -> bool:
    """Whether a tensor of known shape has few elements compared with another one."""
    if any(isinstance(n, Size) for v in (part, whole) for n in v.tensor.extents):
        return False
    return 0 < part.tensor.size * tuning.UPDATE_SHARE <= whole.tensor.size


def sets_updates(op: Op) -> bool:
    """Whether a scatter replaces each element by its update."""
    body = op.block()
    return len(body.ops) == 1 and body.ops[0].operands == body.arguments[1:]


def adds_updates(op: Op) -> bool:
    """Whether a scatter adds its update to each element."""
    ops = op.block().ops
    return (
        len(ops) == 2
        and ops[0].name == "stablehlo.add"
        and set(ops[0].operands) == set(op.block().arguments)
        and ops[1].operands == ops[0].results
    )


def splat_of(value: Value) -> object | None:
    """Returns the element that all elements of a constant are equal to; None for other values."""
    op = value.op
    while op is not None and op.name == "stablehlo.broadcast_in_dim":
        op = op.operands[0].op
    if op is None or op.name != "stablehlo.constant" or not op.constant.is_splat or not op.result.tensor.size:
        return None
    return op.constant.array.reshape(-1)[0]


def constant_of(value: Value) -> int | None:
    """Returns the number that a start is known to be."""
    known = splat_of(_element(value))
    return None if known is None else int(np.asarray(known))


def same_start(a: Value, b: Value) -> bool:
    """Whether two starts are known to be equal."""
    known = constant_of(a)
    return _element(a) is _element(b) or (known is not None and known == constant_of(b))


def _element(value: Value) -> Value:
    """Returns the value that a tensor of one element is reshaped from."""
    while (op := value.op) is not None and op.name in SAME_ELEMENT and op.operands[0].tensor.size == 1:
        value = op.operands[0]
    return value


class Uses:
    """Readers of the values of a function."""

    def __init__(self, block: Block) -> None:
        self.readers: dict[Value, list[Op]] = {}
        self.place: dict[Op, tuple[Block, int]] = {}
        """The block of each op, and its position there."""
        self.parents: dict[Block, Op] = {}
        """The op in whose region a block is."""
        self.acting = acting(block)
        self._note(block)

    def _note(self, block: Block) -> None:
        todo = [block]
        while todo:
            block = todo.pop()
            for position, op in enumerate(block.ops):
                self.place[op] = block, position
                for v in dict.fromkeys(op.operands):
                    self.readers.setdefault(v, []).append(op)
                inner = [b for region in op.regions for b in region.blocks]
                self.parents.update(dict.fromkeys(inner, op))
                todo += inner

    def enclosing(self, op: Op, block: Block) -> Op:
        """Returns the op of a block that an op inside of the block is, or in whose regions it is."""
        while self.place[op][0] is not block:
            op = self.parents[self.place[op][0]]
        return op

    def is_within(self, op: Op, outer: Op) -> bool:
        """Whether an op is in a region of another one."""
        while (parent := self.parents.get(self.place[op][0])) is not None:
            if parent is outer:
                return True
            op = parent
        return False

    def only(self, value: Value, reader: Op) -> bool:
        """Whether an op is the only reader of a value."""
        return self.readers.get(value) == [reader]

    def exclusive(self, sinks: Mapping[Op, Iterable[Value]], with_regions: bool = False) -> list[Op]:
        """Returns the ops in the block of some readers whose results only matter through these operands of the readers,
        in order. Ops with an effect are never among them; ops with control flow only if `with_regions`."""
        block = self.place[next(iter(sinks))][0]
        end = max(self.place[reader][1] for reader in sinks)
        wanted = {reader: {v for v in values if reader.operands.count(v) == 1} for reader, values in sinks.items()}
        found: dict[Op, None] = {}
        for op in reversed(block.ops[:end]):
            if op in sinks or not op.results or op in self.acting or (op.regions and not _is_plain(op, with_regions)):
                continue
            readers = [(r, reader) for r in op.results for reader in self.readers.get(r, ())]
            if readers and all(reader in found or r in wanted.get(reader, ()) for r, reader in readers):
                found[op] = None
        return [*found][::-1]


def _is_plain(op: Op, with_regions: bool) -> bool:
    return with_regions or op.name in (SCATTER, "stablehlo.reduce")


def runs_by_tiles(body: Block) -> bool:
    """Whether a loop runs tile by tile, with its states in registers."""
    return all(is_elementwise(op) or op.name in MAPS for op in body.ops)


def is_large(value: Value) -> bool:
    """Whether a select of an array costs more than a branch that is not predicted."""
    extents = value.tensor.extents
    return not any(isinstance(n, Size) for n in extents) and value.tensor.size >= tuning.UNIFORM_ELEMENTS


def keeps_state(uses: Uses, body: Block, select: Op) -> bool:
    """Whether one side is a state, and readers of the select return it or need a part of it."""
    if not any(v in body.arguments for v in select.operands[1:]):
        return False
    return all(_reads_part(select.result, reader) for reader in uses.readers.get(select.result, ()))


def _reads_part(value: Value, reader: Op) -> bool:
    if reader.name in ("stablehlo.return", "stablehlo.while", "stablehlo.if", "stablehlo.case"):
        return True
    if reader.name in (UPDATE, SCATTER):
        return reader.operands[0] is value and value not in reader.operands[1:]
    return OPS[reader.name].index_map is not None and is_small_part(reader.result, value)
