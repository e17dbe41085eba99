"""send and recv between processes, and the start of an op that is finished later.

A send does not wait: small operands are posted inline, others are copied into memory that the step owns until the
program ends. There are two exceptions. The same step's next large message waits until the previous one was read. A
small message waits if board.RING earlier ones on its channel were not read.
"""

from __future__ import annotations

from shlo_jit.fuse.plan import OpStep
from shlo_jit.kernels.llvm_values import V
from shlo_jit.lower.kernels.collective.frame import Collective
from shlo_jit.lower.kernels.copy import copy
from shlo_jit.lower.services import Services
from shlo_jit.schedule.collective import CollectiveSchedule
from shlo_jit.schedule.copies import schedule_copy


def send(low: Services, step: OpStep, schedule: CollectiveSchedule) -> None:
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
    else:  # the memory is the function's, so it belongs to the caller again after the return
        w.exchange.leave(message)


def recv(low: Services, step: OpStep, schedule: CollectiveSchedule) -> None:
    w = Collective(low, step, schedule)
    message = w.exchange.post([low.pointer(v) for v in w.operands])
    found = w.exchange.meet(message)
    addresses: list[V] = [w.exchange.found(found, 0, i) for i in range(len(w.operands))]

    def heard() -> None:
        for value, address in zip(w.operands, addresses, strict=True):
            copy(low, low.pointer(value), address, schedule_copy(value.tensor.nbytes))

    w.results = w.operands
    w.where_heard(heard)
    w.exchange.leave(message)


def start(low: Services, number: int) -> None:
    """Posts the operands of an op that starts here and finishes later."""
    finish = low.finish_of(number)
    schedule = low.schedule[finish]
    if not isinstance(schedule, CollectiveSchedule):  # nothing to exchange
        return
    w = Collective(low, finish, schedule)
    message = w.post()
    low.b.store(low.b.add(message, 1), w.exchange.ticket(w.site))


WRITERS = {"send": send, "recv": recv}
