"""The order of a block's steps: compatible with their dependencies, and as close to the program's order as possible."""

from __future__ import annotations

from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, Step
from shlo_jit.ir.core import Value
from shlo_jit.ops.effects import acts
from shlo_jit.ops.in_place import updates

Users = dict[Value, list[Step]]


def ordered(steps: list[Step], producers: Users, readers: Users) -> list[Step]:
    """Returns the steps in order. `producers` and `readers` map a value to the steps that write and read it."""
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


def depends(step: Step, *on: Step) -> bool:
    """Whether `step` must run after one of `on`, by the dependencies known so far. True if the search would be long."""
    wanted = {id(s) for s in on}
    seen, todo = {id(step)}, [step] if wanted else []
    while todo:
        for before in todo.pop().after:
            if id(before) in wanted:
                return True
            if id(before) not in seen:
                seen.add(id(before))
                todo.append(before)
        if len(seen) > tuning.ORDER_SEARCH:
            return True
    return False


def step_acts(step: Step) -> bool:
    """Whether the step, or one inside it, has an effect."""
    if isinstance(step, ControlStep):
        return any(block.acts for block in step.blocks)
    return isinstance(step, OpStep) and acts(step.op)


def readers_before_updates(steps: list[Step], readers: Users) -> None:
    """Makes the other readers of an updated buffer run first, so that the update can reuse the buffer."""
    for step in steps:
        others = [r for value in _updated(step) for r in readers.get(value, []) if r is not step]
        step.after += _independent(others, step)


def _independent(steps: list[Step], update: Step) -> list[Step]:
    """Returns the steps that do not depend on an update. Steps known to be independent are not searched again; after
    `ORDER_SEARCH` steps, a dependence is assumed."""
    independent: set[int] = set()
    found: list[Step] = []
    for step in steps:
        seen, todo, is_dependent = {id(step)}, [step], False
        while todo and not is_dependent:
            for before in todo.pop().after:
                is_dependent = is_dependent or before is update
                if id(before) not in seen and id(before) not in independent:
                    seen.add(id(before))
                    todo.append(before)
            is_dependent = is_dependent or len(seen) > tuning.ORDER_SEARCH
        if not is_dependent:
            independent |= seen
            found.append(step)
    return found


def _updated(step: Step) -> list[Value]:
    """The values whose memory a step may overwrite."""
    if isinstance(step, NestStep):
        return [step.nest.overwrites] if step.nest.overwrites is not None else []
    if isinstance(step, OpStep):
        return [operand for operand, _ in updates(step.op)]
    if not isinstance(step, ControlStep):
        return []
    if step.op.name == "stablehlo.while":
        return step.op.operands
    types = [r.type for r in step.op.results if r.tensor.rank]
    return [v for v in step.reads if v.type in types]
