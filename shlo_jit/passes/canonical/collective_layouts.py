"""Bring collective ops into a form for a single exchange: contiguous blocks, or long rows, of one operand.

Needs: process numbers, static shapes. Guarantees: an all_to_all splits and concatenates along dimension 0. An
all_gather or reduce_scatter works along an inner dimension only if a row of a member's part (from that dimension on)
has tuning.COLLECTIVE_ROW_BYTES. Otherwise it works along dimension 0, which then counts the members. Each op has one
operand of its result's element type, an all_reduce at most MOST_OPERANDS (plus a dynamic root). If the program used
other dimensions, the attribute `written_along` still has them: all processes of a group must have the same ones. The
calls that start an op early (`flatten`) have the same operands as the op. Each such pair has its own number.

    all_gather(x: 8x2xf32, dim 1) of 4    ->   y = all_gather(reshape x: 1x8x2, dim 0): 4x8x2; reshape(transpose y): 8x8
    all_to_all(x, split 1, concat 0)      ->   reshape(all_to_all(transpose(reshape x), split 0, concat 0))
    collective_permute(x, y)              ->   collective_permute(x), collective_permute(y)
    all_reduce(x: bf16) { f32 + f32 }     ->   all_reduce(convert x) { f32 + f32 }
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.ir.attributes import IntegerAttr
from shlo_jit.ir.core import Block, Op, Region, Value, blocks_in, walk
from shlo_jit.ir.types import TensorType, Type, tensor
from shlo_jit.kernels.collective.board import POINTERS
from shlo_jit.ops.collective import WRITTEN_ALONG, may_use_row_dimension
from shlo_jit.ops.known_calls import START
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite

MOST_OPERANDS = POINTERS // 2
"""Maximum operands of one op: a message has an address for each of them, and for each result."""
OPS = frozenset(
    "stablehlo." + n
    for n in (
        "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "collective_reduce",
        "reduce_scatter",
    )
)  # fmt: skip
ALONG = {
    "stablehlo.all_gather": ("all_gather_dim",),
    "stablehlo.reduce_scatter": ("scatter_dimension",),
    "stablehlo.all_to_all": ("split_dimension", "concat_dimension"),
}
"""Attributes with the dimensions that an op works along."""


def collective_layouts(function: Op, _: Context) -> Op:
    """The function with those collective ops."""
    if not any(op.name in OPS or is_start(op) for op in walk(function.block())):
        return function
    return rewrite(function, _Layouts(function.block()).visit)


class _Layouts:
    """A visitor. Ops that are started early get their operands where they start."""

    def __init__(self, block: Block) -> None:
        self.finishes = finishes(block)
        self.finished = set(self.finishes.values())
        self.ready: dict[Op, list[Value]] = {}

    def visit(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        if is_start(op):
            return self.start(rw, op, operands)
        if op.name not in OPS:
            return None
        ready = self.ready.get(op) or _ready_all(rw, op, operands)
        if op.name == "stablehlo.all_reduce":
            return [v for first in range(0, len(ready), MOST_OPERANDS) for v in self.reduced(rw, op, ready, first)]
        roots = operands[len(op.results) :]
        out = []
        for i, value in enumerate(ready):
            root = [mk.slice_dim(rw, r, 0, i, i + 1) for r in roots] if len(op.results) > 1 else roots
            (found,) = self.emit(rw, op, [value, *root], [_type(op, i)], is_ready=_is_ready(op, i))
            out.append(_finished(rw, op, i, found))
        return out

    def reduced(self, rw: Rewriter, op: Op, ready: list[Value], first: int) -> list[Value]:
        """Emits an all_reduce of at most MOST_OPERANDS operands, from `first` on."""
        types = [r.type for r in op.results[first : first + MOST_OPERANDS]]
        return self.emit(rw, op, ready[first : first + MOST_OPERANDS], types)

    def start(self, rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value]:
        finish = self.finishes.get(op)
        if finish is None:
            return []
        self.ready[finish] = _ready_all(rw, finish, operands)
        return rw.emit(op.name, self.ready[finish], [], op.attributes)

    def emit(
        self, rw: Rewriter, op: Op, operands: list[Value], types: Sequence[Type], is_ready: bool = True
    ) -> list[Value]:
        """Emits the op on operands in its final form. `is_ready`: along its own dimensions, otherwise along the new
        leading one."""
        attributes = {k: v for k, v in op.attributes.items() if k != "started" or op in self.finished}
        if not is_ready:
            attributes |= dict.fromkeys(ALONG[op.name], IntegerAttr(0))
            attributes[WRITTEN_ALONG] = tuple(op.attributes[name] for name in ALONG[op.name])
        regions = [Region([rw.sweep(b) for b in r.blocks]) for r in op.regions]
        return rw.emit(op.name, operands, types, attributes, regions)


def is_start(op: Op) -> bool:
    return op.name == "stablehlo.custom_call" and op.attributes["call_target_name"] == START


def finishes(block: Block) -> dict[Op, Op]:
    """Returns calls that start ops early -> these ops, in order: they have the same operands and are in the same block,
    with the op after the call. Ops of several operands are left out, except for all_reduce: they are split."""
    found: dict[Op, Op] = {}
    for each in blocks_in(block):
        begun: dict[object, Op] = {}
        for op in each.ops:
            if is_start(op):
                begun[op.attributes["started"]] = op
            elif "started" in op.attributes:
                start = begun.pop(op.attributes["started"], None)
                single = len(op.operands) == 1 or (
                    op.name == "stablehlo.all_reduce" and len(op.operands) <= MOST_OPERANDS
                )
                if start is not None and single and start.operands == op.operands:
                    found[start] = op
    return found


# ---------------------------------------------------------------------------- forms
def _is_ready(op: Op, i: int) -> bool:
    """Whether an op with only operand i may work along its own dimensions."""
    if op.name == "stablehlo.all_to_all":
        return op.int("split_dimension") == op.int("concat_dimension") == 0
    return op.name not in ALONG or may_use_row_dimension(op, i)


def _members(op: Op) -> int:
    """Returns the number of members of a group."""
    return op.attributes["replica_groups"].type.extents[1]


def _ready_all(rw: Rewriter, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Returns the operands that are sent to other processes, each in the form that the op takes."""
    return [_ready(rw, op, i, v) for i, v in enumerate(operands[: len(op.results)])]


