"""Times of collective ops by a model: within this machine, fitted to measurements, and between hosts.

    python -m benchmarks.scaling                        print the tables of docs/scaling.md
    python -m benchmarks.scaling --write                write them and the pictures there
    python -m benchmarks.scaling --measure --write      measure again first (`benchmarks.collectives`, half an hour)

`costs.py` has the model of one machine, `network.py` formulas for several, `simulation.py` simulates them, and
`training.py` derives the scaling of training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import collectives, costs, network, scaling_pictures, training
from benchmarks.collectives import Point, size_text
from benchmarks.network import ALGORITHMS, HOSTS, NETWORKS
from benchmarks.pages import table, written
from benchmarks.report import seconds
from benchmarks.simulation import SIMULATED, Algorithm, Disturbance, ours, simulate

FOLDER = Path(__file__).parents[1] / "docs"
PAGE, MEASURED = FOLDER / "scaling.md", FOLDER / "scaling"
SHOWN = (4, 8 << 10, 64 << 10, 1 << 20, 64 << 20)
"""Sizes in the tables for several hosts."""
BOUNDS = tuple(k << 10 for k in (1, 4, 8, 16, 32, 64, 128))
"""Candidate sizes from which messages are received in place."""
MODEL_NETWORK = NETWORKS[1]
"""Network of simulations and pictures."""
MOST_MESSAGES = 200_000
"""Maximum messages to be simulated without --all: some seconds."""


# ---------------------------------------------------------------------- within a machine
def fits(environment: dict[str, Any], points: Sequence[Point]) -> list[costs.Fit]:
    transports = dict.fromkeys(p.transport for p in points)
    return [costs.fit(points, transport, environment["cpus"]) for transport in transports]


def prices(found: Sequence[costs.Fit], points: Sequence[Point]) -> list[str]:
    """The fitted prices, and the error of the fit."""
    rows = []
    for price, value in zip(costs.PRICES, zip(*(f.prices for f in found), strict=True), strict=True):
        rows.append([price, *(_price(v, price.endswith("byte")) for v in value)])
    off = [costs.errors(f, points) for f in found]
    rows.append(["points", *(str(len(e)) for e in off)])
    rows.append(["off by, median", *(f"x {np.median(e):.2f}" for e in off)])
    rows.append(["off by, 90 % of points", *(f"x {np.quantile(e, 0.9):.2f}" for e in off)])
    rows.append(["off by, at most", *(f"x {max(e):.2f}" for e in off)])
    return table(["price", *(f.transport for f in found)], rows)


def _price(value: float, is_byte: bool) -> str:
    if value < (1e-12 if is_byte else 1e-10):
        return "-"  # not distinguishable from zero
    return f"{1e-9 / value:.3g} GB/s" if is_byte else seconds(value)


def measured(found: Sequence[costs.Fit], points: Sequence[Point]) -> list[str]:
    """In-loop times and the model's, for all ops and ranks of one transport."""
    fitted = {f.transport: f for f in found}
    sets = list(dict.fromkeys((p.transport, p.ranks) for p in points))
    times = {p[:4]: p.loop for p in points}
    rows = []
    for op, nbytes in dict.fromkeys((p.op, p.nbytes) for p in points):
        row = [op, size_text(nbytes)]
        for transport, ranks in sets:
            time, model = times.get((transport, ranks, op, nbytes)), fitted[transport].seconds(op, ranks, nbytes)
            row.append("" if time is None else f"{seconds(time)} / {seconds(model)}")
        rows.append(row)
    return table(["op", "size", *(f"{transport} {ranks}" for transport, ranks in sets)], rows)


def inline_bounds(found: Sequence[costs.Fit], points: Sequence[Point]) -> list[str]:
    """Time of an all_reduce inline, in one step, relative to its time in parts."""
    rows = []
    for f in found:
        for ranks in dict.fromkeys(p.ranks for p in points if p.transport == f.transport):
            times = [[f.seconds("all_reduce", ranks, s, bound) for bound in (1 << 30, 0)] for s in BOUNDS]
            rows.append([f.transport, str(ranks), *(f"{inline / parts:.2f}" for inline, parts in times)])
    return table(["transport", "ranks", *map(size_text, BOUNDS)], rows)


# ---------------------------------------------------------------------- between hosts
def networks() -> list[str]:
    rows = [[n.name, seconds(n.latency), seconds(n.overhead), f"{n.bandwidth / 1e9:g} GB/s"] for n in NETWORKS]
    return table(["network", "latency L", "overhead o", "bandwidth B"], rows)


def algorithms() -> list[str]:
    """The fastest algorithm for each range of sizes."""
    rows = []
    for op in ALGORITHMS:
        for net in NETWORKS:
            chosen = [network.choices(op, net, hosts) for hosts in HOSTS]
            rows.append([op, net.name, *("; ".join(_choice(c, i) for i, c in enumerate(found)) for found in chosen)])
    return table(["op", "network", *(f"{hosts:,} hosts" for hosts in HOSTS)], rows, words=5)


def _choice(choice: tuple[int, str], place: int) -> str:
    nbytes, name = choice
    return name if place == 0 else f"{name} from {size_text(nbytes)}"


