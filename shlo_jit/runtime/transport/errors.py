"""What goes wrong among processes, as exceptions."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import NamedTuple

from shlo_jit.codegen import abi
from shlo_jit.errors import ExecutionError
from shlo_jit.kernels.collective import board
from shlo_jit.runtime.transport.board import Outcome
from shlo_jit.schedule.site import Site


class WorkerError(ExecutionError):
    """A process of a grid could not finish: it died, raised, or met others that did something else."""

    def __init__(self, message: str, rank: int, op: str = "", place: str = "", remote: str = "") -> None:
        """`rank`: of the process at fault; `op`: the op it was at, and `place` its line, where these are known;
        `remote`: Python's traceback in it."""
        super().__init__(f"{message}\n\n{remote.rstrip()}" if remote else message)
        self.rank, self.op, self.place, self.remote = rank, op, place, remote


class WorkerTimeoutError(WorkerError, TimeoutError):
    """A process of a grid did not get on."""


class Raised(NamedTuple):
    """What Python raised in a process."""

    error: BaseException | None
    """The exception itself, where it is one of this process."""
    text: str
    traceback: str


def raised_by(error: BaseException, *, is_own: bool = True) -> Raised:
    """Of what this process has raised; `is_own`: it goes no further."""
    text = "".join(traceback.format_exception(error))
    return Raised(error if is_own else None, f"{type(error).__name__}: {error}", text)


def failure_of(
    outcomes: Sequence[Outcome | None],
    sites: Sequence[Sequence[Site]],
    raised: dict[int, Raised],
    time_out: float,
) -> WorkerError:
    """Why a call failed: of how its ranks ended (None: not yet) what came first in the chain of causes."""
    ended = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome is not None}
    for rank, what in raised.items():
        error = WorkerError(f"rank {rank}: {what.text}", rank, remote=what.traceback)
        error.__cause__ = what.error
        return error
    late = {rank for rank, outcome in ended.items() if outcome.status == board.TIMED_OUT}
    for status in (board.MISMATCHED, board.ENDED_EARLY, board.TIMED_OUT):
        found = [rank for rank, outcome in ended.items() if outcome.status == status]
        found.sort(key=lambda rank: ended[rank].peer in late)  # who is waited for, and does not wait itself, is why
        if found:
            return _met_badly(found[0], ended[found[0]], sites, time_out)
    rank = next((r for r, o in ended.items() if o.status not in (board.OK, board.STOPPED)), 0)
    outcome = ended.get(rank)
    status = abi.Status.INTERRUPTED if outcome is None else outcome.status
    return WorkerError(f"rank {rank}: {abi.status_text(status)}", rank)


def _met_badly(rank: int, outcome: Outcome, sites: Sequence[Sequence[Site]], time_out: float) -> WorkerError:
    site, peer = _site(sites[rank], outcome.site), outcome.peer
    here = f"rank {rank} is at {site}" if site is not None else f"rank {rank} waits"
    op, place = ("", "") if site is None else (site.op, site.place)
    if outcome.status == board.TIMED_OUT:
        message = f"{here}, and rank {peer} did not get there for {time_out:g} s"
        return WorkerTimeoutError(message, peer, op, place)
    if outcome.status == board.ENDED_EARLY:
        return WorkerError(f"{here}, but rank {peer} has ended its program without it", peer, op, place)
    other = _site(sites[peer], outcome.peer_site)
    what = "something else" if other is None else str(other)
    return WorkerError(f"the processes do not agree: {here}, but rank {peer} is at {what}", rank, op, place)


def _site(sites: Sequence[Site], number: int) -> Site | None:
    return sites[number] if 0 <= number < len(sites) else None