def _ready(rw: Rewriter, op: Op, i: int, operand: Value) -> Value:
    """Returns operand i in the element type of its result. If the op is not in its final form yet, a leading dimension
    counts blocks: one per member, but a single one for an all_gather's operand."""
    if op.regions:
        operand = mk.convert(rw, operand, op.results[i].tensor.storage)
    if _is_ready(op, i):
        return operand
    if op.name == "stablehlo.all_gather":
        return mk.reshape(rw, operand, (1, *mk.shape_of(operand)))
    d = op.int("split_dimension" if op.name == "stablehlo.all_to_all" else "scatter_dimension")
    return _blocks(rw, operand, d, _members(op))


def _type(op: Op, i: int) -> TensorType:
    """Returns the type of the op's result for operand i, in its final form."""
    t = op.results[i].tensor
    shape = list(t.extents)
    if _is_ready(op, i):
        return t
    if op.name == "stablehlo.reduce_scatter":
        return tensor((1, *shape), t.storage)
    shape[op.int(ALONG[op.name][-1])] //= _members(op)
    return tensor((_members(op), *shape), t.storage)


def _finished(rw: Rewriter, op: Op, i: int, value: Value) -> Value:
    """Returns result i as in the program, computed from the result of the op in its final form."""
    shape = mk.shape_of(op.results[i])
    if _is_ready(op, i) or op.name == "stablehlo.reduce_scatter":
        return mk.reshape(rw, value, shape)
    d = op.int(ALONG[op.name][-1])
    order = [*range(1, d + 1), 0, *range(d + 1, value.tensor.rank)]
    return mk.reshape(rw, mk.transpose(rw, value, order), shape)


def _blocks(rw: Rewriter, value: Value, d: int, count: int) -> Value:
    """Divides a value into blocks along dimension d, with the number of the block as the leading dimension."""
    shape = mk.shape_of(value)
    cut = mk.reshape(rw, value, (*shape[:d], count, shape[d] // count, *shape[d + 1 :]))
    return mk.transpose(rw, cut, [d, *(i for i in range(len(shape) + 1) if i != d)])
