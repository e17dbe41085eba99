"""The picture of docs/many_cores.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.many_cores import Recording

LOSSES = ("serial", "imbalance", "pool", "bandwidth")


def draw(found: Sequence[Recording], threads: Sequence[int], folder: Path) -> Path:
    """Writes the speedups by number of threads, and the shares of the time on 64, as SVG. Equal figures give equal
    files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "many cores", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.plot([1, *threads], [1, *threads], color="0.8", linewidth=1)
    for i, r in enumerate(found):
        speedups = [1, *(r.outcome(n).speedup for n in threads)]
        left.plot([1, *threads], speedups, "-o" if i < 10 else "--o", markersize=2, linewidth=1, label=r.name)
    left.set(xscale="log", yscale="log", xlabel="threads", title="speedup")
    left.set_xticks(list(threads), [str(n) for n in threads])
    left.set_yticks(list(threads), [str(n) for n in threads])
    left.minorticks_off()
    left.legend(fontsize=6)
    left.grid(alpha=0.3)

    outcomes = [r.outcome(64) for r in found]
    done = [o.work / 64 / o.seconds for o in outcomes]
    right.barh([r.name for r in found], done, color="0.7", label="work")
    for i, name in enumerate(LOSSES):
        shares = [max(0.0, getattr(o.losses, name) / o.seconds) for o in outcomes]
        right.barh([r.name for r in found], shares, left=done, color=f"C{i}", label=name)
        done = [a + b for a, b in zip(done, shares, strict=True)]
    right.invert_yaxis()
    right.set(xlim=(0, 1), title="shares of the time on 64 threads")
    right.legend(fontsize=7, loc="lower right")

    folder.mkdir(exist_ok=True)
    path = folder / "speedup.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
