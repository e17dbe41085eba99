"""Tables that commands print: a program, its inputs and results, differences of results, and its profile."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shlo_jit.cli.several import Several

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from shlo_jit.cli.comparing import Comparison
    from shlo_jit.ir.core import Module
    from shlo_jit.reference.compare import Difference
    from shlo_jit.runtime.executable import Signature
    from shlo_jit.runtime.profile import Profile
    from shlo_jit.runtime.staged import Runnable
    from shlo_jit.runtime.trace import Trace


def make_console() -> Console:
    """Console as wide as the terminal. Without a terminal it is wide enough for all tables, and strips trailing
    spaces."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)

    class Piped(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            with self.capture() as printed:
                super().print(*objects, **options)
            self.file.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))

    return Piped(width=10_000, highlight=False)


def make_narrow_console() -> Console:
    """Console for tables of text, which are wrapped: to 80 columns if there is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 80, highlight=False)


def make_table(*columns: str) -> Any:
    """Makes a table. Without columns, rows are pairs of a word and its description."""
    from rich import box
    from rich.table import Table

    style = {"box": box.SIMPLE_HEAD, "show_edge": False} if columns else {"box": None, "show_header": False}
    made = Table(pad_edge=False, **style)
    for column in columns:
        made.add_column(column)
    return made


def print_program(
    console: Console,
    name: str,
    module: Module,
    executable: Runnable | Several,
    compile_seconds: float,
    times: Sequence[float],
) -> None:
    from shlo_jit.ir.core import walk

    functions = ["@" + f.attributes["sym_name"] for f in module.functions()]
    ends = ("func.func", "func.return", "stablehlo.return", "builtin.module")
    ops = Counter(op.name.removeprefix("stablehlo.") for op in walk(module.body) if op.name not in ends)
    rows = make_table()
    rows.add_column(style="dim")
    rows.add_row("program", name)
    rows.add_row("functions", f"{len(functions)}: {_shorten(functions)}")
    rows.add_row("ops", f"{ops.total()}: {_shorten([f'{n} {op}' for op, n in ops.most_common()])}")
    if isinstance(executable, Several):
        rows.add_row("processes", str(executable))
    else:
        arena, constants, outputs = executable.memory
        rows.add_row("kernels", executable.text("plan").partition("\n")[0].partition(";")[0])
        rows.add_row("memory", f"arena {size(arena)}, constants {size(constants)}, results {size(outputs)}")
    rows.add_row("compile", _seconds(compile_seconds))
    rows.add_row("run", _run_times(executable, times))
    console.print(rows)


def print_library(
    console: Console, name: str, executable: Runnable, load_seconds: float, times: Sequence[float]
) -> None:
    """Prints times of a library that was run; `inspect` prints the rest."""
    arena, constants, outputs = executable.memory
    rows = make_table()
    rows.add_column(style="dim")
    rows.add_row("library", name)
    rows.add_row("memory", f"instance {size(arena)}, constants {size(constants)}, results {size(outputs)}")
    rows.add_row("load", _seconds(load_seconds))
    rows.add_row("run", _run_times(executable, times))
    console.print(rows)


def _run_times(executable: Runnable | Several, times: Sequence[float]) -> str:
    best, middle = min(times), statistics.median(times)
    several = f" best, {_seconds(middle)} median of {len(times)} calls" if len(times) > 1 else " in one call"
    return f"[bold]{_seconds(best)}[/]{several}, {threads_text(executable)}"


def threads_text(executable: Runnable | Several) -> str:
    return f"{executable.threads} thread{'s' if executable.threads > 1 else ''}"


def print_inputs(
    console: Console, inputs: Sequence[Signature], arguments: Sequence[np.ndarray], origins: Sequence[str]
) -> None:
    if not inputs:
        return
    console.print()
    rows = make_table("input", "dtype", "shape", "from")
    for i, (signature, array, origin) in enumerate(zip(inputs, arguments, origins, strict=False)):
        label = f"{i} {signature.name}" if signature.name else str(i)
        rows.add_row(label, signature.dtype.name, _shape(array.shape), origin)
    console.print(rows)


def print_results(console: Console, results: Sequence[np.ndarray]) -> None:
    from rich.text import Text

    if not results:
        console.print("\nno results")
        return
    console.print()
    rows = make_table("result", "dtype", "shape", "values")
    for i, result in enumerate(results):
        rows.add_row(str(i), result.dtype.name, _shape(result.shape), Text(_values(result)))
    console.print(rows)


def print_differences(console: Console, differences: Sequence[Difference], results: Comparison) -> None:
    """Prints a line for each result with its difference from the expected one, and below the table the largest
    differences."""
    from shlo_jit.reference.compare import Tolerance

    if not differences:
        return
    rows = make_table("against", "dtype", "shape", "ulps", "relative", "bound", "")
    places = []
    for i, (d, got, want) in enumerate(zip(differences, results.got, results.want, strict=True)):
        bound = str(d.bound) if isinstance(d.bound, Tolerance) else f"{d.bound:.2g}"
        figures = [f"{d.ulps:.4g}", f"{d.relative:.2g}", bound]
        rows.add_row(f"{i} {results.origin}", got.dtype.name, _shape(got.shape), *figures, d.verdict)
        if d.relative:
            places.append(f"{i} at {list(d.at)}: {got[d.at]!s}, {results.origin} {want[d.at]!s}")
    console.print()
    console.print(rows, markup=False)
    for line in places:
        console.print(line, markup=False, soft_wrap=True)


def print_profile(console: Console, name: str, executable: Runnable, measured: Profile, times: Sequence[float]) -> None:
    rows = make_table()
    rows.add_column(style="dim")
    rows.add_row("program", name)
    rows.add_row("run", profile_summary(executable, times))
    console.print(rows)
    console.print()
    console.print(measured.table())


def profile_summary(executable: Runnable, times: Sequence[float]) -> str:
    middle = f"{_seconds(statistics.median(times))} median of {len(times)} calls"
    return f"{middle}, {threads_text(executable)}, clock included"


def print_trace(console: Console, traced: Trace) -> None:
    missed = f", {traced.missed:,} more did not fit" if traced.missed else ""
    count = f"{traced.noted:,} event{'s' if traced.noted > 1 else ''}"
    console.print(f"\nwrote {count} to {traced.path}{missed}", markup=False)


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _values(result: np.ndarray) -> str:
    """The first and last few values."""
    import numpy as np

    if result.dtype.kind == "V":  # types of ml_dtypes, which numpy does not abbreviate
        result = result.astype(np.int64 if "int" in result.dtype.name else np.float64)
    if result.shape == ():
        return str(result[()])
    flat = result.reshape(-1)
    return np.array2string(flat, precision=5, threshold=8, edgeitems=3, separator=", ", max_line_width=200)


def _shorten(words: Sequence[str], limit: int = 8) -> str:
    rest = len(words) - limit
    return ", ".join([*words[:limit], *([f"{rest} more"] if rest > 0 else [])])


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _seconds(seconds: float) -> str:
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"
