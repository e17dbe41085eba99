"""The final decision on temporal tiling: loops that run several iterations per pass over a stripe of their arrays.

`schedule/temporal_tiling.py` says how such a loop would run. That is legal if an iteration writes each state where the
iteration after the next expects it. This is known only after memory planning, and no earlier stage depends on it. So
this stage decides, once; lowering follows the schedule.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_jit.fuse.nest import Store
from shlo_jit.fuse.plan import ControlStep, NestStep, PlanBlock, all_steps
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Value
from shlo_jit.memory.storage import MemoryPlan, Storage, are_apart, pointwise
from shlo_jit.schedule.nest import NestSchedule
from shlo_jit.schedule.schedule import Schedule
from shlo_jit.schedule.temporal_tiling import Tiling, the_nests, tile_loop


def with_time_blocks(plan: PlanBlock, schedule: Schedule, memory: MemoryPlan) -> Schedule:
    """Returns the schedule in which loops run several iterations per pass if that pays off and memory allows it. Other
    loops get the reason."""
    steps = dict(schedule.steps)
    for step in all_steps(plan):
        if not isinstance(step, ControlStep):
            continue
        found = tile_loop(step, steps)
        if isinstance(found, Tiling):
            found = _unfit_memory(memory, step, found.nests) or found
        if isinstance(found, Tiling):
            steps |= {id(nest): tiled for nest, tiled in zip(found.nests, found.schedules, strict=True)}
        elif found is not None:
            first = the_nests(step.blocks[1])[0]
            untiled = steps[id(first)]
            assert isinstance(untiled, NestSchedule)
            steps[id(first)] = replace(untiled, no_blocks=found)
    return replace(schedule, steps=steps)


def _unfit_memory(memory: MemoryPlan, step: ControlStep, nests: list[NestStep]) -> Refusal | None:
    """Returns why the memory of a loop does not allow tiling; None if it does. A state must be in its own storage in
    every iteration, or in one that it swaps with another. Other values may be anywhere, but lines of two arrays that
    share some bytes must share all of them."""
    body = step.blocks[1]
    copies = [*memory.block_end.get(id(body), []), *(c for nest in nests for c in memory.before.get(id(nest), []))]
    if any(c.source.tensor.rank for c in copies):
        return Refusal("state-copied", "a state is copied in every iteration")
    pairs = memory.swaps.get(id(step), [])
    partners = {id(s) for pair in pairs for s in pair}
    states = {id(memory.storage[v]) for v in body.block.arguments if v.tensor.rank}
    for nest in nests:
        for store in nest.nest.stores:
            storage = memory.storage[store.target]
            if len(nests) == 1 and id(storage) not in states | partners:
                return Refusal("writes-temporary", "an iteration writes a value that is not a state")
            if any(memory.storage[v] is storage and not _stays_apart(nest, v, store) for v in nest.reads):
                return Refusal("reads-overwritten", "an iteration reads what it has overwritten")
    if len(nests) == 1:
        return None
    values = [v for nest in nests for v in (*nest.writes, *nest.reads)]
    touched = {id(s): s for s in [*(memory.storage[v] for v in values), *(s for pair in pairs for s in pair)]}
    if any(_overlap(s, t) for s in touched.values() for t in touched.values() if s is not t):
        return Refusal("arrays-overlap", "two arrays share a part of their memory")
    return None


def _stays_apart(nest: NestStep, value: Value, store: Store) -> bool:
    """Whether a nest reads, from the memory that it writes, only elements that it does not write or has not written
    yet."""
    places = [at for v, at in nest.nest.loads if v is value]
    alike = value.tensor.extents == store.target.tensor.extents
    is_apart = alike and all(are_apart(nest.nest, at.index, store.index) for at in places)
    return is_apart or pointwise(nest.nest, value, store.index, store.target)


def _overlap(s: Storage, t: Storage) -> bool:
    """Whether two parts of the arena share bytes, but are not the same."""
    if s.kind != "arena" or t.kind != "arena" or (s.number, s.nbytes) == (t.number, t.nbytes):
        return False
    return s.number < t.number + t.nbytes and t.number < s.number + s.nbytes
