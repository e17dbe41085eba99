"""Ranks as the processes that mpiexec has started, of which this is one.

Each process loads the program of its rank, in its own memory, and calls it when all others do. Messages take the role
that the board has for ranks that share memory: `exchange.py` has those of programs, `ends.py` those about calls. The
rank has a board nevertheless, which no other process sees.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from shlo_jit.errors import ExecutionError, WorkerTimeoutError
from shlo_jit.kernels.collective import board
from shlo_jit.runtime import pool
from shlo_jit.runtime.layout import data_address
from shlo_jit.runtime.transport.board import Outcome
from shlo_jit.runtime.transport.call_reports import End, Ends, Fault
from shlo_jit.runtime.transport.errors import UNKNOWN, Death, raised_by
from shlo_jit.runtime.transport.exchange import Exchange
from shlo_jit.runtime.transport.layout import lay_out
from shlo_jit.runtime.transport.shared import Segment
from shlo_jit.runtime.transport.team import GRACE_SECONDS, Crew, Team
from shlo_jit.runtime.transport.world import START_SECONDS, keep_alive_forever, world
from shlo_jit.schedule.collective import number_of


class Mpi(Team):
    """This process's rank of the grid."""

    def __init__(self, crew: Crew) -> None:
        """Waits for all processes. Raises ImportError without MPI, WorkerTimeoutError if not all have compiled the
        program, ExecutionError if theirs differ, or a custom call is not registered here."""
        super().__init__(crew)
        self._world = world()
        self.number = self._world.rank
        self.here = (self.number,)
        self._ends = Ends(self._world, self._world.take_tags(1)[0], crew.time_out)
        self._tag = self._world.take_tags(1)[0]
        tags = self._world.take_tags(crew.lane_count)
        self._exchange = Exchange(self._world, tags, crew.lanes(self.number), self._ends)
        self._alone = False
        self._reported_status = board.OK
        self._known: dict[int, Outcome] = {}
        """Outcomes of ranks in the current call."""
        self.layout = lay_out(crew.programs, crew.lane_count, crew.threads)
        self.memory = Segment(self.layout.nbytes)
        self.memory.close_file()
        self.kept = None
        self._make_own(self._exchange.addresses)
        self._agree()

    def _agree(self) -> None:
        """Checks that all processes have the same program."""
        own = number_of([(p.sites, p.inputs, p.outputs) for p in self.crew.programs])
        self._ends.report(own)
        late = self._ends.until_all_reported(max(START_SECONDS, self.crew.time_out), lambda: False)
        if late is not None:
            raise WorkerTimeoutError(f"rank {late} has not compiled the program for {START_SECONDS:g} s", late)
        other = next((r for r in range(self.crew.ranks) if r != self.number and self._ends.of(r) != own), None)
        if other is not None:
            raise ExecutionError(f"transport='mpi': rank {other} has compiled another program than rank {self.number}")

    # ------------------------------------------------------------------ calls
    def check(self) -> None:
        super().check()
        self._ends.receive_reports()
        if self._ends.failed():
            self._fail()

    def run_alone(self, held: object) -> None:
        """Runs a call as `run`, without requesting the outcomes of others."""
        self._alone = True
        try:
            self.run(held)
        finally:
            self._alone = False

    def run(self, held: object) -> None:
        self.raised.clear()
        self._known.clear()
        self.held, self._in_call = held, True
        try:
            self.board.call()
            self._ends.begin(self._ends.call + 1)
            self._exchange.begin()
            self._run_own()
            self._known[self.number] = self._own_outcome()
            self._receive_ends()
        except BaseException:  # an interrupt
            self._known[self.number] = self._own_outcome()
            self._break("a call was interrupted", settled=False)
            raise
        if any(outcome.status != board.OK for outcome in self._known.values()):
            self._fail()
        self.held, self._in_call = None, False

    def close(self) -> None:
        self._ends.is_closed = True
        super().close()

    def _execute(self) -> int:
        status = self.own.run()
        status = self._exchange.finish() if status == board.OK else status
        error = self._exchange.caught
        if isinstance(error, Exception):
            self.raised[self.number] = raised_by(error)
        elif error is not None:
            raise error
        return status

    def _own_outcome(self) -> Outcome:
        status, fault = self.board.outcome(self.number).status, self._exchange.fault or Fault(board.OK)
        return Outcome(status, self._exchange.site, fault.peer, fault.peer_site)

    def _receive_ends(self) -> None:
        """Receives the ends of all ranks; if one has failed, only those of ranks that notice it soon."""
        failed = self._known[self.number].status != board.OK
        if failed or not self._alone:
            self._report()
        if self._alone:
            return
        seconds = GRACE_SECONDS if failed else self.crew.time_out
        late = self._ends.until_all_reported(seconds, lambda: not failed and bool(self._ends.failed()))
        if late is not None and not failed:
            self._known[self.number] = Outcome(board.TIMED_OUT, board.NONE, late, UNKNOWN)
        elif not failed and self._ends.failed():
            self._ends.until_all_reported(GRACE_SECONDS, lambda: False)
        self.receive_reports()

    def _fail(self) -> NoReturn:
        self.receive_reports()
        error = self._why(self._outcomes(), None)
        self.raised.clear()
        self._break(str(error).partition("\n")[0], settled=False)
        raise error

    def _outcomes(self) -> list[Outcome | None]:
        unknown = Outcome(board.STOPPED, board.NONE, board.NONE, board.NONE)
        return [self._known.get(rank, unknown) for rank in range(self.crew.ranks)]

    def gathered(self, made: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        if self._alone:
            return made
        (own,) = made
        found, requests = [], []
        for rank, program in enumerate(self.crew.programs):
            arrays = own
            if rank != self.number:
                arrays = [pool.empty(port.shape, port.dtype.numpy, port.nbytes) for port in program.outputs]
                begun = [self._world.receive(data_address(a), a.nbytes, rank, self._tag) for a in arrays if a.nbytes]
                requests.append((rank, [r for some in begun for r in some]))
            found.append(arrays)
        for rank, some in requests:
            for a in own:
                some += self._world.send(data_address(a), a.nbytes, rank, self._tag) if a.nbytes else []
        try:
            for rank, some in requests:
                if some:
                    self._ends.until_done(some, rank, has_ended=True)
        except Fault as fault:
            keep_alive_forever((found, requests))
            self._known[self.number] = Outcome(fault.status, board.NONE, fault.peer, fault.peer_site)
            self._fail()
        except BaseException:
            keep_alive_forever((found, requests))
            raise
        return found

    # ------------------------------------------------------------------ ends
    def _report(self) -> None:
        outcome, raised = self._known[self.number], self.raised.get(self.number)
        self._ends.report(End(outcome, None if raised is None else raised._replace(error=None)))
        self._reported_status = outcome.status

    def dead(self) -> Death | None:
        return None  # a dead process reports nothing: waiting for it times out

    def receive_reports(self) -> None:
        self._ends.receive_reports()
        for rank, end in self._ends.reported().items():
            self._known[rank] = end.outcome
            if end.raised is not None:
                self.raised.setdefault(rank, end.raised)

    def end(self, patiently: bool) -> None:
        if patiently:
            return
        if self._reported_status == board.OK:
            outcome = self._known.get(self.number)
            if outcome is None or outcome.status == board.OK:
                self._known[self.number] = Outcome(board.STOPPED, board.NONE, board.NONE, board.NONE)
            self._report()
        left = self._exchange.abandon()
        if left:
            keep_alive_forever((left, self.memory, self.held))
