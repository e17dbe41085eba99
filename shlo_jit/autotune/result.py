"""The result of tuning: what was won, step by step."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shlo_jit.runtime.executable import Executable

if TYPE_CHECKING:
    from rich.table import Table


class TunedStep(NamedTuple):
    """A step that was tuned, and its times in a call, in microseconds."""

    label: str
    """Label as in the printed plan; `@name:2` for step 2 of a called function."""
    title: str
    lines: str
    """Lines of its ops in the program's text."""
    before_us: float
    after_us: float
    """Equal to `before_us` for a step whose schedule was not changed."""
    ratio: float
    """Time before divided by time after: 2.0 means half of the time."""
    tried: int
    """Number of schedules that were tried for it."""


@dataclass(frozen=True)
class TuneResult:
    """What `shlo_jit.tune` has found. `print(result)` prints a table of the steps."""

    executable: Executable
    """The program with the schedule that won. For a program with unknown dimensions, it is for the arrays' shapes."""
    schedule: dict[str, list[dict[str, Any]]]
    """The moves that won, by the label of the step, as `compile(..., schedule=...)` takes them. Steps that it does not
    name have the schedule that the compiler chooses."""
    steps: tuple[TunedStep, ...]
    """The steps that take the time, those that take the most time first."""
    before_us: float
    """Time of a call before, in microseconds."""
    after_us: float
    ratio: float
    """Time of a call before divided by that after, in the final run in which both alternate; 1.0 if nothing was won."""
    tried: int
    """Number of schedules that were tried."""
    seconds: float
    """Time that tuning took."""
    is_complete: bool
    """Whether nothing was left to try."""
    is_stored: bool
    """Whether the object cache has the schedule, for `compile(..., schedule="tuned")`."""
    notes: tuple[str, ...]
    """What was dropped, and why."""

    def __str__(self) -> str:
        """Returns the table as text, the time of a call, and the notes."""
        from rich.console import Console

        text = io.StringIO()
        console = Console(file=text, width=10_000, highlight=False)
        console.print(self.table(), markup=False)
        console.print(self.summary(), markup=False)
        for note in self.notes:
            console.print(note, markup=False)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def table(self) -> Table:
        """Returns the table of the steps for a `rich.console.Console`."""
        from rich import box
        from rich.table import Table

        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for heading in ("step", "", "lines"):
            made.add_column(heading)
        for heading in ("before us", "after us", "ratio", "tried"):
            made.add_column(heading, justify="right")
        for s in self.steps:
            times = f"{s.before_us:,.2f}", f"{s.after_us:,.2f}", f"{s.ratio:.2f}", f"{s.tried:,}"
            made.add_row(s.label, s.title, s.lines.removeprefix("lines ").removeprefix("line "), *times)
        return made

    def summary(self) -> str:
        """Returns a line with the time of a call before and after."""
        end = "nothing was left to try" if self.is_complete else "the time was up"
        tried = f"{self.tried:,} schedules tried in {self.seconds:.1f} s; {end}"
        if not self.schedule:
            return f"no schedule was faster than the compiler's: {self.before_us:,.2f} us per call; {tried}"
        times = f"{self.before_us:,.2f} us per call before, {self.after_us:,.2f} us after"
        return f"{times}: {self.ratio:.2f} times as fast; {tried}"

    def as_dict(self) -> dict[str, Any]:
        """Returns everything but the executable, for JSON."""
        names = "schedule before_us after_us ratio tried seconds is_complete is_stored notes".split()
        return {"steps": [s._asdict() for s in self.steps]} | {name: getattr(self, name) for name in names}
