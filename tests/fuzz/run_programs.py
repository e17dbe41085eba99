"""Mutants of programs in bulk: verified, compiled, run in guarded memory and compared with the reference interpreter.

    python tests/fuzz/run_programs.py [count] [first] [processes]      40000 from number 0 on is the standard
    python tests/fuzz/run_programs.py --ops [count] [first] [processes]

Prints findings (a crash, an undocumented error, a call that does not end) with their numbers and programs, the numbers
of programs whose results differ from the reference, and the count of each outcome.
`python tests/fuzz/run_programs.py [--ops] --show NUMBER` prints one mutant and its outcome. With `--ops`, mutants are
small programs with all ops equally frequent. Each program is used once; one in `WHOLE` is compiled and run, the others
pass through all stages before LLVM. Workers are processes, so a crash or a hang affects only one mutant. Each worker
has limits of memory and time.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from execute import check
from lower_only import lower
from mutate_one_op import is_refused, op_bases, op_mutant, op_text
from mutate_programs import bases, mutant
from rich.progress import Progress

GIGABYTE = 1 << 30
SECONDS = 60.0
"""Time limit of one mutant."""
START_SECONDS = 900.0
"""Time limit of a worker before its first mutant: it creates all bases, on a possibly busy machine."""
STANDARD = 40_000
WHOLE = 40
"""One in this number of op mutants is compiled and run."""


def text_of(number: int, ops: bool) -> str:
    """Returns the mutant with this number, of either kind."""
    return op_text(op_mutant(op_bases(), number)) if ops else mutant(bases(), number)


def outcome_of(text: str, number: int, ops: bool) -> tuple[str, str]:
    """Returns the outcome of a mutant, and details."""
    return lower(text, number) if ops and number % WHOLE else check(text, number)


def worker(numbers: Iterator[int], to: Connection, ops: bool) -> None:
    """Sends the next number, then its outcome."""
    _ = op_bases() if ops else bases()  # before the first mutant, whose time is limited
    seen: set[int] = set()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 8 * GIGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        to.send((number, "", ""))
        try:
            module = op_mutant(op_bases(), number) if ops else None
            text = "" if module is not None and is_refused(module) else text_of(number, ops)
            if not text:
                outcome, detail = "invalid", ""
            elif ops and hash(text) in seen:
                outcome, detail = "seen", ""
            else:
                outcome, detail = outcome_of(text, number, ops)
            seen.add(hash(text))
        except BaseException as error:
            outcome, detail = "finding", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"
        to.send((number, outcome, detail))
    to.send((-1, "", ""))


@dataclass
class Worker:
    """A process and its current mutant."""

    rest: list[int]
    ops: bool = False
    process: Any = None
    answers: Any = None
    number: int = -1
    since: float = 0.0

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers, send = context.Pipe(duplex=False)
        self.process = context.Process(target=worker, args=(list(self.rest), send, self.ops), daemon=True)
        self.process.start()
        send.close()
        self.number, self.since = -1, time.monotonic() + START_SECONDS

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


@dataclass
class Report:
    """Outcomes of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    differs: dict[int, str] = field(default_factory=dict)
    contradicts: dict[int, str] = field(default_factory=dict)
    """Programs that the verifier accepts and the compiler rejects as invalid: shapes contradicted only by values."""

    def add(self, number: int, outcome: str, detail: str) -> None:
        self.outcomes[outcome] += 1
        if outcome == "finding":
            self.findings[number] = detail
        if outcome == "differs":
            self.differs[number] = detail
        if outcome == "contradicts":
            self.contradicts[number] = detail


def run(count: int = STANDARD, first: int = 0, processes: int = 2, *, ops: bool = False) -> Report:
    """Runs `count` mutants from number `first` on."""
    report = Report()
    workers = [Worker(list(range(first + i, first + count, processes)), ops) for i in range(processes)]
    with Progress() as progress:
        bar = progress.add_task("mutants", total=count)
        for w in workers:
            w.start()
        while workers:
            ready = wait([w.answers for w in workers], timeout=1.0)
            for w in list(workers):
                found = _next(w) if w.answers in ready else None
                if time.monotonic() - w.since > SECONDS:
                    found = (w.number if w.number >= 0 else w.rest[0], "finding", f"took more than {SECONDS:.0f} s")
                if found is None:
                    continue
                number, outcome, detail = found
                if number < 0:
                    w.stop()
                    workers.remove(w)
                    continue
                w.number, w.since = number, time.monotonic()
                if not outcome:
                    continue
                w.rest = [n for n in w.rest if n > number]
                report.add(number, outcome, detail)
                progress.advance(bar)
                if outcome == "finding":
                    progress.console.print(f"{number}: {detail}", markup=False, highlight=False)
                if detail.startswith(("took more", "crash")):
                    w.stop()
                    w.start()
    return report


def _next(w: Worker) -> tuple[int, str, str]:
    """Returns the message of a worker; its death is a finding."""
    try:
        return w.answers.recv()
    except EOFError:
        w.process.join()
        return w.number if w.number >= 0 else w.rest[0], "finding", f"crash: exit code {w.process.exitcode}"


def main() -> None:
    ops = "--ops" in sys.argv
    given = [a for a in sys.argv[1:] if a != "--ops"]
    if given[:1] == ["--show"]:
        number = int(given[1])
        text = text_of(number, ops)
        print(text)
        print(outcome_of(text, number, ops))
        return
    report = run(*[int(a) for a in given], ops=ops)
    for number, detail in report.differs.items():
        print(f"{number} differs: {detail}")
    for number, detail in report.contradicts.items():
        print(f"{number} is refused late: {detail}")
    for number in report.findings:
        print(f"--- {number}: {report.findings[number]}\n{text_of(number, ops)}")
    print(dict(report.outcomes), f"{len(report.findings)} findings, {len(report.differs)} differ")
    sys.exit(bool(report.findings))


if __name__ == "__main__":
    main()
