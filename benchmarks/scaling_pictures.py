"""The pictures of docs/scaling.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import training
from benchmarks.collectives import OPS, Point
from benchmarks.costs import Fit
from benchmarks.network import ALGORITHMS, NETWORKS, Network, ours

SIZES = [4**k for k in range(1, 16)]


def draw(fits: Sequence[Fit], points: Sequence[Point], net: Network, folder: Path) -> list[Path]:
    """Writes the pictures as SVG. Equal figures give equal files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "scaling", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    pictures = {
        "machine": lambda: _machine(pyplot, fits, points),
        "algorithms": lambda: _algorithms(pyplot, net),
        "training": lambda: _training(pyplot),
    }
    paths = []
    for name, picture in pictures.items():
        figure = picture()
        paths.append(folder / f"{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
        pyplot.close(figure)
    return paths


def _machine(pyplot: Any, fits: Sequence[Fit], points: Sequence[Point]) -> Any:
    """In-loop times: measured as dots, the model as lines."""
    sets = [(f, ranks) for f in fits for ranks in dict.fromkeys(p.ranks for p in points if p.transport == f.transport)]
    figure, axes = pyplot.subplots(1, len(sets), figsize=(3.2 * len(sets), 3.4), sharey=True, layout="constrained")
    for axis, (fit, ranks) in zip(axes if len(sets) > 1 else [axes], sets, strict=True):
        for i, op in enumerate(OPS):
            mine = [p for p in points if (p.transport, p.ranks, p.op) == (fit.transport, ranks, op) and p.loop > 0]
            sizes = sorted(p.nbytes for p in mine)
            axis.plot([p.nbytes for p in mine], [p.loop * 1e6 for p in mine], "o", color=f"C{i}", markersize=3)
            axis.plot(sizes, [fit.seconds(op, ranks, s) * 1e6 for s in sizes], color=f"C{i}", linewidth=1, label=op)
        axis.set(xscale="log", yscale="log", xlabel="bytes", title=f"{fit.transport}, {ranks} ranks")
        axis.grid(alpha=0.3)
        axis.minorticks_off()
    figure.axes[0].set_ylabel("us an op")
    figure.axes[0].legend(fontsize=7)
    return figure


def _algorithms(pyplot: Any, net: Network) -> Any:
    """All_reduce on 8, 64 and 1,024 hosts."""
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
    named = {**ALGORITHMS["all_reduce"], "ours": ours("all_reduce")}
    for axis, hosts in zip(axes, (8, 64, 1024), strict=True):
        for name, formula in named.items():
            style = "k--" if name == "ours" else "-"
            axis.plot(SIZES, [formula(net, hosts, s) * 1e6 for s in SIZES], style, linewidth=1.2, label=name)
        axis.set(xscale="log", yscale="log", xlabel="bytes", title=f"all_reduce, {hosts:,} hosts, {net.name}")
        axis.grid(alpha=0.3)
        axis.minorticks_off()
    axes[0].set_ylabel("us")
    axes[0].legend(fontsize=7)
    return figure


def _training(pyplot: Any) -> Any:
    """Efficiency over hosts with the fastest algorithm, weak and strong."""
    hosts = [2**k for k in range(1, 11)]
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    for axis, is_weak in zip(axes, (True, False), strict=True):
        for i, model in enumerate(training.MODELS):
            for net, style in ((NETWORKS[1], "-"), (NETWORKS[3], "--")):
                values = [training.efficiency(model, net, n, is_weak) for n in hosts]
                axis.plot(hosts, values, style, color=f"C{i}", linewidth=1.2, label=f"{model.name}, {net.name}")
        axis.set(xscale="log", xlabel="hosts", ylim=(0, 1.02), title="weak scaling" if is_weak else "strong scaling")
        axis.grid(alpha=0.3)
        axis.minorticks_off()
    axes[0].set_ylabel("efficiency")
    axes[1].legend(fontsize=6)
    return figure
