"""Control flow in a function that runs steps: loops and branches."""

from __future__ import annotations

from shlo_jit.fuse.plan import ControlStep
from shlo_jit.lower import interrupts
from shlo_jit.lower.block_writer import BlockWriter
from shlo_jit.lower.kernels.copy import copy, swap
from shlo_jit.lower.services import Services
from shlo_jit.lower.temporal_tiling import blocked, write_interchanged
from shlo_jit.schedule.copies import schedule_copy, schedule_swap


def lower_control(low: Services, step: ControlStep, write: BlockWriter) -> None:
    """Emits a while, if or case with the steps of its regions."""
    if step.op.name == "stablehlo.while":
        _loop(low, step, write)
    else:
        _branches(low, step, write)


def _loop(low: Services, step: ControlStep, write: BlockWriter) -> None:
    """Emits a while loop. Storages that swap their memory have addresses that change from iteration to iteration."""
    b, moved = low.b, low.scope.moved
    cond, body = step.blocks
    swaps = low.memory.swaps.get(id(step), [])
    initial = [(low.address(s), low.address(t)) for s, t in swaps]
    if any(low.schedule.scratch(step)):
        from shlo_jit.lower.kernels.loop_panels import pack_before

        pack_before(low, step)
    head, inside, done = b.label("while"), b.label("do"), b.label("done")
    before = b.block
    b.branch(head)
    b.start(head)
    at = b.position()
    places = [(b.reserve("ptr"), b.reserve("ptr")) for _ in swaps]
    saved = dict(moved)
    for (s, t), (p, q) in zip(swaps, places, strict=True):
        moved.update({id(s): p, id(t): q})
    work, low.scope.work = low.scope.work, 0
    write.block(cond)
    b.branch_if(low.truth(cond.results[0]), inside, done)
    b.start(inside)
    next_places = [(q, p) for p, q in places]
    tiled_nests = blocked(low, step)
    if tiled_nests:
        is_odd = write_interchanged(low, step, tiled_nests, write)
        next_places = [(b.select(is_odd, q, p), b.select(is_odd, p, q)) for p, q in places]
    else:
        write.block(body)
        write.finish(body)
    interrupts.end_iteration(low.scope)
    low.scope.work = work
    last = b.block
    b.branch(head)
    for (p, q), (s0, t0), (s, t) in zip(places, initial, next_places, strict=True):
        b.fill_phi(at, p, [(s0, before), (s, last)])
        b.fill_phi(at, q, [(t0, before), (t, last)])
    b.start(done)
    low.scope.moved = saved
    states = {id(low.memory.storage[v]) for v in step.op.results if v in low.memory.storage}
    for (s, t), (p, _), (initial_address, other) in zip(swaps, places, initial, strict=True):
        with b.if_(b.icmp("ne", p, initial_address)):
            if id(t) in states:
                swap(low, initial_address, other, schedule_swap(s.nbytes))
            else:
                copy(low, initial_address, p, schedule_copy(s.nbytes))


def _branches(low: Services, step: ControlStep, write: BlockWriter) -> None:
    b = low.b
    done = b.label("join")
    labels = [b.label("branch") for _ in step.blocks]
    index = step.op.operands[0]
    if step.op.name == "stablehlo.if":
        b.branch_if(low.truth(index), labels[0], labels[1])
    else:
        i = b.load("i32", low.pointer(index))
        cases = " ".join(f"i32 {k}, label %{l}" for k, l in enumerate(labels[:-1]))
        b.line(f"switch i32 {i.text}, label %{labels[-1]} [ {cases} ]")
    work, longest = low.scope.work, 0
    for label, block in zip(labels, step.blocks, strict=True):
        b.start(label)
        low.scope.work = work
        write.block(block)
        longest = max(longest, low.scope.work)
        write.finish(block)
        b.branch(done)
    b.start(done)
    low.scope.work = longest
