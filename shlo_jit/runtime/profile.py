"""Where the time of a program goes: step by step, on a variant of its code that looks at the clock around each.

    with exe.profile() as p:
        exe(x, w)          # as often as you like
    print(p)

Inside the `with`, calls of the executable run the variant; ordinary code knows nothing of all this.
"""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shlo_jit.codegen.abi import PROFILE_BYTES, PROFILE_SAMPLES
from shlo_jit.codegen.program import TimedStep

if TYPE_CHECKING:
    from shlo_jit.runtime.executable import Executable


class StepTime(NamedTuple):
    """A step of the program, and what it took."""

    label: str
    """As in the printed plan: `2`, or `2.0.5` within a region; of a function that is called, with its name before."""
    title: str
    kernels: tuple[str, ...]
    """Names of the functions in machine code."""
    calls: int
    median_us: float
    """Of the last calls, microseconds; of control flow, with everything inside."""
    best_us: float
    """The shortest of them: where it is far below the median, something else kept the machine busy."""
    total_us: float
    """Of all calls."""
    share: float
    """Of the total of all steps, those within control flow counted once; 0 for control flow itself."""
    gigabytes_per_second: float | None
    """What is read and written at least, by the median time; None for steps that move nothing by themselves."""
    gigaflops: float | None
    """10^9 arithmetic operations a second; None where their number depends on values."""
    ops: str
    """What it computes, and the lines of the program's text."""


class _Part:
    """An executable, and the same program compiled to look at the clock."""

    def __init__(self, label: str, executable: Executable, variant: Executable) -> None:
        """`label`: what its steps' labels begin with."""
        self.label = label
        self.executable = executable
        self.variant = variant
        instance = variant._front.instance
        self.timed: tuple[TimedStep, ...] = instance.loaded.program.timed
        self.records = np.zeros((max(1, len(self.timed)), PROFILE_BYTES // 8), np.int64)
        instance.record.profile = self.records.ctypes.data_as(ctypes.c_void_p).value
        self.call: Callable[..., object] | None = None


class Profile:
    """Times of the steps of one executable's calls, from `Executable.profile`. Calls from several threads at once are
    counted together, and some may be missed."""

    def __init__(self, parts: Sequence[tuple[str, Executable, Executable]]) -> None:
        """`parts`: what runs one after the other in a call: what labels of its steps begin with, an executable, and the
        same program compiled to look at the clock."""
        self._parts = [_Part(*part) for part in parts]
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        """What the `with` enters besides, for calls to come to the executable."""
        self._stack = ExitStack()

    def __enter__(self) -> Profile:
        self._stack.enter_context(self.around())
        for part in self._parts:
            part.call = part.executable.__call__
            part.executable.__call__ = part.variant.__call__
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts:
            assert part.call is not None
            part.executable.__call__ = part.call
        self._stack.close()

    def reset(self) -> None:
        """Forget what was measured, a warm-up say."""
        for part in self._parts:
            part.records[...] = 0

    @property
    def steps(self) -> list[StepTime]:
        """Every step that has run, in the order of the program."""
        rows = [(part.label, r, s) for part in self._parts for r, s in zip(part.records, part.timed, strict=False)]
        inside = sum(int(record[1]) for _, record, step in rows if not step.is_control)
        out = []
        for label, record, step in rows:
            calls, total = int(record[0]), int(record[1])
            if calls:
                samples = record[2 : 2 + min(calls, PROFILE_SAMPLES)]
                out.append(_measured(label + step.label, step, calls, total, samples, inside))
        return out

    def __str__(self) -> str:
        """A table, the figures of the slowest step marked."""
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=10_000, highlight=False).print(self.table())
        return text.getvalue().rstrip("\n")

    def table(self) -> object:
        """The same for a `rich.console.Console`."""
        from rich import box
        from rich.table import Table

        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for heading in ("step", "", "calls", "median us", "best", "share", "GB/s", "GFLOP/s", "kernel", "ops"):
            right = heading in ("calls", "median us", "best", "share", "GB/s", "GFLOP/s")
            made.add_column(heading, justify="right" if right else "left", no_wrap=True)
        steps = self.steps
        most = max((s.share for s in steps), default=0.0)
        for s in steps:
            style = "bold" if s.share == most > 0 else ""
            share = f"{100 * s.share:.1f} %" if s.share else ""
            rates = [f"{x:.3g}" if x is not None else "" for x in (s.gigabytes_per_second, s.gigaflops)]
            times = [f"{s.calls:,}", f"{s.median_us:,.2f}", f"{s.best_us:,.2f}"]
            made.add_row(s.label, s.title, *times, share, *rates, " ".join(s.kernels), s.ops, style=style)
        return made


def _measured(label: str, step: TimedStep, calls: int, total: int, samples: np.ndarray, inside: int) -> StepTime:
    """`total` and `samples` in nanoseconds; `inside`: the total of all steps."""
    median, best = float(np.median(samples)), float(samples.min())
    moved = step.nbytes / median if step.nbytes and median else None
    operations = step.operations / median if step.operations and median else None
    share = 0.0 if step.is_control or not inside else total / inside
    times = calls, median / 1e3, best / 1e3, total / 1e3
    return StepTime(label, step.title, step.kernels, *times, share, moved, operations, step.ops)
