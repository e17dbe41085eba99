"""A rough upper bound on the work of a step, in additions. Known at compile time, unless a `while` prevents that.

The callers need to know that something is *not* long. So kernels whose work depends on their algorithm count as if
every element were combined with every other.
"""

from __future__ import annotations

import math

from shlo_jit import tuning
from shlo_jit.fuse.costs import cost
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, all_steps
from shlo_jit.ir.core import Op, Value
from shlo_jit.ir.types import TensorType
from shlo_jit.ops.grouped import grouped_of
from shlo_jit.sizes import upper_bound_of


def step_work(step: Step) -> int:
    """Work of a step itself, without the blocks inside it."""
    if isinstance(step, NestStep):
        nest = step.nest
        if nest.interchange is not None:
            return tuning.PAUSE_WORK  # it was scheduled to take about that long
        return tuning.STEP_WORK + math.prod(nest.extents) * (
            len(nest.loads) + sum(cost(n.op) for n in nest.nodes.values())
        )
    own = _op_work(step.op) if isinstance(step, OpStep) else 0
    return tuning.STEP_WORK + own + sum(map(step_work, step.parts))


def _op_work(op: Op) -> int:
    if grouped_of(op) is not None:
        return _size(op.operands[0]) * _size(op.operands[1])
    if op.name in ("stablehlo.custom_call", "func.call"):
        return tuning.SHORT_WORK  # unknown; for functions, known to whoever lowered them
    if op.name == "stablehlo.replica_id":
        return 1
    operands, results = ([_size(v) for v in values] for values in (op.operands, op.results))
    if op.name == "stablehlo.dot_general":
        numbers, lhs = op.attributes["dot_dimension_numbers"], op.operands[0].tensor
        return results[0] * math.prod(lhs.extents[int(d)] for d in numbers.get("lhs_contracting_dimensions", ()))
    if op.name == "stablehlo.convolution":
        return results[0] * operands[1]
    elements = sum(operands) + sum(results)
    windows = math.prod(op.ints("window_dimensions")) * elements if "window_dimensions" in op.attributes else 0
    return elements * elements + windows


def _size(value: Value) -> int:
    return value.type.size if isinstance(value.type, TensorType) else 1


def is_short(plan: PlanBlock) -> bool:
    """Whether a program finishes in microseconds, whatever its arguments are."""
    work = 0
    for step in all_steps(plan):
        if isinstance(step, ControlStep) and step.op.name == "stablehlo.while":
            return False
        work += upper_bound_of(step_work(step))
        if work > tuning.SHORT_WORK:
            return False
    return True
