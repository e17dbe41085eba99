"""What a step moves and computes at least, for people who want to know how near to the machine's limits it runs.

Bytes: every element that is read or written counts once, whatever the caches make of it. Operations: each arithmetic
op on an element is one, a multiply-add two; so is an elementary function, which takes more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import NestStep, OpStep, Step
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.index import At, variables
from shlo_jit.ir.types import TensorType


def step_bytes(step: Step) -> int:
    """Bytes that a step reads and writes; of control flow and views none."""
    if isinstance(step, NestStep):
        return _nest_bytes(step.nest, set())
    if not isinstance(step, OpStep):
        return 0
    read = sum(map(_nbytes, dict.fromkeys(step.operands)))
    if step.epilogue is None:
        return read + sum(map(_nbytes, step.op.results))
    return read + _nest_bytes(step.epilogue.nest, {step.op.result})


def _nest_bytes(nest: Nest, but: set[Value]) -> int:
    """Of a nest; `but`: values that it finds in the cache."""
    read: dict[Value, int] = {}
    for value, at in nest.loads:
        read[value] = read.get(value, 0) + _visits(nest, at) * value.tensor.storage.itemsize
    moved = sum(min(nbytes, _nbytes(value)) for value, nbytes in read.items() if value not in but)
    return moved + sum(_visits(nest, At(s.index)) * s.target.tensor.storage.itemsize for s in nest.stores)


def _visits(nest: Nest, at: At) -> int:
    """Different places that a place is, over the nest's loops."""
    return math.prod(nest.extents[v] for v in variables(at))


def _nbytes(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) else 0


def step_operations(step: Step) -> int | None:
    """Arithmetic operations of a step; None where that depends on values, or nobody knows."""
    if isinstance(step, NestStep):
        return _nest_operations(step.nest) if step.nest.turns is None else None
    if not isinstance(step, OpStep):
        return None
    own = _op_operations(step.op)
    if own is None:
        return own
    parts = [step.epilogue, *(step.attention[:2] if step.attention is not None else [])]
    return own + sum(step_operations(part) or 0 for part in parts if part is not None)


def _nest_operations(nest: Nest) -> int:
    total = 0
    for (_, at), node in nest.nodes.items():
        if node.op.name == "stablehlo.reduce":
            body = sum(1 for op in node.op.block().ops[:-1] if cost(op))
            total += body * node.op.operands[0].tensor.size
        elif cost(node.op):
            total += _visits(nest, at)
    return total


def _op_operations(op: Op) -> int | None:
    operands, result = op.operands, op.results[0] if op.results else None
    if op.name == "stablehlo.dot_general":
        lhs, numbers = operands[0].tensor, op.attributes["dot_dimension_numbers"]
        return 2 * op.result.tensor.size * math.prod(lhs.extents[int(d)] for d in _contracting(numbers))
    if op.name == "stablehlo.convolution":
        features = op.result.tensor.extents[op.attributes["dimension_numbers"].output_feature_dimension]
        return 2 * op.result.tensor.size * operands[1].tensor.size // max(1, features)
    if op.name == "stablehlo.reduce_window":
        return op.result.tensor.size * math.prod(op.ints("window_dimensions")) if result is not None else None
    if op.name == "stablehlo.fft":
        n = math.prod(op.ints("fft_length"))
        return int(5 * max(o.tensor.size for o in (operands[0], op.result)) * math.log2(max(2, n)))
    if op.name == "stablehlo.cholesky":
        n = op.result.tensor.extents[-1]
        return op.result.tensor.size * n // 3
    if op.name == "stablehlo.triangular_solve":
        return op.result.tensor.size * op.operands[0].tensor.extents[-1]
    return None


def _contracting(numbers: object) -> Iterable[int]:
    return numbers.get("lhs_contracting_dimensions", ())  # type: ignore[attr-defined]
