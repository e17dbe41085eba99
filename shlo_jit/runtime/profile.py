"""Profiles the time of a program step by step, on a variant of its code with clock reads around each.

    with exe.profile() as p:
        exe(x, w)          # as often as you like
    print(p)

Inside the `with`, calls of the executable run the variant; see `measured.py`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shlo_jit.codegen.abi import PROFILE_SAMPLES
from shlo_jit.codegen.program import TimedStep
from shlo_jit.runtime.measured import Measured

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table


class StepTime(NamedTuple):
    """A step of the program, and its measured time."""

    label: str
    """Label as in the printed plan: `2`, or `2.0.5` within a region. Steps of a called function have its name as a
    prefix."""
    title: str
    kernels: tuple[str, ...]
    """Names of the functions in machine code."""
    calls: int
    median_us: float
    """Median of the last calls, in microseconds; for control flow, including everything inside."""
    best_us: float
    """The shortest of them: if it is far below the median, something else kept the machine busy."""
    total_us: float
    """Total of all calls."""
    share: float
    """Share in the total of all steps; steps within control flow and called functions are counted once. It is 0 for a
    step that contains others, and for parts of a step."""
    gigabytes_per_second: float | None
    """Lower bound of memory traffic divided by the median time. None for steps without traffic of their own, and if
    sizes are known only at the call."""
    gigaflops: float | None
    """10^9 arithmetic operations per second; None if their number depends on values, or is known only at the call."""
    ops: str
    """Ops that it computes, and the lines of the program's text."""


class Profile(Measured):
    """Times of the steps of one executable's calls, from `Executable.profile`. Concurrent calls from several threads
    are counted together, and some may be missed."""

    @property
    def steps(self) -> list[StepTime]:
        """Every step that has finished, in the order of the program."""
        rows = [
            (part.label, record, step)
            for part in self._parts
            for record, step in zip(part.memory.records, part.timed, strict=True)
            if step.category != "call"
        ]
        inside = sum(int(record[1]) for _, record, step in rows if step.counts)
        out = []
        for label, record, step in rows:
            calls, total = int(record[0]), int(record[1])
            if calls:
                samples = record[2 : 2 + min(calls, PROFILE_SAMPLES)]
                out.append(_measured(label + step.label, step, calls, total, samples, inside))
        return out

    def __str__(self) -> str:
        """Returns a table, with the figures of the slowest step marked."""
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=10_000, highlight=False).print(self.table())
        return text.getvalue().rstrip("\n")

    def table(self) -> Tables:
        """Returns the table for a `rich.console.Console`: if that is too narrow, as two tables."""
        return Tables(self.steps)


FIGURES = "calls", "median us", "best", "share", "GB/s", "GFLOP/s"
WORDS = "kernel", "ops"


class Tables:
    """A table of steps for consoles of any width: figures are never truncated."""

    def __init__(self, steps: Sequence[StepTime]) -> None:
        self.steps = steps

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.measure import Measurement

        whole = self._table(["", *FIGURES, *WORDS])
        if Measurement.get(console, options.update(max_width=10_000), whole).maximum <= options.max_width:
            yield whole
            return
        yield self._table(["", *FIGURES])
        yield ""
        yield self._table(["ops", "kernel"], wrapped=True)

    def _table(self, headings: Sequence[str], *, wrapped: bool = False) -> Table:
        from rich import box
        from rich.table import Table

        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        made.add_column("step", no_wrap=True)
        for heading in headings:
            side = "right" if heading in FIGURES else "left"
            made.add_column(heading, justify=side, no_wrap=not wrapped, overflow="fold" if wrapped else "ellipsis")
        most = max((s.share for s in self.steps), default=0.0)
        for s in self.steps:
            cells = _cells(s)
            made.add_row(
                s.label, *(cells[heading] for heading in headings), style="bold" if s.share == most > 0 else ""
            )
        return made


def _cells(s: StepTime) -> dict[str, str]:
    """Returns the cells of a step, by heading."""
    rates = [f"{x:.3g}" if x is not None else "" for x in (s.gigabytes_per_second, s.gigaflops)]
    share = f"{100 * s.share:.1f} %" if s.share else ""
    figures = f"{s.calls:,}", f"{s.median_us:,.2f}", f"{s.best_us:,.2f}", share, *rates
    return {"": s.title, **dict(zip(FIGURES, figures, strict=True)), "kernel": " ".join(s.kernels), "ops": s.ops}


def _measured(label: str, step: TimedStep, calls: int, total: int, samples: np.ndarray, inside: int) -> StepTime:
    """Returns the time of a step. `total` and `samples` are in nanoseconds; `inside` is the total of all steps."""
    median, best = float(np.median(samples)), float(samples.min())
    moved = step.nbytes / median if step.nbytes and median else None
    operations = step.operations / median if step.operations and median else None
    share = total / inside if step.counts and inside else 0.0
    times = calls, median / 1e3, best / 1e3, total / 1e3
    return StepTime(label, step.title, step.kernels, *times, share, moved, operations, step.ops)
