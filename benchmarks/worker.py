"""Cases run in a separate process, which is replaced if it dies or hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np

from benchmarks.names import OURS, REFERENCE

Row = dict[str, Any]
"""Results of a case: `case`, `group`, `flops`, `peers`, `start`.

`peers` maps a name to `median`, `low`, `high`, `compile`, or `error`.
"""


@dataclass(frozen=True)
class Options:
    peers: tuple[str, ...]
    budget: float
    """Seconds of timing for each peer of a case."""
    timeout: float
    """Seconds after which a case has failed."""
    start: bool
    """Whether to also measure the start in a new process."""


def run_case(name: str, options: Options, announce: Callable[[str], None] = lambda peer: None) -> Row:
    """Measures a case. Peers that fail or disagree with the reference have an `error` and no times.

    `announce` is called with each peer before its turn.
    """
    import shlo_jit.pipeline
    from benchmarks.agreement import difference
    from benchmarks.cases import select
    from benchmarks.peers import PEERS
    from benchmarks.ready import Ready

    del shlo_jit  # imported now, so that no compile time includes the import
    (case,) = (c for c in select() if c.name == name)
    row: Row = {"case": case.name, "group": case.group, "flops": case.flops, "peers": {}}
    inputs = case.inputs()
    with case.types():
        lowered = case.lower()
        ready: dict[str, Ready] = {}
        expected: list[np.ndarray] = []
        for peer in sorted(options.peers, key=lambda p: p != REFERENCE):
            announce(peer)
            try:
                found = PEERS[peer](case, lowered, inputs)
                if found is None:
                    continue
                results = [r.copy() for r in found.arrays(found.call())]
                if peer == REFERENCE:
                    expected = results
                wrong = difference(results, expected or results, case.tolerance, strict=peer != "NumPy")
            except Exception as problem:
                row["peers"][peer] = {"error": _line(problem)}
                continue
            if wrong:
                row["peers"][peer] = {"error": f"WRONG {wrong}"}
                continue
            ready[peer] = found
            row["peers"][peer] = {"compile": found.compile_seconds}
        if OURS in ready or OURS not in options.peers:
            announce("")
            _time(row, ready, options.budget)
    if options.start and OURS in ready:
        row["start"] = _start(lowered.as_text(), options.timeout)
    return row


def _line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}".splitlines()[0]


def _time(row: Row, ready: dict[str, Any], budget: float) -> None:
    from benchmarks.timing import interleave

    for peer, times in interleave({peer: found.call for peer, found in ready.items()}, budget).items():
        row["peers"][peer] |= times._asdict()


def _start(text: str, timeout: float) -> dict[str, Any]:
    import subprocess

    from benchmarks.start import measure

    try:
        return measure(text, timeout)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"error": str(error).splitlines()[0]}


class Worker:
    """A process that runs cases and is started on demand."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def run(self, case: str, group: str) -> Row:
        """Measures a case. The row has an `error` if the process died or took too long.

        If another peer caused that, the case is run again without that peer.
        """
        guest: dict[str, Row] = {}
        while True:
            peers = tuple(p for p in self.options.peers if p not in guest)
            row, peer = self._attempt(case, peers)
            if "error" not in row or peer in ("", OURS, REFERENCE):
                return {**row, "group": group, "peers": row["peers"] | guest}
            guest[peer] = {"error": row["error"]}

    def _attempt(self, case: str, peers: tuple[str, ...]) -> tuple[Row, str]:
        """Returns the row, and the peer whose turn was last."""
        if self._process is None or not self._process.is_alive():
            self._begin()
        assert self._pipe is not None and self._process is not None
        error, peer = f"no answer in {self.options.timeout:g} s", ""
        end = time.monotonic() + self.options.timeout
        try:
            self._pipe.send((case, peers))
            while self._pipe.poll(max(0.0, end - time.monotonic())):
                answer = self._pipe.recv()
                if isinstance(answer, dict):
                    return answer, peer
                peer = answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(10)
            error = f"the process ended with {_exit_name(self._process.exitcode)}"
        self.end()
        return {"case": case, "group": "", "flops": 0.0, "peers": {}, "error": error}, peer

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, asdict(self.options)), daemon=True)
        self._process.start()
        theirs.close()

    def end(self) -> None:
        """Kills the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(pipe: Connection, options: dict[str, Any]) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    while True:
        try:
            case, peers = pipe.recv()
        except EOFError:
            return
        try:
            row = run_case(case, Options(**{**options, "peers": peers}), pipe.send)
        except Exception as error:
            row = {"case": case, "group": "", "flops": 0.0, "peers": {}, "error": _line(error)}
        pipe.send(row)


def _exit_name(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"status {code}"
