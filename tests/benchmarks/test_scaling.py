"""The model of collective ops: formulas against the simulation, fits, and the page that shows both."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import collectives, costs, network, pages, scaling, simulation, training
from benchmarks.collectives import Point
from benchmarks.network import ALGORITHMS, NETWORKS, Network
from benchmarks.simulation import SIMULATED, Disturbance, Step, simulate
from shlo_jit import tuning

NET = Network("a network", latency=5e-6, overhead=1e-6, bandwidth=1e9)


# ---------------------------------------------------------------------- simulation
@pytest.mark.parametrize("net", (NET, NETWORKS[0], NETWORKS[-1]), ids=lambda net: net.name)
@pytest.mark.parametrize(("op", "name"), [(op, name) for op, found in SIMULATED.items() for name in found])
@pytest.mark.sampled(6)
def test_an_undisturbed_simulation_is_the_formula(op: str, name: str, net: Network) -> None:
    for hosts in (2, 8, 32):
        for nbytes in (64.0, 1e5, 64e6):
            wanted = ALGORITHMS[op][name](net, hosts, nbytes)
            assert simulate(net, SIMULATED[op][name], hosts, nbytes) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("nbytes", [1024, 1 << 20])
def test_our_algorithm_is_its_formula_when_hosts_begin_with_others(nbytes: int) -> None:
    wanted = network.ours("all_reduce")(NET, 16, nbytes)
    assert simulate(NET, scaling.rotated, 16, nbytes) == pytest.approx(wanted, rel=1e-9)
    assert simulate(NET, simulation.ours, 16, nbytes) > 1.2 * wanted


def test_a_message_takes_latency_and_bytes() -> None:
    def once(h: int, n: int, s: float) -> list[Step]:
        return [Step([(1, s)])] if h == 0 else [Step((), [0])]

    assert simulate(NET, once, 2, 1000.0) == pytest.approx(5e-6 + 2 * 1e-6 + 1e-6)
    assert NET.one(1000) == pytest.approx(8e-6)


def test_two_messages_to_one_host_follow_each_other() -> None:
    def crowd(h: int, n: int, s: float) -> list[Step]:
        return [Step((), [1, 2])] if h == 0 else [Step([(0, s)])]

    assert simulate(NET, crowd, 3, 1e6) == pytest.approx(NET.one(1e6) + 1e-6 + 1e-3)


def test_messages_come_before_their_step() -> None:
    def steps(h: int, n: int, s: float) -> list[Step]:
        return [Step((), [1], 1e6), Step((), [1])] if h == 0 else [Step([(0, s)]), Step([(0, s)])]

    arrival = NET.one(1000) + NET.overhead + 1e-6
    assert simulate(NET, steps, 2, 1000.0) == pytest.approx(max(arrival, NET.one(1000) + 1e6 * network.REDUCED_BYTE))


def test_waiting_for_no_sender_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no host sends"):
        simulate(NET, lambda h, n, s: [Step((), [1 - h])], 2, 1.0)


def test_uneven_hosts_and_links() -> None:
    def seconds(name: str, uneven: Disturbance) -> float:
        return simulate(NET, SIMULATED["all_reduce"][name], 16, 1e7, uneven)

    even = {name: seconds(name, Disturbance()) for name in ("ring", "halving and doubling")}
    for name, undisturbed in even.items():
        assert seconds(name, Disturbance(late={3: 0.5})) == pytest.approx(undisturbed + 0.5, rel=0.05)
        assert 1.5 * undisturbed < seconds(name, Disturbance(slow={3: 2.0})) < 2.5 * undisturbed
    shared = Disturbance(rack=4, uplink=1)
    assert seconds("ring", shared) == pytest.approx(even["ring"], rel=0.01)
    assert seconds("halving and doubling", shared) > 3 * even["halving and doubling"]


# ---------------------------------------------------------------------- formulas
def test_few_rounds_for_little_and_few_bytes_for_much() -> None:
    assert network.cheapest("all_reduce", NETWORKS[1], 64, 4)[0] == "recursive doubling"
    assert network.cheapest("all_reduce", NETWORKS[1], 64, 1 << 26)[0] == "halving and doubling"
    assert network.choices("all_to_all", NETWORKS[1], 64)[-1][1] == "direct"
    for op, found in ALGORITHMS.items():
        for nbytes, name in network.choices(op, NETWORKS[0], 64):
            best = found[name](NETWORKS[0], 64, nbytes)
            assert best == min(formula(NETWORKS[0], 64, nbytes) for formula in found.values())


@pytest.mark.parametrize("op", ALGORITHMS)
def test_nothing_is_faster_than_its_bytes_allow(op: str) -> None:
    """A host receives all but its own part; for an all_reduce it also sends the sum."""
    least = {"all_reduce": 2 * 63 / 64, "broadcast": 1.0}.get(op, 63 / 64) * 1e9 / NET.bandwidth
    for name, formula in [*ALGORITHMS[op].items(), ("ours", network.ours(op))]:
        slack = 63 / 64 if op == "broadcast" else 1.0
        assert formula(NET, 64, 1e9) >= least * slack, name


def test_efficiency_falls_with_hosts_and_rises_with_the_network() -> None:
    for model in training.MODELS:
        for is_weak in (True, False):
            over_hosts = [training.efficiency(model, NETWORKS[1], n, is_weak) for n in (2, 8, 64, 1024)]
            assert over_hosts == sorted(over_hosts, reverse=True) and 0 < over_hosts[-1] < over_hosts[0] < 1
            over_nets = [training.efficiency(model, net, 64, is_weak) for net in NETWORKS]
            assert over_nets == sorted(over_nets)


# ---------------------------------------------------------------------- one machine
def synthetic(prices: np.ndarray, noise: float = 0.0) -> list[Point]:
    made = costs.Fit(prices, 2, "processes")
    wobble = np.random.default_rng(0)
    return [
        Point("processes", ranks, op, nbytes, 0.0, made.seconds(op, ranks, nbytes) * math.exp(noise * wobble.normal()))
        for ranks in (2, 4)
        for op in collectives.OPS
        for nbytes in collectives.SIZES
    ]


PRICES = np.array([5e-7, 2e-6, 1e-7, 2e-11, 8e-11, 2e-10, 3e-11])


def test_a_fit_finds_the_prices_that_made_its_points() -> None:
    points = synthetic(PRICES)
    found = costs.fit(points, "processes", 2)
    np.testing.assert_allclose(found.prices, PRICES, rtol=1e-3)
    assert max(costs.errors(found, points)) < 1.001


def test_a_fit_of_noisy_points_is_as_far_from_them_as_the_noise() -> None:
    points = synthetic(PRICES, noise=0.2)
    errors = costs.errors(costs.fit(points, "processes", 2), points)
    assert 1.05 < np.median(errors) < math.exp(0.2) and max(errors) < math.exp(0.8)


def test_usage_follows_the_schedule() -> None:
    small, large = tuning.INLINE_MESSAGE_BYTES, 4 * tuning.INLINE_MESSAGE_BYTES
    assert costs.usage("all_reduce", 4, small, "processes")[:2] == (1, 3)
    assert costs.usage("all_reduce", 4, large, "processes")[:2] == (2, 6)
    assert costs.usage("all_reduce", 4, large, "mpi")[:2] == (4, 12)
    assert costs.usage("all_gather", 4, large, "processes").rounds == 1  # for operands a quarter as large
    assert costs.usage("all_reduce", 4, large, "processes").moved == 2 * large


# ---------------------------------------------------------------------- measuring
@pytest.mark.parametrize("op", collectives.OPS)
def test_programs_of_the_benchmark_give_what_is_expected(op: str) -> None:
    """`measure` compares the results of all ranks."""
    point = collectives.measure("threads", 2, op, 4096, budget=0.0)
    # A difference of two times is lost in noise if other programs compete with the ranks.
    assert point[:4] == ("threads", 2, op, 4096) and 0 <= point.loop < 1 and 0 < point.call < 1


def test_points_are_written_and_read(tmp_path: Path) -> None:
    points = [Point("threads", 2, "all_reduce", 4, 1.5e-5, 2e-6), Point("threads", 4, "all_reduce", 4, 3e-5, 5e-6)]
    collectives.write(points, tmp_path)
    environment, found = collectives.read(tmp_path / "collectives.json")
    assert found == points and environment["cpus"] > 0
    assert "| all_reduce | 4 B | 2 us (15 us) | 5 us (30 us) |" in (tmp_path / "collectives.md").read_text()
    again = [points[0]._replace(call=1e-5, loop=4e-6), points[1]._replace(call=1.0, loop=0.0)]
    assert collectives.merged(points, again) == [again[0], points[1]]
    assert json.loads((tmp_path / "collectives.json").read_text())["fields"] == list(Point._fields)


def test_the_command_measures_in_a_process(tmp_path: Path) -> None:
    arguments = ["--only", "permute", "--sizes", "4", "--ranks", "2", "--transports", "threads", "--budget", "0.01"]
    assert collectives.main([*arguments, "--output", str(tmp_path)]) == 0
    (point,) = collectives.read(tmp_path / "collectives.json")[1]
    assert point[:4] == ("threads", 2, "collective_permute", 4)


# ---------------------------------------------------------------------- the page
HELD = [name for name in scaling.blocks() if name not in ("simulated", "uneven")]
"""Tables that are fast to generate; the contents of the others are tested above."""


@pytest.mark.parametrize("name", HELD)
def test_a_table_of_the_page(name: str) -> None:
    page = scaling.PAGE.read_text(encoding="utf-8")
    assert pages.written(page, name, scaling.blocks()[name]()) == page, "python -m benchmarks.scaling --write"


def test_pictures_of_the_page_are_there() -> None:
    page = scaling.PAGE.read_text(encoding="utf-8")
    for name in ("machine", "algorithms", "training"):
        assert f"scaling/{name}.svg" in page and (scaling.MEASURED / f"{name}.svg").stat().st_size < 100_000


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert scaling.main(["--only", "no such table"]) == 2
    assert "tables are machine, prices" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no <!-- prices -->"):
        pages.written("nothing", "prices", [])
