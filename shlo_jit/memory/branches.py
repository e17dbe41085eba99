"""Memory of the results of `if` and `case`: a result takes over the memory of a value that branches return or update.

    case(k) { return x } { return dynamic_update_slice(x, u, i) }     the result is in the memory of x
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import ControlStep, PlanBlock
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Value
from shlo_jit.memory.in_place import kept_alive
from shlo_jit.memory.loops import Loop, bind_results
from shlo_jit.memory.roots import Roots
from shlo_jit.memory.storage import Copy, Storage, nbytes, view_closure, views_of
from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal

if TYPE_CHECKING:
    from shlo_jit.memory.planner import Planner


def assign_branches(p: Planner, step: ControlStep) -> None:
    """Assigns memory to the results of branches, and to the values inside of them."""
    start, end = p.begin[id(step)], p.finish[id(step)]
    kept: dict[Value, Refusal] = {}
    taken: list[Storage] = []
    for i, r in enumerate(step.op.results):
        found = _state(p, step, i, taken)
        if isinstance(found, Storage):
            taken.append(found)
            p.share(r, found, start)
        else:
            kept[r] = found
            p.define(r, start)
        p.storage[r].live(end)
    for block in step.blocks:
        targets = [p.storage[r] for r in step.op.results]
        states = {id(s): _last_use(p, block, s) for s in targets}
        p.loops.append(Loop(start, states, repeats=False))
        for r, target, v in zip(step.op.results, targets, block.results, strict=True):
            if r in kept:
                _update_there(p, block, target, v)
        bind_results(p, block, targets, [_values_in(p, block, s) for s in targets])
        p.assign(block)
        p.loops.pop()
        ends = []
        for v, r in zip(block.results, step.op.results, strict=True):
            p.of(v).live(p.finish[id(block)])
            if p.of(v) is not p.storage[r]:
                ends.append(Copy(v, r, Reason("branch-result", "the branch's result", kept.get(r))))
        p.block_end[id(block)] = p.ordered(ends, p.finish[id(block)])


def _state(p: Planner, step: ControlStep, i: int, taken: list[Storage]) -> Storage | Refusal:
    """Returns the memory that result i takes over, or why it takes over none."""
    result = step.op.results[i]
    if result in p.storage:
        return Refusal("result-has-memory", "the result already has its own memory")
    refusal: Refusal | None = None
    roots = [Roots(block).of(block.results[i]) for block in step.blocks]
    outside = [root for root, block in zip(roots, step.blocks, strict=True) if root in block.outside]
    for root in dict.fromkeys(outside):
        if root not in p.storage:
            continue  # a constant
        storage = p.storage[root]
        found = kept_alive(p, root, step)
        if result in p.wanted and not (storage is p.wanted[result] or storage.kind == "argument"):
            found = found or Refusal("result-placed-elsewhere", "the result must be written to other memory")
        fits = equal(storage.nbytes, nbytes(result)) and not equal(storage.nbytes, 0)
        if not fits:
            found = found or Refusal("other-size", "the value from outside has another size")
        elif storage in taken:
            found = found or Refusal("needed-by-branches", "another result of the branches has this memory")
        if found is None:
            return storage
        refusal = refusal or found
    return refusal or Refusal("computed-in-branches", "no branch returns or updates a value from outside")


def _update_there(p: Planner, block: PlanBlock, target: Storage, result: Value) -> None:
    """Lets a chain of updates of a value from outside, which must not be overwritten, run in the memory of the result:
    the first of them copies the value there."""
    chain = Roots(block).chain(result)
    if len(chain) > 1 and chain[-1] in block.outside and not any(v in p.storage for v in chain[:-1]):
        p.bind(chain[-2], target)


def _values_in(p: Planner, block: PlanBlock, storage: Storage) -> set[Value]:
    """Returns the values in this memory that the block reads from outside, and its views of them."""
    views = views_of(block)
    mine = [v for v in (*block.outside, *block.results) if p.storage.get(v) is storage]
    return {view for v in mine for view in view_closure(views, v)}


def _last_use(p: Planner, block: PlanBlock, storage: Storage) -> int:
    """Returns the last time at which a block reads what this memory holds when the block begins."""
    values = _values_in(p, block, storage)
    times = [p.finish[id(s)] for s in block.steps if any(v in values for v in s.reads)]
    if any(v in values for v in block.results):
        times.append(p.finish[id(block)])
    return max(times, default=-1)