def best_and_ours() -> list[str]:
    """Times of the fastest algorithm, and of transport="mpi" as a multiple."""
    rows = []
    for op in ALGORITHMS:
        for nbytes in SHOWN:
            row = [op, size_text(nbytes)]
            for hosts in HOSTS:
                _, best = network.cheapest(op, MODEL_NETWORK, hosts, nbytes)
                mine = network.ours(op)(MODEL_NETWORK, hosts, nbytes)
                row.append(f"{seconds(best)}, x {mine / best:.1f}")
            rows.append(row)
    return table(["op", "size", *(f"{hosts:,} hosts" for hosts in HOSTS)], rows, words=1)


# ---------------------------------------------------------------------- simulated
def messages(steps: Sequence[Any], hosts: int) -> int:
    return hosts * sum(len(step.sends) for step in steps)


def simulated(everything: bool) -> list[str]:
    """Simulated times of an all_reduce of the sizes of a gradient and of a loss, by every algorithm, and by ours."""
    rows = []
    named: dict[str, Algorithm] = {**SIMULATED["all_reduce"], "ours": rotated, "by rank": ours}
    for name, algorithm in named.items():
        for nbytes in (4, 64 << 20):
            cells = []
            for hosts in HOSTS:
                formula = ALGORITHMS["all_reduce"].get(name, network.ours("all_reduce"))(MODEL_NETWORK, hosts, nbytes)
                if not everything and messages(algorithm(0, hosts, nbytes), hosts) > MOST_MESSAGES:
                    cells.append(f"- / {seconds(formula)}")
                else:
                    cells.append(f"{seconds(simulate(MODEL_NETWORK, algorithm, hosts, nbytes))} / {seconds(formula)}")
            rows.append([name, size_text(nbytes), *cells])
    return table(["algorithm", "size", *(f"{hosts:,} hosts" for hosts in HOSTS)], rows)


def rotated(h: int, n: int, s: float) -> Sequence[Any]:
    return ours(h, n, s, rotated=True)


def uneven(hosts: int = 64, nbytes: int = 64 << 20) -> list[str]:
    """Simulated times if one host is late, or slow, or if racks share a link."""
    cases = {
        "even": Disturbance(),
        "one host 10 ms late": Disturbance(late={5: 0.01}),
        "one host at half the bandwidth": Disturbance(slow={5: 2.0}),
        "racks of 16 with links of 4": Disturbance(rack=16, uplink=4),
        "racks of 16 with links of 1": Disturbance(rack=16, uplink=1),
    }
    named: dict[str, Algorithm] = {**SIMULATED["all_reduce"], "ours": rotated, "by rank": ours}
    rows = [
        [name, *(seconds(simulate(MODEL_NETWORK, algorithm, hosts, nbytes, case)) for algorithm in named.values())]
        for name, case in cases.items()
    ]
    return table(["case", *named], rows)


# ---------------------------------------------------------------------- training
def efficiencies(is_weak: bool) -> list[str]:
    rows = []
    for model in training.MODELS:
        for net in NETWORKS:
            cells = []
            for hosts in HOSTS:
                best, mine = (training.efficiency(model, net, hosts, is_weak, f) for f in (None, training.OURS))
                cells.append(f"{best:.0%} / {mine:.0%}".replace("%", " %"))
            rows.append([model.name, net.name, *cells])
    return table(["model", "network", *(f"{hosts:,} hosts" for hosts in HOSTS)], rows, words=2)


def models() -> list[str]:
    rows = [
        [m.name, f"{4 * m.parameters / 1e6:,.3g} MB", f"{m.operations / 1e9:,.3g} GFLOP", str(m.samples),
         seconds(m.samples * m.operations / training.RATE), f"{m.together:,}"]
        for m in training.MODELS
    ]  # fmt: skip
    return table(["model", "gradients", "a sample", "samples a host", "compute", "samples in all"], rows)


# ---------------------------------------------------------------------- the page
def blocks(everything: bool = False) -> dict[str, Callable[[], list[str]]]:
    """The tables of the page, by name."""
    environment, points = collectives.read(MEASURED / "collectives.json")
    found = fits(environment, points)
    return {
        "machine": lambda: [", ".join(f"{k} {v}" for k, v in environment.items())],
        "prices": lambda: prices(found, points),
        "inline": lambda: inline_bounds(found, points),
        "measured": lambda: measured(found, points),
        "networks": networks,
        "algorithms": algorithms,
        "ours": best_and_ours,
        "simulated": lambda: simulated(everything),
        "uneven": uneven,
        "models": models,
        "weak": lambda: efficiencies(True),
        "strong": lambda: efficiencies(False),
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.scaling", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--measure", action="store_true", help="measure this machine first")
    parser.add_argument("--write", action="store_true", help="write docs/scaling.md and its pictures")
    parser.add_argument("--all", action="store_true", help="simulate what takes minutes, too: a ring of 1,024 hosts")
    parser.add_argument("--only", default="", metavar="NAMES", help="tables, separated by commas")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if something could not be measured, 2 for an unknown table."""
    options = parse(arguments)
    status = collectives.main(["--output", str(MEASURED)]) if options.measure else 0
    made = blocks(options.all)
    wanted = [w for w in options.only.split(",") if w] or list(made)
    if not set(wanted) <= set(made):
        print(f"tables are {', '.join(made)}")
        return 2
    for name in wanted:
        lines = made[name]()
        print(f"{name}\n\n" + "\n".join(lines) + "\n")
        if options.write:
            PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), name, lines), encoding="utf-8")
    if options.write:
        environment, points = collectives.read(MEASURED / "collectives.json")
        for path in scaling_pictures.draw(fits(environment, points), points, MODEL_NETWORK, MEASURED):
            print(f"wrote {path}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
