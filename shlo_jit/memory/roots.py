"""The value that a chain of updates starts from."""

from __future__ import annotations

from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep, updates
from shlo_jit.ir.core import Value


def root_of(block: PlanBlock, value: Value) -> Value:
    """Returns the value that another one is made from by changing parts of it: an argument of the block, a value from
    outside of it, or one that a step computes."""
    writers = {v: s for s in block.steps for v in s.writes}
    while (step := writers.get(value)) is not None:
        before = _updated(step, value)
        if before is None:
            return value
        value = before
    return value


def _updated(step: Step, value: Value) -> Value | None:
    """Returns the value of which a step makes another one by changing a part; None if it computes all of it."""
    if isinstance(step, ViewStep):
        return step.op.operands[0]
    if isinstance(step, NestStep):
        return step.nest.overwrites if step.writes[0] is value else None
    if isinstance(step, OpStep):
        return next((o for o, r in updates(step.op) if r is value), None)
    if not isinstance(step, ControlStep):
        return None
    i = step.op.results.index(value)
    if step.op.name == "stablehlo.while":
        return step.op.operands[i]
    roots = [root_of(inner, inner.results[i]) for inner in step.blocks]
    outside = [r for r, inner in zip(roots, step.blocks, strict=True) if r in inner.outside]
    return outside[0] if outside else None
