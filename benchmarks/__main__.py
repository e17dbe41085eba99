"""Times shlo_jit against XLA:CPU, NumPy and IREE.

    python -m benchmarks                        every case
    python -m benchmarks --only dot,softmax     cases of a group, or with a word in the name
    python -m benchmarks --list

All peers compile each case from one lowered program. Results are compared with XLA's, and the peers are timed
alternately in one process. Writes results.md, results.json and results.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.worker import Options, Row, Worker


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS", help="separated by commas")
    parser.add_argument("--peers", default="shlo_jit,XLA,NumPy,IREE", metavar="NAMES", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"), metavar="D",
                        help="default: %(default)s")  # fmt: skip
    parser.add_argument("--budget", type=float, default=0.6, metavar="S", help="seconds a peer and case: %(default)s")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds a case: %(default)s")
    parser.add_argument("--no-start", action="store_true", help="leave out the start in a new process")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if one of our results was missing or wrong, 2 if no case was selected."""
    from benchmarks import report
    from benchmarks.cases import select
    from benchmarks.peers import PEERS

    options = parse(arguments)
    cases = select(options.only)
    peers = tuple(options.peers.split(","))
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    if not cases or not set(peers) <= set(PEERS):
        console.print(f"no case matches {options.only!r}" if not cases else f"peers are {', '.join(PEERS)}")
        return 2
    if options.list:
        for case in cases:
            shapes = " ".join(f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in case.inputs()[:3])
            console.print(f"{case.group:10} {case.name:30} {shapes}", markup=False)
        return 0
    rows = measure([(c.name, c.group) for c in cases], Options(peers, options.budget, options.timeout,
                                                               not options.no_start), console)  # fmt: skip
    console.print()
    for line in report.summary(rows):
        console.print(line, markup=False)
    for path in report.write(rows, options.output):
        console.print(f"wrote {path}")
    return 1 if any(report.problem(row) for row in rows) else 0


def measure(cases: Sequence[tuple[str, str]], options: Options, console: Console) -> list[Row]:
    """Measures the cases (name and group) and returns their rows; prints each immediately."""
    worker = Worker(options)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    rows: list[Row] = []
    progress = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    progress.disable = not console.is_terminal
    console.print(f"{'case':32}{'shlo_jit':>10}{'XLA':>10}{'ratio':>8}{'NumPy':>10}{'IREE':>10}", markup=False)
    try:
        with progress:
            task = progress.add_task("", total=len(cases))
            for name, group in cases:
                progress.update(task, description=f"{name:32}")
                rows.append(worker.run(name, group))
                console.print(line(rows[-1]), markup=False)
                progress.advance(task)
    except KeyboardInterrupt:
        console.print("stopped; what was measured is written")
    finally:
        worker.end()
    return rows


def line(row: Row) -> str:
    """Formats a case for the screen."""
    from benchmarks.report import median, problem, ratio, seconds

    reason = problem(row)
    if reason:
        return f"{row['case']:32}  {reason}"
    found = ratio(row)
    cells = [seconds(median(row, p)) for p in ("shlo_jit", "XLA", "NumPy", "IREE")]
    cells.insert(2, f"{found:.2f}" if found else "")
    return f"{row['case']:32}" + "".join(f"{c:>{w}}" for c, w in zip(cells, (10, 10, 8, 10, 10), strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
