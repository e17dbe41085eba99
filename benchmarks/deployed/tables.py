"""Measurements of deployed models as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.deployed.engines import CONSTANT, ENGINES, OURS
from benchmarks.deployed.work import Work, limits
from benchmarks.pages import table
from benchmarks.report import geomean, median, seconds
from benchmarks.worker import Row


class Best(NamedTuple):
    """The fastest of the others."""

    engine: str
    seconds: float


def engines(rows: Sequence[Row]) -> list[str]:
    """Engines that have results or errors."""
    return [engine for engine in ENGINES if any(engine in row["peers"] for row in rows)]


def best_other(row: Row) -> Best | None:
    found = [Best(e, time) for e in row["peers"] if e not in OURS and (time := median(row, e))]
    return min(found, key=lambda best: best.seconds, default=None)


def ratio(row: Row) -> float | None:
    """Time of the best other engine relative to ours."""
    best, ours = best_other(row), median(row, CONSTANT)
    return best.seconds / ours if best and ours else None


def times(rows: Sequence[Row]) -> list[str]:
    """Times of a call; the ratio is of the best other engine to shlo_jit with constant weights."""
    lines = []
    for row in rows:
        found, best = ratio(row), best_other(row)
        cells = [_time(row, engine) for engine in engines(rows)]
        lines.append([row["case"], *cells, f"{found:.2f}" if found else "", best.engine if best else ""])
    return table(["model", *engines(rows), "best other / shlo_jit", "best other"], lines)


def brief(rows: Sequence[Row]) -> list[str]:
    """Our times, and those of the best other engine."""
    lines = []
    for row in rows:
        found, best = ratio(row), best_other(row)
        other = f"{seconds(best.seconds)}, {best.engine}" if best else ""
        lines.append([row["case"], seconds(median(row, CONSTANT)), other, f"{found:.2f}" if found else ""])
    return table(["model", CONSTANT, "best other", "best other / shlo_jit"], lines)


def _time(row: Row, engine: str) -> str:
    found = row["peers"].get(engine, {})
    return "failed" if "error" in found and "median" not in found else seconds(found.get("median"))


def summary(rows: Sequence[Row]) -> list[str]:
    """Number of models that are faster, and the mean of the ratios."""
    ratios = [found for row in rows if (found := ratio(row))]
    mean = geomean(ratios)
    if mean is None:
        return [f"{len(rows)} models, none measured against others."]
    against = []
    for engine in engines(rows):
        pairs = [(median(row, engine), median(row, CONSTANT)) for row in rows]
        found = geomean(theirs / ours for theirs, ours in pairs if theirs and ours)
        against += [f"{found:.2f} against {engine}"] if engine not in OURS and found else []
    faster = sum(found > 1 for found in ratios)
    return [
        f"{len(rows)} models, {len(ratios)} measured against others; faster than the best of them in {faster}.",
        f"Geometric means of the ratios: {mean:.2f} against the best of the others, {', '.join(against)}.",
    ]


def starts(rows: Sequence[Row]) -> list[str]:
    """Seconds from the start to the first result: with empty caches, then with those of the previous start."""
    lines = []
    for row in rows:
        found = [row["peers"].get(engine, {}) for engine in engines(rows)]
        kinds = ("start", "cached start")
        cells = (" / ".join(f"{peer[kind]:.2f}" for kind in kinds if kind in peer) for peer in found)
        lines.append([row["case"], *cells])
    return table(["model, s", *engines(rows)], lines)


def memory(rows: Sequence[Row]) -> list[str]:
    """Peak megabytes of a process up to its first result with empty caches; and megabytes of the weights."""
    lines = []
    for row in rows:
        peaks = [row["peers"].get(engine, {}).get("peak") for engine in engines(rows)]
        weights = row["work"]["weight_bytes"] / 1e6
        lines.append([row["case"], f"{weights:.0f}", *(f"{peak:.0f}" if peak else "" for peak in peaks)])
    return table(["model, MB", "weights", *engines(rows)], lines)


def shares(rows: Sequence[Row], machine: dict[str, Any]) -> list[str]:
    """Share of the machine's limits that a call reaches."""
    lines = []
    for row in rows:
        work = Work(**row["work"])
        arithmetic, moved = limits(work, row["kind"], machine)
        limit, best, ours = max(arithmetic, moved), best_other(row), median(row, CONSTANT)
        share = [f"{limit / time:.0%}".replace("%", " %") if time else "" for time in (ours, best and best.seconds)]
        sizes = f"{work.flops / 1e9:.3g}", f"{work.weight_bytes / 1e6:.3g}", f"{work.activation_bytes / 1e6:.3g}"
        lines.append([row["case"], *sizes, seconds(arithmetic), seconds(moved), *share])
    heads = ["model", "GFLOP", "MB of weights", "of activations", "arithmetic", "reading", "shlo_jit", "best other"]
    return table(heads, lines)


def peaks(machines: Sequence[dict[str, Any]]) -> list[str]:
    """Measured limits of the machine, by threads."""
    kinds = list(machines[0]["peaks"])
    sizes = [size for size, _ in machines[0]["reads"] if size >> 20 in (0, 2, 16, 512)][-4:]
    lines = []
    for machine in machines:
        reads = dict(map(tuple, machine["reads"]))
        lines.append([str(machine["threads"]), *(f"{machine['peaks'][kind] / 1e9:.0f}" for kind in kinds),
                      *(f"{reads[size] / 1e9:.0f}" for size in sizes)])  # fmt: skip
    heads = [f"read {size >> 20} MiB" if size >> 20 else f"read {size >> 10} KiB" for size in sizes]
    return table(
        ["threads", *(f"{kind} GFLOP/s" for kind in kinds), *(f"{head}, GB/s" for head in heads)], lines, words=0
    )


def speedups(rows: Sequence[Row], more: int) -> list[str]:
    """Speed-up of `more` threads over one."""
    one = {row["case"]: row for row in rows if row["threads"] == 1}
    lines = []
    for row in (row for row in rows if row["threads"] == more and row["case"] in one):
        pairs = [(median(one[row["case"]], engine), median(row, engine)) for engine in engines(rows)]
        lines.append([row["case"], *(f"{a / b:.2f}" if a and b else "" for a, b in pairs)])
    return table(["model", *engines(rows)], lines)
