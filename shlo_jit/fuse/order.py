"""The order of a block's steps: one their dependencies allow, as near to the program's as possible."""

from __future__ import annotations

from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, Step
from shlo_jit.ir.core import Op, Value
from shlo_jit.ops import OPS

Users = dict[Value, list[Step]]


def ordered(steps: list[Step], producers: Users, readers: Users) -> list[Step]:
    """Steps in order. `producers` and `readers`: by value, the steps that write and read it."""
    order_effects(steps)
    for step in steps:
        for value in step.reads:
            step.after.extend(p for p in producers.get(value, []) if p is not step)
    readers_before_updates(steps, readers)
    out: list[Step] = []
    done: set[int] = set()
    active: set[int] = set()
    for root in sorted(steps, key=lambda s: s.position):
        stack = [(root, False)]
        while stack:
            step, leaving = stack.pop()
            if leaving:
                active.discard(id(step))
                if id(step) not in done:
                    done.add(id(step))
                    out.append(step)
                continue
            if id(step) in done:
                continue
            assert id(step) not in active, "a cycle of steps"
            active.add(id(step))
            stack.append((step, True))
            before = [s for s in step.after if id(s) not in done]
            stack.extend((s, False) for s in sorted(before, key=lambda s: -s.position))
    return out


def depends(step: Step, on: Step) -> bool:
    """Whether `step` must run after `on`, by what is known so far."""
    seen, todo = {id(step)}, [step]
    while todo:
        for before in todo.pop().after:
            if before is on:
                return True
            if id(before) not in seen:
                seen.add(id(before))
                todo.append(before)
    return False


def order_effects(steps: list[Step]) -> None:
    """Steps with effects keep the program's order."""
    previous: Step | None = None
    for step in sorted(steps, key=lambda s: s.position):
        if isinstance(step, (OpStep, ControlStep)) and has_effect(step.op):
            if previous is not None:
                step.after.append(previous)
            previous = step


def readers_before_updates(steps: list[Step], readers: Users) -> None:
    """Run the other readers of an updated buffer first, so that the update can take the buffer over."""
    for step in steps:
        if not isinstance(step, NestStep) or step.nest.overwrites is None:
            continue
        for reader in readers.get(step.nest.overwrites, []):
            if reader is not step and not depends(reader, step):
                step.after.append(reader)


def has_effect(op: Op) -> bool:
    """The op, or one inside its regions, must stay in order with others of its kind."""
    record = OPS.get(op.name)
    if op.name == "stablehlo.custom_call":
        return bool(op.attributes.get("has_side_effect", False))
    if record is not None and record.has("side_effect"):
        return True
    return any(has_effect(o) for r in op.regions for b in r.blocks for o in b.ops)
