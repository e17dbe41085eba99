"""The state of fusion: the steps so far, and which nests read which values.

A value is *pending* in every nest that reads it, until its producer is decided. `memory` has the reasons that force
values into memory.
"""

from __future__ import annotations

import math

from shlo_jit import tuning
from shlo_jit.fuse.choices import Choices
from shlo_jit.fuse.maps import operand_places
from shlo_jit.fuse.nest import Nest, Node, Store
from shlo_jit.fuse.plan import NestStep, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.fuse.state_reads import EarlyValues
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.index import At, NotAffine, Split
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.reasons import Reason
from shlo_jit.sizes import hint_of

TERMINATORS = {"stablehlo.return", "func.return"}


def is_packed_view(op: Op) -> bool:
    """Whether an op's result is elements that share bytes, in the memory of its operand, which no loop computes
    (`passes/packed_fields.py`)."""
    return op.name in ("stablehlo.bitcast_convert", "stablehlo.reshape") and op.result.tensor.is_packed


def is_small_unpacked(op: Op, nest: Nest) -> bool:
    """Whether elements that an op moves have been packed, and a nest would unpack each of them many times, as it would
    zero points of groups."""
    value, size = op.result, hint_of(op.result.tensor.size)
    if any(hint_of(math.prod(nest.extents)) < tuning.UNPACKED_AGAIN * size for _ in nest.pending[value]):
        return False
    source = op
    while source.name in ("stablehlo.reshape", "stablehlo.convert") and not source.operands[0].tensor.is_packed:
        before = source.operands[0].op
        if before is None:
            return False
        source = before
    return source.name == "stablehlo.convert"


def is_inline_constant(value: Value) -> bool:
    """Whether a value is a splat constant: it needs no memory and may be used in any block."""
    return value.op is not None and is_inline_constant_op(value.op)


def is_inline_constant_op(op: Op) -> bool:
    return op.name == "stablehlo.constant" and op.constant.is_splat


def has_plain_body(op: Op) -> bool:
    """Whether the reducer consists of elementwise ops and constants."""
    ops = op.block().ops
    return all(is_elementwise(o) or is_inline_constant_op(o) or o.name in TERMINATORS for o in ops)


def is_fusible(op: Op) -> bool:
    """Whether an op can be computed one element at a time, wherever it is read."""
    if op.name == "stablehlo.pad":
        return not any(op.ints("interior_padding"))
    if op.name == "stablehlo.constant":
        return is_inline_constant(op.result)
    return OPS[op.name].index_map is not None or is_elementwise(op)


def _too_complicated(op: Op, places: list[At]) -> Refusal | None:
    """Returns why an op is not inlined into a nest: it is read at too many indices, or at too complicated ones."""
    if len(places) > tuning.MOST_PLACES:
        return Refusal(
            "many-indices", f"a loop reads it at {len(places)} indices; at most {tuning.MOST_PLACES} are fused"
        )
    if op.operands and any(ix.terms_of(at, tuning.PLACE_TERMS) > tuning.PLACE_TERMS for at in places):
        return Refusal(
            "intricate-index", f"a loop reads it at an index of more than {tuning.PLACE_TERMS} terms and conditions"
        )
    return None


class Grouping:
    """The grouping of the ops of one block into steps."""

    def __init__(self, block: Block):
        self.block = block
        self.here = {id(op): i for i, op in enumerate(block.ops)}
        """The position of each op of the block, by its id()."""
        self.choices = Choices(block)
        self.early = EarlyValues({}, {}, set())
        """Values that have to be written before updates of the tensors that they are read from."""
        self.steps: list[Step] = []
        self.step_of: dict[Nest, NestStep] = {}
        self.memory: dict[Value, Reason] = {}
        """Values that must be in memory, and why."""
        self.producers: dict[Value, list[Step]] = {}
        self.readers: dict[Value, list[Step]] = {}
        self.reading: set[tuple[Step, Value]] = set()
        """Pairs of a step and a value in its `reads`."""
        self.wanting: dict[Value, list[Nest]] = {}
        """Value -> nests in which it is pending (a nest may stay listed when it no longer is)."""

    def new_nest(self, position: int) -> Nest:
        nest = Nest([])
        step = NestStep(position=position, nest=nest)
        self.step_of[nest] = step
        self.steps.append(step)
        return nest

    # ------------------------------------------------------------------ values that nests want
    def request(self, nest: Nest, value: Value, at: At) -> None:
        if is_inline_constant(value):
            nest.nodes.setdefault((value, at), Node(value.op, []))  # type: ignore[arg-type]
            return
        nest.request(value, at)
        if value.op is None or id(value.op) not in self.here:
            self.load(nest, value)
        else:
            self.wanting.setdefault(value, []).append(nest)

    def nests_wanting(self, value: Value) -> list[Nest]:
        return list(dict.fromkeys(nest for nest in self.wanting.get(value, ()) if value in nest.pending))

    def load(self, nest: Nest, value: Value) -> None:
        """Resolves the pending places of a value as loads from memory."""
        for at in nest.pending.pop(value, []):
            nest.loads[(value, at)] = None
        step = self.step_of[nest]
        if (step, value) not in self.reading:
            self.read(step, value)
            step.after.extend(self.producers.get(value, []))

    def inline(self, op: Op, nest: Nest) -> Refusal | None:
        """Computes the op inside a nest, at every place where it is pending there."""
        value = op.result
        refusal = _too_complicated(op, nest.pending[value])
        if refusal is not None:
            return refusal
        unpacks = self.choices.unpacks(op) and self.choices.rearranged(op) is None
        while True:
            try:
                places = nest.pending[value]
                found = [(at, operand_places(op, at, nest.extents, unpacks=unpacks)) for at in places]
                break
            except Split as split:
                if is_small_unpacked(op, nest):
                    return Refusal(
                        "splits-loop", "reading it in place splits a loop over elements in order, and it is small"
                    )
                nest.split(split.var, split.factor)
            except NotAffine:
                return Refusal(
                    "not-affine",
                    f"no affine map leads from the indices of its reader through the {op.name.partition('.')[2]}",
                )
        del nest.pending[value]
        for at, operands in found:
            nest.nodes[(value, at)] = Node(op, list(operands))
            for o, place in operands:
                self.request(nest, o, place)
        return None

    # ------------------------------------------------------------------ memory
    def read(self, step: Step, value: Value) -> None:
        """Records that a step reads a value from memory."""
        if (step, value) not in self.reading:
            self.reading.add((step, value))
            step.reads.append(value)
            self.readers.setdefault(value, []).append(step)
        self.memory.setdefault(value, Reason("read-by-step", f"read by a {step.title}"))

    def write(self, step: Step, value: Value, why: Reason | None) -> None:
        """Records that a step writes a value to memory, and why."""
        step.writes.append(value)
        if why is not None:
            step.why.setdefault(value, why)
        self.producers.setdefault(value, []).append(step)
        for reader in self.readers.get(value, []):
            if reader is not step:
                reader.after.append(step)

    def store(self, nest: Nest, value: Value, at: At, why: Reason) -> None:
        """Makes a nest write a value that it computes at `at` to the same index of its memory."""
        nest.stores.append(Store(value, at, value, at.index))
        self.write(self.step_of[nest], value, why)
