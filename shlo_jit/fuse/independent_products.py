"""Independent products next to each other.

Products of one operand, such as queries, keys and values, often have small loops after each of them, such as rotations
by position. A product that needs none of these runs before them, after the product that precedes them: both can then
share a parallel region (`schedule/regions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_jit import tuning
from shlo_jit.fuse.plan import ComputedOperandStep, NestStep, OpStep, PlanBlock, Step, ViewStep
from shlo_jit.sizes import Size


def gather_products(block: PlanBlock) -> None:
    """Moves products before small loops that they do not depend on. The block's steps stay in a valid order."""
    steps: list[Step] = []
    for step in block.steps:
        at = _place(step, steps) if _is_product(step) else len(steps)
        steps.insert(at, step)
    block.steps[:] = steps


def _place(step: Step, before: Sequence[Step]) -> int:
    """Returns where a product runs among the steps before it: after the last product, if only small loops that it does
    not read follow that one; else at the end."""
    reads = {id(value) for value in step.reads}
    for at in range(len(before) - 1, max(-1, len(before) - 1 - tuning.REGION_STEPS), -1):
        other = before[at]
        if other in step.after or any(id(value) in reads for value in other.writes):
            break
        if _is_product(other):
            return at + 1
        if not _is_small(other):
            break
    return len(before)


def _is_product(step: Step) -> bool:
    """Whether a step is a single product, which overwrites nothing."""
    product = step.product if isinstance(step, ComputedOperandStep) else step
    if not isinstance(product, OpStep) or product.op.name != "stablehlo.dot_general":
        return False
    return product.epilogue is None or product.epilogue.nest.overwrites is None


def _is_small(step: Step) -> bool:
    """Whether a step is a view or a loop that the caller runs alone, and that overwrites nothing."""
    if isinstance(step, ViewStep):
        return True
    if not isinstance(step, NestStep) or step.nest.overwrites is not None or step.nest.interchange is not None:
        return False
    extents = step.nest.extents
    return not any(isinstance(n, Size) for n in extents) and math.prod(extents) <= tuning.TASK_WORK
