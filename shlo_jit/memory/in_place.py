"""Checks whether a step may overwrite an operand, and gives the reason if it may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.nest import Nest
from shlo_jit.fuse.plan import NestStep, OpStep, Step
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir import index as ix
from shlo_jit.ir.core import Value
from shlo_jit.memory.storage import Storage, are_apart, nbytes, pointwise, same_place
from shlo_jit.sizes import equal

if TYPE_CHECKING:
    from shlo_jit.memory.planner import Planner


def kept_alive(p: Planner, value: Value, step: Step) -> Refusal | None:
    """Returns why a step may not overwrite a value's memory: it is read later, or does not belong to the program. None
    if the step may."""
    storage = p.storage.get(value)
    if storage is None or not is_ours(p, storage):
        return Refusal("not-overwritable", "it is an argument or a constant, which must not change")
    if any(p.storage.get(v) is storage for v in p.read_beside(step)):
        return Refusal("read-at-same-time", "a step that runs at the same time reads it")
    end = p.finish[id(step)]
    if p.loops:
        loop = p.loops[-1]
        if id(storage) in loop.states:
            # Inside the loop, its use in this iteration counts, not its lifetime outside.
            where = "iteration" if loop.repeats else "branch"
            return Refusal("read-later", f"the {where} reads it later") if loop.states[id(storage)] > end else None
        if storage.first < loop.start:
            if not loop.repeats:
                return Refusal("read-later", "it is read later")
            return Refusal("read-by-next-iteration", "the next iteration of the loop reads it again")
    elif storage.last > end:
        return Refusal("read-later", "it is read later")
    return Refusal("read-later", "it is read later") if storage.last_read > end else None


def is_ours(p: Planner, storage: Storage) -> bool:
    """Whether the program may overwrite this memory."""
    donated = storage.kind == "argument" and storage.number in p.donated
    return donated or storage.kind in ("arena", "result")


def victim(p: Planner, step: Step, nest: Nest, value: Value) -> Storage | None:
    """The storage of an operand that this nest of the step reads for the last time, and only at the places it writes.
    None if there is no such operand."""
    beside = step.read_beside(nest)
    (store, *more) = [s for s in nest.stores if s.target is value]
    if more:
        return None
    for operand in step.reads:
        if not equal(nbytes(operand), nbytes(value)) or kept_alive(p, operand, step) is not None:
            continue
        storage = p.of(operand)
        taken = storage.kind == "arena" and value not in p.wanted
        if not (taken or storage.kind == "argument") or not equal(storage.nbytes, nbytes(value)):
            continue
        if any(p.storage.get(o.target) is storage for o in nest.stores):
            continue
        if any(p.storage.get(o) is storage for o in beside):
            continue  # other tiles or stages still need it
        same = [r for r in step.reads if p.storage.get(r) is storage]
        if all(pointwise(nest, r, store.index, value) for r in same):
            return storage
    return None


def cannot_take(p: Planner, step: Step, operand: Value, result: Value, index: tuple[ix.Expr, ...]) -> Refusal | None:
    """Returns why the result of an update cannot take over the memory of the operand it updates; None if it can."""
    storage = p.of(operand)
    refusal = kept_alive(p, operand, step)
    if refusal is not None:
        return refusal
    if result in p.storage:
        return Refusal("result-has-memory", "the result already has its own memory")
    if result in p.wanted and not (storage is p.wanted[result] or storage.kind == "argument"):
        return Refusal("result-placed-elsewhere", "the result must be written to other memory")
    if isinstance(step, NestStep):
        same = {r for r in step.reads if p.storage.get(r) is storage}
        single = step.nest.rows == 1 and not step.nest.reduce_vars
        target = ix.linearize(index, result.tensor.extents)
        shape = result.tensor.extents
        for v, at in step.nest.loads if not single else ():
            if v not in same or same_place(ix.linearize(at.index, v.tensor.extents), target):
                continue
            if equal(v.tensor.extents, shape) and are_apart(step.nest, at.index, index):
                continue
            return Refusal("update-reads-elsewhere", "the update reads it at other indices than it writes")
    if isinstance(step, OpStep):
        others = [o for o in step.op.operands if o is not operand and p.storage.get(o) is storage]
        if others or step.op.operands.count(operand) != 1:
            return Refusal("operand-used-twice", "it is also another operand of the step")
    return None
