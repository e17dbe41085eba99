"""Ops that prepare weights: operands of products and convolutions computed from constants only, by a transpose,
convert, slice, a multiplication by a scale and the like. Sums of integers, which correct zero points, count as readers,
too, and so do transposes, of scales for example.

Such ops are computed when the program is compiled, whatever their size, if constants do not grow by that: all results
that are computed from some constants, and those of the constants that are still read, take no more bytes than the
constants, but for a small amount. At run time the ops would be computed again in every call, and only a constant is
packed into its kernel's layout once (`schedule/products.py`). Results that are larger, such as the floats of
dequantized weights, are computed at run time from narrow constants; their operands may still be computed now.

    dot_general(%x, convert(transpose(%i8)))   ->   dot_general(%x, convert(%transposed))
    reduce(convert(%i8), add)                  ->   %sums: the wide result of convert is only temporary
    concatenate(and(%i8, 15), shift(%i8, 4))   ->   the same: both halves take twice the bytes
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from shlo_jit import tuning
from shlo_jit.ir.core import Block, Op, Value
from shlo_jit.ir.types import DType, TensorType
from shlo_jit.ops import OPS

PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
REDUCERS = {"stablehlo.add": np.add, "stablehlo.maximum": np.maximum, "stablehlo.minimum": np.minimum}


def reducer_of(op: Op) -> np.ufunc | None:
    """Returns the ufunc of a `reduce` with one integer operand if its body is a single op: the order does not matter
    then."""
    if op.name != "stablehlo.reduce" or len(op.operands) != 2:
        return None
    dtype, body = op.operands[0].tensor.storage, op.block()
    if not dtype.is_integer or dtype.bits < 8 or len(body.ops) != 2:
        return None
    inner, end = body.ops
    straight = inner.operands == body.arguments and end.operands == inner.results
    return REDUCERS.get(inner.name) if straight else None


class Weights(NamedTuple):
    """Ops that prepare weights, such that the constants do not grow."""

    ops: dict[Op, set[Op]]
    """Each op with the constants that it is computed from."""
    consumed: set[Op]
    """Those of the constants that nothing else reads."""


def weight_ops(function: Op) -> Weights:
    """Returns the ops of all blocks that prepare weights."""
    roots = [v for op in _ops_of(function.block()) for v in _weights_of(op)]
    sources, refused, rounds = _Sources(), set[Value](), 0
    while True:
        found = _candidates(roots, refused, sources, tries_operands=rounds < tuning.FOLD_ROUNDS)
        needed = _needed(function.block(), found) if found else set[Value]()
        growing = _growing(found, needed)
        if not growing:
            return Weights(found, {c for constants in found.values() for c in constants if c.result not in needed})
        refused |= growing
        rounds += 1


def _weights_of(op: Op) -> list[Value]:
    """Values that are worth computing: operands of products, transposes, and reductions."""
    if op.name in PRODUCTS:
        return op.operands
    return op.results if op.name == "stablehlo.transpose" or reducer_of(op) is not None else []


def _ops_of(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from _ops_of(inner)


def _candidates(
    roots: list[Value], refused: set[Value], sources: _Sources, *, tries_operands: bool
) -> dict[Op, set[Op]]:
    """Maps ops to the constants that they are computed from: the last ones before the roots that take no more bytes
    than these. Where one is refused, tries its operands, or nothing."""
    found: dict[Op, set[Op]] = {}
    seen: set[Value] = set()
    todo = [*roots]
    while todo:
        value = todo.pop()
        op = value.op
        if op is None or value in seen or _is_constant(op):
            continue
        seen.add(value)
        constants = sources.of(value)
        if constants is None:
            continue
        is_narrow = value.tensor.constant_nbytes <= _most_bytes(constants)
        if is_narrow and value not in refused:
            found[op] = constants
        elif not is_narrow or tries_operands:
            todo += op.operands
    return found


def _growing(found: dict[Op, set[Op]], needed: set[Value]) -> set[Value]:
    """Returns the results of those ops by which constants would grow, if all of the ops were computed. `needed`: the
    values that are read then."""
    growing: set[Value] = set()
    for ops, constants in _groups(found):
        stored = [op.result for op in ops] + [c.result for c in constants if c.result in needed]
        if sum(v.tensor.constant_nbytes for v in stored) > _most_bytes(constants):
            growing.update(op.result for op in ops)
    return growing


def _groups(found: dict[Op, set[Op]]) -> list[tuple[list[Op], set[Op]]]:
    """Groups ops that are computed from the same constants, directly or through others of the group."""
    groups: list[tuple[list[Op], set[Op]]] = []
    group_of: dict[Op, int] = {}
    for op, constants in found.items():
        met = sorted({group_of[c] for c in constants if c in group_of})
        ops, all_constants = [op], set(constants)
        for number in met:
            ops += groups[number][0]
            all_constants |= groups[number][1]
            groups[number] = [], set()
        group_of |= dict.fromkeys(all_constants, len(groups))
        groups.append((ops, all_constants))
    return groups


def _needed(block: Block, computed: Collection[Op]) -> set[Value]:
    """Returns the values that ops read if some ops have been computed, and no op without a reader remains."""
    needed: set[Value] = set()

    def visit(block: Block) -> None:
        for op in reversed(block.ops):
            is_read = any(r in needed for r in op.results)
            if op in computed or not (is_read or op.regions or not is_computable(op)):
                continue
            for region in op.regions:
                for inner in region.blocks:
                    visit(inner)
            needed.update(op.operands)

    visit(block)
    return needed


def _is_constant(op: Op) -> bool:
    return op.name == "stablehlo.constant"


def _most_bytes(constants: set[Op]) -> int:
    """Maximum bytes of what is computed from constants, each counted once. A splat has none."""
    known = sum(0 if op.constant.is_splat else op.result.tensor.constant_nbytes for op in constants)
    return known + max(tuning.FOLD_BYTES, known // tuning.FOLD_SHARE) if known else 0


class _Sources:
    """The constants that values are computed from."""

    def __init__(self) -> None:
        self.known: dict[Value, set[Op] | None] = {}

    def of(self, value: Value) -> set[Op] | None:
        """Returns the constants, each once. None if the value depends on anything else, if its bits could differ from
        those at run time, or if too much is computed on the way."""
        if value not in self.known:
            self.known[value] = self._of(value)
        return self.known[value]

    def _of(self, value: Value) -> set[Op] | None:
        seen, constants = {value}, set[Op]()
        todo, temporary = [value], 0
        while todo:
            current = todo.pop()
            op = current.op
            if op is not None and _is_constant(op):
                constants.add(op)
            elif op is None or not is_computable(op):
                return None
            else:
                new = dict.fromkeys(o for o in op.operands if o not in seen)
                seen.update(new)
                todo += new
            temporary += _temporary_bytes(current, value)
            if temporary > tuning.FOLD_TEMPORARY_BYTES or len(seen) > tuning.WEIGHT_OPS:
                return None
        return constants


def _temporary_bytes(value: Value, result: Value) -> int:
    """Bytes that a value takes only as long as a result is computed from constants: intermediate results, and elements
    that are kept packed."""
    t, op = value.tensor, value.op
    is_kept = value is result
    if op is not None and _is_constant(op):
        if op.constant.is_splat:
            return 0
        is_kept = True
    return 0 if is_kept and not t.storage.is_packable else t.nbytes


def is_computable(op: Op) -> bool:
    """Whether an op can be computed from its operands with the bits it has at run time."""
    if len(op.results) != 1 or not op.operands or not all(map(_has_array, (*op.operands, op.result))):
        return False
    if reducer_of(op) is not None:
        return True
    record = OPS.get(op.name)
    if op.regions or record is None or record.reference is None:
        return False
    return record.is_exact_on(*(o.tensor.storage for o in op.operands))


def _has_array(value: Value) -> bool:
    """Whether an array can hold the value: its extents are numbers, and it is not quantized."""
    t = value.type
    return isinstance(t, TensorType) and t.is_fixed and isinstance(t.dtype, DType)
