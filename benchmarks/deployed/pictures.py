"""Pictures of deployed models: ratios as bars, and operations per second, under the roofs of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.deployed.engines import CONSTANT
from benchmarks.deployed.tables import best_other, ratio
from benchmarks.deployed.work import Work
from benchmarks.report import COLOURS, median
from benchmarks.worker import Row

MARKS = {"f32": "o", "bf16": "s", "i8": "D"}


def ratios(pyplot: Any, rows: Sequence[Row]) -> Any:
    """Ratio of the best other engine to ours, a bar for each model."""
    drawn = [(row, found) for row in rows if (found := ratio(row))]
    figure, axes = pyplot.subplots(figsize=(7, 0.8 + 0.24 * len(drawn)), layout="constrained")
    places = range(len(drawn))
    colours = [COLOURS["faster" if found >= 1 else "slower"] for _, found in drawn]
    axes.barh(places, [found - 1 for _, found in drawn], left=1, color=colours, height=0.7, zorder=2)
    names = [f"{row['case']}   {found:.2f}" for row, found in drawn]
    axes.set_yticks(places, names, fontsize=8)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("time of the best other engine / time of shlo_jit (right of 1: shlo_jit is faster)", fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    return figure


def roofline(pyplot: Any, rows: Sequence[Row], machine: dict[str, Any]) -> Any:
    """Operations per second over operations per byte: ours filled, the best other hollow."""
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    reads = machine["reads"]
    roofs = {f"caches ({size >> 20} MiB)": rate for size, rate in reads if size == 1 << 23} | {"memory": reads[-1][1]}
    intensities = [_intensity(row) for row in rows]
    across = [min(intensities, default=1) / 3, max(intensities, default=1) * 3]
    for i, (name, rate) in enumerate(roofs.items()):
        axes.plot(
            across, [x * rate / 1e9 for x in across], "--", color=f"C{7 + i}", linewidth=1, label=f"reading: {name}"
        )
    for kind, peak in machine["peaks"].items():
        axes.axhline(peak / 1e9, color="black", linewidth=0.8, linestyle=":")
        axes.text(across[0], peak / 1e9, f" {kind}", fontsize=8, va="bottom")
    for i, (row, x) in enumerate(zip(rows, intensities, strict=True)):
        best, ours, mark = best_other(row), median(row, CONSTANT), MARKS[row["kind"]]
        speeds = [row["work"]["flops"] / time / 1e9 if time else None for time in (ours, best and best.seconds)]
        colour = f"C{i % 7}"
        if speeds[0]:
            axes.plot(x, speeds[0], mark, color=colour, markersize=6)
            axes.annotate(str(i + 1), (x, speeds[0]), xytext=(5, -8), textcoords="offset points", fontsize=7)
        if speeds[1]:
            axes.plot(x, speeds[1], mark, color=colour, fillstyle="none", markersize=6)
        axes.plot([], [], mark, color=colour, label=f"{i + 1} {row['case']}")
    axes.set(xscale="log", yscale="log", xlabel="FLOP a byte of weights and activations", ylabel="GFLOP/s", xlim=across)
    axes.set_ylim(top=1.6 * max(machine["peaks"].values()) / 1e9)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=7)
    return figure


def _intensity(row: Row) -> float:
    work = Work(**row["work"])
    return work.flops / (work.weight_bytes + work.activation_bytes)
