"""Failures of processes, as exceptions."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.codegen import abi
from shlo_jit.codegen.program import Callback
from shlo_jit.errors import WorkerError, WorkerTimeoutError
from shlo_jit.kernels.collective import board
from shlo_jit.runtime.transport.board import Outcome
from shlo_jit.schedule.site import Site

UNKNOWN = -2
"""Value of a peer's site if the rank that stopped cannot know it."""


class Raised(NamedTuple):
    """An exception of Python code in a process."""

    error: BaseException | None
    """The exception itself, if it was raised in this process."""
    text: str
    traceback: str
    call: int
    """Number of the program's custom call that raised it, or NONE."""

    def as_error(self, rank: int, callbacks: Sequence[Callback]) -> WorkerError:
        """Returns the error. `callbacks` are those of the rank's program."""
        op = place = ""
        if 0 <= self.call < len(callbacks):
            op, place = f"custom_call @{callbacks[self.call].target}", callbacks[self.call].place
        here = f" is at {op}{_in_brackets(place)}" if op else ""
        error = WorkerError(f"rank {rank}{here}: {self.text}", rank, op, place, self.traceback)
        error.__cause__ = self.error
        return error


def raised_by(error: BaseException, call: int = board.NONE, *, is_own: bool = True) -> Raised:
    """Returns the description of an exception of this process; `is_own`: it is not passed on to another process."""
    text = "".join(traceback.format_exception_only(error)).strip()
    return Raised(error if is_own else None, text, "".join(traceback.format_exception(error)), call)


class Death(NamedTuple):
    """Unexpected end of a rank."""

    rank: int
    text: str

    def as_error(self, site: Site | None = None) -> WorkerError:
        """Returns the error. `site` is the last one that the rank reached in the current call."""
        if site is None:
            return WorkerError(self.text, self.rank)
        return WorkerError(f"{self.text}, at or after {site}", self.rank, site.op, site.place)


def failure_of(outcomes: Sequence[Outcome | None], sites: Sequence[Sequence[Site]], time_out: float) -> WorkerError:
    """Returns the reason of a failed call: the first cause in the chain, from the outcomes of its ranks (None: not yet
    ended)."""
    ended = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome is not None}
    late = {rank for rank, outcome in ended.items() if outcome.status == board.TIMED_OUT}
    for status in (board.MISMATCHED, board.ENDED_EARLY, board.TIMED_OUT):
        found = [rank for rank, outcome in ended.items() if outcome.status == status]
        found.sort(key=lambda rank: ended[rank].peer in late)  # the cause is a peer that does not wait itself
        if found:
            return _failed_meeting(found[0], ended[found[0]], sites, time_out)
    lost = next((rank for rank, outcome in enumerate(outcomes) if outcome is None), None)
    if lost is not None:
        return WorkerTimeoutError(f"rank {lost} made no progress for {time_out:g} s", lost)
    rank = next((r for r, o in ended.items() if o.status not in (board.OK, board.STOPPED)), 0)
    return WorkerError(f"rank {rank}: {abi.status_text(ended[rank].status)}", rank)


def _failed_meeting(rank: int, outcome: Outcome, sites: Sequence[Sequence[Site]], time_out: float) -> WorkerError:
    site, peer = site_of(sites[rank], outcome.site), outcome.peer
    here = f"rank {rank} is at {site}" if site is not None else f"rank {rank} waits"
    op, place = ("", "") if site is None else (site.op, site.place)
    other = site_of(sites[peer], outcome.peer_site)
    if outcome.status == board.TIMED_OUT:
        there = ", before its first collective op," if other is None else f", at or after {other},"
        there = "" if outcome.peer_site == UNKNOWN else there
        message = f"{here}, and rank {peer}{there} made no progress for {time_out:g} s"
        return WorkerTimeoutError(message, peer, op, place)
    if outcome.status == board.ENDED_EARLY:
        after = "" if other is None else f", after {other}"
        message = f"the processes do not agree: {here}, but rank {peer} has ended its program without it{after}"
        return WorkerError(message, peer, op, place)
    what = "something else" if other is None else str(other)
    if site is not None and other is not None and site[:2] == other[:2]:
        what += ", with other groups, dimensions or another body"
    return WorkerError(f"the processes do not agree: {here}, but rank {peer} is at {what}", rank, op, place)


def site_of(sites: Sequence[Site], number: int) -> Site | None:
    """Returns a site by number; None for NONE."""
    return sites[number] if 0 <= number < len(sites) else None


def _in_brackets(place: str) -> str:
    return f" ({place})" if place else ""
