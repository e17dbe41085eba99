"""The value that a chain of updates starts from."""

from __future__ import annotations

from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep
from shlo_jit.ir.core import Value
from shlo_jit.ops.in_place import updates


class Roots:
    """The roots of the values of a block: a root is an argument of the block, a value from outside of it, or one that a
    step computes as a whole."""

    def __init__(self, block: PlanBlock) -> None:
        self.writers = {v: s for s in block.steps for v in s.writes}
        self.found: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        """Returns the value that another one is made from by changing parts of it."""
        chain = []
        while value not in self.found:
            chain.append(value)
            step = self.writers.get(value)
            before = _updated(step, value) if step is not None else None
            if before is None:
                self.found[value] = value
                break
            value = before
        root = self.found[value]
        self.found.update(dict.fromkeys(chain, root))
        return root

    def chain(self, value: Value) -> list[Value]:
        """Returns a value and those that it is made from by changing parts, without views; the root comes last."""
        chain = [value]
        while (step := self.writers.get(value)) is not None and (before := _updated(step, value)) is not None:
            value = before
            chain = [*chain[:-1], value] if isinstance(step, ViewStep) else [*chain, value]
        return chain

    def changes(self, olds: set[Value], but: Value) -> bool:
        """Whether a step makes another value than `but` by an update of one of the old values."""
        steps = (v for v, s in self.writers.items() if v is not but and not isinstance(s, ViewStep))
        return any(v not in olds and self.of(v) in olds for v in steps)


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
    roots = [Roots(inner).of(inner.results[i]) for inner in step.blocks]
    outside = [r for r, inner in zip(roots, step.blocks, strict=True) if r in inner.outside]
    return outside[0] if outside else None
