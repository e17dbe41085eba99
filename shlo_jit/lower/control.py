"""Control flow in a function that runs steps: loops, branches, and calls of outlined parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shlo_jit.codegen import abi
from shlo_jit.fuse.plan import ControlStep
from shlo_jit.kernels.llvm_values import V, i32
from shlo_jit.lower.kernels.copy import copy, swap
from shlo_jit.lower.scope import Scope
from shlo_jit.lower.temporal_tiling import blocked, write_interchanged

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def lower_control(low: ProgramLowering, step: ControlStep) -> None:
    """Emits a while, if or case with the steps of its regions."""
    if step.op.name == "stablehlo.while":
        _loop(low, step)
    else:
        _branches(low, step)


def _loop(low: ProgramLowering, step: ControlStep) -> None:
    """Emits a while loop. Storages that swap their memory have addresses that change from iteration to iteration."""
    b, moved = low.b, low.scope.moved
    cond, body = step.blocks
    swaps = low.memory.swaps.get(id(step), [])
    initial = [(low.address(s), low.address(t)) for s, t in swaps]
    if any(low.schedule.scratch(step)):
        from shlo_jit.lower.kernels.dot import pack_before

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
    since, low.pauses.since = low.pauses.since, 0
    low.block(cond)
    b.branch_if(low.truth(cond.results[0]), inside, done)
    b.start(inside)
    next_places = [(q, p) for p, q in places]
    tiled_nests = blocked(low, step)
    if tiled_nests:
        is_odd = write_interchanged(low, step, tiled_nests)
        next_places = [(b.select(is_odd, q, p), b.select(is_odd, p, q)) for p, q in places]
    else:
        low.block(body)
        low.finish(body)
    low.pauses.end_iteration()
    low.pauses.since = since
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
                swap(low, initial_address, other, s.nbytes)
            else:
                copy(low, initial_address, p, s.nbytes)


def _branches(low: ProgramLowering, step: ControlStep) -> None:
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
    since, longest = low.pauses.since, 0
    for label, block in zip(labels, step.blocks, strict=True):
        b.start(label)
        low.pauses.since = since
        low.block(block)
        longest = max(longest, low.pauses.since)
        low.finish(block)
        b.branch(done)
    b.start(done)
    low.pauses.since = longest


def write_part(low: ProgramLowering, write: Callable[[], None]) -> None:
    """Lets `write` emit into a separate function, and emits a call of it. Addresses that surrounding loops swap become
    parameters."""
    outer = low.scope
    name = low.new_name("part")
    moved = [("ptr", f"moved{i}") for i in range(len(outer.moved))]
    b = low.step_function(name, [*abi.PARAMETERS, *moved], internal=True)
    low.scope = Scope(b, dict(zip(outer.moved, b.params[len(abi.PARAMETERS) :], strict=True)))
    write()
    low.pauses.leave()
    b.ret(i32(abi.Status.OK))
    may_fail = low.scope.may_fail
    low.scope = outer
    parameters = [outer.args, outer.results, outer.dims, outer.arena, outer.instance]
    call_steps(low, name, [*parameters, *outer.moved.values()], may_fail)


def call_steps(low: ProgramLowering, name: str, arguments: list[V], may_fail: bool) -> None:
    """Emits a call of a function that runs steps."""
    status = low.b.call("i32", name, arguments, declare=False)
    if may_fail:
        leave_unless_ok(low, status)


def leave_unless_ok(low: ProgramLowering, status: V, origin: int | None = None) -> None:
    """Emits a return from the current function if `status` is not OK. If the status comes from the host, `origin` is
    the number of the custom call or NO_CALL, for the error record."""
    b = low.b
    fail, go_on = b.label("fail"), b.label("on")
    b.branch_if(b.icmp("ne", status, i32(abi.Status.OK)), fail, go_on)
    b.start(fail)
    low.timing.leave()
    if origin is not None:
        abi.store_error(b, low.scope.instance, status, origin)
    b.line(f"ret i32 {status.text}")
    b.start(go_on)
    low.scope.may_fail = True
