"""Results as a table in Markdown, as JSON and as a chart."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.names import OURS, REFERENCE
from benchmarks.worker import Row

OTHERS = ("NumPy", "IREE")
NOTES = (
    "Times are medians of interleaved blocks; a ratio above 1 means that shlo_jit is faster.",
    "`compile` is from text to a callable in a process that has compiled others before, without a cache;",
    "`start` the same in a new process with an empty cache, `cached start` with a filled one, after the imports.",
)
COLOURS = {"faster": "#2a78b8", "slower": "#d9822b", "NumPy": "#2b2b2b", "IREE": "#8a3fa0"}


def write(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Writes `results.md`, `results.json` and, if there is data to draw, `results.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    table, data, chart = (folder / f"results.{suffix}" for suffix in ("md", "json", "png"))
    table.write_text(markdown(rows), encoding="utf-8")
    data.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1), encoding="utf-8")
    drawn = [row for row in rows if ratio(row) is not None]
    if not drawn:
        return [table, data]
    draw(drawn, chart, environment())
    return [table, data, chart]


# ---------------------------------------------------------------------- figures
def median(row: Row, peer: str) -> float | None:
    """Median seconds of a call; None if there are none."""
    return row["peers"].get(peer, {}).get("median")


def ratio(row: Row, peer: str = REFERENCE) -> float | None:
    """The peer's time relative to ours."""
    ours, theirs = median(row, OURS), median(row, peer)
    return theirs / ours if ours and theirs else None


def geomean(values: Iterable[float]) -> float | None:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def problem(row: Row) -> str:
    """Reason why our side has no time; empty if it has one."""
    return row.get("error") or row["peers"].get(OURS, {}).get("error", "")


def environment(*others: str) -> dict[str, Any]:
    """Facts about this machine and the versions measured, including other packages."""
    versions = {}
    for name in ("shlo_jit", "llvmlite", "numpy", "jax", "jaxlib", "iree-base-compiler", *others):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"cpu": _cpu(), "cpus": len(os.sched_getaffinity(0)), "python": platform.python_version(), **versions}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


# ---------------------------------------------------------------------- the table
def markdown(rows: Sequence[Row]) -> str:
    """The environment, the summary, and the cases."""
    return "\n".join([words(environment()), "", *summary(rows), "", *cases(rows), "", *NOTES, ""])


def words(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in environment.items())


def cases(rows: Sequence[Row]) -> list[str]:
    """A table of all measurements of the cases."""
    others = [peer for peer in OTHERS if any(median(row, peer) for row in rows)]
    starts = any("start" in row for row in rows)
    head = ["case", OURS, REFERENCE, f"{REFERENCE} / {OURS}", *others, "GFLOP/s", "compile", f"compile {REFERENCE}"]
    head += ["start", "cached start"] if starts else []
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for row in rows:
        reason = problem(row)
        cells = [row["case"], reason.replace("|", "\\|")] if reason else _cells(row, others, starts)
        lines.append("| " + " | ".join([*cells, *[""] * (len(head) - len(cells))]) + " |")
    return lines


def _cells(row: Row, others: Sequence[str], starts: bool) -> list[str]:
    ours = median(row, OURS)
    rate = f"{row['flops'] / ours / 1e9:.1f}" if row["flops"] and ours else ""
    found = ratio(row)
    cells = [row["case"], seconds(ours), seconds(median(row, REFERENCE)), f"{found:.2f}" if found else ""]
    cells += [seconds(median(row, peer)) for peer in others]
    cells += [rate, *(seconds(row["peers"].get(peer, {}).get("compile")) for peer in (OURS, REFERENCE))]
    if starts:
        start = row.get("start", {})
        cells += [seconds(start.get(kind, {}).get("compile")) for kind in ("cold", "cached")]
    return cells


def summary(rows: Sequence[Row]) -> list[str]:
    """Geometric means of all cases and of the groups."""
    ratios = {row["case"]: r for row in rows if (r := ratio(row)) is not None}
    failed = sum(bool(problem(row)) for row in rows)
    lines = [f"{len(rows)} cases, {len(ratios)} measured against {REFERENCE}, {failed} failed."]
    if not ratios:
        return lines
    faster = sum(r > 1 for r in ratios.values())
    lines += [f"Faster than {REFERENCE} in {faster}; geometric mean of the ratios {geomean(ratios.values()):.2f}.", ""]
    lines += ["| group | cases | " + f"{REFERENCE} / {OURS} |", "|---|---:|---:|"]
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [ratios[row["case"]] for row in rows if row["group"] == group and row["case"] in ratios]
        if mine:
            lines.append(f"| {group} | {len(mine)} | {geomean(mine):.2f} |")
    return lines


def seconds(value: float | None) -> str:
    """Formats seconds with three digits and a unit; empty for None."""
    if value is None:
        return ""
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{value * scale:.3g} {unit}" if value * scale < 999.5 else f"{value * scale:.0f} {unit}"
    return f"{value:.3g} s"


# ---------------------------------------------------------------------- the chart
def draw(rows: Sequence[Row], path: Path, machine: Mapping[str, Any]) -> None:
    """Draws a bar for each case from 1 to the ratio, by groups; dots for the other peers, arrows for outliers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    groups = list(dict.fromkeys(row["group"] for row in rows))
    places = [i + 1.2 * groups.index(row["group"]) for i, row in enumerate(rows)]
    ratios = [ratio(row) or 1.0 for row in rows]
    figure, axes = pyplot.subplots(figsize=(9, 1.4 + 0.22 * (places[-1] + 1)), layout="constrained")
    colours = [COLOURS["faster" if r >= 1 else "slower"] for r in ratios]
    axes.barh(places, [r - 1 for r in ratios], left=1, color=colours, height=0.72, zorder=2)
    limit = 3 * max(1.0, *ratios)
    for peer, marker in zip(OTHERS, ("o", "D"), strict=True):
        dots = [(r, place) for row, place in zip(rows, places, strict=True) if (r := ratio(row, peer)) is not None]
        near, far = ([d for d in dots if (d[0] > limit) == beyond] for beyond in (False, True))
        style = {"s": 14, "color": COLOURS[peer], "zorder": 3}
        axes.scatter([r for r, _ in near], [p for _, p in near], marker=marker, label=peer, **style)
        axes.scatter([limit] * len(far), [p for _, p in far], marker=">", **style)
    if any(ratio(row, peer) for row in rows for peer in OTHERS):
        figure.legend(loc="outside lower right", fontsize=8, ncols=2, title="the same for", title_fontsize=8)
    for group in groups:
        mine = [place for row, place in zip(rows, places, strict=True) if row["group"] == group]
        axes.text(1.01, sum(mine) / len(mine), group, transform=axes.get_yaxis_transform(), fontsize=8, va="center",
                  style="italic")  # fmt: skip
    labels = [f"{row['case']}   {value:.2f}" for row, value in zip(rows, ratios, strict=True)]
    axes.set_yticks(places, labels, fontsize=8)
    axes.set_ylim(places[-1] + 0.8, -0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.12)
    axes.axvline(1, color="black", linewidth=0.8, zorder=2)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_xlabel(f"time of {REFERENCE}:CPU / time of {OURS} (right of 1: {OURS} is faster)", fontsize=9)
    mean = geomean(ratios)
    axes.set_title(f"{len(rows)} cases, geometric mean {mean:.2f}\n{machine['cpu']}, "
                   f"{machine['cpus']} CPUs", fontsize=9)  # fmt: skip
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
