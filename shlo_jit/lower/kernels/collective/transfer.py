"""send and recv between processes, and the start of an op that is finished later.

A send does not wait: what is small is posted inline, the rest is copied into memory that is the step's until the
program ends. Only the same step's next large message waits until the last one was read, and of small ones on a channel
the one after board.RING that were not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.kernels.collective.frame import Collective
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.schedule.collective import CollectiveSchedule

if TYPE_CHECKING:
    from shlo_jit.lower.program import ProgramLowering


def send(low: ProgramLowering, step: OpStep, schedule: CollectiveSchedule) -> None:
    w, b = Collective(low, step, schedule), low.b
    if schedule.inline.value:
        w.post()
        return
    ticket = w.exchange.ticket(w.site)
    last = b.load("i64", ticket)
    with b.if_(b.icmp("ne", last, 0), "pending"):
        w.exchange.leave(b.sub(last, 1))
    message = w.post()
    if low.is_entry:
        b.store(b.add(message, 1), ticket)
    else:  # the memory is the function's, and so the caller's again when it returns
        w.exchange.leave(message)


def recv(low: ProgramLowering, step: OpStep, schedule: CollectiveSchedule) -> None:
    w = Collective(low, step, schedule)
    message = w.exchange.post([low.pointer(v) for v in w.operands])
    found = w.exchange.meet(message)
    addresses: list[V] = [w.exchange.found(found, 0, i) for i in range(len(w.operands))]

    def heard() -> None:
        for value, address in zip(w.operands, addresses, strict=True):
            copy(low, low.pointer(value), address, value.tensor.nbytes)

    w.results = w.operands
    w.where_heard(heard)
    w.exchange.leave(message)


def start(low: ProgramLowering, number: int) -> None:
    """Post the operands of the op that finishes, later, what is started here."""
    finish = low.finish_of(number)
    schedule = low.schedule[finish]
    if not isinstance(schedule, CollectiveSchedule):  # of nothing
        return
    w = Collective(low, finish, schedule)
    message = w.post()
    low.b.store(low.b.add(message, 1), w.exchange.ticket(w.site))


WRITERS = {"send": send, "recv": recv}
