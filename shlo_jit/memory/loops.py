"""Memory of the values that loops carry: the next value reuses the storage of the state that it replaces, if it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shlo_jit import tuning
from shlo_jit.fuse.plan import ControlStep, NestStep, OpStep, PlanBlock, Step, ViewStep, read_inside
from shlo_jit.fuse.refusal import Refusal
from shlo_jit.ir.core import Value
from shlo_jit.memory.in_place import kept_alive
from shlo_jit.memory.roots import Roots
from shlo_jit.memory.storage import Copy, Storage, nbytes, pointwise, view_closure, views_of
from shlo_jit.ops.in_place import updates
from shlo_jit.reasons import Reason
from shlo_jit.sizes import equal, hint_of

if TYPE_CHECKING:
    from shlo_jit.memory.planner import Planner


@dataclass
class Loop:
    """A loop, `if` or `case` with a region whose memory is being assigned. `start` is its first step; `states` maps the
    storage that the region shares with results to the last use in it of what the storage holds at its beginning."""

    start: int
    states: dict[int, int]
    repeats: bool = True
    """Whether what is inside may run again: a loop."""


def assign_loop(p: Planner, step: ControlStep) -> None:
    """Assigns one storage to each carried value: argument of both regions, result of the body, result of the op."""
    start, end = p.begin[id(step)], p.finish[id(step)]
    cond, body = step.blocks
    op = step.op
    taken = {id(p.storage[v]) for v in read_inside(*step.blocks) if v in p.storage}
    states: dict[int, int] = {}
    times = Counter(op.operands)
    for i, init in enumerate(op.operands):
        storage = _state(p, step, i, init, taken if times[init] == 1 else None)
        storage.live(start)
        storage.live(end)
        taken.add(id(storage))
        for v in (cond.block.arguments[i], op.results[i], body.block.arguments[i]):
            if v not in p.storage:
                p.bind(v, storage)
        states[id(storage)] = p.last_use.get(body.block.arguments[i], -1)
        storage.live(p.last_use.get(op.results[i], end))
    for v in step.reads:  # captured values must survive every iteration
        p.of(v).live(end)
    p.loops.append(Loop(start, {}))
    p.assign(cond)  # leaves every state unchanged: it is also the result when the loop ends here
    p.loops[-1].states = states
    swapped = _swapped(p, step)
    views = views_of(body)
    olds = [view_closure(views, v) for v in body.block.arguments]
    refusals = bind_results(p, body, [p.storage[v] for v in op.results], olds)
    p.assign(body)
    p.loops.pop()
    ends: list[Copy] = []
    for r, target in zip(body.results, body.block.arguments, strict=True):
        if target in swapped:
            continue
        if p.of(r) is not p.storage[target]:
            why = refusals.get(r) or Reason("computed-elsewhere", "it is computed in other memory")
            ends.append(Copy(r, target, Reason("next-state", "the loop's next state", why)))
    ends = _swap_states(p, step, ends)
    p.block_end[id(body)] = p.ordered(ends, p.finish[id(body)])


def _swap_states(p: Planner, step: ControlStep, ends: list[Copy]) -> list[Copy]:
    """Lets a large state and its new value, which the body computes, swap their memory instead of copying it. Returns
    the copies that remain."""
    start, finish = p.begin[id(step)], p.finish[id(step)]
    sources = Counter(id(p.of(c.source)) for c in ends)
    states = {id(p.storage[v]) for v in step.op.results}
    left: list[Copy] = []
    for c in _exchanged(p, step, ends):
        source, state = p.of(c.source), p.storage[c.target]
        mine = source.kind == "arena" and source.first > start and id(source) not in states
        alone = sources[id(source)] == 1 and equal(source.nbytes, state.nbytes)
        # Scalars are copied: a temporally tiled loop computes them several times before its arrays are swapped.
        is_large = c.target.tensor.rank > 0 and hint_of(state.nbytes) >= tuning.PING_PONG_BYTES
        if not (mine and alone and is_large):
            left.append(c)
            continue
        source.live(start)
        source.live(finish)
        p.swaps.setdefault(id(step), []).append((state, source))
    return left


def _exchanged(p: Planner, step: ControlStep, ends: list[Copy]) -> list[Copy]:
    """Lets two large states swap their memory if the next value of each has been computed in the memory of the other.
    Returns the copies that remain."""
    places = [(p.of(c.source), p.storage[c.target]) for c in ends]
    sources, targets = (Counter(id(pair[k]) for pair in places) for k in (0, 1))
    found: set[int] = set()
    for i, (source, target) in enumerate(places):
        back = [k for k, pair in enumerate(places) if pair[0] is target and pair[1] is source and k > i]
        once = all(count[id(s)] == 1 for s in (source, target) for count in (sources, targets))
        is_large = ends[i].target.tensor.rank > 0 and hint_of(target.nbytes) >= tuning.PING_PONG_BYTES
        if not (back and once and is_large) or source.kind == "argument" or target.kind == "argument":
            continue
        p.swaps.setdefault(id(step), []).append((source, target))
        found |= {i, *back}
    return [c for i, c in enumerate(ends) if i not in found]


def _swapped(p: Planner, step: ControlStep) -> set[Value]:
    """Handles pairs of states in which one becomes the other's old value (`u, v = f(u, v), u`). The new value is
    computed in the other's memory if the other's old value is read only where the new one is written, and the two are
    swapped. Returns the arguments of the body in such pairs."""
    body = step.blocks[1]
    results, arguments = body.results, body.block.arguments
    times, number = Counter(results), {a: i for i, a in enumerate(arguments)}
    found = set[Value]()
    for v, u in zip(arguments, results, strict=True):
        if u not in number or u is v or found & {u, v}:
            continue
        new = results[number[u]]
        once = new is not u and (times[new], times[u], times[v]) == (1, 1, 0)
        if once and new not in p.storage and _may_swap(p, body, new, u, v):
            p.bind(new, p.storage[v])
            p.swaps.setdefault(id(step), []).append((p.storage[u], p.storage[v]))
            found |= {u, v}
    return found


def _may_swap(p: Planner, body: PlanBlock, new: Value, u: Value, v: Value) -> bool:
    """Whether the new value of u can be computed in the memory of v."""
    if hint_of(nbytes(u)) < tuning.PING_PONG_BYTES or not equal(nbytes(u), nbytes(v)) or {u, v} & set(views_of(body)):
        return False
    if any(p.storage[x].kind == "argument" for x in (u, v)):
        return False
    writing = [s for s in body.steps if new in s.writes]
    reading = [s for s in body.steps if v in s.reads]
    if len(writing) != 1 or reading not in ([], writing):
        return False
    (writer,) = writing
    if not isinstance(writer, NestStep) or writer.nest.overwrites is not None:
        return False
    stores = [s for s in writer.nest.stores if s.target is new]
    return len(stores) == 1 and pointwise(writer.nest, v, stores[0].index, new)


def _state(p: Planner, step: ControlStep, i: int, init: Value, taken: set[int] | None) -> Storage:
    """The storage of carried value i: that of the initial value if it dies here, the program result's, or a new one.
    `taken`: storages that another state has or that the regions read; None if the initial value is also that of another
    state."""
    result = step.op.results[i]
    storage = p.storage.get(init)
    if storage is None or taken is None or id(storage) in taken:
        refusal: Refusal | None = Refusal("needed-by-loop", "another state or the loop's regions need it")
    else:
        refusal = kept_alive(p, init, step)
    if result in p.storage:
        refusal = refusal or Refusal("outer-state", "it becomes a state of the enclosing loop")
    computed_there = storage is not None and (storage.kind == "argument" or storage is p.wanted.get(result))
    if result in p.wanted and not computed_there:  # else the result is a donated argument, or in its place already
        refusal = refusal or Refusal("result-returned", "the loop's result is returned")
    if refusal is None:
        assert storage is not None
        return storage
    if result in p.storage:  # the enclosing loop wants it in its own state
        fresh = p.storage[result]
    elif result in p.wanted and p.wanted[result] is not storage:
        fresh = p.wanted[result]
    else:
        fresh = Storage("none" if equal(nbytes(result), 0) else "arena", nbytes(result))
        p.arena.append(fresh)
    state = Value(init.type, None, i, "state")
    p.bind(state, fresh)
    p.before.setdefault(id(step), []).append(
        Copy(init, state, Reason("initial-state", "the loop's initial state", refusal))
    )
    return fresh


def bind_results(
    p: Planner, body: PlanBlock, states: list[Storage], olds: Sequence[set[Value]]
) -> dict[Value, Refusal]:
    """Binds results of a block directly to the memory where they belong if what it holds is not read any more. Returns
    the reasons for all others. `olds`: for each result, the values in that memory, with their views."""
    writers: dict[Value, list[Step]] = {}
    readers: dict[Value, list[Step]] = {}
    for s in body.steps:
        for v in s.writes:
            writers.setdefault(v, []).append(s)
        for v in s.reads:
            readers.setdefault(v, []).append(s)
    times, roots = Counter(body.results), Roots(body)
    refusals: dict[Value, Refusal] = {}
    for i, r in enumerate(body.results):
        step = writers[r][-1] if r in writers else None
        if step is None or times[r] > 1 or equal(nbytes(r), 0) or r in p.storage:
            refusals[r] = Refusal("not-computed-for-state", "the body does not compute it, or not for this state alone")
            continue
        views = olds[i]
        reading = [s for v in views for s in readers.get(v, ())]
        refusal = _cannot_write_state(step, r, states[i]) or _read_late(p, step, r, views, reading, times)
        if refusal is None and isinstance(step, ControlStep) and roots.of(r) in views:
            refusal = Refusal("updates-other-buffer", "it is an update of another buffer")
        if refusal is None and roots.changes(views, r):
            refusal = Refusal("old-state-updated", "the old state is updated before, in its memory")
        if refusal is None and len(writers[r]) > 1:
            refusal = Refusal("several-writers", "several steps write it")
        if refusal is None:
            p.bind(r, states[i])
        else:
            refusals[r] = refusal
    return refusals


def _cannot_write_state(step: Step, result: Value, state: Storage) -> Refusal | None:
    """Returns why the writing step cannot write into the state; None if it can."""
    if isinstance(step, ViewStep):
        return Refusal("view", "it is a view of other memory")
    if _overwrites(step, result):
        return Refusal("updates-other-buffer", "it is an update of another buffer")
    if state.kind == "argument" and isinstance(step, OpStep) and step.op.name == "func.call":
        return Refusal("function-result-alignment", "a called function expects aligned memory for its results")
    return None


def _read_late(
    p: Planner, step: Step, result: Value, views: set[Value], reading: list[Step], times: Counter[Value]
) -> Refusal | None:
    """Returns what still reads the old state when the new one is being written; None if nothing does."""
    begin = p.begin[id(step)]
    if any(v in times for v in views):
        return Refusal("old-state-returned", "the old state is also a result of the iteration")
    if any(p.begin[id(s)] > begin for s in reading) or not views.isdisjoint(p.read_beside(step)):
        return Refusal("old-state-read-later", "the old state is read later")
    if step not in reading:
        return None
    if not isinstance(step, NestStep):
        return Refusal("writer-reads-old-state", "the step that writes it reads the old state")
    (store, *more) = [s for s in step.nest.stores if s.target is result]
    if more or not all(pointwise(step.nest, v, store.index, result) for v in step.reads if v in views):
        return Refusal("old-state-read-elsewhere", "the step that writes it reads the old state at other indices")
    return None


def _overwrites(step: Step, result: Value) -> bool:
    """Whether the step writes this result into the buffer of an operand; it may write other results too."""
    if isinstance(step, NestStep):
        return step.nest.overwrites is not None and step.writes[0] is result
    return isinstance(step, OpStep) and any(r is result for _, r in updates(step.op))
