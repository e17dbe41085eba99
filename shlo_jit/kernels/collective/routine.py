"""The routine with everything that the ranks of a grid need. Each rank loads its own copy, as it has a variable."""

from __future__ import annotations

from shlo_jit.kernels.builder import ModuleText
from shlo_jit.kernels.collective.copies import write_copies
from shlo_jit.kernels.collective.fetching import write_fetching
from shlo_jit.kernels.collective.grid_calls import THIS_RANK, write_calls
from shlo_jit.kernels.collective.messages import write_messages
from shlo_jit.kernels.collective.waiting import HOST_PAUSE, write_waiting
from shlo_jit.kernels.routine import Routine
from shlo_jit.kernels.target import Target
from shlo_jit.kernels.threads.pool import THREADS

SYMBOLS = (
    *("shlo_post", "shlo_meet", "shlo_leave"),
    *("shlo_fetch", "shlo_read_caller"),
    "shlo_copy_all",
    *("shlo_begin", "shlo_serve", "shlo_end_call", "shlo_call_all", "shlo_await_all", "shlo_unread", "shlo_get_on"),
    "shlo_stop_all",
    *(THIS_RANK.text[1:], HOST_PAUSE.text[1:]),
)


def build(module: ModuleText, target: Target) -> None:
    write_waiting(module, target)
    write_messages(module)
    write_fetching(module, target)
    write_calls(module, target)
    write_copies(module)


COLLECTIVE = Routine("collective", SYMBOLS, build, (THREADS,))
