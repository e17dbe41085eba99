"""Times of collective ops between hosts: networks, algorithms as formulas, and the fastest algorithm.

A message of m bytes takes 2 * o + L + m / B: the sender is busy for o + m / B, then the receiver, L later, for as long.
A host sends and receives simultaneously, one message at a time in each direction (Hockney's model, with the overhead o
of LogP). N is a power of two. S is the larger buffer of a host: the operand, or the result of an all_gather.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from shlo_jit import tuning

REDUCED_BYTE = 1 / 10e9
"""Seconds to add a byte to another, for f32 in memory. Assumed."""
HOSTS = (8, 64, 1024)


class Network(NamedTuple):
    """Parameters of a network, in seconds and bytes per second."""

    name: str
    latency: float
    """Latency from one host's memory to the other's, without `overhead` on both sides."""
    overhead: float
    """Seconds that a host is busy with a message of any size."""
    bandwidth: float
    """Bandwidth of a host, in each direction."""

    def one(self, nbytes: float) -> float:
        """Seconds of a message that is waited for."""
        return self.latency + 2 * self.overhead + nbytes / self.bandwidth

    def all(self, count: int, nbytes: float) -> float:
        """Seconds of `count` messages from each host, to as many others, while as many arrive."""
        return count * (self.overhead + nbytes / self.bandwidth) + self.latency + self.overhead


NETWORKS = (
    Network("10 GbE", 25e-6, 3e-6, 1.25e9),
    Network("25 GbE", 15e-6, 2e-6, 3.125e9),
    Network("100 GbE RoCE", 2.5e-6, 0.5e-6, 12.5e9),
    Network("200 Gb InfiniBand", 1.0e-6, 0.25e-6, 25e9),
)
"""Assumed networks. Bandwidth is that of the line; latencies and overheads are typical of MPI ping-pongs.

They are tens of microseconds through the kernel's TCP, and one to three if the adapter reads memory itself.
"""

Formula = Callable[[Network, int, float], float]


def rounds(hosts: int) -> int:
    return int(math.log2(hosts))


def _rest(hosts: int) -> float:
    return (hosts - 1) / hosts


def ring(net: Network, hosts: int, s: float) -> float:
    """N - 1 rounds that each send a part."""
    return (hosts - 1) * net.one(s / hosts)


def doubling(net: Network, hosts: int, s: float) -> float:
    """log N rounds; the exchanged data doubles, or halves, from one to the next."""
    return rounds(hosts) * net.one(0) + s * _rest(hosts) / net.bandwidth


def tree(net: Network, hosts: int, s: float) -> float:
    """log N rounds that each send everything."""
    return rounds(hosts) * net.one(s)


def direct(net: Network, hosts: int, s: float) -> float:
    """Each host sends a part to every other host."""
    return net.all(hosts - 1, s / hosts)


def to_all(net: Network, hosts: int, s: float) -> float:
    """Each host, or the root, sends everything to every other host."""
    return net.all(hosts - 1, s)


def _reducing(formula: Formula, amount: Callable[[int], float], times: int = 1) -> Formula:
    return lambda net, hosts, s: times * formula(net, hosts, s) + amount(hosts) * s * REDUCED_BYTE


def bruck(net: Network, hosts: int, s: float) -> float:
    """log N rounds that each send half of everything."""
    return rounds(hosts) * net.one(s / 2)


def ours(op: str, inline_bytes: int = tuning.INLINE_MESSAGE_BYTES) -> Formula:
    """The algorithm of transport="mpi": data is sent directly to its readers, in an order without conflicts at targets.

    A message that is not small is two messages, the first of which announces the second.
    """

    def seconds(net: Network, hosts: int, s: float) -> float:
        others = hosts - 1
        small = (s / hosts if op == "all_gather" else s) <= inline_bytes
        reduced = {"all_reduce": others if small else _rest(hosts), "reduce_scatter": _rest(hosts)}.get(op, 0)
        whole = op == "broadcast" or (small and op != "all_gather")
        exchange = net.all(others, s if whole else s / hosts) + (0 if small else others * net.overhead)
        times = 2 if op == "all_reduce" and not small else 1
        return times * exchange + reduced * s * REDUCED_BYTE

    return seconds


ALGORITHMS: Mapping[str, Mapping[str, Formula]] = {
    "all_reduce": {
        "recursive doubling": _reducing(tree, rounds),
        "halving and doubling": _reducing(doubling, _rest, 2),
        "ring": _reducing(ring, _rest, 2),
        "tree, there and back": _reducing(tree, rounds, 2),
        "direct, in parts": _reducing(direct, _rest, 2),
        "everyone to everyone": _reducing(to_all, lambda hosts: hosts - 1),
    },
    "all_gather": {"recursive doubling": doubling, "ring": ring, "direct": direct},
    "reduce_scatter": {
        "recursive halving": _reducing(doubling, _rest),
        "ring": _reducing(ring, _rest),
        "direct": _reducing(direct, _rest),
    },
    "all_to_all": {"Bruck": bruck, "pairwise exchange": ring, "direct": direct},
    "broadcast": {
        "root to everyone": to_all,
        "tree": tree,
        "scattered, then doubling": lambda net, hosts, s: 2 * doubling(net, hosts, s),
        "scattered, then ring": lambda net, hosts, s: doubling(net, hosts, s) + ring(net, hosts, s),
    },
}
"""Algorithms of each op, by name. `collective_permute` is always one message."""


def cheapest(op: str, net: Network, hosts: int, nbytes: float) -> tuple[str, float]:
    """The fastest algorithm, and its seconds."""
    found = {name: formula(net, hosts, nbytes) for name, formula in ALGORITHMS[op].items()}
    name = min(found, key=found.__getitem__)
    return name, found[name]


def choices(op: str, net: Network, hosts: int, most: int = 1 << 30) -> list[tuple[int, str]]:
    """Minimum size, among powers of two from 4 bytes, for each algorithm to be the fastest."""
    found: list[tuple[int, str]] = []
    nbytes = 4
    while nbytes <= most:
        name, _ = cheapest(op, net, hosts, nbytes)
        if not found or found[-1][1] != name:
            found.append((nbytes, name))
        nbytes *= 2
    return found
